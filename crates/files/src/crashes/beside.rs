//! Sessions beside another process, which acts before any call.

use std::cell::RefCell;

use super::*;

/// Runs one session for each call, before which another process acts on the destination. `make`: what is there before.
/// `judge` gets the path, the session, the call, and a text for messages. Returns how many calls a session makes.
pub(super) fn before_each_call(
    source: &Source,
    make: impl Fn(&Path),
    act: fn(&Path),
    mut judge: impl FnMut(&Path, &CopySession, u64, &str),
) -> u64 {
    for call in 0..CALLS_MAX {
        let directory = in_memory();
        let path = directory.path().join("above/copy");
        fs::create_dir(directory.path().join("above")).unwrap();
        make(&path);
        let acts_on = path.clone();
        let session = source.session_beside(&path, Fault::Action(call), move || act(&acts_on));
        let after = format!("before call {call}: {:?}", session.outcome);
        if call >= session.faults.calls() {
            return call;
        }
        judge(&path, &session, call, &after);
    }
    panic!("a session makes more than {CALLS_MAX} calls");
}

/// The same of a tree, where all that only the host has has to stay.
fn beside_another_process(
    source: &Source,
    before: &Before,
    act: fn(&Path),
    mut judge: impl FnMut(&Path, &CopySession, u64, &str),
) {
    let extras = RefCell::new(None);
    let make = |path: &Path| drop(extras.replace(Some(before.make(path))));
    let calls = before_each_call(source, make, act, |path, session, call, after| {
        extras.borrow().as_ref().unwrap().assert_are_there(after);
        judge(path, session, call, after);
    });
    assert!(calls > 50, "{calls}");
}

/// Returns whether the call is one between the last look and the publication: what another process does then has to end
/// the session with an error that contains `change`.
fn is_named_before_publication(
    session: &CopySession,
    call: u64,
    change: &str,
    after: &str,
) -> bool {
    let published = session.published_at.is_some_and(|at| call <= at);
    if call < session.looked_at || !published {
        return false;
    }
    let error = session.outcome.as_ref().expect_err(after).to_string();
    assert!(error.contains(change), "{after}");
    true
}

#[test]
fn what_another_process_writes_at_any_call_stays() {
    let source = Source::tree(7);
    let write = |top: &Path| {
        fs::write(top.join("theirs"), "theirs").unwrap();
        fs::create_dir(top.join("their directory")).unwrap();
        fs::write(top.join("their directory/file"), "theirs").unwrap();
        fs::write(top.join("d/theirs.tmp"), "theirs").unwrap();
        fs::rename(top.join("d/theirs.tmp"), top.join("d/theirs")).unwrap();
        if top.join("made anew").is_dir() {
            fs::write(top.join("made anew/theirs"), "theirs").unwrap();
        }
    };
    beside_another_process(&source, &Before::Tree(3), write, |path, session, _, after| {
        assert!(session.outcome.is_ok(), "{after}");
        for theirs in ["theirs", "their directory/file", "d/theirs"] {
            assert_eq!(fs::read(path.join(theirs)).unwrap(), b"theirs", "{after}: {theirs}");
        }
        for theirs in ["theirs", "their directory"] {
            let theirs = path.join(theirs);
            match theirs.is_dir() {
                true => fs::remove_dir_all(theirs).unwrap(),
                false => fs::remove_file(theirs).unwrap(),
            }
        }
        source.session(path, Fault::None).outcome.unwrap();
        source.assert_is_at(path, &Extras::default(), after);
    });
}

#[test]
fn a_directory_replaced_by_a_link_at_any_call_leads_nowhere() {
    let source = Source::tree(7);
    let replace = |top: &Path| {
        let victim = top.parent().unwrap().join("victim");
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("stays"), "secret").unwrap();
        for path in [victim.join("stays"), victim.clone()] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o500)).unwrap();
        }
        fs::rename(top.join("d"), top.parent().unwrap().join("moved")).unwrap();
        symlink("../victim", top.join("d")).unwrap();
        // What only the host has is looked for there.
        let own = |directory: &str| top.parent().unwrap().join(directory).join("own");
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o700)).unwrap();
        fs::hard_link(own("moved"), own("victim")).unwrap();
        fs::set_permissions(&victim, fs::Permissions::from_mode(0o500)).unwrap();
    };
    let make = |path: &Path| drop(Before::Tree(3).make(path));
    let calls = before_each_call(&source, make, replace, |path, _, _, after| {
        let victim = path.with_file_name("victim");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o7777;
        assert_eq!((mode(&victim), mode(&victim.join("stays"))), (0o500, 0o500), "{after}");
        assert_eq!(fs::read(victim.join("stays")).unwrap(), b"secret", "{after}");
        assert_eq!(fs::read_dir(&victim).unwrap().count(), 2, "{after}");
    });
    assert!(calls > 50, "{calls}");
}

#[test]
fn a_kept_file_that_changes_before_it_is_published_is_named() {
    let source = Source::tree(7);
    let change = |top: &Path| {
        let path = top.join("d/stays");
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, [9; 70_000]).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
    };
    let mut named = 0;
    beside_another_process(&source, &Before::Tree(3), change, |path, session, call, after| {
        let is_kept = fs::read(path.join("d/stays")).unwrap() == [9; 70_000];
        assert!(is_kept, "{after}: what another process wrote is gone");
        named +=
            u32::from(is_named_before_publication(session, call, "d/stays was changed", after));
    });
    assert!(named > 2, "{named}");
}

#[test]
fn a_destination_moved_away_at_any_call_is_never_said_to_be_written() {
    let replace = |top: &Path| {
        fs::rename(top, top.parent().unwrap().join("moved")).unwrap();
        fs::create_dir(top).unwrap();
        fs::write(top.join("precious"), "hours of work").unwrap();
    };
    let source = Source::tree(7);
    never_said_to_be_written(&source, &Before::Tree(3), replace);
    for atomic in [false, true] {
        let source = source.clone().with(|it| it.atomic = atomic);
        never_said_to_be_written(&source, &Before::Copy(7), replace);
    }
}

/// `replace`: moves the destination away and makes another one, before any call.
fn never_said_to_be_written(source: &Source, before: &Before, replace: fn(&Path)) {
    let make = |path: &Path| drop(before.make(path));
    let calls = before_each_call(source, make, replace, |path, session, call, after| {
        let found = fs::read(path.join("precious")).unwrap();
        assert_eq!(found, b"hours of work", "{after}");
        let is_copy = path.join("changes").exists();
        let is_moved = path.with_file_name("moved").join("changes").exists();
        assert!(is_moved, "{after}");
        // The last calls only remove what was staged.
        let is_late = call + 12 >= session.faults.calls();
        assert!(is_copy || is_late || session.outcome.is_err(), "{after}");
    });
    assert!(calls > 10, "{calls}");
}

#[test]
fn a_copy_whose_directory_is_moved_away_at_any_call_is_never_said_to_be_there() {
    let replace = |path: &Path| {
        let above = path.parent().unwrap();
        fs::rename(above, above.with_file_name("moved")).unwrap();
        fs::create_dir(above).unwrap();
    };
    let exchanged = Source::tree(7).with(|it| it.atomic = true);
    for (source, before) in [
        (Source::file(7, 0o640), Before::Nothing),
        (Source::file(7, 0o640), Before::File(vec![3; BYTES], 0o640)),
        (Source::file(7, 0o640), Before::File(vec![7; BYTES], 0o640)),
        (Source::tree(7), Before::Nothing),
        (Source::tree(7), Before::Tree(3)),
        (exchanged, Before::Tree(3)),
    ] {
        let make = |path: &Path| drop(before.make(path));
        let calls = before_each_call(&source, make, replace, |path, session, call, after| {
            assert!(!path.exists(), "{after}");
            // After the last look the lock and what is left of the staging are removed.
            let is_late = call + 12 >= session.faults.calls();
            assert!(is_late || session.outcome.is_err(), "{after}");
        });
        assert!(calls > 12, "{calls}");
    }
}

#[test]
fn a_directory_replaced_by_another_at_any_call_gets_nothing() {
    let source = Source::tree(7);
    let replace = |top: &Path| {
        let private = top.join("private");
        fs::create_dir(&private).unwrap();
        fs::write(private.join("stays"), "private").unwrap();
        fs::set_permissions(&private, fs::Permissions::from_mode(0o700)).unwrap();
        fs::rename(top.join("d"), top.join("moved")).unwrap();
        fs::rename(private, top.join("d")).unwrap();
    };
    let make = |path: &Path| {
        Before::Tree(3).make(path);
        // A file in it is new.
        fs::remove_file(path.join("d/empty")).unwrap();
    };
    let calls = before_each_call(&source, make, replace, |path, session, call, after| {
        if call < session.looked_at {
            return;
        }
        assert_eq!(fs::read(path.join("d/stays")).unwrap(), b"private", "{after}");
        let mode = fs::metadata(path.join("d")).unwrap().mode() & 0o7777;
        assert_eq!((fs::read_dir(path.join("d")).unwrap().count(), mode), (1, 0o700), "{after}");
    });
    assert!(calls > 50, "{calls}");
}

#[test]
fn a_link_that_stays_and_changes_before_it_is_published_is_named() {
    let source = Source::tree(7);
    let change = |top: &Path| {
        fs::remove_file(top.join("link")).unwrap();
        symlink("/etc/passwd", top.join("link")).unwrap();
    };
    let mut named = 0;
    beside_another_process(&source, &Before::Tree(7), change, |_, session, call, after| {
        named += u32::from(is_named_before_publication(session, call, "link was changed", after));
    });
    assert!(named > 2, "{named}");
}

#[test]
fn the_mode_that_the_destination_gets_meanwhile_stays_unless_the_source_has_one() {
    let source = Source::tree(7).with(|it| it.top = None);
    let change = |top: &Path| fs::set_permissions(top, fs::Permissions::from_mode(0o710)).unwrap();
    beside_another_process(&source, &Before::Tree(3), change, |path, session, _, after| {
        assert!(session.outcome.is_ok(), "{after}");
        assert_eq!(fs::metadata(path).unwrap().mode() & 0o7777, 0o710, "{after}");
    });
}

#[test]
fn a_mode_that_changes_while_a_file_is_looked_at_is_corrected() {
    let source = Source::file(7, 0o640);
    let before = Before::File(source.contents.clone(), 0o640);
    let change =
        |path: &Path| fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    let make = |path: &Path| {
        before.make(path);
        let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(7);
        fs::File::open(path).unwrap().set_modified(modified).unwrap();
    };
    let mut looked = 0;
    before_each_call(&source, make, change, |path, session, call, after| {
        if session.published_at.is_some_and(|at| call < at) {
            looked += 1;
            let mode = fs::metadata(path).unwrap().mode() & 0o777;
            assert!(session.outcome.is_err() || mode == 0o640, "{after}: {mode:o}");
        }
    });
    assert!(looked > 5, "{looked}");
}

#[test]
fn an_empty_file_that_is_replaced_while_it_is_looked_at_is_not_said_to_be_there() {
    let source = Source::file(7, 0o640);
    let mut entries = source.listing.entries().to_vec();
    entries[0].kind = Kind::File { bytes: 0 };
    let listing = Listing::new(entries).unwrap();
    let source = source.with(|it| (it.listing, it.contents) = (listing, Vec::new()));
    let make = |path: &Path| fs::write(path, "").unwrap();
    let replace = |top: &Path| {
        fs::write(top.with_file_name("new"), "theirs").unwrap();
        fs::rename(top.with_file_name("new"), top).unwrap();
    };
    let mut looked = 0;
    before_each_call(&source, make, replace, |path, session, call, after| {
        if session.published_at.is_some_and(|at| call < at) {
            looked += 1;
            assert!(session.outcome.is_err() || fs::read(path).unwrap().is_empty(), "{after}");
        }
    });
    assert!(looked > 5, "{looked}");
}
