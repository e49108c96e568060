//! A session that ends before any one of its system calls, and what the next one makes of it.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use rustix::io::Errno;

use crate::{
    Manifest, Target, TargetError, Verified,
    claim::Owner,
    disk::faults::{Fault, Faults},
    place::Place,
};

const BYTES: usize = 10_000;
/// More than a session makes.
const CALLS_MAX: u64 = 100;

/// What one session brings.
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

    /// From the offer until the copy has its name.
    fn session(self, path: &Path, fault: Fault) -> (Result<(), TargetError>, Faults) {
        let place = Place::anywhere(path).unwrap();
        let faults = place.disk().faults.clone();
        faults.set(fault);
        let outcome = Target::create_at(place.clone(), self.manifest(), &Owner::of_no_push("a"));
        let outcome = outcome.and_then(|target| {
            for half in [0..BYTES / 2, BYTES / 2..BYTES] {
                // Blocks are no calls; a crash may come before each.
                let arrives = place.disk().call();
                if !arrives.is_err_and(|error| error == Errno::CANCELED) {
                    target.region().write(half).unwrap().fill(self.fill);
                }
            }
            let digest = blake3::hash(b"");
            target.publish(&Verified::compare(digest, digest)?)
        });
        (outcome, faults)
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

/// Runs sessions with a fault at each of their calls, one after another. `judge` gets the number of the call, the
/// outcome, and the path; it answers nothing.
fn at_every_call(
    object: Object,
    old: Option<&[u8]>,
    fault: impl Fn(u64) -> Fault,
    mut judge: impl FnMut(&Path, Result<(), TargetError>, &str),
) {
    for call in 0..CALLS_MAX {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("copy");
        if let Some(old) = old {
            fs::write(&path, old).unwrap();
        }
        let (outcome, faults) = object.session(&path, fault(call));
        let is_reached = call < faults.calls();
        let after = format!("{object:?} after {:?}: {outcome:?}", fault(call));
        let found = fs::read(&path).ok();
        let is_old_or_new = found.as_deref() == old || found == Some(object.contents());
        assert!(is_old_or_new, "{after}: neither the old file nor the new one is there");
        judge(&path, outcome, &after);
        if !is_reached {
            // As many as a whole session has, at least.
            assert!(call > 10, "{call}");
            return;
        }
    }
    panic!("a session makes more than {CALLS_MAX} calls");
}

/// Modes that a source can have; some let others write, some not even the owner.
const MODES: [u32; 6] = [0o600, 0o400, 0o640, 0o666, 0o4755, 0o000];

#[test]
fn a_session_that_is_killed_anywhere_is_no_obstacle_to_the_next() {
    for mode in MODES {
        let killed = Object { fill: 7, mode };
        for next in [killed, Object { fill: 8, mode: 0o644 }] {
            for old in [None, Some(&b"old"[..])] {
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
fn a_session_that_is_killed_again_and_again_is_no_obstacle_either() {
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
fn a_call_that_fails_leaves_no_copy_behind() {
    let object = Object { fill: 7, mode: 0o640 };
    for errno in [Errno::IO, Errno::NOSPC, Errno::ROFS] {
        let fault = |call| Fault::Error(call, errno);
        at_every_call(object, Some(b"old"), fault, |path, _, after| {
            // A lock that nobody holds may stay where it could not be removed; it is empty.
            let entries = fs::read_dir(path.parent().unwrap()).unwrap().flatten();
            let names = entries.map(|entry| entry.file_name().into_string().unwrap());
            let left: Vec<String> = names.filter(|name| name != "copy").collect();
            assert!(left.iter().all(|name| name == ".copy.rdmc-lock"), "{after}: {left:?}");
            object.session(path, Fault::None).0.unwrap();
            object.assert_is_at(path, after);
        });
    }
}
