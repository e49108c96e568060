//! Directories of entries, opened without following links.

use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::Path,
};

use rustix::io::Errno;

use crate::place::walk_beneath;

/// Opens the directories of entries of a tree on disk; keeps the last one open, since entries come in order.
pub(super) struct Parents<'a> {
    top: &'a OwnedFd,
    last: Option<(Vec<u8>, OwnedFd)>,
}

impl<'a> Parents<'a> {
    pub(super) fn new(top: &'a OwnedFd) -> Self {
        Self { top, last: None }
    }

    /// The directory of a path, and the last name of the path.
    ///
    /// Errors: the system's; [`Errno::LOOP`] if a component is a link.
    pub(super) fn of<'p>(&mut self, path: &'p [u8]) -> Result<(BorrowedFd<'_>, &'p OsStr), Errno> {
        let (parent, name) = split(path);
        let name = OsStr::from_bytes(name);
        if parent.is_empty() {
            return Ok((self.top.as_fd(), name));
        }
        if self.last.as_ref().is_none_or(|(last, _)| last != parent) {
            let directory = walk_beneath(self.top, Path::new(OsStr::from_bytes(parent)))?;
            self.last = Some((parent.to_vec(), directory));
        }
        match &self.last {
            Some((_, directory)) => Ok((directory.as_fd(), name)),
            None => Err(Errno::NOENT),
        }
    }
}

/// The directory and the last name of a path; the directory is empty at the top.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}
