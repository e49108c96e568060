//! Directories of entries, opened without following links.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Component, Path},
};

use rustix::io::Errno;

use crate::disk::Directory;

/// Opens the directories of entries of a tree on disk; keeps the last one open, since entries come in order.
pub(super) struct Parents {
    top: Directory,
    last: Option<(Vec<u8>, Directory)>,
}

impl Parents {
    pub(super) fn new(top: &Directory) -> Self {
        Self { top: top.clone(), last: None }
    }

    /// The directory of a path, and the last name of the path.
    ///
    /// Errors: the system's; [`Errno::LOOP`] or [`Errno::NOTDIR`] if a component is a link.
    pub(super) fn of<'p>(&mut self, path: &'p [u8]) -> Result<(&Directory, &'p OsStr), Errno> {
        let (parent, name) = split(path);
        let name = OsStr::from_bytes(name);
        if parent.is_empty() {
            return Ok((&self.top, name));
        }
        if self.last.as_ref().is_none_or(|(last, _)| last != parent) {
            self.last = Some((parent.to_vec(), walk(&self.top, parent)?));
        }
        match &self.last {
            Some((_, directory)) => Ok((directory, name)),
            None => Err(Errno::NOENT),
        }
    }

    /// The directory of this path itself; the top for an empty one.
    pub(super) fn open(&mut self, path: &[u8]) -> Result<Directory, Errno> {
        if path.is_empty() {
            return Ok(self.top.clone());
        }
        let (directory, name) = self.of(path)?;
        directory.open_directory(name)
    }
}

fn walk(top: &Directory, path: &[u8]) -> Result<Directory, Errno> {
    let mut directory = top.clone();
    for part in Path::new(OsStr::from_bytes(path)).components() {
        match part {
            Component::Normal(name) => directory = directory.open_directory(name)?,
            _ => return Err(Errno::XDEV),
        }
    }
    Ok(directory)
}

/// The directory and the last name of a path; the directory is empty at the top.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// Whether a path is below a directory of the tree; the top is empty.
pub(super) fn is_below(path: &[u8], directory: &[u8]) -> bool {
    match directory {
        [] => true,
        directory => path.strip_prefix(directory).is_some_and(|rest| rest.first() == Some(&b'/')),
    }
}
