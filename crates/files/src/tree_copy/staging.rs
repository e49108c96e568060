//! The hidden directory in which a copy of a tree is built.

use std::{
    ffi::{OsStr, OsString},
    os::fd::OwnedFd,
    sync::Arc,
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, fchmod, mkdirat, openat, statat},
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

    /// Makes the directories of a tree; removes what only an end of an earlier session can have made.
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
                            rustix::fs::chmodat(directory, name, mode, AtFlags::empty())
                                .map_err(failed)?;
                        }
                        made => made.map_err(failed)?,
                    }
                }
                Kind::Link { .. } | Kind::Name { .. } if self.is_old => {
                    match remove_tree(directory, name) {
                        Ok(()) | Err(Errno::NOENT) => {}
                        Err(error) => return Err(failed(error)),
                    }
                }
                _ => {}
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

pub(super) fn open_directory(parent: &OwnedFd, name: &OsStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(parent, name, flags, Mode::empty())
}
