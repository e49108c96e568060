//! Directories that are exchanged as a whole.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use super::*;
use crate::TargetError;

/// A source whose copy is exchanged as a whole.
fn exchanged() -> Source {
    Source::tree(7).with(|it| it.atomic = true)
}

/// The whole old tree, or the whole new one.
fn assert_is_whole(path: &Path, old: &BTreeMap<PathBuf, Vec<u8>>, after: &str) {
    let found = contents_below(path);
    let is_new = |path: &Path, contents: &[u8]| match path.file_name().unwrap().to_str().unwrap() {
        "changes" | "name" => contents.iter().all(|&byte| byte == 7),
        _ => true,
    };
    let is_whole_old = old.iter().all(|(path, contents)| found.get(path) == Some(contents));
    let is_whole_new = found.iter().all(|(path, contents)| is_new(path, contents))
        && path.join("made anew/inner/2").exists();
    assert!(is_whole_old != is_whole_new, "{after}: neither the old tree nor the new one");
}

#[test]
fn an_exchange_killed_at_any_call_leaves_a_whole_tree_and_loses_nothing() {
    for next in [
        exchanged(),
        Source::tree(7),
        Source::tree(8).with(|it| it.atomic = true),
        Source::other(),
        Source::other().with(|it| it.atomic = true),
    ] {
        for call in 0..CALLS_MAX {
            let directory = in_memory();
            let path = directory.path().join("copy");
            let extras = Before::Tree(3).make(&path);
            let old = contents_below(&path);
            let session = exchanged().session(&path, Fault::Crash(call));
            let after = format!("killed before call {call}: {:?}", session.outcome);
            assert_is_whole(&path, &old, &after);
            if call >= session.faults.calls() {
                session.outcome.unwrap();
                exchanged().assert_is_at(&path, &extras, &after);
                break;
            }
            let before = everything_below(directory.path());
            let looking = next.clone().with(|it| it.dry_run = true);
            looking.look(&path).unwrap_or_else(|error| panic!("{after}: {error}"));
            assert_eq!(everything_below(directory.path()), before, "{after}: a dry run");
            let again = next.session(&path, Fault::None).outcome;
            again.unwrap_or_else(|error| panic!("{after}: {error}"));
            next.assert_is_at(&path, &extras, &after);
            assert!(call + 1 < CALLS_MAX, "a session makes more calls");
        }
    }
}

/// Inode, mode and time of directories that the exchange has and the push after it has not.
fn directories_of(path: &Path) -> Vec<(u64, u32, i64)> {
    let of = |name: &&str| {
        let (inode, mode, _, modified_ns) = identity(&path.join(name));
        (inode, mode, modified_ns)
    };
    ["", "d", "made anew", "made anew/inner"].iter().map(of).collect()
}

#[test]
fn a_push_that_completes_an_exchange_of_another_changes_no_attributes() {
    // Nothing of it is to be published, and it gives the top no attributes.
    let other = Source::other().with(|it| it.top = None);
    for next in [other.clone(), other.with(|it| it.atomic = true)] {
        // Without write permission, without which only root changes names.
        for top_mode in [0o750, 0o550] {
            let top = Some(Top { mode: top_mode, modified_ns: 9 * TIME_NS });
            let exchanged = exchanged().with(|it| it.top = top);
            for call in 0..CALLS_MAX {
                let directory = in_memory();
                let path = directory.path().join("copy");
                Source::other()
                    .with(|it| it.top = top)
                    .session(&path, Fault::None)
                    .outcome
                    .unwrap();
                let own = Source::tree(3).with(|it| it.top = top);
                own.session(&path, Fault::None).outcome.unwrap();
                let extras = ["own", "d/own", "made anew/own", "made anew/inner/own"];
                for extra in extras {
                    let parent = path.join(extra).parent().unwrap().to_owned();
                    let before = fs::metadata(&parent).unwrap();
                    fs::set_permissions(&parent, fs::Permissions::from_mode(0o700)).unwrap();
                    fs::write(path.join(extra), "own").unwrap();
                    let opened = fs::File::open(&parent).unwrap();
                    opened.set_modified(before.modified().unwrap()).unwrap();
                    opened.set_permissions(before.permissions()).unwrap();
                }
                let killed = exchanged.session(&path, Fault::Crash(call));
                let after =
                    format!("{top_mode:o}, killed before call {call}: {:?}", killed.outcome);
                let before = directories_of(&path);
                let again = next.session(&path, Fault::None).outcome;
                assert!(again.unwrap_or_else(|error| panic!("{after}: {error}")), "{after}");
                assert_eq!(directories_of(&path), before, "{after}");
                for extra in extras {
                    assert_eq!(fs::read(path.join(extra)).unwrap(), b"own", "{after}: {extra}");
                }
                let hidden = hidden_below(directory.path());
                assert!(hidden.is_empty(), "{after}: {hidden:?} is left");
                if call >= killed.faults.calls() {
                    break;
                }
                assert!(call + 1 < CALLS_MAX, "a session makes more calls");
            }
        }
    }
}

#[test]
fn what_comes_before_any_call_of_an_exchange_stays() {
    let write = |top: &Path| {
        fs::write(top.join("theirs"), "theirs").unwrap();
        fs::create_dir(top.join("their directory")).unwrap();
        fs::write(top.join("their directory/file"), "theirs").unwrap();
        fs::write(top.join("d/theirs"), "theirs").unwrap();
    };
    for call in 0..CALLS_MAX {
        let directory = in_memory();
        let path = directory.path().join("copy");
        let extras = Before::Tree(3).make(&path);
        // A process in the directory, whatever its name is then.
        let top = path.clone();
        let session = exchanged().session_beside(&path, Fault::Action(call), move || write(&top));
        let after = format!("before call {call}: {:?}", session.outcome);
        if call >= session.faults.calls() {
            assert!(call > 80, "{call}");
            return;
        }
        session.outcome.as_ref().unwrap_or_else(|error| panic!("{after}: {error}"));
        for theirs in ["theirs", "their directory/file", "d/theirs"] {
            assert_eq!(fs::read(path.join(theirs)).unwrap(), b"theirs", "{after}: {theirs}");
        }
        extras.assert_are_there(&after);
    }
    panic!("a session makes more than {CALLS_MAX} calls");
}

#[test]
fn an_exchange_whose_place_is_taken_at_any_call_replaces_nothing_else() {
    for call in 0..CALLS_MAX {
        let directory = in_memory();
        let path = directory.path().join("copy");
        Before::Tree(3).make(&path);
        let top = path.clone();
        let replace = move || {
            fs::rename(&top, top.with_file_name("moved")).unwrap();
            fs::create_dir(&top).unwrap();
            fs::write(top.join("precious"), "hours of work").unwrap();
        };
        let session = exchanged().session_beside(&path, Fault::Action(call), replace);
        let after = format!("before call {call}: {:?}", session.outcome);
        if call >= session.faults.calls() {
            assert!(call > 80, "{call}");
            return;
        }
        let found = fs::read(path.join("precious")).ok();
        assert_eq!(found.as_deref(), Some(&b"hours of work"[..]), "{after}");
        assert!(directory.path().join("moved/changes").exists(), "{after}");
    }
    panic!("a session makes more than {CALLS_MAX} calls");
}

#[test]
fn what_gets_the_name_of_a_file_that_stays_is_not_published() {
    for call in 0..CALLS_MAX {
        let directory = in_memory();
        let path = directory.path().join("copy");
        Before::Tree(3).make(&path);
        let (top, first) = (path.clone(), identity(&path).0);
        let is_early = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&is_early);
        let replace = move || {
            noted.store(identity(&top).0 == first, Ordering::Relaxed);
            fs::rename(top.join("d/stays"), top.with_file_name("moved")).unwrap();
            symlink("/etc/passwd", top.join("d/stays")).unwrap();
        };
        let session = exchanged().session_beside(&path, Fault::Action(call), replace);
        let after = format!("before call {call}: {:?}", session.outcome);
        if call >= session.faults.calls() {
            assert!(call > 80, "{call}");
            return;
        }
        let is_file = fs::symlink_metadata(path.join("d/stays")).is_ok_and(|it| it.is_file());
        let is_wrong = session.outcome.is_ok() && !is_file;
        assert!(!is_wrong || !is_early.load(Ordering::Relaxed), "{after}");
    }
    panic!("a session makes more than {CALLS_MAX} calls");
}

#[test]
fn what_belongs_into_a_directory_that_is_moved_away_is_left_and_named() {
    let mut left = 0;
    for call in 0..CALLS_MAX {
        let directory = in_memory();
        let path = directory.path().join("copy");
        Before::Tree(3).make(&path);
        let top = path.clone();
        let moves = move || {
            let _ = fs::rename(top.join("d"), top.with_file_name("moved"));
        };
        let session = exchanged().session_beside(&path, Fault::Action(call), moves);
        let after = format!("before call {call}: {:?}", session.outcome);
        if call >= session.faults.calls() {
            assert!(left > 2, "{left}");
            return;
        }
        if session.outcome.as_ref().is_err_and(|error| error.to_string().contains(".rdmc-old")) {
            let again = exchanged().session(&path, Fault::None).outcome;
            let Err(TargetError::Left { old, .. }) = again else { panic!("{after}: {again:?}") };
            assert_eq!(fs::read(old.join("d/own")).unwrap(), b"own", "{after}");
            left += 1;
        }
    }
    panic!("a session makes more than {CALLS_MAX} calls");
}

/// Inode and digest of the contents of everything but locks, and what is staged.
fn everything_below(directory: &Path) -> BTreeMap<PathBuf, (u64, blake3::Hash)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let stat = fs::symlink_metadata(&path).unwrap();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if name.contains(".rdmc-") && !name.ends_with("old") {
            continue;
        }
        if stat.is_dir() {
            found.append(&mut everything_below(&path));
        }
        let contents = if stat.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        found.insert(path, (stat.ino(), blake3::hash(&contents)));
    }
    found
}
