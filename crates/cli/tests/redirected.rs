//! Pushes whose connections something between sends to another receiver.

use std::{
    fs::{self, Permissions},
    io,
    net::{Shutdown, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    thread,
};

use testing::Authority;

use crate::{
    certificates::{options, words},
    common::{Listener, Outcome, Place, await_that, signal},
};

fn place_with_secret() -> Place {
    let place = Place::with(100_000);
    fs::write(place.path("secret"), place.run_words("secret").out).unwrap();
    fs::set_permissions(place.path("secret"), Permissions::from_mode(0o600)).unwrap();
    place
}

/// Passes everything on to a port of this machine, as an attacker on the path can; returns the port where it listens.
fn forwarder(to: u16) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for near in listener.incoming().flatten() {
            let far = TcpStream::connect(("127.0.0.1", to)).unwrap();
            for (mut from, mut into) in [
                (near.try_clone().unwrap(), far.try_clone().unwrap()),
                (far.try_clone().unwrap(), near.try_clone().unwrap()),
            ] {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut into);
                    let _ = into.shutdown(Shutdown::Both);
                });
            }
        }
    });
    port
}

fn push(place: &Place, host: &str, port: u16) -> Outcome {
    let host = format!("{host}:{port}");
    place.run(&["push", "object", "--to", &host, "--secret-file", "secret"])
}

#[test]
fn another_receiver_of_the_same_secret_gets_nothing() {
    let place = place_with_secret();
    let mut other = Listener::start(&place, "other", &["--secret-file", "secret"]);
    let port = forwarder(other.port);
    let outcome = push(&place, "127.0.0.1", port);
    outcome.has_failed_with(1, "something in between redirects connections");
    assert!(outcome.err.contains("start the receiver with --name 127.0.0.1"), "{outcome:?}");
    assert_eq!(fs::read_dir(place.path("other")).unwrap().count(), 0);
    let said = other.next_line();
    assert!(said.contains("this push meant to reach the receiver at 127.0.0.1"), "{said}");
    assert_eq!(push(&place, "127.0.0.1", other.port).code, Some(0));
    assert!(place.is_copy("other/object"));
}

#[test]
fn a_receiver_with_names_is_reached_by_these_only() {
    let place = place_with_secret();
    let more = ["--secret-file", "secret", "--name", "node1", "--name", "LocalHost"];
    let named = Listener::start(&place, "named", &more);
    push(&place, "127.0.0.1", named.port)
        .has_failed_with(1, "another receiver has answered: node1, LocalHost");
    assert_eq!(fs::read_dir(place.path("named")).unwrap().count(), 0);
    // Another port is another receiver of that host, unless a name has the port.
    push(&place, "localhost", forwarder(named.port))
        .has_failed_with(1, "also give it --name localhost:");
    assert_eq!(push(&place, "localhost", named.port).code, Some(0));
    assert!(place.is_copy("named/object"));
}

#[test]
fn a_certificate_says_who_a_receiver_is() {
    let (place, authority) = (place_with_secret(), Authority::new("one"));
    let receiver = options(&authority.issue("127.0.0.1"));
    let listener = Listener::start(&place, "in", &words(&["--allow", "login1"], &receiver));
    let host = format!("127.0.0.1:{}", forwarder(listener.port));
    let root = options(&authority.issue("login1"));
    let outcome = place.run(&words(&["push", "object", "--to", &host], &root));
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    drop(listener);
    let mut named = Listener::start(&place, "named", &words(&["--name", "node1"], &receiver));
    let host = format!("127.0.0.1:{}", named.port);
    place
        .run(&words(&["push", "object", "--to", &host], &root))
        .has_failed_with(1, "another receiver has answered: node1");
    assert!(named.next_line().contains("(certificate of login1)"));
}

#[test]
fn a_receiver_joins_no_other_push_of_the_same_secret() {
    let place = place_with_secret();
    fs::create_dir(place.path("in")).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = free.local_addr().unwrap().port();
    drop(free);
    let admit = format!("127.0.0.1:{port}");
    // The push waits for a host that does not connect.
    let waits = ["--to", "nobody", "--launcher", "sh -c 'sleep 5' {host}", "--admit", &admit];
    let secret = ["--secret-file", "secret"];
    let push = [&["push", "object"], &waits[..], &secret].concat();
    let mut push = place.rdmc(&push).spawn().unwrap();
    await_that("the root listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let root = format!("127.0.0.1:{}", forwarder(port));
    let join = ["receive", "--join", &root, "--dir", "in"];
    place
        .run(&[&join[..], &secret].concat())
        .has_failed_with(1, "something in between redirects connections");
    assert_eq!(fs::read_dir(place.path("in")).unwrap().count(), 0);
    signal(push.id(), "TERM");
    push.wait().unwrap();
}
