//! Hosts and destinations as users write them for ssh, scp and rsync.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
};

use crate::common::{Listener, Outcome, Place, RDMC};

/// `rdmc push`; each host's home is the directory `home-HOST` of the place.
fn push(place: &Place, hosts: &str, dest: &str, more: &[&str]) -> Outcome {
    let launcher = format!("env HOME={}/home-{{host}}", place.directory.path().display());
    let how = ["push", "object", "--to", hosts, "--dest", dest, "--launcher", &launcher];
    let own = ["--remote-rdmc", RDMC, "--advertise", "127.0.0.1"];
    place.run(&[&how[..], &own, more].concat())
}

#[test]
fn addresses_may_be_in_brackets() {
    let place = Place::with(1000);
    let dest = place.path("{host}").to_str().unwrap().to_owned();
    let pushed = push(&place, "[::1],me@[::2],[fe80::1%eth0]", &dest, &[]);
    assert_eq!((pushed.code, pushed.err.as_str()), (Some(0), ""), "{pushed:?}");
    for name in ["::1", "me@::2", "fe80::1%eth0"] {
        assert!(place.is_copy(name), "{name}: {pushed:?}");
    }
    push(&place, "[::1],::1", &dest, &[]).has_failed_with(2, "host ::1 is named twice");
}

#[test]
fn a_tilde_is_the_home_directory_at_the_host() {
    let place = Place::with(1000);
    for host in ["a", "b"] {
        fs::create_dir(place.path(&format!("home-{host}"))).unwrap();
    }
    let pushed = push(&place, "a,b", "~/new/", &["--mkdir"]);
    assert_eq!((pushed.code, pushed.err.as_str()), (Some(0), ""), "{pushed:?}");
    assert!(place.is_copy("home-a/new/object") && place.is_copy("home-b/new/object"));
    assert!(!place.path("~").exists());
    let stream = ["push", "-", "--local", "1", "--dest", "~/stream"];
    let mut local = place.rdmc(&stream);
    local.env("HOME", place.path("home-a"));
    let local = Outcome::of(local.output().unwrap());
    assert_eq!(local.code, Some(0), "{local:?}");
    assert!(place.path("home-a/stream").exists() && !place.path("~").exists());
    push(&place, "a", "./~", &[]);
    assert!(place.is_copy("~"), "a name like any other");
}

#[test]
fn words_in_braces_that_stand_for_nothing_are_refused() {
    let place = Place::with(1000);
    push(&place, "a", "{hots}/x", &[]).has_failed_with(2, "{hots} is not known; {host} stands for");
    push(&place, "a", "x{1}", &[]);
    assert!(place.is_copy("x{1}"), "a name like any other");
}

#[test]
fn other_homes_are_refused_with_the_remedy() {
    let place = Place::with(1000);
    push(&place, "a", "~root/x", &[]).has_failed_with(2, "~root/x: only ~/ is supported");
    let secret = place.run_words("secret");
    fs::write(place.path("secret"), secret.out).unwrap();
    fs::set_permissions(place.path("secret"), Permissions::from_mode(0o600)).unwrap();
    let listener = Listener::start(&place, "below", &["--secret-file", "secret"]);
    let to = format!("127.0.0.1:{}", listener.port);
    push(&place, &to, "~/x", &["--secret-file", "secret"])
        .has_failed_with(2, "below its own --dir");
}

#[test]
fn a_receiver_without_a_root_names_the_options_for_people() {
    let place = Place::with(1);
    for words in ["receive", "receive --dir ."] {
        let refused = place.run_words(words);
        refused.has_failed_with(2, "needs --listen IP:PORT, or --join HOST:PORT");
        assert!(!refused.err.contains("--session"), "{refused:?}");
    }
}

#[test]
fn habits_of_scp_and_ssh_have_hints() {
    let place = Place::with(10);
    let path = push(&place, "a:/srv/x,b", "x", &[]);
    path.has_failed_with(
        2,
        "\"a:/srv/x\" has a path: give only the host, and the path with --dest",
    );
    push(&place, "me@a:x", "x", &[]).has_failed_with(2, "a path goes into --dest");
    push(&place, "a:2222", "x", &[]).has_failed_with(2, "to use another port for ssh");
}
