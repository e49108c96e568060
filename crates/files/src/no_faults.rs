//! What is between decisions and system calls where nothing is injected: nothing.

use std::{
    borrow::Cow,
    ffi::OsStr,
    os::fd::{AsFd, OwnedFd},
    path::PathBuf,
};

use rustix::{
    fs::{OFlags, RenameFlags, Stat},
    io::Result,
};

/// See `faults.rs`, which tests and the simulator have instead.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Faults;

#[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests inject faults here")]
impl Faults {
    pub(crate) fn call(self) -> Result<()> {
        Ok(())
    }

    pub(crate) fn call_on(self, _name: &OsStr) -> Result<()> {
        Ok(())
    }

    pub(crate) fn name<'n>(self, _directory: &OwnedFd, name: &'n OsStr) -> Cow<'n, OsStr> {
        Cow::Borrowed(name)
    }

    pub(crate) fn creating(self, flags: OFlags) -> OFlags {
        flags
    }

    pub(crate) fn renaming(self, flags: RenameFlags) -> RenameFlags {
        flags
    }

    pub(crate) fn seen(self, stat: Stat) -> Stat {
        stat
    }

    pub(crate) fn compared(self, is_same: bool) -> bool {
        is_same
    }

    pub(crate) fn path_of(self, _file: impl AsFd) -> Option<PathBuf> {
        None
    }

    pub(crate) fn links_early(self) -> bool {
        false
    }
}
