//! Sessions that store their copies before they publish them.

use std::sync::{Arc, Mutex};

use rustix::io::Errno;

use super::*;

/// What is replicated, and what has its name before.
fn cases() -> Vec<(Source, Before)> {
    let stores = |source: Source| source.with(|it| it.stores = true);
    let by_contents = |it: &mut CopySource| it.by_contents = true;
    vec![
        (stores(Source::file(7, 0o400)), Before::Nothing),
        (stores(Source::file(7, 0o644)), Before::File(b"old".to_vec(), 0o644)),
        (stores(Source::file(7, 0o644)), Before::File(vec![7; BYTES], 0o600)),
        (stores(Source::tree(7)), Before::Nothing),
        (stores(Source::tree(7)), Before::Tree(3)),
        (stores(Source::tree(7)), Before::Tree(7)),
        (stores(Source::tree(7)).with(by_contents), Before::Tree(3)),
        (stores(Source::tree(7).owned(4)), Before::Owned(3)),
        (stores(Source::tree(7)).with(|it| it.atomic = true), Before::Copy(3)),
    ]
}

/// The number of the first call of publishing.
fn published_at(source: &Source, before: &Before) -> u64 {
    let directory = in_memory();
    let path = directory.path().join("copy");
    before.make(&path);
    source.session(&path, Fault::None).published_at.unwrap()
}

#[test]
fn nothing_that_others_can_see_changes_before_the_order_to_publish() {
    for (source, before) in cases() {
        let at = published_at(&source, &before);
        let directory = in_memory();
        let path = directory.path().join("copy");
        before.make(&path);
        let old = seen_at(&path);
        let seen = Arc::new(Mutex::new(None));
        let (look, kept) = (path.clone(), Arc::clone(&seen));
        let action = move || *kept.lock().unwrap() = Some(seen_at(&look));
        source.session_beside(&path, Fault::Action(at), action).outcome.unwrap();
        assert_eq!(seen.lock().unwrap().take(), Some(old), "{at}");
    }
}

#[test]
fn a_session_that_stores_and_is_killed_at_any_call_does_not_block_the_next() {
    for (source, before) in cases() {
        at_every_call(&source, &before, Fault::Crash, |path, _, extras, after| {
            let again = source.session(path, Fault::None).outcome;
            again.unwrap_or_else(|error| panic!("{after}: {error}"));
            source.assert_is_at(path, extras, after);
        });
    }
}

#[test]
fn storing_or_publishing_that_fails_keeps_what_was_received() {
    for (source, before) in cases() {
        is_complete_after_an_error_at_any_call(&source, &before, Errno::IO);
    }
}

#[test]
fn a_copy_that_was_stored_and_not_published_is_resumed_without_any_data() {
    for (source, before) in cases() {
        let at = published_at(&source, &before);
        let directory = in_memory();
        let path = directory.path().join("copy");
        let extras = before.make(&path);
        // As when no order to publish comes.
        drop(source.session(&path, Fault::Crash(at)));
        let again = source.session(&path, Fault::None);
        again.outcome.unwrap();
        assert_eq!(again.received, Some(0));
        source.assert_is_at(&path, &extras, "stored");
    }
}

type Seen = (BTreeMap<PathBuf, Vec<u8>>, BTreeMap<PathBuf, (u64, u32, u32, i64)>);

/// Contents, and inodes, modes, numbers of names and times of what is at or below a path, but for directories and what is staged.
fn seen_at(path: &Path) -> Seen {
    (contents_below(path), identities_below(path))
}

fn identities_below(path: &Path) -> BTreeMap<PathBuf, (u64, u32, u32, i64)> {
    let mut found = BTreeMap::new();
    let Ok(stat) = fs::symlink_metadata(path) else { return found };
    if !stat.is_dir() {
        found.insert(path.to_owned(), identity(path));
        return found;
    }
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        if !path.file_name().unwrap().to_string_lossy().contains(".rdmc-") {
            found.append(&mut identities_below(&path));
        }
    }
    found
}
