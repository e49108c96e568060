//! Owners and extended attributes of what is listed.

use std::{io, os::unix::fs::MetadataExt, path::Path};

use rustix::{
    fs::{lgetxattr, llistxattr},
    io::Errno,
};
use tree::{Attributes, Kind, is_access};

use super::error::SourceError;

/// The most that Linux has of an entry: names of its attributes together, and one value.
const BYTES_MAX: usize = 64 << 10;

/// What has changed where only these have.
pub(super) const CHANGED: &str = "its owner, access list or attributes were changed";

/// Which attributes are sent besides mode and time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeptAttributes {
    /// Users.
    pub user: bool,
    /// Groups.
    pub group: bool,
    /// Access lists.
    pub access: bool,
    /// `user.*` attributes.
    pub extended: bool,
    /// Users and groups are known by their numbers, also where hosts have other ones of the same name.
    pub numbers: bool,
}

impl KeptAttributes {
    pub(super) fn any(self) -> bool {
        self.user || self.group || self.access || self.extended
    }

    /// Those of a source itself; links are followed.
    ///
    /// Errors: they cannot be read.
    pub(super) fn of_source(self, path: &Path) -> Result<Attributes, SourceError> {
        let failed = |error| {
            let path = path.to_owned();
            SourceError::System { path, what: "examine", error }
        };
        let real = path.canonicalize().map_err(failed)?;
        let metadata = real.metadata().map_err(failed)?;
        let kind = if metadata.is_dir() { Kind::Directory } else { Kind::File { bytes: 0 } };
        self.of(&real, &kind, (metadata.uid(), metadata.gid()))
    }

    /// Those of an entry at a path, which is not followed. `owner`: its user and group.
    ///
    /// Errors: they cannot be read.
    pub(super) fn of(
        self,
        path: &Path,
        kind: &Kind,
        owner: (u32, u32),
    ) -> Result<Attributes, SourceError> {
        let (user, group) = (self.user.then_some(owner.0), self.group.then_some(owner.1));
        let has_own = matches!(kind, Kind::Directory | Kind::File { .. });
        let extended = match has_own && (self.access || self.extended) {
            true => self.extended(path).map_err(|error| SourceError::System {
                path: path.to_owned(),
                what: "read attributes of",
                error,
            })?,
            false => Vec::new(),
        };
        Ok(Attributes { user, group, extended })
    }

    /// In the order of names.
    fn extended(self, path: &Path) -> io::Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut buffer = vec![0; BYTES_MAX];
        let names = match llistxattr(path, &mut buffer[..]) {
            Ok(bytes) => buffer[..bytes].to_vec(),
            Err(Errno::NOTSUP) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let mut extended = Vec::new();
        for name in names.split(|&byte| byte == 0).filter(|name| self.takes(name)) {
            match lgetxattr(path, name, &mut buffer[..]) {
                Ok(bytes) => extended.push((name.to_vec(), buffer[..bytes].to_vec())),
                // Removed meanwhile.
                Err(Errno::NODATA) => {}
                Err(error) => return Err(error.into()),
            }
        }
        extended.sort_unstable();
        Ok(extended)
    }

    fn takes(self, name: &[u8]) -> bool {
        self.access && is_access(name) || self.extended && name.starts_with(b"user.")
    }
}
