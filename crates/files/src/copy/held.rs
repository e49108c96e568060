//! What a session holds of its destination: the lock, and the directory that is updated.

use rustix::{fs::Stat, io::Errno, process::geteuid};

use super::{
    publish::finish_top,
    there::{is_top, modified_ns},
};
use crate::{
    claim::{Claim, ClaimError, Owner},
    disk::Directory,
    messages::Top,
    place::Place,
};

/// The lock of a destination, and the directory that is updated, if there is one.
///
/// When it is dropped the directory has its mode again, and its time unless names in it have changed but for the lock.
#[derive(Debug)]
pub(super) struct Held {
    claim: Option<Claim>,
    directory: Option<Directory>,
    /// Of the directory with the destination's name, before anything was changed in it.
    before: Option<Stat>,
    /// The directory's time once the lock was in it.
    claimed_ns: Option<i64>,
}

impl Held {
    /// Claims a place. `existing`: the directory of its name or, with `is_inside`, the place itself.
    ///
    /// Errors: those of [`Claim::take`].
    pub(super) fn take(
        (place, owner): (&Place, &Owner),
        existing: Option<&Directory>,
        is_inside: bool,
    ) -> Result<Self, ClaimError> {
        let before = existing.map(Directory::own_stat).transpose()?;
        let directory = existing.filter(|_| is_inside).cloned();
        let mut held = Self { claim: None, directory, before, claimed_ns: None };
        if let (Some(directory), Some(before)) = (&held.directory, &held.before) {
            make_writable(directory, before);
        }
        held.claim = Some(Claim::take(place, owner)?);
        held.claimed_ns = held.modified_ns();
        Ok(held)
    }

    fn modified_ns(&self) -> Option<i64> {
        self.directory.as_ref()?.own_stat().ok().map(|stat| modified_ns(&stat))
    }

    /// Proof that the place is claimed; until it is released.
    pub(super) fn claim(&self) -> Result<&Claim, Errno> {
        self.claim.as_ref().ok_or(Errno::NOLCK)
    }

    /// The directory that is updated.
    pub(super) fn directory(&self) -> Option<&Directory> {
        self.directory.as_ref()
    }

    /// The attributes of the directory with the destination's name before the session.
    pub(super) fn before(&self) -> Option<&Stat> {
        self.before.as_ref()
    }

    /// Whether that has the attributes of a tree's top.
    pub(super) fn has_top(&self, top: Option<Top>) -> bool {
        self.before.as_ref().is_none_or(|before| is_top(before, top))
    }

    /// Ends the claim, and then gives the directory its attributes.
    pub(super) fn finish(mut self, top: Top) -> Result<(), Errno> {
        self.claim = None;
        let Some(directory) = self.directory.take() else { return Ok(()) };
        match finish_top(&directory, top)? {
            true => directory.sync(),
            false => Ok(()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let is_untouched = self.claimed_ns.is_some() && self.modified_ns() == self.claimed_ns;
        self.claim = None;
        let (Some(directory), Some(before)) = (&self.directory, &self.before) else { return };
        // Whoever may not set them has not changed them.
        if directory.own_stat().is_ok_and(|now| now.st_mode != before.st_mode) {
            let _ = directory.disk().set_mode(directory.as_fd(), before.st_mode & 0o7777);
        }
        if is_untouched {
            let _ = directory.disk().set_modified_ns(directory.as_fd(), modified_ns(before));
        }
    }
}

/// Gives a directory of this user its owner's permissions for the time of the session. Who cannot is refused later.
fn make_writable(directory: &Directory, stat: &Stat) {
    let (mode, user) = (stat.st_mode & 0o7777, geteuid());
    if mode & 0o700 != 0o700 && stat.st_uid == user.as_raw() && !user.is_root() {
        let _ = directory.disk().set_mode(directory.as_fd(), mode | 0o700);
    }
}
