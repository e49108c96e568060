//! The hidden directory in which a copy of a tree is built.

use std::{
    ffi::{OsStr, OsString},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, chmodat, fchmod, mkdirat, openat, statat},
    io::Errno,
    process::geteuid,
};
use tree::{Kind, Listing};

use super::{parents::Parents, removal::remove_tree};
use crate::place::{Place, VERSION_DIGITS};

/// The directory `.NAME.rdmc-VERSION`; removed when dropped, unless it was published or is kept.
#[derive(Debug)]
pub(super) struct Staging {
    parent: Arc<OwnedFd>,
    pub(super) name: OsString,
    pub(super) top: Arc<OwnedFd>,
    /// It is that of an earlier session.
    pub(super) is_old: bool,
    pub(super) is_removed_when_dropped: bool,
}

impl Staging {
    /// The name for a version of a tree.
    fn name(place: &Place, version: &blake3::Hash) -> OsString {
        place.hidden(&version.to_hex()[..VERSION_DIGITS])
    }

    /// Opens what an earlier session left of this version; `None` if there is nothing that only this user could have
    /// written.
    pub(super) fn find(place: &Place, version: &blake3::Hash) -> Option<Self> {
        let (parent, name) = (place.disk().shared(), Self::name(place, version));
        let stat = statat(&*parent, &name, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let is_own = stat.st_uid == geteuid().as_raw() && stat.st_mode & 0o022 == 0;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory || !is_own {
            return None;
        }
        let top = open_directory(&parent, &name).ok()?;
        fchmod(&top, Mode::from_raw_mode(0o700)).ok()?;
        let top = Arc::new(top);
        Some(Self { parent, name, top, is_old: true, is_removed_when_dropped: true })
    }

    /// Makes the directory anew.
    pub(super) fn create(place: &Place, version: &blake3::Hash) -> Result<Self, Errno> {
        let (parent, name) = (place.disk().shared(), Self::name(place, version));
        let mode = Mode::from_raw_mode(0o700);
        match mkdirat(&*parent, &name, mode) {
            Err(Errno::EXIST) => {
                remove_tree(&*parent, &name)?;
                mkdirat(&*parent, &name, mode)?;
            }
            made => made?,
        }
        let top = Arc::new(open_directory(&parent, &name)?);
        Ok(Self { parent, name, top, is_old: false, is_removed_when_dropped: true })
    }

    /// Removes what is not the beginning of a copy of this tree: an earlier session that was killed while it published may
    /// have linked files of the existing tree here, which must not be written, or have left the whole old tree.
    ///
    /// Errors: something cannot be removed.
    pub(super) fn clean(&self, listing: &Listing) -> Result<(), Errno> {
        clean(&self.top, b"", listing)
    }

    /// Makes the directories of a tree.
    pub(super) fn make_directories(&self, listing: &Listing) -> Result<(), (usize, Errno)> {
        let mut parents = Parents::new(&self.top);
        for (number, entry) in listing.entries().iter().enumerate() {
            let failed = |error| (number, error);
            let (directory, name) = parents.of(&entry.path).map_err(failed)?;
            match entry.kind {
                Kind::Directory => {
                    let mode = Mode::from_raw_mode(0o700);
                    match mkdirat(directory, name, mode) {
                        Err(Errno::EXIST) if self.is_old => {
                            chmodat(directory, name, mode, AtFlags::empty()).map_err(failed)?;
                        }
                        made => made.map_err(failed)?,
                    }
                }
                Kind::File { .. } | Kind::Link { .. } | Kind::Name { .. } => {}
            }
        }
        Ok(())
    }

    /// Leaves the directory for a later session.
    pub(super) fn keep(mut self) {
        self.is_removed_when_dropped = false;
    }

    pub(super) fn parent(&self) -> &OwnedFd {
        &self.parent
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if self.is_removed_when_dropped {
            // What remains is removed by the next push to this destination.
            let _ = remove_tree(&*self.parent, &self.name);
        }
    }
}

/// Leaves directories of the listing, and regular files of it that have one name and that only this user can write.
fn clean(directory: &OwnedFd, path: &[u8], listing: &Listing) -> Result<(), Errno> {
    for name in names_in(directory)? {
        let inner = match path {
            [] => name.as_bytes().to_vec(),
            path => [path, b"/", name.as_bytes()].concat(),
        };
        let stat = statat(directory, &name, AtFlags::SYMLINK_NOFOLLOW)?;
        let is_own = stat.st_uid == geteuid().as_raw() && stat.st_mode & 0o022 == 0;
        let kind = listing.find(&inner).map(|entry| &listing.entries()[entry].kind);
        match (kind, FileType::from_raw_mode(stat.st_mode)) {
            (Some(Kind::Directory), FileType::Directory) if stat.st_uid == geteuid().as_raw() => {
                chmodat(directory, &name, Mode::from_raw_mode(0o700), AtFlags::empty())?;
                clean(&open_directory(directory, &name)?, &inner, listing)?;
            }
            (Some(Kind::File { .. }), FileType::RegularFile) if is_own && stat.st_nlink == 1 => {
                // Of a session that had set its mode.
                chmodat(directory, &name, Mode::from_raw_mode(0o600), AtFlags::empty())?;
            }
            _ => remove_tree(directory, &name)?,
        }
    }
    Ok(())
}

fn names_in(directory: &OwnedFd) -> Result<Vec<OsString>, Errno> {
    // A descriptor of its own: reading moves its position.
    let reader = open_directory(directory, OsStr::new("."))?;
    let mut names = Vec::new();
    for entry in Dir::read_from(&reader)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(OsStr::from_bytes(name).to_owned());
        }
    }
    Ok(names)
}

pub(super) fn open_directory(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}
