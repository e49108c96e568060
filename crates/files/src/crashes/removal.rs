//! Sessions that remove what only the host has.

use std::io::Write;

use super::{beside::before_each_call, *};
use crate::messages::Deletion;

#[test]
fn what_only_the_host_has_is_removed_where_that_is_asked_for() {
    let patterns = vec![(false, "own link".to_owned())];
    let deletion = Some(Deletion { at_top: true, prefix: Vec::new(), patterns });
    let source = Source::tree(7).with(|it| it.deletion = deletion);
    removes_what_only_the_host_has(&source);
    removes_what_only_the_host_has(&source.with(|it| it.atomic = true));
}

/// Kills a session before any of its calls.
fn removes_what_only_the_host_has(source: &Source) {
    for call in 0..CALLS_MAX {
        let directory = in_memory();
        let path = directory.path().join("copy");
        let outside = directory.path().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("file"), "outside").unwrap();
        Before::Tree(3).make(&path);
        symlink("../outside", path.join("own/to outside")).unwrap();
        fs::hard_link(path.join("d/stays"), path.join("own name")).unwrap();
        fs::write(path.join(".other.rdmc-lock"), "another push").unwrap();
        let session = source.session(&path, Fault::Crash(call));
        let after = format!("killed before call {call}: {:?}", session.outcome);
        let is_over = call >= session.faults.calls();
        source.session(&path, Fault::None).outcome.unwrap();
        fs::remove_file(path.join(".other.rdmc-lock")).expect(&after);
        let top = source.top.unwrap().modified_ns as u64;
        let modified = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(top);
        fs::File::open(&path).unwrap().set_modified(modified).unwrap();
        assert_eq!(fs::read(outside.join("file")).unwrap(), b"outside", "{after}");
        assert_eq!(fs::read_link(path.join("own link")).unwrap(), Path::new("nowhere"), "{after}");
        for extra in ["own", "d/own", "own name"] {
            assert!(!path.join(extra).exists(), "{after}: {extra} is left");
        }
        source.assert_is_at(&path, &Extras::default(), &after);
        if is_over {
            return;
        }
    }
    panic!("a session makes more than {CALLS_MAX} calls");
}

#[test]
fn what_comes_while_it_is_removed_stays() {
    let deletion = Some(Deletion { at_top: true, prefix: Vec::new(), patterns: Vec::new() });
    let source = Source::tree(7).with(|it| it.deletion = deletion);
    let make = |path: &Path| drop(Before::Tree(3).make(path));
    let write = |top: &Path| {
        if top.join("own").is_dir() {
            fs::write(top.join("own/theirs"), "theirs").unwrap();
        }
        fs::write(top.join("new"), "new").unwrap();
        fs::write(top.join("replaced"), "replaced").unwrap();
        fs::rename(top.join("replaced"), top.join("d/own")).unwrap();
    };
    let calls = before_each_call(&source, make, write, |path, session, call, after| {
        session.outcome.as_ref().unwrap_or_else(|error| panic!("{after}: {error}"));
        // What was there when the push looked may be removed.
        if call >= session.looked_at {
            assert_eq!(fs::read(path.join("new")).unwrap(), b"new", "{after}");
            assert_eq!(fs::read(path.join("d/own")).unwrap(), b"replaced", "{after}");
        }
    });
    assert!(calls > 50, "{calls}");
}

#[test]
fn what_is_rewritten_before_it_is_removed_stays() {
    let deletion = Some(Deletion { at_top: true, prefix: Vec::new(), patterns: Vec::new() });
    let source = Source::tree(7).with(|it| it.deletion = deletion);
    let make = |path: &Path| drop(Before::Tree(3).make(path));
    let write = |top: &Path| {
        let file = fs::File::options().write(true).truncate(true).open(top.join("own/inner/file"));
        if let Ok(mut file) = file {
            file.write_all(b"rewritten").unwrap();
            fs::write(top.with_file_name("was written"), "").unwrap();
        }
    };
    let calls = before_each_call(&source, make, write, |path, session, call, after| {
        // Between the look at its change time and its removal nothing can be compared: two calls.
        let was_written = path.with_file_name("was written").exists();
        let is_late = was_written && fs::read(path.join("own/inner/file")).is_err();
        let is_removing = session.published_at.is_some_and(|at| call > at);
        assert!(!is_late || call < session.looked_at || is_removing, "{after}");
    });
    assert!(calls > 50, "{calls}");
}

#[test]
fn a_directory_with_something_that_stays_is_not_in_the_way_of_the_next_push() {
    let patterns = vec![(false, "*.keep".to_owned())];
    let deletion = Some(Deletion { at_top: true, prefix: Vec::new(), patterns });
    for atomic in [false, true] {
        let source = Source::tree(7).with(|it| it.deletion = deletion.clone());
        let source = source.with(|it| it.atomic = atomic);
        let directory = in_memory();
        let path = directory.path().join("copy");
        Before::Copy(7).make(&path);
        fs::create_dir(path.join("own")).unwrap();
        fs::write(path.join("own/it.keep"), "stays").unwrap();
        fs::write(path.join("own/goes"), "goes").unwrap();
        assert!(!source.session(&path, Fault::None).outcome.unwrap());
        assert!(!path.join("own/goes").exists());
        // Nothing is left to be done.
        assert!(source.session(&path, Fault::None).outcome.unwrap(), "atomic: {atomic}");
        assert_eq!(fs::read(path.join("own/it.keep")).unwrap(), b"stays");
    }
}

#[test]
fn names_that_differ_by_case_are_no_others_where_that_is_not_distinguished() {
    let deletion = Some(Deletion { at_top: true, prefix: Vec::new(), patterns: Vec::new() });
    let source = Source::tree(7).with(|it| it.deletion = deletion);
    let directory = in_memory();
    let path = directory.path().join("copy");
    Before::Copy(7).make(&path);
    // A further name of a file, a link, and a directory.
    for name in ["name", "link", "d"] {
        fs::rename(path.join(name), path.join(name.to_uppercase())).unwrap();
    }
    let folding = || Injection { folds_case: true, ..Fault::None.injection(|| {}) };
    source.0.session(&path, folding()).outcome.unwrap();
    for name in ["NAME", "LINK", "D/stays"] {
        assert!(path.join(name).symlink_metadata().is_ok(), "{name} was removed");
    }
    assert!(source.0.session(&path, folding()).outcome.unwrap());
}

#[test]
fn names_that_differ_by_case_collide_also_if_the_host_has_linked_the_file() {
    let file = Kind::File { bytes: 0 };
    let entry = |name: &[u8], kind: &Kind| {
        let (path, kind) = (name.to_vec(), kind.clone());
        Entry { path, kind, mode: 0o640, modified_ns: 0 }
    };
    for entries in [
        vec![entry(b"A", &file), entry(b"a", &file)],
        vec![entry(b"0", &file), entry(b"A", &file), entry(b"a", &Kind::Name { of: 0 })],
        vec![entry(b"0", &file), entry(b"A", &Kind::Name { of: 0 }), entry(b"a", &file)],
    ] {
        let directory = in_memory();
        let path = directory.path().join("copy");
        let listing = Listing::new(entries).unwrap();
        let source = Source::other().with(|it| it.listing = listing);
        fs::create_dir(&path).unwrap();
        // It has the attributes of both entries.
        let file = fs::File::create(path.join("a")).unwrap();
        file.set_permissions(fs::Permissions::from_mode(0o640)).unwrap();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        fs::hard_link(path.join("a"), path.join("own")).unwrap();
        let folding = || Injection { folds_case: true, ..Fault::None.injection(|| {}) };
        let outcome = source.0.session(&path, folding()).outcome;
        let text = outcome.expect_err("two entries are one file").to_string();
        assert!(text.contains("are the same file here"), "{text}");
        // Where it is distinguished they are two.
        fs::hard_link(path.join("a"), path.join("A")).unwrap();
        source.session(&path, Fault::None).outcome.unwrap();
        assert_ne!(identity(&path.join("a")).0, identity(&path.join("A")).0);
    }
}

#[test]
fn linked_files_are_two_where_their_names_differ_by_case_from_the_listing_s() {
    let file = Kind::File { bytes: 0 };
    let entry = |name: &[u8]| {
        let (path, kind) = (name.to_vec(), file.clone());
        Entry { path, kind, mode: 0o640, modified_ns: 0 }
    };
    let listing = Listing::new(vec![entry(b"a"), entry(b"b")]).unwrap();
    let source = Source::other().with(|it| it.listing = listing);
    let directory = in_memory();
    let path = directory.path().join("copy");
    fs::create_dir(&path).unwrap();
    fs::write(path.join("A"), "").unwrap();
    fs::hard_link(path.join("A"), path.join("B")).unwrap();
    let folding = Injection { folds_case: true, ..Fault::None.injection(|| {}) };
    source.0.session(&path, folding).outcome.unwrap();
    assert_ne!(identity(&path.join("A")).0, identity(&path.join("B")).0);
}
