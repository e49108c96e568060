//! Writing a tree to disk.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{Mode, OFlags, fsync, openat, syncfs},
    io::Errno,
};
use tree::{Kind, Listing};

use super::parents::Parents;

/// Up to this many entries are written to disk one by one; for more, the whole file system is.
const ENTRIES_MAX: usize = 256;

/// Writes the files and directories of a tree to disk; blocks.
///
/// Errors: the system's.
pub(super) fn sync_tree(top: &OwnedFd, listing: &Listing) -> Result<(), Errno> {
    if listing.entries().len() > ENTRIES_MAX {
        return syncfs(top);
    }
    let mut parents = Parents::new(top);
    for entry in listing.entries() {
        if matches!(entry.kind, Kind::Directory | Kind::File { .. }) {
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
            let opened = parents
                .of(&entry.path)
                .and_then(|(directory, name)| openat(directory, name, flags, Mode::empty()));
            match opened {
                Ok(file) => fsync(&file)?,
                // The source's owner may not read it either.
                Err(Errno::ACCESS) => return syncfs(top),
                Err(error) => return Err(error),
            }
        }
    }
    fsync(top)
}
