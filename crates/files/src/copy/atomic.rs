//! The exchange of an existing directory as a whole (`--atomic`).
//!
//! The new directory is complete, with hard links to files that stay. After the exchange everything in the old one that is not
//! in the tree is moved into the new one, whenever it came; only entries of the tree are removed.

use std::{ffi::OsStr, io::Read, os::unix::fs::MetadataExt};

use rustix::{
    fs::{FileType, OFlags, RenameFlags},
    io::Errno,
    process::geteuid,
};
use tree::{Kind, LISTING_BYTES_MAX, Listing};

use super::{
    error::{TargetError, refusal},
    letters::Letters,
    order::Order,
    parents::Parents,
    publish::with_write_permission,
    there::{There, kind_of, modified_ns},
};
use crate::{
    disk::{Directory, Disk, errno},
    place::{Place, VERSION_DIGITS},
    removal::remove_tree,
};

/// The end of the hidden name that the old directory has after the exchange. Nothing of this name is removed as a whole.
const OLD: &str = "old";
/// The end of the hidden name of the list of what is exchanged.
const LIST: &str = "list";
/// In a directory of that name before the exchange.
const MARK: &str = ".rdmc-staged";
/// How often what comes into the old directory meanwhile is moved.
const SWEEPS_MAX: usize = 4;
/// statfs(2).
const OVERLAYFS: u64 = 0x794c_7630;

fn refused(path: &std::path::Path, reason: impl Into<String>) -> TargetError {
    TargetError::NotAtomic { path: path.to_owned(), reason: reason.into() }
}

/// Checks, before anything is sent, that a directory can be exchanged, and that all that only the host has can be moved
/// then. `existing`: the directory that has the place's name.
///
/// Errors: why not.
pub(super) fn check(
    place: &Place,
    existing: &Directory,
    order: &Order,
    there: &There,
) -> Result<(), TargetError> {
    let path = place.path();
    let system = |error: Errno| refusal(path, "examine", 0, error.into());
    let (own, parent) =
        (existing.own_stat().map_err(system)?, place.parent().own_stat().map_err(system)?);
    if place.parent().is_mount(place.name()) || own.st_dev != parent.st_dev {
        return Err(refused(path, "a file system is mounted on it"));
    }
    if let Some(&mount) = there.mounts.first() {
        let inside = order.shown(&order.entries()[mount].path);
        return Err(refused(path, format!("a file system is mounted on {}", inside.display())));
    }
    if existing.is_of_type(OVERLAYFS) {
        return Err(refused(path, "an overlay file system cannot exchange all of its directories"));
    }
    if place.parent().stat(&place.hidden(OLD)).is_ok() {
        let old = place.directory().join(place.hidden(OLD));
        return Err(TargetError::Left { path: path.to_owned(), old });
    }
    probe(place).map_err(|error| refused(path, std::io::Error::from(error).to_string()))?;
    let mut parents = Parents::new(existing);
    for path in directories(&order.listing) {
        match parents.open(path) {
            Ok(directory) => check_extras(&directory, path, place, order)?,
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => return Err(refusal(&order.shown(path), "open", 0, error.into())),
        }
    }
    Ok(())
}

/// The paths of all directories of a tree, its top first.
fn directories(listing: &Listing) -> impl DoubleEndedIterator<Item = &[u8]> {
    let inner = listing.entries().iter().filter(|entry| entry.kind == Kind::Directory);
    std::iter::once(&b""[..]).chain(inner.map(|entry| entry.path.as_slice()))
}

/// Exchanges two directories there.
fn probe(place: &Place) -> Result<(), Errno> {
    let parent = place.parent();
    let name = |of: &[u8]| place.hidden(&blake3::hash(of).to_hex()[..VERSION_DIGITS]);
    let (one, other) = (name(b"one"), name(b"other"));
    let exchanged = [&one, &other]
        .into_iter()
        .try_for_each(|name| match parent.make_directory(name, 0o700) {
            Err(Errno::EXIST) => Ok(()),
            made => made,
        })
        .and_then(|()| parent.rename_with(&one, parent, &other, RenameFlags::EXCHANGE));
    for name in [&one, &other] {
        // What remains has the name of a temporary directory.
        let _ = parent.remove_directory(name);
    }
    exchanged
}

/// Checks that this user may move what is in a directory of the tree and not in the tree, remove what is in the tree, and give a
/// new directory the owner of the old one.
fn check_extras(
    directory: &Directory,
    path: &[u8],
    place: &Place,
    order: &Order,
) -> Result<(), TargetError> {
    let system = |error: Errno| refusal(&order.shown(path), "examine", 0, error.into());
    let stat = directory.own_stat().map_err(system)?;
    let user = geteuid();
    let not = |path: &[u8], what: &str| {
        Err(refused(place.path(), format!("{} {what}", order.shown(path).display())))
    };
    if !user.is_root() && stat.st_uid != user.as_raw() {
        return not(path, "is another user's");
    }
    for name in directory.names().map_err(system)? {
        let inner = inner_path(path, &name);
        // Entries of the tree are removed from the old directory.
        if directory.is_immutable(&name) {
            return not(&inner, "is immutable or append-only");
        }
        if directory.is_mount(&name) {
            return not(&inner, "is a mount");
        }
        if order.listing.find(&inner).is_some() {
            continue;
        }
        let is_directory = directory.kind(&name) == Some(FileType::Directory);
        // Moving a directory changes its entry `..`.
        let may_move = !is_directory
            || user.is_root()
            || directory.open_directory(&name).is_ok_and(|it| it.check_writable().is_ok());
        if !may_move {
            return not(&inner, "cannot be moved");
        }
    }
    Ok(())
}

fn inner_path(path: &[u8], name: &OsStr) -> Vec<u8> {
    let name = std::os::unix::ffi::OsStrExt::as_bytes(name);
    match path {
        [] => name.to_vec(),
        path => [path, b"/", name].concat(),
    }
}

/// Gives the staged directories owner, group, access control lists and further attributes of the existing ones.
///
/// Errors: one cannot be given.
pub(super) fn copy_attributes(
    existing: &Directory,
    staged: &Directory,
    order: &Order,
) -> Result<(), TargetError> {
    let (mut from, mut to) = (Parents::new(existing), Parents::new(staged));
    for path in directories(&order.listing) {
        let Ok(from) = from.open(path) else { continue };
        let copied = to.open(path).and_then(|to| copy_attributes_of(&from, &to));
        copied.map_err(|error| {
            let reason = format!("attributes of {}: {error}", order.shown(path).display());
            refused(&order.shown, reason)
        })?;
    }
    Ok(())
}

fn copy_attributes_of(from: &Directory, to: &Directory) -> Result<(), Errno> {
    let (one, other) = (from.own_stat()?, to.own_stat()?);
    if one.st_uid != other.st_uid || one.st_gid != other.st_gid {
        to.disk().set_owner(to.as_fd(), Some(one.st_uid), Some(one.st_gid))?;
    }
    // Set with modes at the end, which keep it.
    let mode = to.own_stat()?.st_mode & 0o777 | one.st_mode & 0o2000;
    to.disk().set_mode(to.as_fd(), mode)?;
    for name in Disk::extended_names(from.as_fd())? {
        let value = Disk::extended(from.as_fd(), &name)?;
        to.disk().set_extended(to.as_fd(), &name, &value)?;
    }
    Ok(())
}

/// Exchanges the complete directory of this hidden name with the existing one; [`sweep_all`] has to follow.
///
/// Errors: something else has the place's name by now, then nothing has changed.
pub(super) fn exchange(
    place: &Place,
    existing: &Directory,
    staged: &Directory,
    hidden: &OsStr,
    order: &Order,
) -> Result<(), TargetError> {
    let (parent, old) = (place.parent(), place.hidden(OLD));
    let failed = |what| move |error: Errno| refusal(place.path(), what, 0, error.into());
    let mark = || staged.create(OsStr::new(MARK), 0o600).map(drop);
    let prepared = write_list(place, order)
        .and_then(|()| keeping_attributes(staged, || with_write_permission(staged, mark)))
        .and_then(|()| parent.rename_with(hidden, parent, &old, RenameFlags::NOREPLACE));
    prepared.map_err(failed("rename the temporary directory to"))?;
    let is_existing = |name: &OsStr| parent.is_named_directory(existing, name);
    let exchanged = is_existing(place.name()).and_then(|is_it| match is_it {
        true => parent.rename_with(&old, parent, place.name(), RenameFlags::EXCHANGE),
        false => Err(Errno::STALE),
    });
    // Between the look and the exchange something else may have got the name: it gets it back.
    let checked = exchanged.and_then(|()| match is_existing(&old)? {
        true => Ok(()),
        false => parent
            .rename_with(&old, parent, place.name(), RenameFlags::EXCHANGE)
            .and(Err(Errno::STALE)),
    });
    if let Err(error) = checked {
        // As before, for a later session.
        let _ = parent.rename_with(&old, parent, hidden, RenameFlags::NOREPLACE);
        let _ = remove_mark(staged);
        return Err(match error {
            Errno::STALE | Errno::NOENT => TargetError::Replaced(place.path().to_owned()),
            error => failed("exchange")(error),
        });
    }
    remove_mark(staged).map_err(failed("clean"))?;
    parent.sync().map_err(failed("write to disk the directory of"))
}

/// Removes the mark of a directory before the exchange, if it is there.
fn remove_mark(directory: &Directory) -> Result<(), Errno> {
    let mark = OsStr::new(MARK);
    if directory.stat(mark).err() == Some(Errno::NOENT) {
        return Ok(());
    }
    keeping_attributes(directory, || with_write_permission(directory, || directory.unlink(mark)))
}

/// Changes names in a directory, which has the mode and the time that it had before afterwards. A session that is killed leaves them
/// as they are, and the push that completes its exchange may be of a tree without that directory.
fn keeping_attributes(
    directory: &Directory,
    change: impl FnOnce() -> Result<(), Errno>,
) -> Result<(), Errno> {
    let before = directory.own_stat()?;
    let changed = change();
    let (now, disk) = (directory.own_stat()?, directory.disk());
    let (had, has) = (before.st_mode & 0o7777, now.st_mode & 0o7777);
    let timed = match modified_ns(&now) == modified_ns(&before) {
        true => Ok(()),
        false => match disk.set_modified_ns(directory.as_fd(), modified_ns(&before)) {
            // Another user owns the directory by now.
            Err(Errno::PERM) => Ok(()),
            set => set,
        },
    };
    // Only a mode that this process has set: another one was set by another process.
    let restored = match has != had && has == had | 0o700 {
        true => timed.and(disk.set_mode(directory.as_fd(), had)),
        false => timed,
    };
    changed.and(restored)
}

/// Moves what is only in the old directory into the new one, until nothing is left.
///
/// Errors: something cannot be moved, then it is left in the old directory.
pub(super) fn sweep_all(
    place: &Place,
    old: &Directory,
    new: &Directory,
    listing: &Listing,
) -> Result<(), TargetError> {
    let name = place.hidden(OLD);
    for _ in 0..SWEEPS_MAX {
        sweep(old, new, listing).map_err(|error| {
            refusal(&place.directory().join(&name), "move out of", 0, error.into())
        })?;
        match place.parent().remove_directory(&name) {
            Ok(()) => {
                let _ = place.parent().unlink(&place.hidden(LIST));
                return Ok(());
            }
            Err(Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => return Err(refusal(place.path(), "remove the old", 0, error.into())),
        }
    }
    let old = place.directory().join(name);
    Err(TargetError::Left { path: place.path().to_owned(), old })
}

fn sweep(old: &Directory, new: &Directory, listing: &Listing) -> Result<(), Errno> {
    let (mut from, mut to) = (Parents::new(old), Parents::new(new));
    let letters = Letters::new(listing);
    for path in directories(listing) {
        let Ok(from) = from.open(path) else { continue };
        // Another process has moved the directory away: its entries stay where they are.
        let Ok(to) = to.open(path) else { continue };
        keeping_attributes(&to, || sweep_directory(&from, &to, path, listing, &letters))?;
    }
    // Only empty ones are removed.
    let mut parents = Parents::new(old);
    for path in directories(listing).rev().filter(|path| !path.is_empty()) {
        let _ = parents
            .of(path)
            .and_then(|(at, name)| with_write_permission(at, || at.remove_directory(name)));
    }
    Ok(())
}

/// Moves what is only in a directory of the old tree into that of the new one, and removes entries of the tree.
fn sweep_directory(
    from: &Directory,
    to: &Directory,
    path: &[u8],
    listing: &Listing,
    letters: &Letters<'_>,
) -> Result<(), Errno> {
    let names = from.names()?;
    for name in &names {
        let is_directory = || {
            let stat = from.stat(name);
            stat.is_ok_and(|it| kind_of(&it) == FileType::Directory)
        };
        let inner = inner_path(path, name);
        let listed = listing.find(&inner).or_else(|| letters.entry(from, &names, &inner));
        let outcome = match listed.map(|entry| &listing.entries()[entry].kind) {
            Some(Kind::Directory) if is_directory() => continue,
            Some(_) => with_write_permission(from, || from.unlink(name)),
            None => with_write_permission(from, || {
                with_write_permission(to, || {
                    from.rename_with(name, to, name, RenameFlags::NOREPLACE)
                })
            }),
        };
        match outcome {
            // What has come into the new one under that name stays, and this where it is.
            Ok(()) | Err(Errno::NOENT | Errno::EXIST | Errno::ISDIR | Errno::PERM) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Completes the exchange of a session that was killed. Directories keep their modes and times: they need not be of the tree that
/// is pushed now.
///
/// Errors: something is left in the old directory, which cannot be moved, or of which nothing is known.
pub(super) fn recover(place: &Place, existing: Option<&Directory>) -> Result<(), TargetError> {
    let (parent, old) = (place.parent(), place.hidden(OLD));
    let Ok(found) = parent.open_directory(&old) else {
        // The last of an exchange that is complete.
        let _ = parent.unlink(&place.hidden(LIST));
        let _ = existing.map(remove_mark);
        return Ok(());
    };
    let left = || {
        let (path, old) = (place.path().to_owned(), place.directory().join(&old));
        TargetError::Left { path, old }
    };
    let clean = |error: Errno| refusal(place.path(), "clean", 0, error.into());
    let list = read_list(place).ok_or_else(left)?;
    if found.stat(OsStr::new(MARK)).is_ok() {
        // It was not exchanged: all that is in it is the copy of that session.
        let removed = remove_tree(parent, &old).and_then(|()| parent.unlink(&place.hidden(LIST)));
        return removed.map_err(clean);
    }
    let existing = existing.ok_or_else(left)?;
    remove_mark(existing).map_err(clean)?;
    sweep_all(place, &found, existing, &list)
}

/// Leaves the list of entries of a tree for a session that completes the exchange.
fn write_list(place: &Place, order: &Order) -> Result<(), Errno> {
    let (parent, name) = (place.parent(), place.hidden(LIST));
    match parent.unlink(&name) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(error) => return Err(error),
    }
    let encoded = order.listing.encode().map_err(|_| Errno::FBIG)?;
    let file = parent.create(&name, 0o600)?;
    parent.disk().write(&file, &encoded, 0).map_err(errno)?;
    parent.disk().sync(&file)
}

/// The list of a session of this user.
fn read_list(place: &Place) -> Option<Listing> {
    let file = place.parent().open(&place.hidden(LIST), OFlags::RDONLY).ok()?;
    let metadata = file.metadata().ok()?;
    let is_own = metadata.uid() == geteuid().as_raw() && metadata.mode() & 0o022 == 0;
    if !is_own || !metadata.is_file() || metadata.len() > LISTING_BYTES_MAX as u64 {
        return None;
    }
    let mut encoded = Vec::new();
    file.take(LISTING_BYTES_MAX as u64).read_to_end(&mut encoded).ok()?;
    Listing::decode(&encoded).ok()
}
