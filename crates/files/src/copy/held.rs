//! What a session holds of its destination: the lock, and the directory that is updated.

use rustix::{
    fs::{FileType, Stat},
    io::Errno,
    process::geteuid,
};

use super::{
    error::{TargetError, refusal},
    order::Order,
    publish::finish_top,
    there::{is_top, keeps_own, modified_ns},
};
use crate::{
    changes::Changes,
    claim::{Claim, ClaimError, Owner},
    disk::Directory,
    messages::Top,
    place::{NAME_BYTES_MAX, Place},
};

/// The lock of a destination, and the directory that is updated, if there is one.
///
/// When it is dropped the directory has its mode again, and its time unless names in it have changed but for the lock.
#[derive(Debug)]
pub(super) struct Held {
    claim: Option<Claim>,
    /// Of the directory's name, beside it, where a push that exchanges the directory has its lock.
    beside: Option<Claim>,
    directory: Option<Directory>,
    /// Of the directory with the destination's name, before anything was changed in it.
    before: Option<Stat>,
    /// The mode that this session has given it.
    set_mode: Option<u32>,
    /// The directory's time once the lock was in it.
    claimed_ns: Option<i64>,
}

impl Held {
    /// Claims a place; not in a dry run, which changes nothing.
    ///
    /// Errors: those of [`Claim::take`].
    fn take(
        place: &Place,
        owner: &Owner,
        there: &Existing<'_>,
        order: &Order,
    ) -> Result<Self, ClaimError> {
        let before = there.directory.map(Directory::own_stat).transpose()?;
        let directory = there.directory.filter(|_| !order.atomic && !order.dry_run).cloned();
        let (set_mode, claimed_ns) = (None, None);
        let mut held = Self { claim: None, beside: None, directory, before, set_mode, claimed_ns };
        if order.dry_run {
            return Ok(held);
        }
        // The lock could not be removed.
        let name = there.name.filter(|name| !name.parent().is_itself_immutable());
        held.beside = match name.map(|name| Claim::take(name, owner)) {
            Some(Err(error @ (ClaimError::Busy(_) | ClaimError::Shared(_)))) => return Err(error),
            // Who cannot write beside the directory cannot exchange it either.
            taken => taken.and_then(Result::ok),
        };
        if let (Some(directory), Some(before)) = (&held.directory, &held.before) {
            held.set_mode = make_writable(directory, before);
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

    /// Whether the directory's name is claimed as well.
    pub(super) fn is_claimed_beside(&self) -> bool {
        self.beside.is_some()
    }

    /// The directory that is updated.
    pub(super) fn directory(&self) -> Option<&Directory> {
        self.directory.as_ref()
    }

    /// The attributes of the directory with the destination's name before the session.
    pub(super) fn before(&self) -> Option<&Stat> {
        self.before.as_ref()
    }

    /// Whether that has the attributes of a tree's top, or keeps its own as it is another user's.
    pub(super) fn has_top(&self, order: &Order) -> bool {
        let has_top = |before: &Stat| is_top(before, order.top) || keeps_own(before, order);
        self.before.as_ref().is_none_or(has_top)
    }

    /// Adds it to the changes if it keeps other attributes than those of a tree's top.
    pub(super) fn note_others(&self, order: &Order, changes: &mut Changes) {
        let keeps = |before: &Stat| !is_top(before, order.top) && keeps_own(before, order);
        if self.before.as_ref().is_some_and(keeps) {
            changes.keep_of_other(b"");
        }
    }

    /// Ends the claim, and then gives the directory its attributes.
    pub(super) fn finish(mut self, top: Top, order: &Order) -> Result<(), TargetError> {
        self.claim = None;
        let Some(directory) = self.directory.take() else { return Ok(()) };
        match finish_top(&directory, top, order)? {
            true => directory
                .sync()
                .map_err(|error| refusal(&order.shown(b""), "write to disk", 0, error.into())),
            false => Ok(()),
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let is_untouched = self.claimed_ns.is_some() && self.modified_ns() == self.claimed_ns;
        self.claim = None;
        let (Some(directory), Some(before)) = (&self.directory, &self.before) else { return };
        // Not one that somebody else has given it since.
        let mode = directory.own_stat().map(|now| now.st_mode & 0o7777);
        if self.set_mode.is_some() && mode.ok() == self.set_mode {
            let _ = directory.disk().set_mode(directory.as_fd(), before.st_mode & 0o7777);
        }
        if is_untouched {
            let _ = directory.disk().set_modified_ns(directory.as_fd(), modified_ns(before));
        }
    }
}

/// Gives a directory of this user its owner's permissions for the time of the session; returns the mode if it was changed. Who
/// cannot is refused later.
fn make_writable(directory: &Directory, stat: &Stat) -> Option<u32> {
    let (mode, user) = (stat.st_mode & 0o7777, geteuid());
    if mode & 0o700 != 0o700 && stat.st_uid == user.as_raw() && !user.is_root() {
        directory.disk().set_mode(directory.as_fd(), mode | 0o700).ok()?;
        return Some(mode | 0o700);
    }
    None
}

/// Only a regular file or a link to one may be replaced by a file.
pub(super) fn check_replaceable(place: &Place) -> Result<(), TargetError> {
    let (kind, remedy) = match place.occupant() {
        None | Some(FileType::RegularFile) => return Ok(()),
        Some(FileType::Directory) => {
            ("a directory", "add / at the end of --dest for a copy in it, or name a file")
        }
        Some(_) => ("not a regular file", "name a file as --dest"),
    };
    Err(TargetError::InTheWay { path: place.path().to_owned(), kind, remedy })
}

/// What is where a tree goes.
#[derive(Default)]
pub(super) struct Existing<'a> {
    /// The directory that is updated, which is the place itself, or exchanged, which has its name.
    pub(super) directory: Option<&'a Directory>,
    /// The name of one that is updated, if there can be a lock beside it.
    pub(super) name: Option<&'a Place>,
}

impl Existing<'_> {
    /// Whether another directory has the name now.
    pub(super) fn was_replaced(&self) -> bool {
        let (Some(directory), Some(name)) = (self.directory, self.name) else { return false };
        name.parent().is_named_directory(directory, name.name()) != Ok(true)
    }
}

/// Claims a place whose name can be written; see [`Held::take`].
pub(super) fn hold(
    place: &Place,
    owner: &Owner,
    there: &Existing<'_>,
    order: &Order,
) -> Result<Held, TargetError> {
    if place.name().len() > NAME_BYTES_MAX {
        return Err(TargetError::LongName(place.path().to_owned()));
    }
    // The lock could not be removed.
    if place.parent().is_itself_immutable() {
        return Err(TargetError::immutable(place.directory().to_owned()));
    }
    let held = Held::take(place, owner, there, order).map_err(|error| match error {
        // By a push that this one has waited for.
        ClaimError::System(_) if there.was_replaced() => {
            TargetError::Replaced(place.path().to_owned())
        }
        error => refused(place, error),
    })?;
    if order.atomic
        && let Some(directory) = there.directory
    {
        check_inside(place, directory)?;
    }
    Ok(held)
}

/// A directory is not exchanged while another push updates it, which may have been unable to claim its name as well.
///
/// Errors: that push.
pub(super) fn check_inside(place: &Place, existing: &Directory) -> Result<(), TargetError> {
    let inside = Place::inside(existing.clone(), place.path());
    Claim::check_free(&inside).map_err(|error| refused(place, error))
}

fn refused(place: &Place, error: ClaimError) -> TargetError {
    let path = place.path().to_owned();
    match error {
        ClaimError::Busy(owner) => {
            let owner = owner.map(|owner| format!(" {owner}")).unwrap_or_default();
            TargetError::Busy { path, owner }
        }
        ClaimError::Shared(owner) => {
            let host = owner.host().to_owned();
            TargetError::Shared { path, owner: format!(" {owner}"), host }
        }
        ClaimError::System(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK) => {
            TargetError::NoLocks(place.directory().to_owned())
        }
        ClaimError::System(error) => no_file(place, error),
    }
}

/// The error for a file that cannot be created.
pub(super) fn no_file(place: &Place, error: Errno) -> TargetError {
    let directory = place.directory();
    // File systems without a fixed number of inodes report 0 for both.
    let has_inodes =
        place.parent().free().map_or(true, |free| free.f_files == 0 || free.f_favail > 0);
    if error == Errno::NOSPC && !has_inodes {
        return TargetError::NoInodes(directory.to_owned());
    }
    match error {
        Errno::INVAL | Errno::ILSEQ | Errno::NOENT if !place.name().is_empty() => {
            // A directory that was removed has no names.
            match place.parent().own_stat() {
                Ok(stat) if stat.st_nlink == 0 => TargetError::MissingParent(directory.to_owned()),
                _ => TargetError::refused_name(place.path().to_owned(), error),
            }
        }
        error => refusal(directory, "create a file in", 0, error.into()),
    }
}
