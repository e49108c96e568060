//! Owners, access lists and `user.*` attributes of copies, where the root asks for them.

use std::{os::fd::AsFd, path::PathBuf};

use rustix::{
    fs::{FileType, Stat, fstat},
    io::Errno,
};
use tree::{Attributes, is_access};

use super::error::TargetError;
use crate::disk::Disk;

/// What an entry is to have besides mode and time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Wanted<'a> {
    pub(super) attributes: &'a Attributes,
    /// It has these access lists, and no others.
    pub(super) access: bool,
    /// It has these `user.*` attributes, and no others.
    pub(super) extended: bool,
}

/// An attribute that cannot be set or read.
#[derive(Debug)]
pub(super) struct Refused {
    what: String,
    remedy: &'static str,
    error: Errno,
}

impl Refused {
    /// The error for a file or directory of another user.
    pub(super) fn foreign() -> Self {
        let remedy = "it belongs to another user: run the receiver as that user or as root, or choose another --dest";
        Self { what: "attributes".into(), remedy, error: Errno::PERM }
    }

    pub(super) fn of(self, path: PathBuf) -> TargetError {
        let Self { what, remedy, error } = self;
        TargetError::Attributes { path, what, remedy, error: error.into() }
    }
}

const EXTENDED_REMEDY: &str = "choose another --dest, or push without --xattrs";
const ACCESS_REMEDY: &str = "choose another --dest, or push without --acls";

fn refused(name: &[u8]) -> impl Fn(Errno) -> Refused {
    let what = format!("the attribute {}", String::from_utf8_lossy(name));
    let remedy = if is_access(name) { ACCESS_REMEDY } else { EXTENDED_REMEDY };
    move |error| Refused { what: what.clone(), remedy, error }
}

impl Wanted<'_> {
    /// Whether what has these attributes is as it is to be. `open`: opens it, if only with `O_PATH`.
    pub(super) fn is_had_by<F: AsFd>(
        &self,
        stat: &Stat,
        open: impl FnOnce() -> Result<F, Errno>,
    ) -> bool {
        let Attributes { user, group, .. } = self.attributes;
        if user.is_some_and(|user| user != stat.st_uid)
            || group.is_some_and(|group| group != stat.st_gid)
        {
            return false;
        }
        if !(self.access || self.extended)
            || FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
        {
            return true;
        }
        let is_had = |opened: &F| {
            let mut found = Vec::new();
            for name in self.names(opened)? {
                let value = Disk::extended(opened, &name)?;
                found.push((name, value));
            }
            found.sort_unstable();
            let wanted = self.attributes.extended.iter().filter(|(name, _)| self.takes(name));
            Ok::<bool, Errno>(wanted.eq(&found))
        };
        // What cannot be read is set, which says why.
        open().and_then(|opened| is_had(&opened)).unwrap_or(false)
    }

    /// The names of those attributes that are to be as the source has them.
    fn names(&self, opened: impl AsFd) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = Disk::extended_names(opened)?;
        names.retain(|name| self.takes(name));
        Ok(names)
    }

    fn takes(&self, name: &[u8]) -> bool {
        match is_access(name) {
            true => self.access,
            false => self.extended && name.starts_with(b"user."),
        }
    }

    /// Sets `user.*` attributes: while this user owns the file, since only who may write it may set them.
    pub(super) fn set_extended(&self, disk: &Disk, opened: impl AsFd) -> Result<(), Refused> {
        self.set(disk, opened, false)
    }

    /// Sets access lists, after the mode, whose bits of the group are the mask of a list.
    pub(super) fn set_access(&self, disk: &Disk, opened: impl AsFd) -> Result<(), Refused> {
        self.set(disk, opened, true)
    }

    fn set(&self, disk: &Disk, opened: impl AsFd, access: bool) -> Result<(), Refused> {
        if !(if access { self.access } else { self.extended }) {
            return Ok(());
        }
        let wanted = self.attributes.extended.iter().filter(|(name, _)| is_access(name) == access);
        let class = if access { &b"system.posix_acl_access"[..] } else { b"user.*" };
        let mut others = self.names(&opened).map_err(refused(class))?;
        others.retain(|name| is_access(name) == access);
        for (name, value) in wanted {
            let is_there = others.iter().position(|other| other == name);
            if let Some(at) = is_there {
                others.swap_remove(at);
            }
            if is_there.is_some() && Disk::extended(&opened, name).as_ref() == Ok(value) {
                continue;
            }
            let set = || disk.set_extended(&opened, name, value);
            writably(disk, &opened, set).map_err(refused(name))?;
        }
        for name in others {
            let remove = || disk.remove_extended(&opened, &name);
            writably(disk, &opened, remove).map_err(refused(&name))?;
        }
        Ok(())
    }

    /// Sets owner and group; before the mode, bits of which this clears.
    pub(super) fn set_owner(&self, disk: &Disk, opened: impl AsFd) -> Result<(), Refused> {
        let Attributes { user, group, .. } = *self.attributes;
        let stat = fstat(&opened).map_err(refused(b"owner"))?;
        if let Some(group) = group.filter(|&group| group != stat.st_gid) {
            disk.set_owner(&opened, None, Some(group)).map_err(|error| Refused {
                what: format!("the group {group}"),
                remedy: "run the receiver as root or as a user in that group, or push without --group",
                error,
            })?;
        }
        if let Some(user) = user.filter(|&user| user != stat.st_uid) {
            disk.set_owner(&opened, Some(user), None).map_err(|error| Refused {
                what: format!("the owner {user}"),
                remedy: "run the receiver as root, or push without --owner",
                error,
            })?;
        }
        Ok(())
    }
}

/// Changes an attribute of a file whose mode does not let its owner write; the mode is set later.
fn writably(
    disk: &Disk,
    opened: impl AsFd,
    change: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match change() {
        Err(Errno::ACCESS) => {
            disk.set_mode(&opened, fstat(&opened)?.st_mode & 0o7777 | 0o600)?;
            change()
        }
        changed => changed,
    }
}
