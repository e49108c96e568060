//! Receivers that listen, for hosts without a launcher.

mod common;

use std::{
    fs,
    io::{BufRead, BufReader},
    process::Child,
};

use common::{Place, RDMC, signal};

/// A listening receiver with a directory of its own; ended when dropped.
struct Listener {
    child: Child,
    port: u16,
}

impl Listener {
    fn start(place: &Place, directory: &str, more: &[&str]) -> Self {
        fs::create_dir(place.path(directory)).unwrap();
        let arguments =
            ["receive", "--listen", "127.0.0.1:0", "--secret-file", "secret", "--dir", directory];
        let mut child = place.rdmc(&[&arguments[..], more].concat()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        let port = line.trim().rsplit(':').next().unwrap().parse().expect(&line);
        Self { child, port }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn place_with_secret(bytes: usize) -> Place {
    let place = Place::with(bytes);
    let secret = place.run_words("secret");
    assert_eq!(secret.out.trim().len(), 64, "{secret:?}");
    fs::write(place.path("secret"), secret.out).unwrap();
    place
}

#[test]
fn listeners_and_launched_receivers_take_part_in_one_push() {
    let place = place_with_secret(500_000);
    let (one, two) = (Listener::start(&place, "one", &[]), Listener::start(&place, "two", &[]));
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
        RDMC,
        "--advertise",
        "127.0.0.1",
    ]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(["one/third", "two/third", "third"].into_iter().all(|copy| place.is_copy(copy)));
}

#[test]
fn a_listener_takes_nothing_from_strangers() {
    let place = place_with_secret(10);
    let mut listener = Listener::start(&place, "in", &["--once"]);
    let host = format!("127.0.0.1:{}", listener.port);
    fs::write(place.path("other"), place.run_words("secret").out).unwrap();
    place
        .run(&["push", "object", "--to", &host, "--secret-file", "other"])
        .has_failed_with(1, "secret");
    fs::write(place.path("bad"), "1234").unwrap();
    place
        .run(&["push", "object", "--to", &host, "--secret-file", "bad"])
        .has_failed_with(1, "64 hexadecimal digits");
    assert_eq!(fs::read_dir(place.path("in")).unwrap().count(), 0);
    // The stranger was not the one push that it waits for.
    let outcome = place.run(&["push", "object", "--to", &host, "--secret-file", "secret"]);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(listener.child.wait().unwrap().success());
    place
        .run(&["push", "object", "--to", &host, "--secret-file", "secret"])
        .has_failed_with(1, "cannot connect");
}

#[test]
fn a_listener_writes_a_trace_of_its_own() {
    let place = place_with_secret(100_000);
    let mut listener = Listener::start(&place, "in", &["--once", "--trace", "trace.json"]);
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
    let mut listener = Listener::start(&place, "in", &[]);
    signal(listener.child.id(), "TERM");
    assert_eq!(listener.child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_receiver_without_an_invitation_says_so() {
    let place = Place::with(10);
    place.run_words("receive --session").has_failed_with(1, "no invitation");
}
