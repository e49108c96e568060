//! Whether copies can be given the attributes that the root asks for, before anything is sent.

use std::{
    ffi::{OsStr, OsString},
    os::fd::OwnedFd,
};

use rustix::{fs::OFlags, io::Errno};
use tree::Kind;

use super::{
    attributes::{Refused, Wanted},
    error::{TargetError, refusal},
    files::CopyFiles,
    order::Order,
    parents::Parents,
    there::{Found, There},
};
use crate::{
    disk::Directory,
    place::{Place, VERSION_DIGITS},
    removal::remove_tree,
};

/// Checks, before anything is sent, that this user and the file systems can give what is staged its attributes, and what stays.
///
/// Errors: the first that cannot be given.
pub(super) fn check(
    place: &Place,
    existing: Option<&Directory>,
    order: &Order,
    there: &There,
    files: &CopyFiles,
) -> Result<(), TargetError> {
    if !order.keeps_attributes() {
        return Ok(());
    }
    let mut probes = Probes::new(place, order, files);
    probes.check_all(there).and(probes.remove())?;
    existing.map_or(Ok(()), |existing| check_directories(order, there, existing))
}

/// Errors: a directory of another user would have to get other attributes.
fn check_directories(
    order: &Order,
    there: &There,
    existing: &Directory,
) -> Result<(), TargetError> {
    if let Some(wanted) = order.wanted_of_top() {
        check_own(order, b"", existing, wanted)?;
    }
    let mut parents = Parents::new(existing);
    for (number, entry) in order.entries().iter().enumerate() {
        let Found::Directory { is_finished: false, .. } = there.found[number] else { continue };
        let (Some(wanted), Ok(directory)) = (order.wanted(number), parents.open(&entry.path))
        else {
            continue;
        };
        check_own(order, &entry.path, &directory, wanted)?;
    }
    Ok(())
}

/// Errors: it is another user's, and would have to get other attributes.
pub(super) fn check_own(
    order: &Order,
    path: &[u8],
    directory: &Directory,
    wanted: Wanted<'_>,
) -> Result<(), TargetError> {
    let Ok(stat) = directory.own_stat() else { return Ok(()) };
    if order.may_set(&stat) || wanted.is_had_by(&stat, || Ok(directory.as_fd())) {
        return Ok(());
    }
    Err(Refused::foreign().of(order.shown(path)))
}

/// An empty file and an empty directory on each file system, which get the attributes of entries one after another.
struct Probes<'a> {
    order: &'a Order,
    files: &'a CopyFiles,
    names: [OsString; 2],
    /// By file system.
    made: Vec<[Option<OwnedFd>; 2]>,
    last: Option<(usize, bool, Wanted<'a>)>,
}

impl<'a> Probes<'a> {
    fn new(place: &Place, order: &'a Order, files: &'a CopyFiles) -> Self {
        // Beside a file that is one; otherwise in the staging directory, which only this user writes.
        let of_place = |of: &[u8]| place.hidden(&blake3::hash(of).to_hex()[..VERSION_DIGITS]);
        let names = [of_place(b"file"), of_place(b"directory")];
        Self { order, files, names, made: Vec::new(), last: None }
    }

    fn check_all(&mut self, there: &There) -> Result<(), TargetError> {
        if let Some(wanted) = self.order.wanted_of_top() {
            self.check(b"", &Kind::Directory, wanted)?;
        }
        for (number, entry) in self.order.entries().iter().enumerate() {
            let is_there = !self.files.stages[number] && there.found[number].is_finished();
            if is_there || matches!(entry.kind, Kind::Name { .. }) {
                continue;
            }
            if let Some(wanted) = self.order.wanted(number) {
                self.check(&entry.path, &entry.kind, wanted)?;
            }
        }
        Ok(())
    }

    fn check(&mut self, path: &[u8], kind: &Kind, wanted: Wanted<'a>) -> Result<(), TargetError> {
        let Some(staged) = &self.files.staged else { return Ok(()) };
        let (area, is_directory) = (staged.area(path), *kind == Kind::Directory);
        if self.last == Some((area, is_directory, wanted)) {
            return Ok(());
        }
        let Some(directory) = staged.directories().nth(area) else { return Ok(()) };
        if self.made.len() <= area {
            self.made.resize_with(area + 1, Default::default);
        }
        let probe = &mut self.made[area][usize::from(is_directory)];
        let made = match probe.take() {
            Some(made) => Ok(made),
            None => make(directory, &self.names[usize::from(is_directory)], is_directory),
        };
        let failed = |error: Errno| {
            refusal(&self.order.shown(path), "try the attributes of", 0, error.into())
        };
        let opened = probe.insert(made.map_err(failed)?);
        let disk = directory.disk();
        let set = wanted
            .set_extended(disk, &*opened)
            .and_then(|()| wanted.set_owner(disk, &*opened))
            .and_then(|()| wanted.set_access(disk, &*opened));
        set.map_err(|refused| refused.of(self.order.shown(path)))?;
        self.last = Some((area, is_directory, wanted));
        Ok(())
    }

    /// Errors: one cannot be removed; it would be in the copy.
    fn remove(&self) -> Result<(), TargetError> {
        let Some(staged) = &self.files.staged else { return Ok(()) };
        let mut outcome = Ok(());
        for (directory, made) in staged.directories().zip(&self.made) {
            for (name, _) in self.names.iter().zip(made).filter(|(_, made)| made.is_some()) {
                outcome = outcome.and(remove_tree(directory, name));
            }
        }
        let path = self.order.shown(b"");
        outcome.map_err(|error| refusal(&path, "remove a temporary file in", 0, error.into()))
    }
}

fn make(directory: &Directory, name: &OsStr, is_directory: bool) -> Result<OwnedFd, Errno> {
    // What a session that was killed has left.
    let _ = remove_tree(directory, name);
    match is_directory {
        true => directory.make_directory(name, 0o700)?,
        false => drop(directory.create(name, 0o600)?),
    }
    let flags = if is_directory { OFlags::DIRECTORY } else { OFlags::empty() };
    Ok(directory.open(name, OFlags::RDONLY | flags)?.into())
}
