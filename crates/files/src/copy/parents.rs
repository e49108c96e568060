//! Directories of entries, opened without following links.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use rustix::io::Errno;

use crate::disk::Directory;

/// The most directories that are kept open.
const OPEN_MAX: usize = 32;

/// Opens the directories of entries of a tree on disk. Keeps those on the way to the last one open, since entries come in order:
/// a chain of directories is opened once, and not from the top for each of them.
pub(super) struct Parents {
    top: Directory,
    /// The deepest directories on the way to `path`, each with the length of its path.
    open: Vec<(usize, Directory)>,
    path: Vec<u8>,
    #[cfg(test)]
    opened: usize,
}

impl Parents {
    pub(super) fn new(top: &Directory) -> Self {
        Self {
            top: top.clone(),
            open: Vec::new(),
            path: Vec::new(),
            #[cfg(test)]
            opened: 0,
        }
    }

    /// The directory of a path, and the last name of the path.
    ///
    /// Errors: the system's; [`Errno::LOOP`] or [`Errno::NOTDIR`] if a component is a link.
    pub(super) fn of<'p>(&mut self, path: &'p [u8]) -> Result<(&Directory, &'p OsStr), Errno> {
        let (parent, name) = split(path);
        self.walk_to(parent)?;
        Ok((self.last(), OsStr::from_bytes(name)))
    }

    /// The directory of this path itself; the top for an empty one.
    pub(super) fn open(&mut self, path: &[u8]) -> Result<Directory, Errno> {
        self.walk_to(path)?;
        Ok(self.last().clone())
    }

    fn last(&self) -> &Directory {
        self.open.last().map_or(&self.top, |(_, directory)| directory)
    }

    /// Opens what lies between the last directory on both ways and this one.
    fn walk_to(&mut self, path: &[u8]) -> Result<(), Errno> {
        let open_to = self.open.last().map_or(0, |&(length, _)| length);
        if open_to == path.len() && self.path == path {
            return Ok(());
        }
        let common = self.path.iter().zip(path).take_while(|(one, other)| one == other).count();
        let is_on_both =
            |length: usize| length <= common && (length == path.len() || path[length] == b'/');
        while self.open.pop_if(|(length, _)| !is_on_both(*length)).is_some() {}
        self.path.truncate(common);
        self.path.extend_from_slice(&path[common..]);
        let mut at = self.open.last().map_or(0, |&(length, _)| length);
        while at < path.len() {
            let start = if at == 0 { 0 } else { at + 1 };
            let length = path[start..].iter().position(|&byte| byte == b'/');
            at = length.map_or(path.len(), |length| start + length);
            let name = &path[start..at];
            if matches!(name, b"" | b"." | b"..") {
                return Err(Errno::XDEV);
            }
            let directory = self.last().open_directory(OsStr::from_bytes(name))?;
            if self.open.len() == OPEN_MAX {
                self.open.remove(0);
            }
            self.open.push((at, directory));
            #[cfg(test)]
            {
                self.opened += 1;
            }
        }
        Ok(())
    }
}

/// The directory and the last name of a path; the directory is empty at the top.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|&byte| byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (&[], path),
    }
}

/// A path in small letters, as far as it is text: paths that some file system does not distinguish are the same.
pub(super) fn folded(path: &[u8]) -> String {
    String::from_utf8_lossy(path).to_lowercase()
}

/// Whether a path is below a directory of the tree; the top is empty.
pub(super) fn is_below(path: &[u8], directory: &[u8]) -> bool {
    match directory {
        [] => true,
        directory => path.strip_prefix(directory).is_some_and(|rest| rest.first() == Some(&b'/')),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::place::Place;

    #[test]
    fn a_chain_of_directories_is_opened_once_and_names_are_right() {
        const DEPTH: usize = 300;
        let directory = tempfile::tempdir().unwrap();
        let top = Place::anywhere(&directory.path().join("top")).unwrap();
        fs::create_dir_all(top.path().join(["d"; DEPTH].join("/"))).unwrap();
        fs::create_dir(top.path().join("dd")).unwrap();
        let top = top.parent().open_directory(top.name()).unwrap();
        let inode = |directory: &Directory| directory.own_stat().unwrap().st_ino;
        let mut parents = Parents::new(&top);
        let mut inodes = Vec::new();
        for depth in 1..=DEPTH {
            inodes.push(inode(&parents.open(["d"; DEPTH][..depth].join("/").as_bytes()).unwrap()));
        }
        assert_eq!((parents.opened, parents.open.len()), (DEPTH, OPEN_MAX));
        // Upwards, as for entries after a directory.
        for depth in (1..=DEPTH).rev() {
            let path = [["d"; DEPTH][..depth].join("/").as_bytes(), b"/file"].concat();
            let (parent, name) = parents.of(&path).unwrap();
            assert_eq!((inode(parent), name), (inodes[depth - 1], OsStr::new("file")));
        }
        assert!(parents.opened < DEPTH * DEPTH / OPEN_MAX, "{}", parents.opened);
        assert_eq!(inode(&parents.open(b"").unwrap()), inode(&top));
        assert_ne!(inode(&parents.open(b"dd").unwrap()), inodes[0]);
        assert_eq!(inode(&parents.open(b"d").unwrap()), inodes[0]);
        for path in [&b"d/../d"[..], b"d//d", b".", b"d/."] {
            assert_eq!(parents.open(path).err(), Some(Errno::XDEV));
        }
        assert_eq!(parents.open(b"d/missing/d").err(), Some(Errno::NOENT));
        assert_eq!(inode(&parents.open(b"d/d").unwrap()), inodes[1]);
    }
}
