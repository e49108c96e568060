//! `rdmc push -`, `--follow`, and `rdmc receive --stdout`.

use std::{
    fs,
    io::{Read, Write},
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
    thread,
};

use crate::common::{Listener, Outcome, Place, await_that, signal};

fn with_secret() -> Place {
    let place = Place::with(3_000_000);
    let secret = place.run(&["secret"]).out;
    fs::write(place.path("secret"), secret).unwrap();
    fs::set_permissions(place.path("secret"), fs::Permissions::from_mode(0o600)).unwrap();
    place
}

/// Starts a push whose standard input is open.
fn start(place: &Place, words: &str) -> Child {
    let words: Vec<&str> = words.split_whitespace().collect();
    place.rdmc(&words).stdin(Stdio::piped()).spawn().unwrap()
}

fn ended(child: Child) -> Outcome {
    Outcome::of(child.wait_with_output().unwrap())
}

#[test]
fn standard_input_becomes_files_on_all_hosts() {
    let place = Place::with(3_000_000);
    let mut push = start(&place, "push - --local 3 --dest copies/{host}");
    fs::create_dir(place.path("copies")).unwrap();
    push.stdin.take().unwrap().write_all(&place.contents).unwrap();
    let outcome = ended(push);
    assert_eq!((outcome.code, outcome.err.as_str()), (Some(0), ""), "{outcome:?}");
    assert!(outcome.out.starts_with("2.86 MiB in a stream to 3 hosts in "), "{outcome:?}");
    assert!((1..=3).all(|host| place.is_copy(&format!("copies/local-{host}"))));
    assert!(place.temporaries().is_empty());
    let mut push = start(&place, "push - --local 1 --json");
    drop(push.stdin.take());
    let outcome = ended(push);
    assert_eq!(outcome.json()["hosts"][0]["state"], "published", "{outcome:?}");
    assert_eq!(outcome.json()["digest"], blake3::hash(b"").to_string());
    assert_eq!(fs::read(place.path("rdmc-local/local-1/stream")).unwrap(), b"");
}

#[test]
fn a_stream_goes_from_program_to_program() {
    let place = with_secret();
    fs::create_dir(place.path("unpacked")).unwrap();
    let mut to_tar = Listener::with_output(&place, &["--secret-file", "secret"]);
    let to_file = Listener::start(&place, "incoming", &["--secret-file", "secret", "--once"]);
    let tar = Command::new("tar")
        .args(["x", "-C"])
        .arg(place.path("unpacked"))
        .stdin(to_tar.child.stdout.take().unwrap())
        .spawn()
        .unwrap();
    let mut packed = Command::new("tar")
        .args(["c", "object"])
        .current_dir(place.directory.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", to_tar.port, to_file.port);
    let push = place
        .rdmc(&["push", "-", "--to", &hosts, "--secret-file", "secret", "--dest", "tree.tar"])
        .stdin(packed.stdout.take().unwrap())
        .spawn()
        .unwrap();
    let outcome = ended(push);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(packed.wait().unwrap().success());
    assert!(tar.wait_with_output().unwrap().status.success());
    assert!(to_tar.child.wait().unwrap().success());
    assert!(place.is_copy("unpacked/object"));
    assert!(fs::metadata(place.path("incoming/tree.tar")).unwrap().len() > 3_000_000);
}

#[test]
fn files_are_refused_where_a_stream_is_expected() {
    let place = with_secret();
    let listener = Listener::with_output(&place, &["--secret-file", "secret"]);
    let host = format!("127.0.0.1:{}", listener.port);
    let outcome = place.run(&["push", "object", "--to", &host, "--secret-file", "secret"]);
    outcome.has_failed_with(1, "this receiver writes a stream to its output");
}

#[test]
fn a_growing_file_is_followed_until_it_is_closed() {
    let place = Place::with(0);
    let mut log = fs::File::create(place.path("log")).unwrap();
    log.write_all(b"one\n").unwrap();
    let push = start(&place, "push log --follow --local 2 --dest copies/{host}");
    fs::create_dir(place.path("copies")).unwrap();
    await_that("what is there has arrived", || {
        place.temporaries().iter().any(|path| fs::metadata(path).is_ok_and(|file| file.len() == 4))
    });
    log.write_all(b"two\n").unwrap();
    drop(log);
    let outcome = ended(push);
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(fs::read(place.path("copies/local-2")).unwrap(), b"one\ntwo\n");
}

#[test]
fn an_interrupted_stream_leaves_nothing_and_says_how_much_is_everywhere() {
    let place = Place::with(200_000);
    let mut push = start(&place, "push - --local 2 --dest copies/{host}");
    fs::create_dir(place.path("copies")).unwrap();
    let mut input = push.stdin.take().unwrap();
    input.write_all(&place.contents).unwrap();
    await_that("it has arrived", || {
        let files = place.temporaries();
        let has_all =
            |path: &std::path::PathBuf| fs::metadata(path).is_ok_and(|file| file.len() == 200_000);
        files.iter().filter(|path| has_all(path)).count() == 2
    });
    signal(push.id(), "INT");
    let outcome = ended(push);
    assert_eq!(outcome.code, Some(130), "{outcome:?}");
    assert!(outcome.err.contains("interrupted"), "{outcome:?}");
    await_that("receivers have ended", || place.temporaries().is_empty());
    assert!(!place.path("copies/local-1").exists());
    drop(input);
}

#[test]
fn a_consumer_that_ends_fails_its_host_only() {
    let place = with_secret();
    let mut dying = Listener::with_output(&place, &["--secret-file", "secret"]);
    let to_file = Listener::start(&place, "incoming", &["--secret-file", "secret", "--once"]);
    let mut output = dying.child.stdout.take().unwrap();
    let reading = thread::spawn(move || {
        let mut some = [0; 1000];
        output.read_exact(&mut some).unwrap();
    });
    let hosts = format!("127.0.0.1:{},127.0.0.1:{}", dying.port, to_file.port);
    let mut push = place
        .rdmc(&["push", "-", "--to", &hosts, "--secret-file", "secret", "--dest", "copy"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = push.stdin.take().unwrap();
    input.write_all(&place.contents[..2_000_000]).unwrap();
    reading.join().unwrap();
    input.write_all(&place.contents[2_000_000..]).unwrap();
    drop(input);
    let outcome = ended(push);
    outcome.has_failed_with(3, "cannot write the stream out: Broken pipe");
    assert!(outcome.out.contains("to 1 of 2 hosts"), "{outcome:?}");
    assert!(place.is_copy("incoming/copy"));
}

#[test]
fn what_has_no_meaning_for_a_stream_is_refused() {
    let place = Place::with(1);
    for (words, reason) in [
        ("push - object --local 1", "several sources cannot be used with a stream"),
        ("push - --local 1 --dry-run", "--dry-run cannot be used with a stream"),
        ("push - --local 1 --retry 1", "--retry cannot be used with a stream"),
        ("push - --hosts-file -", "standard input cannot be both"),
        ("push - --to a", "name the file that the stream becomes by --dest"),
        ("push - --local 1 --dest into/", "names a directory"),
    ] {
        place.run_words(words).has_failed_with(2, reason);
    }
    place.run_words("push missing --follow --local 1").has_failed_with(1, "missing");
}
