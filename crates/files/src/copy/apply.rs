//! Gives what is open its mode, time and further attributes.

use std::os::fd::AsFd;

use rustix::{
    fs::{FileType, fstat},
    io::Errno,
};

use super::{
    attributes::{Refused, Wanted},
    error::{TargetError, refusal},
    order::Order,
    there::{has_mode, kind_of, mode_for},
};
use crate::disk::Directory;

/// What an entry is to have.
pub(super) struct Attributes<'a> {
    pub(super) mode: u32,
    pub(super) modified_ns: i64,
    pub(super) wanted: Option<Wanted<'a>>,
}

/// Why attributes cannot be set.
pub(super) enum AttributesError {
    System(Errno),
    Refused(Refused),
}

impl AttributesError {
    pub(super) fn named(self, order: &Order, path: &[u8]) -> TargetError {
        match self {
            Self::System(error) => {
                refusal(&order.shown(path), "set mode and time of", 0, error.into())
            }
            Self::Refused(refused) => refused.of(order.shown(path)),
        }
    }
}

impl From<Errno> for AttributesError {
    fn from(error: Errno) -> Self {
        Self::System(error)
    }
}

impl From<Refused> for AttributesError {
    fn from(refused: Refused) -> Self {
        Self::Refused(refused)
    }
}

/// Sets the attributes of what is open; returns its inode.
pub(super) fn set_attributes(
    directory: &Directory,
    opened: &impl AsFd,
    Attributes { mode, modified_ns, wanted }: Attributes<'_>,
) -> Result<u64, AttributesError> {
    let (stat, disk) = (fstat(opened)?, directory.disk());
    if kind_of(&stat) == FileType::Symlink {
        return Err(Errno::LOOP.into());
    }
    if let Some(wanted) = wanted {
        wanted.set_extended(disk, opened)?;
    }
    // Before the mode: without the right to read, some file systems refuse it.
    disk.set_modified_ns(opened, modified_ns)?;
    let now = match wanted {
        Some(wanted) => {
            wanted.set_owner(disk, opened)?;
            // Bits of the mode may be gone.
            fstat(opened)?
        }
        None => stat,
    };
    if !has_mode(&now, mode) {
        disk.set_mode(opened, mode_for(&stat, mode))?;
    }
    if let Some(wanted) = wanted {
        wanted.set_access(disk, opened)?;
    }
    Ok(stat.st_ino)
}
