//! Sessions that are killed before any of their system calls, and the sessions after them.

use std::{
    fs,
    io::Write,
    os::unix::fs::{FileExt, MetadataExt, PermissionsExt},
    path::Path,
    sync::atomic::AtomicBool,
};

use rustix::io::Errno;

use crate::{
    Manifest, Target, TargetError, Verified,
    claim::Owner,
    disk::faults::{Fault, Faults},
    hash::{digest_range, probe},
    place::Place,
    resume::SourceChunks,
};

const BYTES: usize = 10_000;
/// More calls than a session makes.
const CALLS_MAX: u64 = 100;

/// The object of one session.
#[derive(Clone, Copy, Debug)]
struct Object {
    fill: u8,
    mode: u32,
}

impl Object {
    fn manifest(self) -> Manifest {
        Manifest {
            name: "object".into(),
            bytes: BYTES as u64,
            mode: self.mode,
            modified_ns: i64::from(self.fill) * 1_000_000_000,
        }
    }

    fn contents(self) -> Vec<u8> {
        vec![self.fill; BYTES]
    }

    /// A session from the offer to the published copy. True if the copy was there before.
    fn session(self, path: &Path, fault: Fault) -> (Result<bool, TargetError>, Faults) {
        let place = Place::anywhere(path).unwrap();
        let faults = place.disk().faults.clone();
        faults.set(fault);
        (self.receive(place), faults)
    }

    fn receive(self, place: Place) -> Result<bool, TargetError> {
        let mut source = tempfile::tempfile().unwrap();
        source.write_all(&self.contents()).unwrap();
        let (bytes, go_on) = (BYTES as u64, AtomicBool::new(false));
        let (disk, owner) = (place.disk().clone(), Owner::of_no_push("a"));
        let probe = probe(&source, bytes).unwrap();
        let mut target = Target::prepare(place, self.manifest(), &owner, &probe)?;
        let digests = target.chunk_digests(&go_on)?;
        let digest_of =
            |range| digest_range(|into, at| source.read_exact_at(into, at), range, &go_on);
        let right = digests.map(|digests| SourceChunks::new(bytes).matching(&digests, digest_of));
        let has = right.transpose().unwrap().unwrap_or_default();
        target.begin(&has, &go_on)?;
        for half in [0..bytes / 2, bytes / 2..bytes] {
            // Writing a block makes no counted call; a crash before each is possible.
            let is_dead = disk.call() == Err(Errno::CANCELED);
            if !is_dead && !has.covers((half.start, half.end)) {
                let half = half.start as usize..half.end as usize;
                let contents = vec![self.fill; half.len()];
                target.region().write_stored(half).unwrap().copy_from(&contents).unwrap();
            }
        }
        let file = target.file()?;
        let read = |into: &mut [u8], at| file.read_exact_at(into, at);
        let digest = digest_range(read, (0, bytes), &go_on).unwrap();
        // A killed session compares nothing.
        disk.call().map_err(|_| TargetError::Changed(target.path().to_owned()))?;
        target.publish(&Verified::compare(digest, blake3::hash(&self.contents()))?)
    }

    fn assert_is_at(self, path: &Path, after: &str) {
        assert_eq!(fs::read(path).unwrap(), self.contents(), "{after}");
        let metadata = fs::metadata(path).unwrap();
        assert_eq!(metadata.permissions().mode() & 0o7777, self.mode & 0o777, "{after}");
        assert_eq!(metadata.modified().unwrap(), self.manifest().modified(), "{after}");
        let names: Vec<_> = fs::read_dir(path.parent().unwrap()).unwrap().collect();
        assert_eq!(names.len(), 1, "{after}: {names:?}");
    }
}

/// Runs one session for each call, with a fault at that call. `judge` gets the path, the outcome, and a text for
/// messages. `old`: contents and mode of the file that has the name before.
fn at_every_call(
    object: Object,
    old: Option<(&[u8], u32)>,
    fault: impl Fn(u64) -> Fault,
    mut judge: impl FnMut(&Path, Result<bool, TargetError>, &str),
) {
    for call in 0..CALLS_MAX {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("copy");
        if let Some((old, mode)) = old {
            fs::write(&path, old).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let (outcome, faults) = object.session(&path, fault(call));
        let is_reached = call < faults.calls();
        let after = format!("{object:?} after {:?}: {outcome:?}", fault(call));
        let found = fs::read(&path).ok();
        let is_old_or_new =
            found.as_deref() == old.map(|(old, _)| old) || found == Some(object.contents());
        assert!(is_old_or_new, "{after}: neither the old file nor the new one is there");
        judge(&path, outcome, &after);
        if !is_reached {
            // The least number of calls of a whole session.
            assert!(call > 5, "{call}");
            return;
        }
    }
    panic!("a session makes more than {CALLS_MAX} calls");
}

/// Modes of sources: some writable for others, some read-only for the owner.
const MODES: [u32; 4] = [0o600, 0o400, 0o666, 0o4755];

#[test]
fn a_session_killed_at_any_call_does_not_block_the_next() {
    for mode in MODES {
        let killed = Object { fill: 7, mode };
        for next in [killed, Object { fill: 8, mode: 0o644 }] {
            for old in [None, Some((&b"old"[..], 0o644))] {
                at_every_call(killed, old, Fault::Crash, |path, outcome, after| {
                    let (again, _) = next.session(path, Fault::None);
                    again.unwrap_or_else(|error| panic!("{after}: {error}"));
                    next.assert_is_at(path, after);
                    drop(outcome);
                });
            }
        }
    }
}

#[test]
fn a_session_killed_repeatedly_does_not_block_the_next() {
    let object = Object { fill: 7, mode: 0o664 };
    at_every_call(object, None, Fault::Crash, |path, _, after| {
        for call in (0..CALLS_MAX).step_by(3) {
            drop(object.session(path, Fault::Crash(call)));
        }
        object.session(path, Fault::None).0.unwrap();
        object.assert_is_at(path, after);
    });
}

#[test]
fn an_existing_copy_survives_a_kill_at_any_call_and_keeps_its_inode() {
    let object = Object { fill: 7, mode: 0o640 };
    let inode = |path: &Path| fs::metadata(path).unwrap().ino();
    let old = Some((&object.contents()[..], 0o600));
    at_every_call(object, old, Fault::Crash, |path, _, after| {
        let before = inode(path);
        let (again, _) = object.session(path, Fault::None);
        assert!(again.unwrap(), "{after}");
        object.assert_is_at(path, after);
        assert_eq!(inode(path), before, "{after}");
    });
}

#[test]
fn a_copy_writable_for_others_is_replaced_after_a_kill_at_any_call() {
    let object = Object { fill: 7, mode: 0o640 };
    let old = Some((&object.contents()[..], 0o666));
    at_every_call(object, old, Fault::Crash, |path, outcome, after| {
        assert!(!outcome.is_ok_and(|was_there| was_there), "{after}");
        object.session(path, Fault::None).0.unwrap();
        object.assert_is_at(path, after);
    });
}

#[test]
fn a_call_that_fails_leaves_no_copy_behind() {
    let object = Object { fill: 7, mode: 0o640 };
    for errno in [Errno::IO, Errno::NOSPC, Errno::ROFS] {
        let fault = |call| Fault::Error(call, errno);
        at_every_call(object, Some((b"old", 0o644)), fault, |path, _, after| {
            // An unlocked lock file may remain if it could not be removed.
            let entries = fs::read_dir(path.parent().unwrap()).unwrap().flatten();
            let names = entries.map(|entry| entry.file_name().into_string().unwrap());
            let left: Vec<String> = names.filter(|name| name != "copy").collect();
            assert!(left.iter().all(|name| name == ".copy.rdmc-lock"), "{after}: {left:?}");
            object.session(path, Fault::None).0.unwrap();
            object.assert_is_at(path, after);
        });
    }
}

#[test]
fn a_disk_error_at_any_call_is_reported_with_the_remedy() {
    let object = Object { fill: 7, mode: 0o640 };
    for (errno, words) in [
        (Errno::NOSPC, "no space for"),
        (Errno::DQUOT, "more than this user's quota"),
        (Errno::FBIG, "more than a file in"),
        (Errno::ROFS, "is read-only"),
        (Errno::ACCESS, "no permission to write in"),
        (Errno::NOLCK, "has no file locks"),
    ] {
        let mut errors = Vec::new();
        at_every_call(
            object,
            None,
            |call| Fault::Error(call, errno),
            |_, outcome, _| {
                errors.extend(outcome.err().map(|error| error.to_string()));
            },
        );
        assert!(errors.iter().any(|error| error.contains(words)), "{words}: {errors:?}");
    }
}
