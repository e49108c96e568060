//! What of a tree is there already.

use std::os::fd::OwnedFd;

use rustix::{
    fs::{AtFlags, FileType, Stat, fstat, readlinkat, statat},
    process::geteuid,
};
use tree::{Entry, Kind, Layout, Listing};

use super::parents::Parents;
use crate::{
    changes::{Change, Changes},
    messages::TreeOffer,
};

/// What of a tree is there already.
#[derive(Debug)]
pub(super) struct Comparison {
    /// By the number of a file with contents: the file that is there may be kept, if its contents are right.
    pub(super) may_stay: Vec<bool>,
    /// If all files stay, nothing has to be done.
    pub(super) is_same: bool,
    pub(super) changes: Changes,
}

/// Why a tree cannot replace what is there: the number of the entry.
#[derive(Debug)]
pub(super) struct InTheWay(pub(super) usize);

impl Comparison {
    /// Nothing is there.
    pub(super) fn of_nothing(listing: &Listing, layout: &Layout, offer: &TreeOffer) -> Self {
        let mut changes = Changes::new(offer.lists_changes);
        (0..listing.entries().len()).for_each(|entry| changes.add(entry as u32, Change::New));
        offer.top.iter().for_each(|_| changes.set_top(Change::New));
        Self { may_stay: vec![false; layout.files()], is_same: false, changes }
    }

    /// Compares a tree with what is below `top`. Only attributes are read.
    ///
    /// Errors: a directory is where a file has to be.
    pub(super) fn of(
        top: &OwnedFd,
        listing: &Listing,
        layout: &Layout,
        offer: &TreeOffer,
    ) -> Result<Self, InTheWay> {
        let mut changes = Changes::new(offer.lists_changes);
        if let Some(wanted) = &offer.top {
            let is_same = fstat(top).is_ok_and(|stat| {
                stat.st_mode & 0o7777 == wanted.mode && modified_ns(&stat) == wanted.modified_ns
            });
            changes.set_top(if is_same { Change::Kept } else { Change::Attributes });
        }
        let mut comparison =
            Self { may_stay: Vec::with_capacity(layout.files()), is_same: true, changes };
        let mut parents = Parents::new(top);
        let user = geteuid().as_raw();
        let mut inodes: Vec<Option<(u64, u64)>> = vec![None; listing.entries().len()];
        for (number, entry) in listing.entries().iter().enumerate() {
            // What cannot be looked at is as if it were not there: publishing reports why.
            let found = parents
                .of(&entry.path)
                .and_then(|(directory, name)| statat(directory, name, AtFlags::SYMLINK_NOFOLLOW));
            let found = found.ok();
            let is_directory = found.is_some_and(|stat| kind_of(&stat) == FileType::Directory);
            if is_directory != matches!(entry.kind, Kind::Directory) && is_directory {
                return Err(InTheWay(number));
            }
            inodes[number] = found.map(|stat| (stat.st_dev, stat.st_ino));
            let mut stays = is_directory;
            let is_same = match &entry.kind {
                Kind::Directory => is_directory && found.is_some_and(|stat| has(&stat, entry)),
                Kind::File { bytes } => {
                    let is_it = found.filter(|stat| may_stay(stat, entry, *bytes, user));
                    let may_stay =
                        is_it.is_some_and(|stat| offer.by_contents || has_time(&stat, entry));
                    stays = may_stay;
                    if *bytes > 0 {
                        comparison.may_stay.push(may_stay);
                    }
                    is_it.is_some_and(|stat| has(&stat, entry))
                }
                Kind::Name { of } => {
                    inodes[number].is_some() && inodes[number] == inodes[*of as usize]
                }
                Kind::Link { target } => parents.of(&entry.path).is_ok_and(|(directory, name)| {
                    let text = readlinkat(directory, name, Vec::new());
                    text.is_ok_and(|text| text.as_bytes() == target)
                }),
            };
            comparison.is_same &= is_same;
            let change = match found {
                None => Change::New,
                Some(_) if is_same => Change::Kept,
                Some(_) if stays => Change::Attributes,
                Some(_) => Change::Contents,
            };
            let is_read = offer.by_contents && stays && entry.bytes().is_some();
            match is_read {
                true => comparison.changes.add_if_equal(number as u32, change),
                false => comparison.changes.add(number as u32, change),
            }
        }
        Ok(comparison)
    }
}

/// Whether a file can be kept if its contents are right: not if other users could write to it, since it could change
/// after verification, nor if its attributes have to change and it has further names. `user`: who this process is.
fn may_stay(stat: &Stat, entry: &Entry, bytes: u64, user: u32) -> bool {
    let has_its_writers = stat.st_mode & 0o022 & !u32::from(entry.mode) == 0;
    kind_of(stat) == FileType::RegularFile
        && stat.st_size as u64 == bytes
        && stat.st_uid == user
        && has_its_writers
        && (has(stat, entry) || stat.st_nlink == 1)
}

/// Whether mode and time are the entry's.
fn has(stat: &Stat, entry: &Entry) -> bool {
    stat.st_mode & 0o7777 == u32::from(entry.mode) && has_time(stat, entry)
}

pub(super) fn has_time(stat: &Stat, entry: &Entry) -> bool {
    modified_ns(stat) == entry.modified_ns
}

pub(super) fn modified_ns(stat: &Stat) -> i64 {
    let seconds_ns = stat.st_mtime.saturating_mul(1_000_000_000);
    seconds_ns.saturating_add(stat.st_mtime_nsec.cast_signed())
}

pub(super) fn kind_of(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode)
}
