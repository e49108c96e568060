//! `rdmc push URL --together`: hosts read shares of what lies at a URL.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use testing::{HubFile, HubRepository, WebAnswer, WebServer};

use crate::{
    common::{Listener, Outcome, Place, await_that, children, signal},
    remote::{correct, server_of},
};

/// Three shares of at least 16 MiB.
const BYTES: usize = 60_000_001;
const COMMIT: &str = "0123456789abcdef0123456789abcdef01234567";

fn words(url: &str, hosts: u32, more: &str) -> String {
    format!("push {url} --together --local {hosts} --dest {{host}}/copy --mkdir {more}")
}

fn push(place: &Place, url: &str, more: &str) -> Outcome {
    place.run_words(&words(url, 3, more))
}

fn copies(place: &Place) -> usize {
    (1..=4).filter(|host| place.is_copy(&format!("local-{host}/copy"))).count()
}

#[test]
fn each_byte_is_read_once_in_all() {
    let place = Place::with(BYTES);
    let server = server_of(&place, correct);
    let outcome = push(&place, &server.url("/models/weights"), "");
    assert_eq!((outcome.code, copies(&place)), (Some(0), 3), "{outcome:?}");
    assert!(server.sent() <= BYTES as u64 * 103 / 100, "{} bytes sent", server.sent());
    assert!(place.temporaries().is_empty());
    // Hosts that have it read nothing.
    let before = server.sent();
    let outcome = push(&place, &server.url("/models/weights"), "");
    assert_eq!((outcome.code, copies(&place)), (Some(0), 3), "{outcome:?}");
    assert!(server.sent() - before < 100, "{} bytes", server.sent() - before);
}

#[test]
fn one_host_reads_alone() {
    let place = Place::with(BYTES);
    let server = server_of(&place, correct);
    let outcome = place.run_words(&words(&server.url("/object"), 1, ""));
    assert_eq!((outcome.code, copies(&place)), (Some(0), 1), "{outcome:?}");
    assert!(server.sent() <= BYTES as u64 * 103 / 100, "{} bytes sent", server.sent());
}

/// All hosts read at the same time: the first request in each third of the file is answered once there was one in the others.
#[test]
fn each_host_reads_a_share() {
    let place = Place::with(BYTES);
    let thirds = Arc::new((Mutex::new(BTreeSet::new()), Condvar::new()));
    let server = server_of(&place, move |request, contents| {
        let start = request.range().filter(|&(start, end)| end - start > 1).map(|range| range.0);
        if let Some(start) = start {
            let (seen, changed) = &*thirds;
            let mut seen = seen.lock().unwrap();
            // Shares end a little before a third.
            seen.insert((start + BYTES / 30) / (BYTES / 3 + 1));
            changed.notify_all();
            let wait = Duration::from_secs(20);
            let waited = changed.wait_timeout_while(seen, wait, |it| it.len() < 3).unwrap();
            if waited.1.timed_out() {
                return WebAnswer::status(404);
            }
        }
        correct(request, contents)
    });
    let outcome = push(&place, &server.url("/object"), "");
    assert_eq!((outcome.code, copies(&place)), (Some(0), 3), "{outcome:?}");
}

#[test]
fn a_directory_with_checksums_is_read_once_in_all() {
    let place = Place::with(BYTES);
    let server = hub(&place, |_| {});
    let outcome = push_model(&place, &server, "");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    for host in ["local-1", "local-2", "local-3"] {
        assert!(place.is_copy(&format!("{host}/model/model.safetensors")));
        assert_eq!(fs::read(place.path(host).join("model/empty")).unwrap(), b"");
        assert_eq!(fs::read(place.path(host).join("model/nested/small")).unwrap(), b"[1]");
    }
    assert!(server.sent() <= BYTES as u64 * 103 / 100, "{} bytes sent", server.sent());
    assert!(!format!("{outcome:?}").contains("secret"), "{outcome:?}");
    // What is known without being read, and a part that patterns select.
    let outcome = push_model(&place, &server, "--hub-cache");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    let cached = format!("local-2/models--org--model/snapshots/{COMMIT}/model.safetensors");
    assert!(place.is_copy(&cached));
    fs::remove_dir_all(place.path("local-3/model")).unwrap();
    let outcome = push_model(&place, &server, "--exclude *.safetensors");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(place.path("local-3/model/nested/small").exists());
    assert!(!place.path("local-3/model/model.safetensors").exists());
}

#[test]
fn contents_with_another_checksum_are_not_published() {
    let place = Place::with(BYTES);
    let server = hub(&place, |contents| contents[BYTES / 2] ^= 1);
    let outcome = push_model(&place, &server, "");
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("the bytes that came have the sha256"), "{outcome:?}");
    for host in ["local-1", "local-2", "local-3"] {
        assert!(!place.path(host).join("model/model.safetensors").exists());
    }
}

/// A hub with the object of a place as weights, which are changed after their digest was computed.
fn hub(place: &Place, change: impl FnOnce(&mut Vec<u8>)) -> WebServer {
    let mut weights = HubFile::large("model.safetensors", &place.contents);
    change(&mut weights.contents);
    let repository = HubRepository {
        name: "org/model".into(),
        commit: COMMIT.into(),
        files: vec![HubFile::small("empty", b""), HubFile::small("nested/small", b"[1]"), weights],
        token: Some("secret".into()),
        large_files: None,
    };
    WebServer::start(move |request| repository.answer(request))
}

fn push_model(place: &Place, server: &WebServer, more: &str) -> Outcome {
    let words = format!("push hf://org/model --together --local 3 --mkdir --dest {{host}} {more}");
    let mut command = place.rdmc(&words.split_whitespace().collect::<Vec<_>>());
    command.env("HF_ENDPOINT", server.url("")).env("HF_TOKEN", "secret");
    Outcome::of(command.output().unwrap())
}

#[test]
fn a_source_that_changes_meanwhile_is_not_published() {
    // While hosts open it, while they read it, and before they publish.
    for at in [2, 6, 12] {
        let place = Place::with(BYTES);
        let requests = AtomicUsize::new(0);
        let server = server_of(&place, move |request, contents| {
            let is_other = requests.fetch_add(1, Ordering::Relaxed) >= at;
            request.answer(contents, if is_other { "\"two\"" } else { "\"one\"" })
        });
        let outcome = push(&place, &server.url("/object"), "");
        assert_eq!((outcome.code, copies(&place)), (Some(1), 0), "{at}: {outcome:?}");
        let said = format!("{outcome:?}");
        let expected = ["changed while it was read", "another version", "has listed"];
        assert!(expected.iter().any(|it| said.contains(it)), "{said}");
    }
}

/// The second one that asks for it, after the root, has no access.
#[test]
fn a_host_without_access_is_named_and_the_others_get_their_copies() {
    let place = Place::with(BYTES);
    let looks = AtomicUsize::new(0);
    let server = server_of(&place, move |request, contents| {
        let is_look = request.range() == Some((0, 1));
        match is_look && looks.fetch_add(1, Ordering::Relaxed) == 1 {
            true => WebAnswer::status(403),
            false => correct(request, contents),
        }
    });
    let outcome = push(&place, &server.url("/object"), "");
    assert_eq!((outcome.code, copies(&place)), (Some(3), 2), "{outcome:?}");
    let failed = outcome.err.lines().find(|line| line.contains("403")).unwrap_or_default();
    assert!(failed.contains("local-") && failed.contains("/object"), "{outcome:?}");
    assert!(server.sent() <= BYTES as u64 * 103 / 100, "{} bytes sent", server.sent());
}

#[test]
fn what_a_reader_that_dies_has_not_read_is_read_by_the_others() {
    let place = Place::with(BYTES);
    let server = server_of(&place, |request, contents| {
        let pause = Duration::from_millis(1);
        WebAnswer { pause, ..correct(request, contents) }
    });
    let url = server.url("/object");
    let words = words(&url, 3, "");
    let mut command = place.rdmc(&words.split_whitespace().collect::<Vec<_>>());
    let child = command.spawn().unwrap();
    await_that("hosts read", || server.sent() > BYTES as u64 / 4);
    let receivers = children(child.id());
    signal(receivers[receivers.len() - 1], "KILL");
    let outcome = Outcome::of(child.wait_with_output().unwrap());
    assert_eq!((outcome.code, copies(&place)), (Some(3), 2), "{outcome:?}");
}

#[test]
fn a_receiver_that_listens_reads_no_urls() {
    let place = Place::with(1000);
    let server = server_of(&place, correct);
    place.write_private("secret", &place.run_words("secret").out);
    let listener = Listener::start(&place, "in", &["--secret-file", "secret"]);
    let url = server.url("/object");
    let words = format!(
        "push {url} --together --to 127.0.0.1:{} --secret-file secret --dest x",
        listener.port
    );
    let outcome = place.run_words(&words);
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(outcome.err.contains("leave out --together"), "{outcome:?}");
    // Only the root has asked for it.
    assert_eq!(server.requests().len(), 1);
    assert!(!place.path("in/x").exists());
}

#[test]
fn what_hosts_must_not_get_is_refused_with_a_remedy() {
    let place = Place::with(10);
    for (words, expected) in [
        ("push http://127.0.0.1:1/object?hidden --together --local 1", "leave out --together"),
        ("push http://127.0.0.1:1/object#hidden --together --local 1", "leave out --together"),
        ("push object --together --local 1", "a source at a URL"),
        (
            "push http://127.0.0.1:1/object --together --local 1 --source-hosts local-1",
            "cannot be used",
        ),
        ("push http://127.0.0.1:1/object --together --local 1 --min-rate 1mbit", "cannot be used"),
    ] {
        let outcome = place.run_words(words);
        let said = format!("{outcome:?}");
        assert_eq!(outcome.code, Some(2), "{said}");
        assert!(said.contains(expected) && !said.contains("hidden"), "{words}: {said}");
    }
}
