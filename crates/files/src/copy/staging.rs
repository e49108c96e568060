//! Where contents are until they are published: hidden, and only this user's.

use std::{
    ffi::{OsStr, OsString},
    os::{fd::AsFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::Arc,
};

use rustix::{
    fs::{FileType, OFlags, RenameFlags, Stat, fstat},
    io::Errno,
    process::geteuid,
};
use tree::{Entry, Kind};

use super::{
    order::Order,
    parents::{Parents, is_below},
    temporary::Temporary,
    there::There,
};
use crate::{
    claim::Claim,
    disk::Directory,
    holes::release_holes,
    place::{Place, VERSION_DIGITS},
    removal::remove_tree,
};

/// What is staged is private until it is published.
const MODE: u32 = 0o700;
/// Of shorter files of a tree no space is reserved: they are written at once.
pub(super) const RESERVED_BYTES_MIN: u64 = 1 << 20;

/// Where entries are staged: a directory for each file system of the destination, or one file. Nobody else can change
/// what is in it, so that paths of several names are safe.
#[derive(Clone, Default, Debug)]
pub(super) struct Staged(Arc<[Area]>);

/// The staging directory of what is below a directory of the tree.
#[derive(Debug)]
struct Area {
    /// The directory's path; empty for the top.
    below: Vec<u8>,
    directory: Directory,
    /// The path of `directory`.
    path: PathBuf,
    /// The only file, if it is one.
    file: Option<OsString>,
}

impl Staged {
    /// The directory and the path in it where an entry is staged.
    pub(super) fn of<'a>(&'a self, path: &'a [u8]) -> (&'a Directory, &'a OsStr) {
        let area = &self.0[self.area(path)];
        let rest = match area.below.len() {
            0 => path,
            length => &path[length + 1..],
        };
        (&area.directory, area.file.as_deref().unwrap_or(OsStr::from_bytes(rest)))
    }

    /// The path at which an entry is staged, for others that read it.
    pub(super) fn path_of(&self, path: &[u8]) -> PathBuf {
        let (_, name) = self.of(path);
        self.0[self.area(path)].path.join(name)
    }

    /// The number of the file system on which an entry is staged.
    pub(super) fn area(&self, path: &[u8]) -> usize {
        // Inner ones come later.
        self.0.iter().rposition(|area| is_below(path, &area.below)).unwrap_or(0)
    }

    /// The directory of the tree at which this file system begins; empty for the top's.
    pub(super) fn below(&self, area: usize) -> &[u8] {
        self.0.get(area).map_or(&[], |area| &area.below)
    }

    /// A directory on each file system.
    pub(super) fn directories(&self) -> impl Iterator<Item = &Directory> {
        self.0.iter().map(|area| &area.directory)
    }
}

/// What is staged; removed when dropped, unless it is kept.
#[derive(Debug)]
pub(super) struct Staging {
    pub(super) staged: Staged,
    /// By the number of the entry: it is there, from an earlier session.
    pub(super) is_there: Vec<bool>,
    /// Staging directories, with what they are in.
    hidden: Vec<(Directory, OsString)>,
    /// Instead of them, for a file.
    temporary: Option<Temporary>,
    is_kept: bool,
}

impl Staging {
    /// Opens what an earlier session left of this version; `None` if there is nothing that only this user could have
    /// written. `existing`: the directory that is updated.
    pub(super) fn find(
        place: &Place,
        order: &Order,
        existing: Option<&Directory>,
        there: &There,
    ) -> Option<Self> {
        if order.is_file {
            return Temporary::find(place, &order.version, order.user(0))
                .map(|file| Self::of_file(place, file));
        }
        Self::open(place, order, existing, there, false).ok().flatten()
    }

    /// Makes what is missing of the staging directories, or the file.
    pub(super) fn create(
        place: &Place,
        order: &Order,
        existing: Option<&Directory>,
        there: &There,
        claim: &Claim,
    ) -> Result<Self, Errno> {
        if order.is_file {
            let file = Temporary::open(place, &order.version, order.user(0), claim)?;
            return Ok(Self::of_file(place, file));
        }
        Self::open(place, order, existing, there, true)?.ok_or(Errno::NOENT)
    }

    fn of_file(place: &Place, file: Temporary) -> Self {
        let area = Area {
            below: Vec::new(),
            directory: place.parent().clone(),
            path: place.directory().to_owned(),
            file: Some(file.name().to_owned()),
        };
        Self {
            staged: Staged([area].into()),
            is_there: vec![true],
            hidden: Vec::new(),
            temporary: Some(file),
            is_kept: false,
        }
    }

    fn open(
        place: &Place,
        order: &Order,
        existing: Option<&Directory>,
        there: &There,
        creates: bool,
    ) -> Result<Option<Self>, Errno> {
        let name = hidden(place, order);
        let mut is_there = vec![false; order.entries().len()];
        let (mut areas, mut hidden) = (Vec::new(), Vec::new());
        let mut add = |below: &[u8], parent: &Directory, name: OsString| {
            // A new directory gets its owner before its name. Who may write to the copy may do so here, too.
            let is_new = below.is_empty() && (existing.is_none() || order.atomic);
            let user = order.wanted_of_top().filter(|_| is_new).and_then(|top| top.attributes.user);
            let writers = order.top.filter(|_| below.is_empty()).map_or(0, |top| top.mode);
            let directory = match reclaim(parent, &name, user, writers) {
                Some(directory) => {
                    // Files have one name once further names of the tree are gone, in whatever directory.
                    clean(&directory, below, false, order, &mut is_there)?;
                    clean(&directory, below, true, order, &mut is_there)?;
                    directory
                }
                None if !creates => return Ok(false),
                None => create(parent, &name)?,
            };
            if creates {
                // Of other versions.
                let place = if below.is_empty() { place.clone() } else { inside(parent) };
                place.remove_temporaries(Some(&name));
            }
            let path = match below {
                [] => place.directory().join(&name),
                below => order.shown(below).join(&name),
            };
            areas.push(Area { below: below.to_vec(), directory, path, file: None });
            hidden.push((parent.clone(), name));
            Ok(true)
        };
        let mut is_found = add(b"", place.parent(), name.clone())?;
        for &mount in &there.mounts {
            let Some(existing) = existing.filter(|_| is_found) else { break };
            let path = &order.entries()[mount].path;
            let directory = Parents::new(existing).open(path)?;
            let name =
                inside(&directory).hidden(&blake3::hash(&order.version).to_hex()[..VERSION_DIGITS]);
            is_found = add(path, &directory, name)?;
        }
        let staged = Staged(areas.into());
        Ok(is_found.then_some(Self { staged, is_there, hidden, temporary: None, is_kept: false }))
    }

    /// Makes those directories of the tree in which something is staged (`stages`: by the number of the entry).
    ///
    /// Errors: the number of the entry, and the system's error.
    pub(super) fn make_directories(
        &mut self,
        order: &Order,
        stages: &[bool],
    ) -> Result<(), (usize, Errno)> {
        let entries = order.entries();
        let mut is_needed = stages.to_vec();
        for (number, entry) in entries.iter().enumerate().rev() {
            let parent = entry.parent().filter(|_| is_needed[number]);
            if let Some(parent) = parent.and_then(|parent| order.listing.find(parent)) {
                is_needed[parent] = true;
            }
        }
        for (number, entry) in entries.iter().enumerate() {
            let is_top = self.staged.0.iter().any(|area| area.below == entry.path);
            if entry.kind != Kind::Directory || !is_needed[number] || is_top {
                continue;
            }
            let (directory, path) = self.staged.of(&entry.path);
            match directory.make_directory(path, MODE) {
                Err(Errno::EXIST) if self.is_there[number] => {}
                made => made.map_err(|error| (number, error))?,
            }
            self.is_there[number] = true;
        }
        Ok(())
    }

    /// Moves what an earlier session has left beside a name, which is claimed, inside the directory that has the name now.
    pub(super) fn move_inside(name: &Place, place: &Place, order: &Order) {
        let (from, to) = (hidden(name, order), hidden(place, order));
        let is_left = |name: &Place, end: &OsStr| name.parent().stat(end).is_ok();
        if is_left(name, &from) {
            // What is inside already is older, of a time when the directory had this name before.
            // On another file system everything is received again.
            let _ = match is_left(place, &to) {
                true => {
                    name.parent().rename_with(&from, place.parent(), &to, RenameFlags::EXCHANGE)
                }
                false => name.parent().rename(&from, place.parent(), &to),
            };
        }
        name.remove_temporaries(None);
    }

    /// Removes what earlier sessions have left of other versions of a tree.
    pub(super) fn remove_others(place: &Place, order: &Order) {
        place.remove_temporaries(Some(&hidden(place, order)));
    }

    /// The staging directory of a whole tree, and its name in its directory.
    pub(super) fn top(&self) -> Option<(&Directory, &OsStr)> {
        let (_, name) = self.hidden.first()?;
        Some((&self.staged.0.first()?.directory, name))
    }

    /// Removes the empty staging directories of inner file systems, before the directories that they are in get their times.
    pub(super) fn remove_inner(&self) {
        for (parent, name) in self.hidden.iter().skip(1) {
            let _ = remove_tree(parent, name);
        }
    }

    /// The file, if it is one.
    pub(super) fn file(&self) -> Option<&std::fs::File> {
        self.temporary.as_ref().map(Temporary::as_file)
    }

    /// Gives back the space that was reserved for files and not written; a later session reserves it again.
    pub(super) fn release(&self, order: &Order) {
        if let Some(file) = self.file() {
            return release_holes(file);
        }
        let is_reserved = |entry: &&Entry| entry.bytes() >= Some(RESERVED_BYTES_MIN);
        for entry in order.entries().iter().filter(is_reserved) {
            let (directory, path) = self.staged.of(&entry.path);
            // Not staged, or its mode does not allow it.
            if let Ok(file) = directory.open(path, OFlags::RDWR) {
                release_holes(&file);
            }
        }
    }

    /// Leaves everything for a later session.
    pub(super) fn keep(mut self) {
        self.is_kept = true;
        if let Some(file) = self.temporary.take() {
            file.keep();
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        if !self.is_kept {
            for (parent, name) in &self.hidden {
                // What remains is removed by the next push to this destination.
                let _ = remove_tree(parent, name);
            }
        }
    }
}

/// The hidden name for a version of a tree.
fn hidden(place: &Place, order: &Order) -> OsString {
    place.hidden(&blake3::hash(&order.version).to_hex()[..VERSION_DIGITS])
}

/// The place of temporary files of a directory itself.
fn inside(directory: &Directory) -> Place {
    Place::inside(directory.clone(), Path::new(""))
}

/// The staging directory of an earlier session, if only this user could have written it, or the one whose it is to be, or
/// those with these permissions.
fn reclaim(parent: &Directory, name: &OsStr, user: Option<u32>, writers: u32) -> Option<Directory> {
    let directory = parent.open_directory(name).ok()?;
    if directory.own_stat().ok()?.st_mode & 0o022 & !writers != 0 {
        return None;
    }
    take(parent, directory.as_fd(), user).ok()?;
    Some(directory)
}

fn create(parent: &Directory, name: &OsStr) -> Result<Directory, Errno> {
    match parent.make_directory(name, MODE) {
        Err(Errno::EXIST) => {
            remove_tree(parent, name)?;
            parent.make_directory(name, MODE)?;
        }
        made => made?,
    }
    parent.open_directory(name)
}

/// Removes what is not the beginning of a copy of this tree. Leaves its directories, and regular files of it that have
/// one name and that only those can write who may write to the copy, or the owner that they are to have; `is_there` is set for
/// them. Files are looked at with `files` only.
fn clean(
    directory: &Directory,
    path: &[u8],
    files: bool,
    order: &Order,
    is_there: &mut [bool],
) -> Result<(), Errno> {
    for name in directory.names()? {
        let inner = match path {
            [] => name.as_bytes().to_vec(),
            path => [path, b"/", name.as_bytes()].concat(),
        };
        let stat = directory.stat(&name)?;
        let number = order.listing.find(&inner);
        let kind = number.map(|number| &order.entries()[number].kind);
        let writers = number.map_or(0, |number| order.entries()[number].mode.into());
        let user = number.and_then(|number| order.user(number));
        match (kind, FileType::from_raw_mode(stat.st_mode)) {
            (Some(Kind::Directory), FileType::Directory) if is_of(&stat, user) => {
                let opened = match directory.open_directory(&name) {
                    // Without its owner's permission.
                    Err(Errno::ACCESS) => {
                        take(directory, &directory.open_path(&name)?, user)?;
                        directory.open_directory(&name)
                    }
                    opened => opened,
                }?;
                take(directory, opened.as_fd(), user)?;
                clean(&opened, &inner, files, order, is_there)?;
            }
            (Some(Kind::File { .. }), FileType::RegularFile) if !files => continue,
            (Some(Kind::File { .. }), FileType::RegularFile)
                if is_of(&stat, user)
                    && stat.st_mode & 0o022 & !writers == 0
                    && stat.st_nlink == 1 =>
            {
                // Of a session that had set its attributes.
                let staged = number.map(|number| order.staged_mode(number));
                let mode = stat.st_mode & 0o7777;
                if mode != 0o600 && Some(mode) != staged || !is_of(&stat, None) {
                    take(directory, &directory.open_path(&name)?, user)?;
                }
            }
            _ => {
                remove_tree(directory, &name)?;
                continue;
            }
        }
        if let Some(number) = number {
            is_there[number] = true;
        }
    }
    Ok(())
}

/// Whether something is this user's, or the one's whose it is to be.
fn is_of(stat: &Stat, user: Option<u32>) -> bool {
    stat.st_uid == geteuid().as_raw() || Some(stat.st_uid) == user
}

/// Makes private what an earlier session had given its attributes. Looks at what is open: its name may have another one by now.
///
/// Errors: it is no more what it was.
fn take(directory: &Directory, opened: impl AsFd, user: Option<u32>) -> Result<(), Errno> {
    let (stat, disk) = (fstat(&opened)?, directory.disk());
    let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
    if !is_of(&stat, user) || !is_directory && stat.st_nlink != 1 {
        return Err(Errno::STALE);
    }
    if !is_of(&stat, None) {
        disk.set_owner(&opened, Some(geteuid().as_raw()), None)?;
    }
    // With this bit what is staged has the group that it would have.
    let mode = if is_directory { MODE | stat.st_mode & 0o2000 } else { 0o600 };
    match stat.st_mode & 0o7777 == mode {
        true => Ok(()),
        false => disk.set_mode(&opened, mode),
    }
}
