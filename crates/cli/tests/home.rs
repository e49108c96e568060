//! Receivers that listen do not write into home directories: who may push could log in as that user.

use std::{fs, os::unix::fs::symlink};

use crate::common::{Outcome, Place};

fn place() -> Place {
    let place = Place::with(10);
    place.write_private("secret", &place.run_words("secret").out);
    place
}

/// How a receiver with this `--dir` ends, with `home` as home directory. A directory that it takes lets it fail later: the
/// address is not one of this machine.
fn receive(place: &Place, directory: &str) -> Outcome {
    let listen = ["receive", "--listen", "192.0.2.1:1", "--secret-file", "secret", "--dir"];
    let mut command = place.rdmc(&[&listen[..], &[directory]].concat());
    Outcome::of(command.env("HOME", place.path("home")).output().unwrap())
}

#[test]
fn a_listener_refuses_a_home_directory_and_what_is_above_it() {
    let place = place();
    fs::create_dir_all(place.path("home/incoming")).unwrap();
    fs::create_dir_all(place.path("homes/user/.ssh/more")).unwrap();
    symlink("home", place.path("link")).unwrap();
    for directory in ["home", "home/", "home/incoming/..", "link", "."] {
        let outcome = receive(&place, directory);
        outcome.has_failed_with(2, "the home directory");
        assert!(outcome.err.contains("--dir"), "the remedy: {outcome:?}");
    }
    for directory in ["homes/user/.ssh", "homes/user/.ssh/more"] {
        receive(&place, directory).has_failed_with(2, "a .ssh directory");
    }
    for directory in ["home/incoming", "homes"] {
        receive(&place, directory).has_failed_with(1, "listening on 192.0.2.1:1");
    }
    // Of a user of this machine, whatever the variable says; files are written with root's rights alone.
    if rustix::process::geteuid().is_root() {
        receive(&place, "/root").has_failed_with(2, "the home directory of root");
    }
}

/// A push could create it, with files that take effect at its user's first login.
#[test]
fn a_listener_refuses_what_is_above_a_home_that_does_not_exist_yet() {
    let place = place();
    receive(&place, ".").has_failed_with(2, "the home directory");
    fs::create_dir(place.path("incoming")).unwrap();
    receive(&place, "incoming").has_failed_with(1, "listening on 192.0.2.1:1");
}

/// The link leads to what a push makes.
#[test]
fn a_listener_refuses_what_a_dangling_home_is_a_link_into() {
    let place = place();
    fs::create_dir_all(place.path("srv")).unwrap();
    symlink("srv/user", place.path("home")).unwrap();
    receive(&place, "srv").has_failed_with(2, "the home directory");
}

#[test]
fn a_listener_refuses_what_the_keys_of_a_home_are_a_link_to() {
    let place = place();
    fs::create_dir_all(place.path("home")).unwrap();
    fs::create_dir_all(place.path("srv/keys/more")).unwrap();
    fs::create_dir_all(place.path("srv/other")).unwrap();
    symlink("../srv/keys", place.path("home/.ssh")).unwrap();
    for directory in ["srv", "srv/keys", "srv/keys/more"] {
        receive(&place, directory).has_failed_with(2, "or its .ssh");
    }
    receive(&place, "srv/other").has_failed_with(1, "listening on 192.0.2.1:1");
    fs::remove_dir_all(place.path("srv/keys")).unwrap();
    receive(&place, "srv").has_failed_with(2, "or its .ssh");
}

/// A stream that goes to a program is written nowhere.
#[test]
fn a_listener_for_a_stream_starts_in_a_home_directory() {
    let place = place();
    let listen = ["receive", "--listen", "192.0.2.1:1", "--secret-file", "secret", "--stdout"];
    let mut command = place.rdmc(&listen);
    let outcome = Outcome::of(command.env("HOME", place.path(".")).output().unwrap());
    outcome.has_failed_with(1, "listening on 192.0.2.1:1");
}
