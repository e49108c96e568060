//! Completes a verified copy of a tree in its hidden directory, and gives it its name.

use std::os::{fd::OwnedFd, unix::ffi::OsStrExt};

use rustix::{
    fs::{
        AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps, UTIME_OMIT,
        chmodat, fchmod, fsync, futimens, linkat, mkdirat, openat, renameat, renameat_with, statat,
        symlinkat, syncfs, unlinkat, utimensat,
    },
    io::Errno,
};
use tree::{Entry, Kind, Listing};

use super::{
    compare::{has_time, kind_of},
    extras::add_extras,
    files::CopyFiles,
    parents::Parents,
    removal::remove_tree,
    staging::{Staging, open_directory},
    sync::sync_tree,
};
use crate::{messages::Top, place::Place};

/// Why a tree cannot be published: what could not be done, and to which entry.
#[derive(Debug)]
pub(super) struct PublishError {
    pub(super) what: &'static str,
    /// In the tree; empty for its top.
    pub(super) path: Vec<u8>,
    pub(super) error: Errno,
}

type Outcome = Result<(), PublishError>;

fn failed(what: &'static str, path: &[u8]) -> impl FnOnce(Errno) -> PublishError {
    let path = path.to_vec();
    move |error| PublishError { what, path, error }
}

/// Completes the hidden directory: kept files, empty ones, links, attributes.
///
/// `with_kept`: the directory becomes the tree, so that it gets the files that are kept where they are.
pub(super) fn complete(files: &CopyFiles, top: &OwnedFd, with_kept: bool) -> Outcome {
    let listing = &files.listing;
    let mut staged = Parents::new(top);
    let mut existing = files.existing.as_deref().map(Parents::new);
    let mut file = 0;
    for entry in listing.entries() {
        match &entry.kind {
            Kind::Directory => {}
            Kind::File { bytes: 0 } => {
                let made = staged.of(&entry.path).and_then(|(directory, name)| {
                    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW;
                    openat(directory, name, flags, Mode::from_raw_mode(0o600))
                });
                made.map_err(failed("create", &entry.path))?;
            }
            Kind::File { .. } => {
                let is_kept = files.kept[file];
                file += 1;
                if let Some(existing) = existing.as_mut().filter(|_| is_kept && with_kept) {
                    keep_file(existing, &mut staged, entry, files.by_contents)?;
                    correct_attributes(&mut staged, entry)?;
                }
                if is_kept {
                    continue;
                }
            }
            Kind::Name { of } => {
                let first = &listing.entries()[*of as usize].path;
                let made = link_name(files, top, &mut staged, (first, &entry.path), with_kept);
                made.map_err(failed("link", &entry.path))?;
                continue;
            }
            Kind::Link { target } => {
                let made = staged.of(&entry.path).and_then(|(directory, name)| {
                    symlinkat(std::ffi::OsStr::from_bytes(target), directory, name)
                });
                made.map_err(failed("create", &entry.path))?;
            }
        }
        if !matches!(entry.kind, Kind::Directory) {
            set_attributes(&mut staged, entry)?;
        }
    }
    Ok(())
}

/// Links a kept file of the existing tree into the hidden directory.
fn keep_file(
    existing: &mut Parents<'_>,
    staged: &mut Parents<'_>,
    entry: &Entry,
    by_contents: bool,
) -> Outcome {
    let linked = existing.of(&entry.path).and_then(|(from, name)| {
        check_kept(&statat(from, name, AtFlags::SYMLINK_NOFOLLOW)?, entry, by_contents)?;
        let (to, _) = staged.of(&entry.path)?;
        match linkat(from, name, to, name, AtFlags::empty()) {
            // By an earlier session.
            Err(Errno::EXIST) => {
                unlinkat(to, name, AtFlags::empty())?;
                linkat(from, name, to, name, AtFlags::empty())
            }
            linked => linked,
        }
    });
    linked.map_err(failed("keep", &entry.path))
}

/// Errors: [`Errno::STALE`] if a file that is kept has changed since it was compared.
fn check_kept(stat: &Stat, entry: &Entry, by_contents: bool) -> Result<(), Errno> {
    let is_file = kind_of(stat) == FileType::RegularFile;
    let has_length = stat.st_size as u64 == entry.bytes().unwrap_or(0);
    let is_it = is_file && has_length && (by_contents || has_time(stat, entry));
    if is_it { Ok(()) } else { Err(Errno::STALE) }
}

/// A further name of a file.
fn link_name(
    files: &CopyFiles,
    top: &OwnedFd,
    staged: &mut Parents<'_>,
    (first, path): (&[u8], &[u8]),
    with_kept: bool,
) -> Result<(), Errno> {
    let mut first_parents = Parents::new(top);
    let (to, name) = staged.of(path)?;
    let (from, first_name) = first_parents.of(first)?;
    match linkat(from, first_name, to, name, AtFlags::empty()) {
        // It is kept in the existing tree.
        Err(Errno::NOENT) if !with_kept => {
            let existing = files.existing.as_ref().ok_or(Errno::NOENT)?;
            let mut existing = Parents::new(existing);
            let (from, first_name) = existing.of(first)?;
            linkat(from, first_name, to, name, AtFlags::empty())
        }
        linked => linked,
    }
}

fn set_attributes(parents: &mut Parents<'_>, entry: &Entry) -> Outcome {
    let set = parents.of(&entry.path).and_then(|(directory, name)| {
        if !matches!(entry.kind, Kind::Link { .. }) {
            // Never set-user-id and the like: a listing has permission bits only.
            chmodat(directory, name, Mode::from_raw_mode(entry.mode.into()), AtFlags::empty())?;
        }
        utimensat(directory, name, &times(entry.modified_ns), AtFlags::SYMLINK_NOFOLLOW)
    });
    set.map_err(failed("set mode and time of", &entry.path))
}

/// Sets modes and times of the directories below a top; they come last, since changes in a directory change its time.
pub(super) fn finish_directories(top: &OwnedFd, listing: &Listing) -> Outcome {
    let mut parents = Parents::new(top);
    for entry in listing.entries().iter().rev() {
        if matches!(entry.kind, Kind::Directory) {
            set_attributes(&mut parents, entry)?;
        }
    }
    Ok(())
}

fn finish_top(directory: &OwnedFd, top: Option<Top>) -> Outcome {
    let Some(top) = top else { return Ok(()) };
    let set = fchmod(directory, Mode::from_raw_mode(top.mode & 0o777))
        .and_then(|()| futimens(directory, &times(top.modified_ns)));
    set.map_err(failed("set mode and time of", b""))
}

/// Gives the hidden directory the name of the place, atomically; what had that name is removed then.
pub(super) fn replace_whole(
    place: &Place,
    staging: &mut Staging,
    files: &CopyFiles,
    top: Option<Top>,
) -> Outcome {
    let staged = &*staging.top;
    if let Some(existing) = &files.existing {
        add_extras(existing, staged, b"", &files.listing)
            .map_err(|(path, error)| PublishError { what: "keep", path, error })?;
    }
    finish_directories(staged, &files.listing)?;
    finish_top(staged, top)?;
    sync_tree(staged, &files.listing).map_err(failed("write to disk", b""))?;
    exchange(staging.parent(), &staging.name, place.name())?;
    fsync(staging.parent()).map_err(failed("write to disk the directory of", b""))?;
    // After an exchange it is the old tree, otherwise nothing.
    staging.is_removed_when_dropped = files.existing.is_some();
    Ok(())
}

/// Gives `new` the name `old`; if there is something that a rename does not replace, exchanges them.
fn exchange(directory: &OwnedFd, new: &std::ffi::OsStr, old: &std::ffi::OsStr) -> Outcome {
    let is_there = statat(directory, old, AtFlags::SYMLINK_NOFOLLOW).is_ok();
    let renamed = match is_there {
        true => renameat_with(directory, new, directory, old, RenameFlags::EXCHANGE),
        false => renameat(directory, new, directory, old),
    };
    renamed.map_err(failed("rename the temporary directory to", b""))
}

/// Gives each source in the hidden directory its name in the existing directory `into`, atomically.
pub(super) fn replace_each(into: &OwnedFd, staged: &OwnedFd, files: &CopyFiles) -> Outcome {
    let listing = &files.listing;
    let tops = || listing.entries().iter().filter(|entry| entry.parent().is_none());
    for entry in tops().filter(|entry| entry.kind == Kind::Directory) {
        let name = std::ffi::OsStr::from_bytes(&entry.path);
        if let Ok(existing) = open_directory(into, name) {
            let staged = open_directory(staged, name).map_err(failed("open", &entry.path))?;
            add_extras(&existing, &staged, &entry.path, listing)
                .map_err(|(path, error)| PublishError { what: "keep", path, error })?;
        }
    }
    finish_directories(staged, listing)?;
    sync_tree(staged, listing).map_err(failed("write to disk", b""))?;
    for entry in tops() {
        let name = std::ffi::OsStr::from_bytes(&entry.path);
        let there = statat(into, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        let is_directory = |kind| kind == FileType::Directory;
        let exchanges = there.is_some_and(|stat| {
            is_directory(kind_of(&stat)) || matches!(entry.kind, Kind::Directory)
        });
        // A directory's entry `..` changes, which needs the right to write it.
        let is_read_only = matches!(entry.kind, Kind::Directory) && entry.mode & 0o200 == 0;
        if is_read_only {
            let writable = Mode::from_raw_mode(u32::from(entry.mode) | 0o200);
            chmodat(staged, name, writable, AtFlags::empty())
                .map_err(failed("set the mode of", &entry.path))?;
        }
        let renamed = match exchanges {
            true => renameat_with(staged, name, into, name, RenameFlags::EXCHANGE),
            false => renameat(staged, name, into, name),
        };
        renamed.map_err(failed("rename the temporary copy to", &entry.path))?;
        if is_read_only {
            set_attributes(&mut Parents::new(into), entry)?;
        }
    }
    fsync(into).map_err(failed("write to disk the directory of", b""))
}

/// Moves what is in the hidden directory into the existing tree, entry by entry, each atomically.
pub(super) fn replace_in_place(
    top: &OwnedFd,
    staged: &OwnedFd,
    files: &CopyFiles,
    of: Option<Top>,
) -> Outcome {
    let listing = &files.listing;
    // New files reach the disk before they have their names.
    syncfs(staged).map_err(failed("write to disk", b""))?;
    let (mut staged, mut existing) = (Parents::new(staged), Parents::new(top));
    let mut file = 0;
    for entry in listing.entries() {
        let is_kept = match entry.kind {
            Kind::File { bytes } if bytes > 0 => {
                file += 1;
                files.kept[file - 1]
            }
            _ => false,
        };
        if matches!(entry.kind, Kind::Directory) {
            make_directory(&mut existing, entry)?;
        } else if is_kept {
            check_in_place(&mut existing, entry, files.by_contents)?;
            correct_attributes(&mut existing, entry)?;
        } else {
            let moved = staged.of(&entry.path).and_then(|(from, name)| {
                let (to, _) = existing.of(&entry.path)?;
                renameat(from, name, to, name)
            });
            moved.map_err(failed("rename the temporary file to", &entry.path))?;
        }
    }
    finish_directories(top, listing)?;
    finish_top(top, of)?;
    sync_tree(top, listing).map_err(failed("write to disk", b""))
}

fn make_directory(existing: &mut Parents<'_>, entry: &Entry) -> Outcome {
    let made = existing.of(&entry.path).and_then(|(directory, name)| {
        let stat = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok();
        match stat.map(|stat| kind_of(&stat)) {
            Some(FileType::Directory) => return Ok(()),
            Some(_) => remove_tree(directory, name)?,
            None => {}
        }
        mkdirat(directory, name, Mode::from_raw_mode(0o700))
    });
    made.map_err(failed("create", &entry.path))
}

fn check_in_place(existing: &mut Parents<'_>, entry: &Entry, by_contents: bool) -> Outcome {
    let checked = existing.of(&entry.path).and_then(|(directory, name)| {
        check_kept(&statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?, entry, by_contents)
    });
    checked.map_err(failed("keep", &entry.path))
}

/// Sets mode and time of a kept file if they differ.
fn correct_attributes(existing: &mut Parents<'_>, entry: &Entry) -> Outcome {
    let stat = existing
        .of(&entry.path)
        .and_then(|(directory, name)| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW))
        .map_err(failed("keep", &entry.path))?;
    if stat.st_mode & 0o7777 == u32::from(entry.mode) && has_time(&stat, entry) {
        return Ok(());
    }
    set_attributes(existing, entry)
}

fn times(modified_ns: i64) -> Timestamps {
    let second = 1_000_000_000;
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: modified_ns.div_euclid(second),
            tv_nsec: modified_ns.rem_euclid(second),
        },
    }
}
