//! What of a tree is at the host already.

use std::{
    collections::{HashMap, hash_map::Entry as Slot},
    ffi::OsString,
    os::unix::ffi::OsStrExt,
};

use rustix::{
    fs::{FileType, OFlags, Stat},
    io::Errno,
};
use tree::{Entry, Kind};

use super::{
    attributes::Wanted,
    error::TargetError,
    order::Order,
    parents::{Parents, folded, is_below},
};
use crate::{
    changes::{Change, Changes},
    disk::Directory,
    hash::probe,
    holes::has_zeros_outside,
    messages::Top,
};

/// A file that is there, as it was when it was looked at: whatever changes it, changes this.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Known {
    pub(super) inode: u64,
    /// Time of the last change (ctime): seconds, nanoseconds.
    changed: (i64, u32),
}

impl Known {
    pub(super) fn of(stat: &Stat) -> Self {
        Self { inode: stat.st_ino, changed: (stat.st_ctime, stat.st_ctime_nsec as u32) }
    }
}

/// What has an entry's path.
#[derive(Clone, Copy, Debug)]
pub(super) enum Found {
    Nothing,
    /// Something that the entry replaces.
    Other,
    /// A directory that stays. `is_finished`: it has mode and time, or keeps its own as it is another user's.
    Directory {
        inode: u64,
        is_finished: bool,
    },
    /// A file of the right length and, unless files are compared by contents, of the right time. `may_stay`: if the
    /// contents are right; otherwise they are only copied.
    File {
        known: Known,
        may_stay: bool,
        is_finished: bool,
    },
    /// A link of the same text.
    Link {
        known: Known,
        is_finished: bool,
    },
    /// A further name of the same file.
    Same,
}

impl Found {
    /// Whether what stays has all its attributes.
    pub(super) fn is_finished(&self) -> bool {
        match *self {
            Self::File { is_finished, .. }
            | Self::Directory { is_finished, .. }
            | Self::Link { is_finished, .. } => is_finished,
            Self::Nothing | Self::Other | Self::Same => true,
        }
    }
}

/// What of a tree is there.
#[derive(Debug)]
pub(super) struct There {
    /// By the number of the entry.
    pub(super) found: Vec<Found>,
    /// Directories of the tree that are on other file systems than theirs, or mounted, by the number of the entry.
    pub(super) mounts: Vec<usize>,
    /// Directories of other users, which keep their mode and time where the tree has others, by the number of the entry.
    others: Vec<usize>,
}

impl There {
    pub(super) fn nothing(order: &Order) -> Self {
        let found = vec![Found::Nothing; order.entries().len()];
        Self { found, mounts: Vec::new(), others: Vec::new() }
    }

    /// Compares a tree with what is below `top`. Of files only attributes are read, and 1 MiB at most where there is a
    /// probe to compare.
    ///
    /// Errors: a directory is where something else has to be; something cannot be looked at; two entries are one file.
    pub(super) fn look(top: &Directory, order: &Order) -> Result<Self, TargetError> {
        let found = Vec::with_capacity(order.entries().len());
        let mut there = Self { found, mounts: Vec::new(), others: Vec::new() };
        let mut parents = Parents::new(top);
        let mut numbers: HashMap<(u64, u64), usize> = HashMap::new();
        // Of files with further names also by the name, as the file system may not distinguish it from another.
        let mut names: HashMap<(u64, u64, String), usize> = HashMap::new();
        // What is below it is not there.
        let mut missing: Option<&[u8]> = None;
        for (number, entry) in order.entries().iter().enumerate() {
            if missing.is_some_and(|missing| is_below(&entry.path, missing)) {
                there.found.push(Found::Nothing);
                continue;
            }
            let stat = match parents.of(&entry.path).and_then(|(at, name)| at.stat(name)) {
                Ok(stat) => Some(stat),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => None,
                Err(error) => {
                    let path = order.shown(&entry.path);
                    return Err(TargetError::System { path, what: "examine", error: error.into() });
                }
            };
            let mut found = match &stat {
                None => Found::Nothing,
                Some(stat) => there.find(order, number, stat, &mut parents)?,
            };
            if entry.kind == Kind::Directory && !matches!(found, Found::Directory { .. }) {
                missing = Some(&entry.path);
            }
            let collision = |first: usize| {
                let one = order.shown(&order.entries()[first].path);
                Err(TargetError::Collision { one, other: order.shown(&entry.path) })
            };
            if let Some(stat) = stat.as_ref().filter(|stat| is_linked(stat)) {
                match names.entry((stat.st_dev, stat.st_ino, folded(&entry.path))) {
                    Slot::Vacant(slot) => drop(slot.insert(number)),
                    Slot::Occupied(first) if is_one_name(order, *first.get(), number, top) => {
                        return collision(*first.get());
                    }
                    Slot::Occupied(_) => {}
                }
            }
            // A further name is its file.
            let is_name = matches!((&entry.kind, found), (Kind::Name { .. }, Found::Same));
            if let Some(stat) = stat.as_ref().filter(|_| !is_name) {
                match numbers.entry((stat.st_dev, stat.st_ino)) {
                    Slot::Vacant(slot) => drop(slot.insert(number)),
                    // Further names that the source does not have.
                    Slot::Occupied(_) if is_linked(stat) => found = Found::Other,
                    Slot::Occupied(first) => return collision(*first.get()),
                }
            }
            if let (Found::Directory { .. }, Some(stat)) = (found, &stat) {
                // Subvolumes have devices of their own, without a mount.
                let is_mount = parents.of(&entry.path).and_then(|(at, name)| {
                    Ok(at.is_mount(name) || at.own_stat()?.st_dev != stat.st_dev)
                });
                if is_mount.unwrap_or(false) {
                    there.mounts.push(number);
                }
            }
            if let (Found::Directory { inode, is_finished: false }, Some(stat)) = (found, &stat)
                && keeps_own(stat, order)
                && has_wanted(stat, entry, order.wanted(number), &mut parents)
            {
                found = Found::Directory { inode, is_finished: true };
                there.others.push(number);
            }
            there.found.push(found);
        }
        Ok(there)
    }

    fn find(
        &self,
        order: &Order,
        number: usize,
        stat: &Stat,
        parents: &mut Parents,
    ) -> Result<Found, TargetError> {
        let (entry, kind) = (&order.entries()[number], kind_of(stat));
        let wanted = order.wanted(number);
        if kind == FileType::Directory && entry.kind != Kind::Directory {
            let path = order.shown(&entry.path);
            return Err(match &entry.kind {
                Kind::File { .. } if order.is_file => TargetError::InTheWay {
                    path,
                    kind: "a directory",
                    remedy: "write --dest PATH/ for a copy in it, or name a file as --dest",
                },
                Kind::Link { .. } => TargetError::DirectoryInTheWay { path, what: "a link" },
                _ => TargetError::DirectoryInTheWay { path, what: "a file" },
            });
        }
        Ok(match &entry.kind {
            Kind::Directory if kind == FileType::Directory => {
                let is_finished = is_finished(stat, entry, wanted, parents);
                Found::Directory { inode: stat.st_ino, is_finished }
            }
            Kind::File { bytes } => find_file(order, number, *bytes, stat, parents),
            Kind::Name { of } => match self.found[*of as usize] {
                Found::File { known, .. } if known.inode == stat.st_ino => Found::Same,
                _ => Found::Other,
            },
            Kind::Link { target } if kind == FileType::Symlink => {
                let text = parents.of(&entry.path).and_then(|(at, name)| at.read_link(name));
                match text {
                    Ok(text) if text == *target => {
                        let known = Known::of(stat);
                        // Another user's link keeps its own.
                        let has_link_time = has_time(stat, entry) || !order.may_set(stat);
                        let is_finished = has_link_time && has_wanted(stat, entry, wanted, parents);
                        Found::Link { known, is_finished }
                    }
                    _ => Found::Other,
                }
            }
            Kind::Directory | Kind::Link { .. } => Found::Other,
        })
    }

    /// What a push changes of what is there, but for the top and what is removed.
    pub(super) fn changes(&self, order: &Order) -> Changes {
        let mut changes = Changes::new(order.lists_changes);
        for (entry, found) in (0..).zip(&self.found) {
            let finished = |is_finished| match is_finished {
                true => Change::Kept,
                false => Change::Attributes,
            };
            match *found {
                Found::Nothing => changes.add(entry, Change::New),
                Found::Other | Found::File { may_stay: false, .. } => {
                    changes.add(entry, Change::Contents);
                }
                Found::File { is_finished, .. } if order.by_contents => {
                    changes.add_if_equal(entry, finished(is_finished));
                }
                Found::File { is_finished, .. }
                | Found::Directory { is_finished, .. }
                | Found::Link { is_finished, .. } => {
                    changes.add(entry, finished(is_finished));
                }
                Found::Same => changes.add(entry, Change::Kept),
            }
        }
        for &number in &self.others {
            changes.keep_of_other(&order.entries()[number].path);
        }
        changes
    }

    /// Replaces files that are staged as a whole, which an earlier session has found to differ. Otherwise what is there would
    /// be compared instead, and they would be received again.
    pub(super) fn replace_staged(&mut self, entries: &[usize]) {
        for &entry in entries {
            if matches!(self.found[entry], Found::File { .. }) {
                self.found[entry] = Found::Other;
            }
        }
    }

    /// The inode of a file that is there.
    pub(super) fn inode(&self, entry: usize) -> Option<u64> {
        match self.found[entry] {
            Found::File { known, .. } => Some(known.inode),
            Found::Directory { inode, .. } => Some(inode),
            _ => None,
        }
    }
}

fn find_file(
    order: &Order,
    number: usize,
    bytes: u64,
    stat: &Stat,
    parents: &mut Parents,
) -> Found {
    let (entry, wanted) = (&order.entries()[number], order.wanted(number));
    let is_alike = kind_of(stat) == FileType::RegularFile
        && stat.st_size as u64 == bytes
        && (order.by_contents || has_time(stat, entry))
        && (!order.by_contents || has_holes(order, number, parents));
    if !is_alike {
        return Found::Other;
    }
    let compared = match order.probe {
        None => Some(*stat),
        Some(expected) => parents.of(&entry.path).ok().and_then(|(at, name)| {
            let file = at.open(name, OFlags::RDONLY).ok()?;
            // Of what is read.
            let stat = at.disk().stat(&file).ok()?;
            let is_alike = stat.st_size as u64 == bytes && probe(&file, bytes).ok()? == expected;
            is_alike.then_some(stat)
        }),
    };
    let Some(stat) = compared else { return Found::Other };
    let is_finished = is_finished(&stat, entry, wanted, parents);
    let may_stay = may_stay(&stat, order, number, is_finished);
    Found::File { known: Known::of(&stat), may_stay, is_finished }
}

/// Whether a file that is there has zeros where the source has holes, which are not compared with anything.
fn has_holes(order: &Order, number: usize, parents: &mut Parents) -> bool {
    let entry = &order.entries()[number];
    let (Some(data), Some(bytes)) = (order.listing.data(number), entry.bytes()) else {
        return true;
    };
    let opened = parents.of(&entry.path).and_then(|(at, name)| at.open(name, OFlags::RDONLY));
    let Ok(file) = opened else { return false };
    has_zeros_outside(&file, data, bytes)
}

/// Whether an entry that is there has mode, time and further attributes.
fn is_finished(
    stat: &Stat,
    entry: &Entry,
    wanted: Option<Wanted<'_>>,
    parents: &mut Parents,
) -> bool {
    has_mode(stat, entry.mode.into())
        && has_time(stat, entry)
        && has_wanted(stat, entry, wanted, parents)
}

/// Whether a directory keeps mode and time as it is another user's, and is not exchanged.
pub(super) fn keeps_own(stat: &Stat, order: &Order) -> bool {
    !order.atomic && !order.may_set(stat)
}

fn has_wanted(
    stat: &Stat,
    entry: &Entry,
    wanted: Option<Wanted<'_>>,
    parents: &mut Parents,
) -> bool {
    let mut open = || parents.of(&entry.path).and_then(|(at, name)| at.open_path(name));
    wanted.is_none_or(|wanted| wanted.is_had_by(stat, &mut open))
}

/// Not if users whom the source excludes can write to it, since it could change after verification; and not if it needs other
/// attributes and has further names, whose attributes would change.
fn may_stay(stat: &Stat, order: &Order, number: usize, is_finished: bool) -> bool {
    let (entry, wanted) = (&order.entries()[number], order.wanted(number));
    let excluded = 0o022 & !u32::from(entry.mode);
    let other_group = |group| group != stat.st_gid && stat.st_mode & 0o020 != 0;
    let has_its_writers = stat.st_mode & excluded == 0
        && !wanted.and_then(|wanted| wanted.attributes.group).is_some_and(other_group);
    let of_source = wanted.and_then(|wanted| wanted.attributes.user);
    let has_its_owner = stat.st_uid == order.user_here || Some(stat.st_uid) == of_source;
    has_its_owner && has_its_writers && (is_finished || !is_linked(stat))
}

/// Whether two entries that are one file, and of one path in small letters, are that by one name in their directory, not by two.
fn is_one_name(order: &Order, one: usize, other: usize, top: &Directory) -> bool {
    let (one, other) = (&order.entries()[one], &order.entries()[other]);
    let names = || Parents::new(top).of(&one.path).and_then(|(at, _)| at.names());
    let has = |names: &[OsString], entry: &Entry| {
        names.iter().any(|name| name.as_bytes() == entry.name())
    };
    names().is_ok_and(|names| !has(&names, one) || !has(&names, other))
}

/// Whether a file has further names.
fn is_linked(stat: &Stat) -> bool {
    kind_of(stat) != FileType::Directory && stat.st_nlink > 1
}

/// The mode that something is to have: a directory keeps its set-group-id bit, by which what is in it has its group.
pub(super) fn mode_for(stat: &Stat, mode: u32) -> u32 {
    match kind_of(stat) {
        FileType::Directory => mode & 0o1777 | stat.st_mode & 0o2000,
        _ => mode & 0o777,
    }
}

pub(super) fn has_mode(stat: &Stat, mode: u32) -> bool {
    stat.st_mode & 0o7777 == mode_for(stat, mode)
}

pub(super) fn has_time(stat: &Stat, entry: &Entry) -> bool {
    modified_ns(stat) == entry.modified_ns
}

/// Whether a directory has the attributes of a tree's top; any has, if there are none.
pub(super) fn is_top(stat: &Stat, top: Option<Top>) -> bool {
    top.is_none_or(|top| has_mode(stat, top.mode) && modified_ns(stat) == top.modified_ns)
}

pub(super) fn modified_ns(stat: &Stat) -> i64 {
    let seconds_ns = stat.st_mtime.saturating_mul(1_000_000_000);
    seconds_ns.saturating_add(stat.st_mtime_nsec.cast_signed())
}

pub(super) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
