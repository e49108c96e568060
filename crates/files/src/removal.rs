//! Removal of a directory with all that is in it.

use std::ffi::OsStr;

use rustix::{fs::FileType, io::Errno};

use crate::disk::Directory;

/// Removes a file, or a directory with all that is in it; follows no links. Only for what is rdmc's own.
///
/// Holds one descriptor for each level. Errors: the system's; what could be removed is gone.
pub(crate) fn remove_tree(parent: &Directory, name: &OsStr) -> Result<(), Errno> {
    match parent.unlink(name) {
        // Some file systems give the second one for a directory.
        Err(Errno::ISDIR | Errno::PERM) => {}
        removed => return removed,
    }
    let directory = open_for_removal(parent, name)?;
    let mut outcome = Ok(());
    for inner in directory.names()? {
        outcome = outcome.and(remove_tree(&directory, &inner));
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
