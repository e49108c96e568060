//! Sessions that set owners, access lists and `user.*` attributes.

use rustix::io::Errno;

use super::*;

/// Sources with attributes, and what is there before.
fn cases() -> Vec<(Source, Before)> {
    vec![
        (Source::file(7, 0o640).owned(7), Before::Nothing),
        (Source::file(7, 0o640).owned(7), Before::File(vec![7; BYTES], 0o600)),
        (Source::tree(7).owned(7), Before::Nothing),
        (Source::tree(7).owned(7), Before::Tree(3)),
        (Source::tree(7).owned(7), Before::Owned(3)),
        // Nothing but attributes differs.
        (Source::tree(7).owned(7), Before::Owned(7)),
    ]
}

#[test]
fn attributes_are_complete_after_a_kill_at_any_call() {
    for (source, before) in cases() {
        at_every_call(&source, &before, Fault::Crash, |path, _, extras, after| {
            let again = source.session(path, Fault::None).outcome;
            again.unwrap_or_else(|error| panic!("{after}: {error}"));
            source.assert_is_at(path, extras, after);
            let third = source.session(path, Fault::None);
            assert_eq!((third.received, third.outcome.ok()), (Some(0), Some(true)), "{after}");
            source.assert_is_at(path, extras, after);
        });
    }
}

#[test]
fn an_exchange_with_attributes_is_complete_after_a_kill_at_any_call() {
    let source = Source(CopySource { atomic: true, ..Source::tree(7).owned(7).0 });
    for call in 0..CALLS_MAX {
        let directory = in_memory();
        let path = directory.path().join("copy");
        let extras = Before::Owned(3).make(&path);
        let killed = source.session(&path, Fault::Crash(call));
        let after = format!("killed at call {call}: {:?}", killed.outcome);
        let again = source.session(&path, Fault::None).outcome;
        again.unwrap_or_else(|error| panic!("{after}: {error}"));
        source.assert_is_at(&path, &extras, &after);
        if call >= killed.faults.calls() {
            return;
        }
    }
    panic!("a session makes more than {CALLS_MAX} calls");
}

#[test]
fn a_publish_of_attributes_that_fails_keeps_what_was_received() {
    for (source, before) in cases() {
        for errno in [Errno::IO, Errno::NOSPC, Errno::PERM] {
            is_complete_after_an_error_at_any_call(&source, &before, errno);
        }
    }
}

#[test]
fn attributes_that_are_not_asked_for_stay() {
    let directory = in_memory();
    let path = directory.path().join("copy");
    let before = Source::tree(7).attributed(7, None);
    before.session(&path, Fault::None).outcome.unwrap();
    // The same modes, so that nothing of it changes.
    let again = Source::tree(7).session(&path, Fault::None);
    assert!(again.outcome.unwrap());
    before.assert_is_at(&path, &Extras::default(), "without options");
}
