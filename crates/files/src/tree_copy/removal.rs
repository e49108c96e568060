//! Removal of a directory with all that is in it.

use std::{ffi::OsStr, os::fd::AsFd};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, fchmod, openat, unlinkat},
    io::Errno,
};

/// Removes a file, or a directory with all that is in it; follows no links.
///
/// Errors: the system's; what could be removed is gone.
pub(crate) fn remove_tree(parent: impl AsFd, name: &OsStr) -> Result<(), Errno> {
    let parent = parent.as_fd();
    match unlinkat(parent, name, AtFlags::empty()) {
        // Some file systems give the second one for a directory.
        Err(Errno::ISDIR | Errno::PERM) => {}
        removed => return removed,
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = match openat(parent, name, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            // A directory of this user that it made unreadable, as the source's was.
            let mode = Mode::from_raw_mode(0o700);
            rustix::fs::chmodat(parent, name, mode, AtFlags::empty())?;
            openat(parent, name, flags, Mode::empty())?
        }
        opened => opened?,
    };
    // Against read-only directories. If it fails, removing what is in it says so.
    let _ = fchmod(&directory, Mode::from_raw_mode(0o700));
    let mut outcome = Ok(());
    for entry in Dir::read_from(&directory)? {
        let entry = entry?;
        let inner = entry.file_name();
        if inner.to_bytes() == b"." || inner.to_bytes() == b".." {
            continue;
        }
        let removed = match entry.file_type() {
            FileType::Directory | FileType::Unknown => remove_tree(&directory, as_os(inner)),
            _ => unlinkat(&directory, inner, AtFlags::empty()),
        };
        outcome = outcome.and(removed);
    }
    outcome?;
    unlinkat(parent, name, AtFlags::REMOVEDIR)
}

fn as_os(name: &std::ffi::CStr) -> &OsStr {
    std::os::unix::ffi::OsStrExt::from_bytes(name.to_bytes())
}
