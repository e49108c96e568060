//! `rdmc push URL`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use testing::{WebAnswer, WebRequest, WebServer};

use crate::common::{Outcome, Place, await_that, signal};

const BYTES: usize = 40_000_001;

/// A server of the object of a place.
pub fn server_of(
    place: &Place,
    answer: impl Fn(&WebRequest, &[u8]) -> WebAnswer + Send + Sync + 'static,
) -> WebServer {
    let contents = place.contents.clone();
    WebServer::start(move |request| answer(request, &contents))
}

/// What a server answers that does as it should.
pub fn correct(request: &WebRequest, contents: &[u8]) -> WebAnswer {
    request.answer(contents, "\"one\"")
}

fn push(place: &Place, url: &str, more: &str) -> Outcome {
    let words = format!("push {url} --local 3 --dest {{host}}/copy --mkdir {more}");
    place.run_words(&words)
}

fn copies(place: &Place) -> usize {
    (1..=3).filter(|host| place.is_copy(&format!("local-{host}/copy"))).count()
}

#[test]
fn a_file_on_a_web_server_is_fetched_once_for_all_hosts() {
    let place = Place::with(BYTES);
    let server = server_of(&place, correct);
    let url = server.url("/models/weights?signature=secret");
    let outcome = push(&place, &url, "");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert_eq!(copies(&place), 3);
    assert!(server.sent() <= BYTES as u64 * 102 / 100, "{} bytes sent", server.sent());
    assert!(place.temporaries().is_empty());
    assert!(!format!("{outcome:?}").contains("secret"), "{outcome:?}");
    let metadata = fs::metadata(place.path("local-1/copy")).unwrap();
    let modified = UNIX_EPOCH + Duration::from_secs(1_788_264_000);
    assert_eq!(
        (metadata.permissions().mode() & 0o777, metadata.modified().unwrap()),
        (0o644, modified)
    );
    // Hosts that have it keep it, and nothing is fetched but what says that it is the same.
    let before = server.sent();
    fs::remove_file(place.path("local-2/copy")).unwrap();
    let outcome = push(&place, &url, "--json");
    assert_eq!((outcome.code, copies(&place)), (Some(0), 3), "{outcome:?}");
    assert!(server.sent() - before <= BYTES as u64 * 102 / 100);
    let before = server.sent();
    let outcome = push(&place, &url, "");
    assert_eq!(outcome.code, Some(0), "{outcome:?}");
    assert!(server.sent() - before < 10, "{} bytes", server.sent() - before);
}

#[test]
fn faults_on_the_way_do_not_show() {
    let place = Place::with(BYTES);
    let requests = AtomicUsize::new(0);
    let server = server_of(&place, move |request, contents| {
        let answer = correct(request, contents);
        match requests.fetch_add(1, Ordering::Relaxed) {
            2 => WebAnswer { cut_after: Some(1_000_000), ..answer },
            4 => WebAnswer::status(503),
            _ => answer,
        }
    });
    let outcome = push(&place, &server.url("/object"), "");
    assert_eq!((outcome.code, copies(&place)), (Some(0), 3), "{outcome:?}");
    assert!(server.sent() <= BYTES as u64 * 102 / 100, "{} bytes sent", server.sent());
}

#[test]
fn a_source_that_changes_meanwhile_is_not_published() {
    for at in [2, 5] {
        let place = Place::with(BYTES);
        let requests = AtomicUsize::new(0);
        let server = server_of(&place, move |request, contents| {
            let is_other = requests.fetch_add(1, Ordering::Relaxed) >= at;
            request.answer(contents, if is_other { "\"two\"" } else { "\"one\"" })
        });
        let outcome = push(&place, &server.url("/object?secret"), "");
        assert_eq!((outcome.code, copies(&place)), (Some(1), 0), "{outcome:?}");
        let said = format!("{outcome:?}");
        assert!(
            said.contains("/object changed while it was read") && !said.contains("secret"),
            "{said}"
        );
    }
}

/// The last look finds what has changed after everything was fetched.
#[test]
fn a_source_that_has_changed_at_the_end_is_not_published() {
    let place = Place::with(1000);
    let requests = Arc::new(AtomicUsize::new(0));
    let server = server_of(&place, move |request, contents| {
        let is_other = requests.fetch_add(1, Ordering::Relaxed) >= 2;
        request.answer(contents, if is_other { "\"two\"" } else { "\"one\"" })
    });
    let outcome = push(&place, &server.url("/object"), "");
    assert_eq!((outcome.code, copies(&place)), (Some(1), 0), "{outcome:?}");
    assert!(format!("{outcome:?}").contains("changed while it was read"), "{outcome:?}");
}

#[test]
fn urls_that_cannot_be_pushed_are_refused_with_a_remedy() {
    let place = Place::with(10);
    let server = server_of(&place, correct);
    let url = server.url("/object?secret");
    let cases = [
        (format!("push {url} object --local 1"), "a URL is the only source"),
        (format!("push {url} --to host"), "give one with --dest"),
        (format!("push {url} --local 1 --source-hosts local-1"), "leave out --source-hosts"),
        (format!("push {url} --local 1 --owner"), "no owners"),
        (format!("push {url} --local 1 --delete"), "give a directory"),
        ("push ftp://host/object?secret --local 1".into(), "sources are"),
        ("push http://user:secret@host/object --local 1".into(), "seen by every user"),
        (format!("push {} --local 1", server.url("/")), "does not end with a name"),
    ];
    for (words, expected) in cases {
        let outcome = place.run_words(&words);
        let said = format!("{outcome:?}");
        assert!(outcome.code == Some(2) || outcome.code == Some(1), "{said}");
        assert!(said.contains(expected) && !said.contains("secret"), "{words}: {said}");
    }
    let whole = WebServer::start(|_| WebAnswer::text("whole"));
    let outcome = place.run_words(&format!("push {} --local 1", whole.url("/object")));
    assert_eq!(outcome.code, Some(1), "{outcome:?}");
    assert!(format!("{outcome:?}").contains("curl -fL URL | rdmc push -"), "{outcome:?}");
}

#[test]
fn a_push_whose_source_is_silent_ends_when_it_is_interrupted() {
    let place = Place::with(100_000);
    let server = server_of(&place, |request, contents| {
        let is_first = request.range() == Some((0, 1));
        let pause = Duration::from_secs(if is_first { 0 } else { 20 });
        WebAnswer { pause, ..correct(request, contents) }
    });
    let url = server.url("/object");
    let words = ["push", &url, "--local", "1", "--dest", "{host}/copy", "--mkdir"];
    let child = place.rdmc(&words).spawn().unwrap();
    await_that("the server sends", || server.sent() > 1);
    signal(child.id(), "INT");
    let outcome = Outcome::of(child.wait_with_output().unwrap());
    assert_eq!((outcome.code, copies(&place)), (Some(130), 0), "{outcome:?}");
    // Nothing more was requested, and the server was not waited for.
    assert!(server.sent() < 10_000, "{}", server.sent());
}

#[test]
fn a_dry_run_fetches_nothing() {
    let place = Place::with(100_000);
    let server = server_of(&place, correct);
    let outcome = push(&place, &server.url("/object"), "--dry-run");
    assert_eq!((outcome.code, copies(&place)), (Some(0), 0), "{outcome:?}");
    assert!(server.sent() < 10);
}
