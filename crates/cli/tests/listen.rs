//! Receivers that listen, for hosts without a launcher.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, symlink},
};

use crate::common::{Listener, Outcome, Place, RDMC, signal};

const SECRET: [&str; 2] = ["--secret-file", "secret"];

fn listener(place: &Place, directory: &str, more: &[&str]) -> Listener {
    Listener::start(place, directory, &[&SECRET[..], more].concat())
}

fn place_with_secret(bytes: usize) -> Place {
    let place = Place::with(bytes);
    let secret = place.run_words("secret");
    assert_eq!(secret.out.trim().len(), 64, "{secret:?}");
    fs::write(place.path("secret"), secret.out).unwrap();
    fs::set_permissions(place.path("secret"), Permissions::from_mode(0o600)).unwrap();
    place
}

/// Also with `--once`: unauthenticated peers do not count as the awaited push.
#[test]
fn silent_connections_delay_no_push() {
    let place = place_with_secret(300_000);
    let mut listener = listener(&place, "one", &["--once"]);
    let silent: Vec<_> = (0..40)
        .map(|_| std::net::TcpStream::connect(("127.0.0.1", listener.port)).unwrap())
        .collect();
    let hosts = format!("127.0.0.1:{}", listener.port);
    let arguments =
        ["push", "object", "--to", &hosts, "--secret-file", "secret", "--protect", "encrypt"];
    let outcome = place.run(&[&arguments[..], &["--timeout", "9"]].concat());
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(place.is_copy("one/object"));
    assert!(listener.child.wait().unwrap().success());
    drop(silent);
}

#[test]
fn listeners_and_launched_receivers_take_part_in_one_push() {
    let place = place_with_secret(500_000);
    let (one, two) = (listener(&place, "one", &[]), listener(&place, "two", &[]));
    fs::create_dir(place.path("sub")).unwrap();
    let hosts = format!("127.0.0.1:{},localhost:{}", one.port, two.port);
    let push = ["push", "object", "--to", &hosts, "--secret-file", "secret"];
    let outcome = place.run(&push);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(place.is_copy("one/object") && place.is_copy("two/object"));

    // Again, with a third that is launched: one destination has to suit all.
    let hosts = format!("{hosts},sub");
    let outcome = place.run(&[
        "push",
        "object",
        "--to",
        &hosts,
        "--secret-file",
        "secret",
        "--dest",
        "sub/../again",
        "--launcher",
        "env HOST={host}",
        "--remote-rdmc",
        RDMC,
        "--advertise",
        "127.0.0.1",
    ]);
    outcome.has_failed_with(3, "writes only below its own directory");
    assert!(place.is_copy("again"), "the launched one may write anywhere");
    let script = place.path("keep-invitation");
    fs::write(&script, format!("#!/bin/sh\ntee invitation | {RDMC} \"$@\"\n")).unwrap();
    fs::set_permissions(&script, Permissions::from_mode(0o700)).unwrap();
    let script = script.to_str().unwrap();
    let outcome = place.run(&[
        "push",
        "object",
        "--to",
        &hosts,
        "--secret-file",
        "secret",
        "--dest",
        "third",
        "--launcher",
        "env HOST={host}",
        "--remote-rdmc",
        script,
        "--advertise",
        "127.0.0.1",
    ]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(["one/third", "two/third", "third"].into_iter().all(|copy| place.is_copy(copy)));
    // A host that is started for one push cannot push to those that listen.
    let (invitation, secret) = (place.path("invitation"), place.path("secret"));
    let (invitation, secret) =
        [invitation, secret].map(|path| fs::read_to_string(path).unwrap()).into();
    assert!(invitation.contains("secret") && !invitation.contains(secret.trim()));
}

#[test]
fn a_listener_rejects_unauthenticated_peers() {
    let place = place_with_secret(10);
    let mut listener = listener(&place, "in", &["--once"]);
    let host = format!("127.0.0.1:{}", listener.port);
    place.write_private("other", &place.run_words("secret").out);
    place
        .run(&["push", "object", "--to", &host, "--secret-file", "other"])
        .has_failed_with(1, "secret");
    place.write_private("bad", "1234");
    place
        .run(&["push", "object", "--to", &host, "--secret-file", "bad"])
        .has_failed_with(2, "64 hexadecimal digits");
    assert_eq!(fs::read_dir(place.path("in")).unwrap().count(), 0);
    // The rejected peer did not count as the awaited push.
    let outcome = place.run(&["push", "object", "--to", &host, "--secret-file", "secret"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(listener.child.wait().unwrap().success());
    place
        .run(&["push", "object", "--to", &host, "--secret-file", "secret"])
        .has_failed_with(1, "cannot connect");
}

#[test]
fn a_listener_writes_only_below_its_directory() {
    let place = place_with_secret(1000);
    let listener = listener(&place, "in", &[]);
    fs::create_dir(place.path("outside")).unwrap();
    fs::create_dir(place.path("in/sub")).unwrap();
    symlink("../outside", place.path("in/far")).unwrap();
    symlink("sub", place.path("in/near")).unwrap();
    symlink("../outside/victim", place.path("in/link")).unwrap();
    fs::write(place.path("outside/victim"), "precious").unwrap();
    let pipe = std::process::Command::new("mkfifo").arg(place.path("in/pipe")).status().unwrap();
    assert!(pipe.success());
    let host = format!("127.0.0.1:{}", listener.port);
    let to = |dest: &str| {
        place.run(&["push", "object", "--to", &host, "--secret-file", "secret", "--dest", dest])
    };
    for (dest, words) in [
        ("../outside/a", "give --dest a relative path"),
        ("/tmp/a", "give --dest a relative path"),
        ("far/a", "leads out of this receiver's directory"),
        ("missing/a", "does not exist; create it first"),
        ("pipe", "not a regular file"),
        ("pipe/a", "cannot write in"),
        ("sub", "is a directory"),
        ("a\u{1b}[2J", "has the character U+001B"),
        ("gpj\u{202e}.a", "has the character U+202E"),
        (&"n".repeat(256), "has 256 bytes, at most 255"),
        (".a.rdmc-0123456789ab", "temporary file of rdmc"),
    ] {
        let outcome = to(dest);
        outcome.has_failed_with(1, words);
        assert!(!outcome.err.contains(['\u{1b}', '\u{202e}']), "{outcome:?}");
    }
    for dest in ["near/a", "link", "./b"] {
        let outcome = to(dest);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
    }
    assert!(["in/sub/a", "in/link", "in/b"].into_iter().all(|copy| place.is_copy(copy)));
    assert_eq!(fs::read(place.path("outside/victim")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(place.path("outside")).unwrap().count(), 1);
    assert!(place.temporaries().is_empty());
}

#[test]
fn a_listener_refuses_what_is_too_long_for_it() {
    let place = place_with_secret(1001);
    let listener = listener(&place, "in", &["--max-size", "1000", "--bench"]);
    let host = format!("127.0.0.1:{}", listener.port);
    let push = ["push", "object", "--to", &host, "--secret-file", "secret"];
    place
        .run(&push)
        .has_failed_with(1, "accepts at most 1000 B; start it with a larger --max-size");
    place
        .run(&["bench", "--to", &host, "--secret-file", "secret", "--size", "2KiB"])
        .has_failed_with(3, "accepts at most 1000 B");
    // Holes count, which are not sent.
    fs::create_dir(place.path("sparse")).unwrap();
    fs::File::create(place.path("sparse/f")).unwrap().set_len(1 << 30).unwrap();
    for source in ["sparse", "sparse/f"] {
        let push = ["push", source, "--to", &host, "--secret-file", "secret"];
        place.run(&push).has_failed_with(1, "offers 1 GiB, but this receiver accepts at most");
    }
    let several = ["push", "sparse", "object", "--to", &host, "--secret-file", "secret"];
    let several = [&several[..], &["--dest", "new"]].concat();
    place.run(&several).has_failed_with(1, "this receiver accepts at most 1000 B");
    assert_eq!(fs::read_dir(place.path("in")).unwrap().count(), 0);
    fs::write(place.path("object"), &place.contents[..1000]).unwrap();
    let outcome = place.run(&push);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
}

#[test]
fn a_listener_refuses_less_protection_than_it_accepts() {
    let place = place_with_secret(1000);
    let strict = listener(&place, "strict", &["--protect", "encrypt", "--bench"]);
    let host = format!("127.0.0.1:{}", strict.port);
    let bare = ["--protect", "none"];
    let push = |host: &str, more: &[&str]| {
        let push = ["push", "object", "--to", host, "--secret-file", "secret"];
        place.run(&[&push[..], more].concat())
    };
    let outcome = push(&host, &bare);
    outcome.has_failed_with(
        1,
        "accepts blocks with --protect encrypt, but the push has --protect none",
    );
    assert!(outcome.err.contains(&host), "{outcome:?}");
    outcome.has_failed_with(1, "start the receiver with --protect none");
    assert_eq!(fs::read_dir(place.path("strict")).unwrap().count(), 0);
    // By default a push encrypts.
    assert_eq!(push(&host, &[]).code, Some(0));
    // Where nothing leaves the machine nothing has to be protected, unless the receiver says so.
    let local = listener(&place, "local", &[]);
    assert_eq!(push(&format!("127.0.0.1:{}", local.port), &bare).code, Some(0));
    // Streams and benches are held to the same.
    let bench = ["bench", "--to", &host, "--secret-file", "secret", "--size", "1KiB"];
    place
        .run(&[&bench[..], &bare].concat())
        .has_failed_with(1, "accepts blocks with --protect encrypt");
    push(&host, &["--failure-deadline", "3600"]).has_failed_with(1, "above 300 s");
}

#[test]
fn one_root_does_not_take_all_places_and_benches_are_a_choice() {
    let place = place_with_secret(1000);
    let mut busy = listener(&place, "in", &[]);
    let host = format!("127.0.0.1:{}", busy.port);
    let push = ["push", "object", "--to", &host, "--secret-file", "secret"];
    place
        .run(&["bench", "--to", &host, "--secret-file", "secret", "--size", "1KiB"])
        .has_failed_with(1, "takes no part in measurements; start it with --bench");
    assert!(busy.next_line().contains("takes no part in measurements"));
    let process = busy.child.id();
    let sessions = || {
        let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap().flatten();
        let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        names.filter(|name| name.trim() == "rdmc-session").count()
    };
    crate::common::await_that("the bench's session ends", || sessions() == 0);
    // Each follows a file that nobody writes: the session stays, and makes no progress.
    let idle: Vec<_> = (0..16)
        .map(|number| {
            let name = format!("growing-{number}");
            fs::write(place.path(&name), "line").unwrap();
            let follow = ["push", &name, "--follow", "--follow-idle", "1000", "--to", &host];
            place.rdmc(&[&follow[..], &SECRET].concat()).spawn().unwrap()
        })
        .collect();
    crate::common::await_that("16 sessions run", || sessions() == 16);
    place.run(&push).has_failed_with(1, "16 pushes of this root are running here already");
    let said = busy.next_line();
    assert!(said.contains("refused a push from 127.0.0.1:"), "{said}");
    for mut push in idle {
        signal(push.id(), "TERM");
        push.wait().unwrap();
    }
    crate::common::await_that("a place is free", || place.run(&push).code == Some(0));
    assert!(place.is_copy("in/object"));
}

#[test]
fn a_listener_answers_its_peers_only() {
    let place = place_with_secret(1000);
    let push = |listener: &Listener, more: &[&str]| {
        let host = format!("127.0.0.1:{}", listener.port);
        let push = ["push", "object", "--to", &host, "--secret-file", "secret"];
        place.run(&[&push[..], more].concat())
    };
    let near = listener(&place, "near", &["--peers", "10.0.0.0/8,127.0.0.0/8"]);
    assert_eq!(push(&near, &[]).code, Some(0));
    let mut far = listener(&place, "far", &["--peers", "10.0.0.0/8"]);
    assert_eq!(push(&far, &["--timeout", "9"]).code, Some(1));
    let line = far.next_line();
    assert!(line.contains("rejected: 127.0.0.1:") && line.contains("allowed peers"), "{line}");
    assert!(!place.path("far/object").exists());
}

/// Peers that are not authenticated get a few lines a minute; the lines about copies are all there.
#[test]
fn the_log_of_a_listener_has_every_copy_and_few_lines_of_others() {
    let place = place_with_secret(1000);
    let mut busy = listener(&place, "in", &[]);
    fs::write(place.path("other"), place.run_words("secret").out).unwrap();
    let host = format!("127.0.0.1:{}", busy.port);
    let push = |secret| ["push", "object", "--to", &host, "--secret-file", secret];
    let bad = || {
        use std::io::{Read, Write};
        let mut peer = std::net::TcpStream::connect(("127.0.0.1", busy.port)).unwrap();
        let mut greeting = [0; 6];
        peer.read_exact(&mut greeting).unwrap();
        // A handshake record of TLS with an empty message of a kind that does not exist.
        peer.write_all(&[&greeting[..], &[22, 3, 1, 0, 4, 99, 0, 0, 0]].concat()).unwrap();
        let _ = peer.read_to_end(&mut Vec::new());
    };
    (0..50).for_each(|_| bad());
    assert_eq!(place.run(&push("secret")).code, Some(0));
    signal(busy.child.id(), "TERM");
    let mut lines = Vec::new();
    loop {
        match busy.next_line() {
            line if line.is_empty() => break,
            line => lines.push(line),
        }
    }
    let rejected = lines.iter().filter(|line| line.contains("rejected: 127.0.0.1:")).count();
    assert_eq!(rejected, 20, "{lines:?}");
    assert!(
        lines.iter().any(|line| line.contains("30 more connections were rejected")),
        "{lines:?}"
    );
    let digest = blake3::hash(&place.contents).to_hex();
    let copy =
        lines.iter().find(|line| line.contains("in/object\" of 1000 bytes")).expect("a line");
    assert!(copy.contains(digest.as_str()) && copy.contains("(by the secret)"), "{copy}");
}

#[test]
fn options_of_receivers_that_exclude_each_other_are_named() {
    let place = place_with_secret(1);
    let listen = ["receive", "--listen", "127.0.0.1:0", "--dir", ".", "--secret-file", "secret"];
    for (more, words) in [
        (
            &["--protect", "encrypt", "--fabric", "tcp,verbs"][..],
            "nothing encrypts blocks over verbs",
        ),
        (&["--fabric", "verbs:mlx5_0"], "the network's name without devices: verbs"),
        (&["--fabric", "tcp,a b"], "a libfabric provider such as verbs"),
        (&["--protect", "little"], "invalid value 'little'"),
    ] {
        place.run(&[&listen[..], more].concat()).has_failed_with(2, words);
    }
}

#[test]
fn a_listener_writes_a_trace_of_its_own() {
    let place = place_with_secret(100_000);
    let mut listener = listener(&place, "in", &["--once", "--trace", "trace.json"]);
    let host = format!("127.0.0.1:{}", listener.port);
    let outcome = place.run(&["push", "object", "--to", &host, "--secret-file", "secret"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(listener.child.wait().unwrap().success());
    let trace = fs::read(place.path("trace.json")).unwrap();
    let events: Vec<serde_json::Value> = serde_json::from_slice(&trace).unwrap();
    let name = &events[0]["args"]["name"];
    assert_eq!(name, "receiver 127.0.0.1:0", "{events:?}");
    assert!(events.iter().any(|event| event["cat"] == "receive" && event["name"] == "block 0"));
}

#[test]
fn a_listener_ends_on_a_signal() {
    let place = place_with_secret(10);
    // SIGTERM is the usual end of a service; with `--once` it means that no push arrived.
    for (directory, more, name, code) in [
        ("a", &[][..], "TERM", 0),
        ("b", &[], "INT", 130),
        ("c", &[], "HUP", 130),
        ("d", &["--once"], "TERM", 130),
    ] {
        let mut listener = listener(&place, directory, more);
        signal(listener.child.id(), name);
        assert_eq!(listener.child.wait().unwrap().code(), Some(code), "{name} {more:?}");
    }
}

/// The signals of a reboot.
#[test]
fn received_data_survives_a_listener_ended_by_a_signal() {
    let place = place_with_secret(20 << 20);
    for more in [&["--once"][..], &[]] {
        let push = |listener: &Listener| {
            let host = format!("127.0.0.1:{}", listener.port);
            let to = ["push", "object", "--to", &host, "--secret-file", "secret", "--json"];
            place.rdmc(&[&to[..], &["--block-size", "1KiB"]].concat())
        };
        // On a busy machine a push may be over before the signal arrives: then there is another one.
        let interrupted = |attempt: u32| {
            let mut first = listener(&place, &format!("in{}-{attempt}", more.len()), more);
            let at = first.directory.clone();
            let running = push(&first).spawn().unwrap();
            place.await_bytes(&at, 3 << 20);
            signal(first.child.id(), "TERM");
            first.child.wait().unwrap();
            let lost = Outcome::of(running.wait_with_output().unwrap());
            (lost.code != Some(0)).then_some((at, lost))
        };
        let (at, lost) = (0..20).find_map(interrupted).expect("a push that was interrupted");
        assert_eq!(lost.code, Some(1), "{lost:?}");
        assert_eq!(place.temporaries().len(), 1, "{lost:?}");

        let second = Listener::again(&place, &at, &SECRET);
        let again = Outcome::of(push(&second).output().unwrap());
        assert_eq!(again.code, Some(0), "{again:?}");
        let resumed = again.json()["hosts"][0]["resumed_bytes"].as_u64().unwrap();
        assert!(resumed >= 2 << 20, "{resumed}");
        assert!(place.is_copy(&format!("{at}/object")) && place.temporaries().is_empty());
    }
}

#[test]
fn a_receiver_without_an_invitation_says_so() {
    let place = Place::with(10);
    place.run_words("receive --session").has_failed_with(1, "no invitation");
}

/// It ended the push for all, with a reason that named none.
#[test]
fn a_listener_that_refuses_its_relays_is_given_up_alone() {
    let place = place_with_secret(300_000);
    for refusing in 1..=3 {
        let listeners: Vec<Listener> = (1..=3)
            .map(|host| {
                let directory = format!("at{refusing}-{host}");
                fs::create_dir(place.path(&directory)).unwrap();
                let peers = if host == refusing { "127.0.0.1/32" } else { "127.0.0.0/8" };
                let more = [&SECRET[..], &["--peers", peers]].concat();
                Listener::at(&place, &format!("127.0.0.{}:0", host + 1), &directory, &more)
            })
            .collect();
        let to =
            |(host, listener): (usize, &Listener)| format!("127.0.0.{}:{}", host, listener.port);
        let hosts: Vec<String> = (2..).zip(&listeners).map(to).collect();
        let push = ["push", "object", "--to", &hosts.join(","), "--algorithm", "chain"];
        let outcome = place.run(&[&push[..], &SECRET].concat());
        outcome.has_failed_with(3, "this receiver accepts only --peers 127.0.0.1/32");
        let named = format!("127.0.0.{}", refusing + 1);
        let line = outcome.err.lines().find(|line| line.contains("accepts only --peers")).unwrap();
        assert!(line.contains(&named), "{outcome:?}");
        let is_foreign = !line.contains(&format!("and {named} is not one of them"));
        assert!(is_foreign, "its own address: {outcome:?}");
        for (host, listener) in (1..).zip(&listeners) {
            let is_copy = place.is_copy(&format!("{}/object", listener.directory));
            assert_eq!(is_copy, host != refusing, "{outcome:?}");
        }
    }
}
