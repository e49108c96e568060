//! Owners and extended attributes of what is listed.

use std::{io, path::Path};

use rustix::{
    fs::{lgetxattr, llistxattr},
    io::Errno,
};
use tree::{Attributes, Kind};

use super::error::SourceError;

/// The most that Linux has of an entry: names of its attributes together, and one value.
const BYTES_MAX: usize = 64 << 10;

/// Which attributes are sent besides mode and time.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct KeptAttributes {
    /// Users, by number.
    pub user: bool,
    /// Groups, by number.
    pub group: bool,
    /// Access lists.
    pub access: bool,
    /// `user.*` attributes.
    pub extended: bool,
}

impl KeptAttributes {
    pub(super) fn any(self) -> bool {
        self != Self::default()
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
        let is_access = name.starts_with(b"system.posix_acl_");
        self.access && is_access || self.extended && name.starts_with(b"user.")
    }
}
