//! Hosts that fetch from servers.

use std::{
    fs,
    io::{BufRead, BufReader, Read},
    path::Path,
    process::{Child, ChildStderr, Command},
};

use serde_json::Value;

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
    assert!(second.contains("1 copy, 33.7 KiB sent from here"), "the last chunk: {second}");
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
    // No server is left.
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
    let second = outcome(server.fetch(&place, "object", "second", &["--name", "second"]));
    assert_eq!(second.code, Some(0), "{second:?}");
    server.await_line("second has");
    let address = server.address();
    let status = |more: &[&str]| place.run(&[&["status", &address][..], &SECRET, more].concat());
    let text = status(&[]);
    assert!(text.out.contains("served/object, 488 KiB: 2 hosts\n"), "{text:?}");
    assert!(text.out.contains("  first   has a copy, and sends it to others\n"), "{text:?}");
    let json = status(&["--json"]).json();
    assert_eq!((&json["server"], &json["exit_code"]), (&server.address().into(), &0.into()));
    let object = &json["objects"][0];
    assert_eq!(object["bytes"], 500_000);
    for (host, name) in ["first", "second"].into_iter().enumerate() {
        let host = &object["hosts"][host];
        assert_eq!((&host["host"], &host["state"]), (&name.into(), &"published".into()));
        assert_eq!((&host["received_bytes"], &host["error"]), (&500_000.into(), &Value::Null));
    }
    assert_eq!(object["hosts"][0]["is_here"], true);
    // Another host keeps the session open while one that shares is killed.
    let third = ["--share", "3600", "--name", "third"];
    let third = server.fetch(&place, "object", "third", &third);
    server.await_line("third has");
    let lost = server.fetch(&place, "object", "lost", &["--share", "3600", "--name", "lost"]);
    server.await_line("lost has");
    signal(lost.id(), "KILL");
    outcome(lost);
    await_that("it counts as lost", || {
        status(&[]).out.contains("  lost    has a copy, and has left\n")
    });
    signal(third.id(), "TERM");
    outcome(third);
    signal(first.id(), "TERM");
    let first = outcome(first);
    assert_eq!((first.code, first.out.starts_with("first, ")), (Some(0), true), "{first:?}");
    let line = server.await_line("sent from here");
    assert!(line.contains("4 copies, 488 KiB sent from here"), "{line}");
    let status = place.run(&[&["status", &server.address()][..], &SECRET].concat());
    assert_eq!((status.code, &*status.out), (Some(0), "nothing is fetched\n"), "{status:?}");
}

#[test]
fn a_status_that_is_not_to_be_had_says_why() {
    let place = place(1_000);
    let server = Server::start(&place, &[]);
    place.run(&["status", &server.address()]).has_failed_with(2, "--secret-file");
    place.write_private("secret", &place.run_words("secret").out);
    let status = |address: &str| place.run(&[&["status", address][..], &SECRET].concat());
    status(&server.address()).has_failed_with(1, "does `rdmc serve` run there?");
    status("127.0.0.1:1").has_failed_with(1, "does `rdmc serve` run there?");
    status(":1").has_failed_with(2, "names no host");
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
    refused("object", ".", &[], 2, "end DEST with /");
    refused("object", "served/..", &[], 2, "end DEST with /");
    place.run(&["fetch", &server.origin("object"), "copy"]).has_failed_with(2, "--secret-file");
    place.run(&["fetch", "object", "copy"]).has_failed_with(2, "use HOST:PATH");
    place.run(&["serve", "served"]).has_failed_with(2, "--secret-file");
    place.run(&[&["serve", "none"][..], &SECRET].concat()).has_failed_with(1, "none");
    // The other secret.
    place.write_private("secret", &place.run_words("secret").out);
    refused("object", "copy", &[], 1, "does `rdmc serve` run there?");
}

#[test]
fn each_file_is_reported_once_as_soon_as_it_is_verified_whichever_server_sends_it() {
    let place = place(20_000_000);
    fs::create_dir_all(place.path("served/tree/in")).unwrap();
    fs::rename(place.path("served/object"), place.path("served/tree/second")).unwrap();
    let first = vec![7; 2 << 20];
    fs::write(place.path("served/tree/in/first"), &first).unwrap();
    fs::write(place.path("served/tree/empty"), "").unwrap();
    // The second takes more than half a minute.
    let slow = Server::start(&place, &["--bwlimit", "4mbit"]);
    let other = Server::start(&place, &[]);
    let more = ["--from", &other.address(), "--progress", "json", "--json"];
    let mut fetching = slow.fetch(&place, "tree", "copy", &more);
    let lines = BufReader::new(fetching.stderr.take().unwrap()).lines();
    let mut objects = lines.map(|line| serde_json::from_str::<Value>(&line.unwrap()).unwrap());
    let mut next_file = || objects.find(|object| object["event"] == "file");
    let (empty, object) = (next_file().unwrap(), next_file().unwrap());
    assert_eq!((&empty["path"], &empty["bytes"]), (&"empty".into(), &0.into()), "{empty}");
    assert_eq!((&object["schema"], &object["path"]), (&1.into(), &"in/first".into()), "{object}");
    let at = Path::new(object["at"].as_str().unwrap());
    assert!(fs::read(at).unwrap() == first && !place.path("copy").exists());
    assert_eq!(object["destination"].as_str(), place.path("copy/in/first").to_str());
    drop(slow);
    let rest: Vec<Value> = objects.collect();
    let files: Vec<&Value> = rest.iter().filter(|object| object["event"] == "file").collect();
    assert_eq!(files.len(), 1, "{rest:?}");
    assert_eq!((&files[0]["path"], &files[0]["bytes"]), (&"second".into(), &20_000_000.into()));
    let last = rest.last().unwrap();
    let bytes = Value::from(20_000_000 + first.len());
    assert_eq!((&last["event"], &last["phase"]), (&"progress".into(), &"done".into()), "{last}");
    assert_eq!((&last["bytes"], &last["received_bytes"]), (&bytes, &bytes), "{last}");
    assert_eq!(outcome(fetching).json()["server"], other.address());
    assert!(fs::read(place.path("copy/in/first")).unwrap() == first && !at.exists());
    // What is there already is the same file in the copy.
    let again = outcome(other.fetch(&place, "tree/second", "copy/second", &["--progress", "json"]));
    let files: Vec<&str> =
        again.err.lines().filter(|line| line.contains(r#""event":"file""#)).collect();
    let [file] = files[..] else { panic!("{again:?}") };
    let file: Value = serde_json::from_str(file).unwrap();
    assert_eq!((&file["path"], &file["at"]), (&"second".into(), &file["destination"]), "{file}");
    for words in [&["--progress", "none"][..], &["--progress", "json", "--quiet"]] {
        let outcome = outcome(other.fetch(&place, "tree", "copy", words));
        assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    }
}

/// Of programs that run the command.
#[test]
fn a_fetch_ends_with_the_process_that_it_watches() {
    let place = place(20_000_000);
    let slow = Server::start(&place, &["--bwlimit", "1mbit"]);
    let mut watched = Command::new("sleep").arg("3600").spawn().unwrap();
    let process = watched.id().to_string();
    let more = ["--json", "--progress", "json", "--end-with", &process];
    let fetching = slow.fetch(&place, "object", "copy", &more);
    place.await_bytes("copy", 0);
    watched.kill().unwrap();
    watched.wait().unwrap();
    let ended = outcome(fetching);
    assert_eq!((ended.code, &ended.json()["error"]), (Some(130), &"interrupted".into()));
    let last = ended.err.lines().rfind(|line| line.starts_with('{')).unwrap();
    let last: Value = serde_json::from_str(last).unwrap();
    assert_eq!(last["phase"], "ending", "{ended:?}");
    let number = ["--end-with", "0"];
    outcome(slow.fetch(&place, "object", "copy", &number)).has_failed_with(2, "not a process");
}
