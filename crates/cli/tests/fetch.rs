//! Hosts that fetch from servers.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStderr},
};

use crate::common::{Outcome, Place, await_that, signal};

const SECRET: [&str; 2] = ["--secret-file", "secret"];

fn place(bytes: usize) -> Place {
    let place = Place::with(bytes);
    place.write_private("secret", &place.run_words("secret").out);
    fs::create_dir(place.path("served")).unwrap();
    fs::rename(place.path("object"), place.path("served/object")).unwrap();
    place
}

/// A server of `served`; killed when dropped.
struct Server {
    child: Child,
    port: String,
    said: BufReader<ChildStderr>,
}

impl Server {
    fn start(place: &Place, more: &[&str]) -> Self {
        let serve = ["serve", "served", "--listen", "127.0.0.1:0"];
        let mut child = place.rdmc(&[&serve[..], &SECRET, more].concat()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        let address = line.split_whitespace().nth(3).expect(&line);
        let port = address.rsplit(':').next().unwrap().to_owned();
        Self { child, port, said }
    }

    fn origin(&self, path: &str) -> String {
        format!("127.0.0.1:{}:{path}", self.port)
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn fetch(&self, place: &Place, path: &str, to: &str, more: &[&str]) -> Child {
        let fetch = ["fetch", &self.origin(path), to];
        place.rdmc(&[&fetch[..], &SECRET, more].concat()).spawn().unwrap()
    }

    /// Waits for a line with these words; returns it.
    fn await_line(&mut self, words: &str) -> String {
        let mut lines = self.said.by_ref().lines().map_while(Result::ok);
        lines.find(|line| line.contains(words)).unwrap_or_else(|| panic!("no line with {words:?}"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn outcome(child: Child) -> Outcome {
    Outcome::of(child.wait_with_output().unwrap())
}

#[test]
fn hosts_fetch_at_any_time_and_say_what_they_have() {
    let place = place(3_000_000);
    let mut server = Server::start(&place, &[]);
    let all: Vec<Child> =
        (0..3).map(|host| server.fetch(&place, "object", &format!("copy-{host}"), &[])).collect();
    for (host, fetching) in all.into_iter().enumerate() {
        let outcome = outcome(fetching);
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert!(outcome.out.starts_with(&format!("copy-{host}, 2.86 MiB, ")), "{outcome:?}");
        assert!(place.is_copy(&format!("copy-{host}")));
    }
    server.await_line("sent from here");
    // Into a directory, by its path at the server.
    fs::create_dir(place.path("into")).unwrap();
    let path = place.path("served/object").canonicalize().unwrap();
    let json = outcome(server.fetch(&place, path.to_str().unwrap(), "into/", &["--json"])).json();
    assert_eq!((&json["path"], &json["exit_code"]), (&"into/object".into(), &0.into()));
    assert_eq!((&json["bytes"], &json["server"]), (&3_000_000.into(), &server.address().into()));
    assert_eq!(json["digest"], blake3::hash(&place.contents).to_hex().as_str());
    assert!(place.is_copy("into/object"));
    assert_eq!(place.temporaries(), Vec::<&Path>::new());
    signal(server.child.id(), "TERM");
    assert_eq!(server.child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_directory_is_fetched_and_later_what_is_new() {
    let place = place(100_000);
    fs::create_dir_all(place.path("served/tree/in")).unwrap();
    fs::rename(place.path("served/object"), place.path("served/tree/in/object")).unwrap();
    let mut server = Server::start(&place, &[]);
    for new in ["one", "two"] {
        fs::write(place.path("served/tree").join(new), new).unwrap();
        let outcome = outcome(server.fetch(&place, "tree", "copy", &[]));
        assert_eq!(outcome.code, Some(0), "{outcome:?}");
        assert_eq!(fs::read(place.path("copy").join(new)).unwrap(), new.as_bytes());
    }
    assert!(place.is_copy("copy/in/object"));
    let first = server.await_line("sent from here");
    assert!(first.contains("1 copy, 97.7 KiB sent from here"), "{first}");
    let second = server.await_line("sent from here");
    assert!(second.contains("1 copy, 97.7 KiB sent from here"), "the chunk has both: {second}");
}

#[test]
fn another_server_goes_on_where_one_was_lost() {
    let place = place(20_000_000);
    let slow = Server::start(&place, &["--bwlimit", "40mbit"]);
    let other = Server::start(&place, &[]);
    let fetching = slow.fetch(&place, "object", "copy", &["--from", &other.address(), "--json"]);
    place.await_bytes("copy", 0);
    drop(slow);
    let json = outcome(fetching).json();
    assert_eq!(json["server"], other.address());
    assert!(place.is_copy("copy"));
    drop(other);
    // Nobody is left.
    let gone = "127.0.0.1:1:object";
    let fetch = [&["fetch", gone, "none"][..], &SECRET].concat();
    place.run(&fetch).has_failed_with(1, "does `rdmc serve` run there?");
}

#[test]
fn a_host_that_shares_prints_its_result_and_goes_on_until_it_is_told_to_end() {
    let place = place(500_000);
    let mut server = Server::start(&place, &[]);
    let first = server.fetch(&place, "object", "first", &["--share", "3600", "--name", "first"]);
    await_that("the copy is there", || place.is_copy("first"));
    server.await_line("first has");
    let second = outcome(server.fetch(&place, "object", "second", &[]));
    assert_eq!(second.code, Some(0), "{second:?}");
    signal(first.id(), "TERM");
    let first = outcome(first);
    assert_eq!((first.code, first.out.starts_with("first, ")), (Some(0), true), "{first:?}");
    let line = server.await_line("sent from here");
    assert!(line.contains("2 copies, 488 KiB sent from here"), "{line}");
}

#[test]
fn what_cannot_be_fetched_says_why() {
    let place = place(1_000);
    let server = Server::start(&place, &[]);
    let refused = |path: &str, to: &str, more: &[&str], code: i32, words: &str| {
        outcome(server.fetch(&place, path, to, more)).has_failed_with(code, words);
        assert!(!place.path("copy").exists());
    };
    refused("../secret", "copy", &[], 1, "leads out of what is served");
    refused("none", "copy", &[], 1, "no such file or directory");
    refused("object", "copy", &["--max-size", "10"], 1, "larger --max-size");
    refused("object", "missing/copy", &[], 1, "missing");
    refused("object", "served", &[], 1, "directory");
    refused("..", "into/", &[], 2, "has no name of its own");
    place.run(&["fetch", &server.origin("object"), "copy"]).has_failed_with(2, "--secret-file");
    place.run(&["fetch", "object", "copy"]).has_failed_with(2, "use HOST:PATH");
    place.run(&["serve", "served"]).has_failed_with(2, "--secret-file");
    place.run(&[&["serve", "none"][..], &SECRET].concat()).has_failed_with(1, "none");
    // The other secret.
    place.write_private("secret", &place.run_words("secret").out);
    refused("object", "copy", &[], 1, "does `rdmc serve` run there?");
}
