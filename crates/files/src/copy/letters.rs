//! Names that some file systems do not distinguish.

use std::{
    cell::OnceCell,
    collections::HashMap,
    ffi::{OsStr, OsString},
    os::unix::ffi::OsStrExt,
};

use rustix::fs::Stat;
use tree::Listing;

use super::parents::{folded, split};
use crate::disk::Directory;

/// Finds entries of a tree by names that a host has in other letters.
pub(super) struct Letters<'a> {
    listing: &'a Listing,
    /// Numbers of entries by their paths in small letters, made for the first name that is not in the tree.
    folded: OnceCell<HashMap<String, usize>>,
}

impl<'a> Letters<'a> {
    pub(super) fn new(listing: &'a Listing) -> Self {
        Self { listing, folded: OnceCell::new() }
    }

    /// The number of the entry that something is under another name, which the file system does not distinguish: one of the
    /// names in a directory is found by a name of the tree that is none of them. `path`: in the tree.
    pub(super) fn entry(
        &self,
        directory: &Directory,
        names: &[OsString],
        path: &[u8],
    ) -> Option<usize> {
        let entries = self.listing.entries();
        let all = || (0..).zip(entries).map(|(number, it)| (folded(&it.path), number)).collect();
        let &number = self.folded.get_or_init(all).get(&folded(path))?;
        let name_in = |path| OsStr::from_bytes(split(path).1);
        let (listed, own) = (name_in(&entries[number].path), name_in(path));
        let stat = |name| directory.stat(name).ok();
        let is_same =
            |one: Stat, other: Stat| (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino);
        let is_none = names.iter().all(|other| other != listed);
        (is_none && is_same(stat(listed)?, stat(own)?)).then_some(number)
    }
}
