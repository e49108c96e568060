//! Receivers that join a push.

use std::{
    fs::{self, Permissions},
    io::{BufRead, BufReader},
    net::{TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    process::Child,
    thread,
};

use crate::common::{Listener, Outcome, Place, await_that, signal};

const SECRET: [&str; 2] = ["--secret-file", "secret"];

fn place(bytes: usize) -> Place {
    let place = Place::with(bytes);
    fs::write(place.path("secret"), place.run_words("secret").out).unwrap();
    fs::set_permissions(place.path("secret"), Permissions::from_mode(0o600)).unwrap();
    place
}

/// A port that is free now.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A receiver that joins at this port, where a root listens or not.
fn join(place: &Place, port: u16, directory: &str) -> Child {
    fs::create_dir_all(place.path(directory)).unwrap();
    let root = format!("127.0.0.1:{port}");
    let how = ["receive", "--join", &root, "--dir", directory, "--name", directory];
    place.rdmc(&[&how[..], &SECRET].concat()).spawn().unwrap()
}

fn outcome(child: Child) -> Outcome {
    Outcome::of(child.wait_with_output().unwrap())
}

#[test]
fn a_receiver_joins_in_the_middle() {
    let place = place(40_000_000);
    let listeners = ["one", "two"].map(|directory| Listener::start(&place, directory, &SECRET));
    let hosts = format!("127.0.0.1:{},localhost:{}", listeners[0].port, listeners[1].port);
    let port = free_port();
    let admit = format!("127.0.0.1:{port}");
    let push = ["push", "object", "--to", &hosts, "--admit", &admit, "--json"];
    let mut push = place.rdmc(&[&push[..], &SECRET].concat());
    let mut push = push.env("RUST_LOG", "files=debug").spawn().unwrap();
    place.await_bytes("one", 0);
    // The transfer cannot end while one receiver is stopped.
    signal(listeners[1].child.id(), "STOP");
    let three = join(&place, port, "three");
    let mut log = BufReader::new(push.stderr.take().unwrap()).lines().map_while(Result::ok);
    assert!(log.any(|line| line.contains("aborting a group")), "no group was replaced");
    signal(listeners[1].child.id(), "CONT");
    let drain = thread::spawn(move || log.for_each(drop));

    let three = outcome(three);
    assert_eq!(three.code, Some(0), "{three:?}");
    let push = outcome(push);
    drain.join().unwrap();
    assert_eq!(push.code, Some(0), "{push:?}");
    assert!(["one/object", "two/object", "three/object"].into_iter().all(|it| place.is_copy(it)));
    let summary: serde_json::Value = serde_json::from_str(&push.out).unwrap();
    assert_eq!(summary["hosts"][2]["host"], "three");
    assert_eq!(summary["hosts"][2]["state"], "published");
}

#[test]
fn refused_receivers_get_the_reason() {
    let place = place(1_000);
    let port = free_port();
    let admit = format!("127.0.0.1:{port}");
    // The push waits for a host that does not connect.
    let waits = ["--to", "nobody", "--launcher", "sh -c 'sleep 5' {host}", "--admit", &admit];
    let push = [&["push", "object"], &waits[..]].concat();
    let push = place.rdmc(&[&push[..], &SECRET].concat()).spawn().unwrap();
    await_that("the root listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    outcome(join(&place, port, "nobody"))
        .has_failed_with(1, "a host of this name already takes part");
    let one = join(&place, port, "one");
    // One of two with the same name is refused.
    let again = join(&place, port, "one");
    let outcomes = [outcome(one), outcome(again)];
    let codes = [outcomes[0].code, outcomes[1].code];
    assert!(codes == [Some(0), Some(1)] || codes == [Some(1), Some(0)], "{outcomes:?}");
    let refused = outcomes.iter().find(|outcome| outcome.code == Some(1)).unwrap();
    refused.has_failed_with(1, "a host of this name already takes part");
    assert!(place.is_copy("one/object"));
    outcome(push).has_failed_with(3, "nobody");
    outcome(join(&place, port, "late")).has_failed_with(1, "is one running?");
    place
        .run(&["push", "object", "--local", "1", "--admit", &admit])
        .has_failed_with(2, "required");
    place.run(&["receive", "--join", "here:1"]).has_failed_with(2, "required");
}
