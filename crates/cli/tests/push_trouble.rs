//! `rdmc push` when something happens while blocks are on their way.

mod common;

use std::fs;

use common::{Outcome, Place, await_that, child_with_open, children, is_running, signal};

/// Blocks so small that the transfer lasts long enough to be disturbed in the middle.
const SLOW: [&str; 6] = ["push", "object", "--local", "3", "--block-size", "1KiB"];
const BYTES: usize = 20 << 20;

#[test]
fn a_receiver_that_is_killed_is_named_and_survived() {
    let place = Place::with(BYTES);
    let arguments = [&SLOW[..], &["--json"]].concat();
    let push = place.start_and_await_blocks(&arguments, "local-2");
    signal(child_with_open(push.id(), "/local-2/"), "KILL");
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    outcome.has_failed_with(3, "local-2: its receiver was lost");
    assert!(outcome.err.contains("signal: 9"), "{outcome:?}");
    assert!(place.is_copy("rdmc-local/local-1/object"));
    assert!(place.is_copy("rdmc-local/local-3/object"));
    assert!(!place.path("rdmc-local/local-2/object").exists());
    assert_eq!(outcome.json()["members"], 3, "the last group was formed without it");
}

#[test]
fn ctrl_c_leaves_no_files_and_no_processes() {
    let place = Place::with(BYTES);
    let push = place.start_and_await_blocks(&SLOW, "local-1");
    let receivers = children(push.id());
    assert_eq!(receivers.len(), 3);
    signal(push.id(), "INT");
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    outcome.has_failed_with(130, "interrupted");
    assert!(outcome.out.is_empty(), "{outcome:?}");
    assert!(receivers.into_iter().all(|receiver| !is_running(receiver)));
    assert!(place.temporaries().is_empty());
    assert!((1..=3).all(|host| !place.path(&format!("rdmc-local/local-{host}/object")).exists()));
}

#[test]
fn receivers_clean_up_when_the_root_is_killed() {
    let place = Place::with(BYTES);
    let mut push = place.start_and_await_blocks(&SLOW, "local-3");
    let receivers = children(push.id());
    push.kill().unwrap();
    push.wait().unwrap();
    await_that("receivers are gone", || !receivers.iter().any(|receiver| is_running(*receiver)));
    assert!(place.temporaries().is_empty());
}

#[test]
fn a_source_that_shrinks_fails_the_push_and_publishes_nothing() {
    let place = Place::with(BYTES);
    let push = place.start_and_await_blocks(&SLOW, "local-1");
    fs::File::options().write(true).open(place.path("object")).unwrap().set_len(1 << 20).unwrap();
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    outcome.has_failed_with(1, "object changed while it was sent");
    assert!((1..=3).all(|host| !place.path(&format!("rdmc-local/local-{host}/object")).exists()));
    assert!(place.temporaries().is_empty());
}

#[test]
fn a_source_that_is_written_to_fails_the_push() {
    use std::os::unix::fs::FileExt;
    let place = Place::with(BYTES);
    let push = place.start_and_await_blocks(&SLOW, "local-1");
    let object = fs::File::options().write(true).open(place.path("object")).unwrap();
    object.write_all_at(b"changed", (BYTES - 100) as u64).unwrap();
    let outcome = Outcome::of(push.wait_with_output().unwrap());
    outcome.has_failed_with(1, "object changed while it was sent");
    assert!((1..=3).all(|host| !place.path(&format!("rdmc-local/local-{host}/object")).exists()));
    assert!(place.temporaries().is_empty());
}
