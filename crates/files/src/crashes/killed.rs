//! Sessions that are killed before any call, or in which one fails.

use rustix::io::Errno;

use super::*;

/// Modes of sources: some writable for others, some read-only for the owner.
const MODES: [u16; 4] = [0o600, 0o400, 0o666, 0o755];

#[test]
fn a_session_killed_at_any_call_does_not_block_the_next() {
    for mode in MODES {
        let killed = Source::file(7, mode);
        for next in [killed.clone(), Source::file(8, 0o644)] {
            for before in [Before::Nothing, Before::File(b"old".to_vec(), 0o644)] {
                at_every_call(&killed, &before, Fault::Crash, |path, _, extras, after| {
                    let again = next.session(path, Fault::None).outcome;
                    again.unwrap_or_else(|error| panic!("{after}: {error}"));
                    next.assert_is_at(path, extras, after);
                });
            }
        }
    }
}

#[test]
fn a_push_of_a_tree_killed_at_any_call_does_not_block_the_next() {
    let killed = Source::tree(7);
    for next in [killed.clone(), Source::tree(8)] {
        for before in [Before::Nothing, Before::Tree(3), Before::Tree(7)] {
            at_every_call(&killed, &before, Fault::Crash, |path, _, extras, after| {
                let again = next.session(path, Fault::None).outcome;
                again.unwrap_or_else(|error| panic!("{after}: {error}"));
                next.assert_is_at(path, extras, after);
            });
        }
    }
}

#[test]
fn a_tree_compared_by_contents_survives_a_kill_at_any_call() {
    let source = Source::tree(7).with(|it| it.by_contents = true);
    at_every_call(&source, &Before::Tree(3), Fault::Crash, |path, _, extras, after| {
        source.session(path, Fault::None).outcome.unwrap();
        source.assert_is_at(path, extras, after);
    });
}

#[test]
fn a_session_killed_repeatedly_does_not_block_the_next() {
    for source in [Source::file(7, 0o664), Source::tree(7)] {
        at_every_call(&source, &Before::Nothing, Fault::Crash, |path, _, extras, after| {
            for call in (0..CALLS_MAX).step_by(17) {
                drop(source.session(path, Fault::Crash(call)));
            }
            source.session(path, Fault::None).outcome.unwrap();
            source.assert_is_at(path, extras, after);
        });
    }
}

#[test]
fn an_existing_copy_survives_a_kill_at_any_call_and_keeps_its_inode() {
    let source = Source::file(7, 0o640);
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let before = Before::File(source.contents.clone(), 0o600);
    at_every_call(&source, &before, Fault::Crash, |path, _, extras, after| {
        let before = inode(path);
        let again = source.session(path, Fault::None);
        assert!(again.outcome.unwrap(), "{after}");
        source.assert_is_at(path, extras, after);
        assert_eq!(inode(path), before, "{after}");
    });
}

#[test]
fn a_copy_writable_for_others_is_replaced_after_a_kill_at_any_call() {
    let source = Source::file(7, 0o640);
    let before = Before::File(source.contents.clone(), 0o666);
    at_every_call(&source, &before, Fault::Crash, |path, session, extras, after| {
        assert!(!matches!(session.outcome, Ok(true)), "{after}");
        source.session(path, Fault::None).outcome.unwrap();
        source.assert_is_at(path, extras, after);
    });
}

#[test]
fn a_publish_that_fails_keeps_what_was_received() {
    let top = Some(Top { mode: 0o775, modified_ns: 9 * TIME_NS });
    for (source, before) in [
        (Source::file(7, 0o640), Before::File(b"old".to_vec(), 0o644)),
        (Source::tree(7), Before::Nothing),
        (Source::tree(7), Before::Tree(3)),
        // With files of the same length and other contents.
        (Source::tree(7).with(|it| it.by_contents = true), Before::Tree(3)),
        // As by an umask of 0002.
        (Source::tree(7).with(|it| it.top = top), Before::Nothing),
        (Source::tree(7).with(|it| (it.top, it.atomic) = (top, true)), Before::Copy(3)),
        (Source::tree(7).with_modes(0o664), Before::Nothing),
        (Source::tree(7).with_modes(0o664), Before::Tree(3)),
    ] {
        for errno in [Errno::IO, Errno::NOSPC, Errno::ROFS, Errno::PERM] {
            is_complete_after_an_error_at_any_call(&source, &before, errno);
        }
    }
}

#[test]
fn a_disk_error_at_any_call_is_reported_with_the_remedy() {
    for (source, before) in
        [(Source::file(7, 0o640), Before::Nothing), (Source::tree(7), Before::Tree(3))]
    {
        for (errno, words) in [
            (Errno::NOSPC, "no space in"),
            (Errno::NOSPC, "(ENOSPC); free some"),
            (Errno::DQUOT, "this user's quota has no space"),
            (Errno::DQUOT, "(EDQUOT); free some"),
            (Errno::FBIG, "no file can be long enough"),
            (Errno::ROFS, "is read-only"),
            (Errno::ACCESS, "no permission to write in"),
            (Errno::NOLCK, "has no file locks"),
        ] {
            let mut errors = Vec::new();
            let fault = |call| Fault::Error(call, errno);
            at_every_call(&source, &before, fault, |path, session, _, _| {
                let Err(error) = &session.outcome else { return };
                let error = error.to_string();
                let directory = path.parent().unwrap().display().to_string();
                assert!(error.contains(&directory), "no path: {error}");
                assert!(!error.contains(" 0 bytes"), "no length is known: {error}");
                errors.push(error);
            });
            assert!(errors.iter().any(|error| error.contains(words)), "{words}: {errors:?}");
        }
    }
}

#[test]
fn a_copy_that_is_not_published_is_removed_by_the_next_version() {
    let directory = in_memory();
    let path = directory.path().join("copy");
    let source = Source::tree(7);
    let whole = source.session(&directory.path().join("other"), Fault::None);
    fs::remove_dir_all(directory.path().join("other")).unwrap();
    let top = path.clone();
    let appear = move || fs::create_dir(top).unwrap();
    let published_at = whole.published_at.unwrap();
    let session = source.session_beside(&path, Fault::Action(published_at), appear);
    assert!(matches!(session.outcome, Err(crate::TargetError::Appeared(_))), "{session:?}");
    assert_eq!(hidden_below(directory.path()).len(), 1);
    Source::tree(8).session(&path, Fault::None).outcome.unwrap();
    Source::tree(8).assert_is_at(&path, &Extras::default(), "after it");
}

#[test]
fn what_another_version_has_staged_is_removed_before_what_stays_is_looked_at() {
    for call in 0..CALLS_MAX {
        let directory = in_memory();
        let path = directory.path().join("copy");
        Before::Copy(7).make(&path);
        // A file that stays gets a further name where that is staged.
        fs::remove_file(path.join("name")).unwrap();
        let killed = Source::tree(7).session(&path, Fault::Crash(call));
        let mut entries = Source::tree(7).listing.entries().to_vec();
        entries.iter_mut().find(|entry| entry.path == b"d").unwrap().modified_ns = 0;
        let listing = Listing::new(entries).unwrap();
        let next = Source::tree(7).with(|it| it.listing = listing);
        let outcome = next.session(&path, Fault::None).outcome;
        outcome.unwrap_or_else(|error| panic!("killed before {call}: {error}"));
        if call >= killed.faults.calls() {
            return;
        }
    }
    panic!("a session makes more than {CALLS_MAX} calls");
}

#[test]
fn files_with_further_names_in_other_directories_are_not_sent_again() {
    let entry = |path: &[u8], kind, mode| {
        let path = path.to_vec();
        Entry { path, kind, mode, modified_ns: 0 }
    };
    let entries = vec![
        entry(b"a", Kind::File { bytes: 10_000 }, 0o640),
        entry(b"m", Kind::Directory, 0o755),
        entry(b"m/name", Kind::Name { of: 0 }, 0o640),
    ];
    let (listing, contents) = (Listing::new(entries).unwrap(), vec![7; 10_000]);
    let source = Source::tree(7).with(|it| (it.listing, it.contents) = (listing, contents));
    let fault = |call| Fault::Error(call, Errno::IO);
    at_every_call(&source, &Before::Nothing, fault, |path, session, _, after| {
        if session.published_at.is_some() && session.outcome.is_err() {
            let again = source.session(path, Fault::None);
            assert_eq!(again.received, Some(0), "{after}: sent again");
            again.outcome.unwrap();
        }
    });
}
