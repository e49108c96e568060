//! Removal of a directory with all that is in it.

use std::ffi::OsStr;

use rustix::{fs::FileType, io::Errno};
use tree::PATH_BYTES_MAX;

use crate::disk::Directory;

/// The depth limit of a removal: more levels than a staged tree has, whose paths have at most [`PATH_BYTES_MAX`] bytes. Other users may
/// make deeper directories under the names that rdmc uses, and each level of the recursion holds a file descriptor.
const LEVELS_MAX: usize = PATH_BYTES_MAX / 2 + 2;

/// Removes a file, or a directory with all that is in it; follows no links. Only for what is rdmc's own.
///
/// Holds one descriptor for each level. Errors: the system's, [`Errno::NAMETOOLONG`] if it is deeper than any tree; what could be
/// removed is gone.
pub(crate) fn remove_tree(parent: &Directory, name: &OsStr) -> Result<(), Errno> {
    remove_levels(parent, name, LEVELS_MAX)
}

/// `levels`: how deep directories in it may be.
fn remove_levels(parent: &Directory, name: &OsStr, levels: usize) -> Result<(), Errno> {
    match parent.unlink(name) {
        // Some file systems give the second one for a directory.
        Err(Errno::ISDIR | Errno::PERM) => {}
        removed => return removed,
    }
    let directory = open_for_removal(parent, name)?;
    let mut outcome = Ok(());
    for inner in directory.names()? {
        outcome = outcome.and(match levels {
            0 => Err(Errno::NAMETOOLONG),
            levels => remove_levels(&directory, &inner, levels - 1),
        });
    }
    drop(directory);
    outcome?;
    parent.remove_directory(name)
}

/// Opens a directory of this user and makes it writable, as the source's may not have been.
fn open_for_removal(parent: &Directory, name: &OsStr) -> Result<Directory, Errno> {
    let writable = 0o700;
    let directory = match parent.open_directory(name) {
        Err(Errno::ACCESS) => {
            let opened = parent.open_path(name)?;
            let stat = rustix::fs::fstat(&opened)?;
            if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
                return Err(Errno::NOTDIR);
            }
            parent.disk().set_mode(&opened, writable)?;
            parent.open_directory(name)?
        }
        opened => opened?,
    };
    if directory.own_stat()?.st_mode & 0o700 != writable {
        // If it fails, removing what is in it says so.
        let _ = directory.disk().set_mode(directory.as_fd(), writable);
    }
    Ok(directory)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use rustix::process::{Resource, getrlimit, setrlimit};

    use super::*;
    use crate::place::Place;

    /// With the stack of a thread as tests have them.
    #[test]
    fn what_is_deeper_than_any_tree_is_not_removed() {
        let mut descriptors = getrlimit(Resource::Nofile);
        descriptors.current = descriptors.maximum;
        setrlimit(Resource::Nofile, descriptors).unwrap();
        if descriptors.maximum.is_some_and(|limit| limit < 2 * LEVELS_MAX as u64) {
            println!("SKIPPED: needs a descriptor for each level (ulimit -Hn)");
            return;
        }
        for (levels, outcome) in [(LEVELS_MAX, Ok(())), (LEVELS_MAX + 1, Err(Errno::NAMETOOLONG))] {
            let directory = tempfile::tempdir().unwrap();
            let place = Place::anywhere(&directory.path().join("top")).unwrap();
            place.parent().make_directory(place.name(), 0o700).unwrap();
            let mut last = place.parent().open_directory(place.name()).unwrap();
            for _ in 0..levels {
                last.make_directory(OsStr::new("d"), 0o700).unwrap();
                last = last.open_directory(OsStr::new("d")).unwrap();
            }
            drop(last);
            assert_eq!(remove_tree(place.parent(), place.name()), outcome);
            assert_eq!(place.path().exists(), outcome.is_err());
            assert!(Command::new("rm").arg("-rf").arg(place.path()).status().unwrap().success());
        }
    }
}
