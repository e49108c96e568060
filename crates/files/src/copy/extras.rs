//! What only the host has in the directories of a tree, to be removed where the root asks for that.

use std::{
    collections::HashSet,
    ffi::{OsStr, OsString},
    io,
    os::unix::ffi::OsStrExt,
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    fs::{FileType, RenameFlags, Stat},
    io::Errno,
};
use tree::{Kind, PATH_BYTES_MAX, Selection};

use super::{
    error::{TargetError, refusal},
    letters::Letters,
    order::Order,
    parents::{Parents, split},
    publish::with_write_permission,
    staging::Staged,
    there::{Found, Known, There, kind_of, modified_ns},
};
use crate::{disk::Directory, messages::Deletion, place::is_hidden};

/// The name of a file that is being removed, where contents are staged.
const REMOVED: &str = ".rdmc-removed";

/// An entry that only the host has, as it was when the push began: whatever comes later stays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Extra {
    path: Vec<u8>,
    known: Known,
    is_directory: bool,
    /// Length and modification time in nanoseconds, of a file with several hard links: the push itself changes its ctime when it adds or
    /// removes one of them.
    linked: Option<(u64, i64)>,
}

impl Extra {
    /// In the tree.
    pub(super) fn path(&self) -> &[u8] {
        &self.path
    }

    /// Whether it is the same still before anything was published; a directory may change.
    fn is_unchanged(&self, stat: &Stat) -> bool {
        match self.is_directory {
            true => stat.st_ino == self.known.inode,
            false => Known::of(stat) == self.known,
        }
    }

    /// The same afterwards.
    fn is(&self, stat: &Stat) -> bool {
        match self.linked {
            Some(linked) => stat.st_ino == self.known.inode && contents_of(stat) == linked,
            None => self.is_unchanged(stat),
        }
    }
}

/// Length and modification time in nanoseconds.
fn contents_of(stat: &Stat) -> (u64, i64) {
    (stat.st_size as u64, modified_ns(stat))
}

/// Finds what is to be removed.
struct Search<'a> {
    order: &'a Order,
    deletion: &'a Deletion,
    selection: Selection,
    /// Inodes of files and directories of the tree that are there: the name on disk may be another one.
    listed: HashSet<u64>,
    letters: Letters<'a>,
    extras: Vec<Extra>,
    stop: &'a AtomicBool,
}

/// Finds what is in the directories of a tree and not in the tree, what is in a directory before it. Not what the
/// patterns leave out, nor what is mounted, nor files of rdmc.
///
/// Blocks while each name there is compared with each pattern, or until `stop`. Errors: a directory cannot be read; an invalid
/// pattern; stopped.
pub(super) fn find(
    top: &Directory,
    order: &Order,
    deletion: &Deletion,
    stop: &AtomicBool,
    there: &There,
) -> Result<Vec<Extra>, TargetError> {
    let selection = deletion.selection()?;
    let listed = (0..order.entries().len()).filter_map(|number| there.inode(number)).collect();
    let (letters, extras) = (Letters::new(&order.listing), Vec::new());
    let mut search = Search { order, deletion, selection, listed, letters, extras, stop };
    if deletion.at_top {
        search.directory(top, b"", false)?;
    }
    let mut parents = Parents::new(top);
    for (number, entry) in order.entries().iter().enumerate() {
        if entry.kind == Kind::Directory && matches!(there.found[number], Found::Directory { .. }) {
            let directory = parents.open(&entry.path);
            let directory = directory.map_err(|error| search.failed(&entry.path, error))?;
            search.directory(&directory, &entry.path, false)?;
        }
    }
    Ok(search.extras)
}

impl Search<'_> {
    fn failed(&self, path: &[u8], error: impl Into<io::Error>) -> TargetError {
        let path = self.order.shown(path);
        TargetError::System { path, what: "examine", error: error.into() }
    }

    /// `is_extra`: the directory is not in the tree, and so nothing is that is in it. Returns whether nothing else is in it
    /// than what is to be removed.
    fn directory(
        &mut self,
        directory: &Directory,
        path: &[u8],
        is_extra: bool,
    ) -> Result<bool, TargetError> {
        let names = directory.names().map_err(|error| self.failed(path, error))?;
        let is_immutable = directory.is_itself_immutable();
        let mut is_all = true;
        for name in &names {
            if self.stop.load(Ordering::Relaxed) {
                return Err(self.failed(path, io::ErrorKind::Interrupted));
            }
            let inner = match path {
                [] => name.as_bytes().to_vec(),
                path => [path, b"/", name.as_bytes()].concat(),
            };
            let is_listed = !is_extra && self.order.listing.find(&inner).is_some();
            if is_listed || name.to_str().is_some_and(is_hidden) {
                is_all = false;
                continue;
            }
            let stat = match directory.stat(name) {
                Ok(stat) => stat,
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(self.failed(&inner, error)),
            };
            let is_removed = self.add(directory, &names, name, inner, &stat)?;
            if is_removed && is_immutable {
                return Err(TargetError::immutable(self.order.shown(path)));
            }
            is_all &= is_removed;
        }
        Ok(is_all)
    }

    /// Returns whether it is to be removed.
    fn add(
        &mut self,
        directory: &Directory,
        names: &[OsString],
        name: &OsStr,
        path: Vec<u8>,
        stat: &Stat,
    ) -> Result<bool, TargetError> {
        let is_directory = kind_of(stat) == FileType::Directory;
        let shown = [&self.deletion.prefix[..], &path].concat();
        // By its inode, or in other letters.
        let is_other_name = stat.st_nlink == 1 && self.listed.contains(&stat.st_ino)
            || self.letters.entry(directory, names, &path).is_some();
        if is_other_name {
            return Ok(false);
        }
        let stop = self.stop;
        let is_stopped = || stop.load(Ordering::Relaxed);
        match self.selection.takes_unless(is_stopped, &shown, is_directory) {
            None => return Err(self.failed(&path, io::ErrorKind::Interrupted)),
            Some(false) => return Ok(false),
            Some(true) => {}
        }
        if directory.is_mount(name) {
            return Ok(false);
        }
        if directory.is_immutable(name) {
            return Err(TargetError::immutable(self.order.shown(&path)));
        }
        // Other users may have made deeper ones; each level of the recursion holds a file descriptor.
        if path.len() > PATH_BYTES_MAX {
            return Err(TargetError::Deep(self.order.shown(&path)));
        }
        if is_directory {
            let inner = directory.open_directory(name);
            let inner = inner.map_err(|error| self.failed(&path, error))?;
            if !self.directory(&inner, &path, true)? {
                return Ok(false);
            }
        }
        let linked = (!is_directory && stat.st_nlink > 1).then(|| contents_of(stat));
        self.extras.push(Extra { path, known: Known::of(stat), is_directory, linked });
        Ok(true)
    }
}

/// What is the same still, before anything is published.
pub(super) fn unchanged(top: &Directory, extras: &[Extra]) -> Vec<Extra> {
    let mut parents = Parents::new(top);
    let mut is_unchanged = |extra: &&Extra| {
        let stat = parents.of(&extra.path).and_then(|(at, name)| at.stat(name));
        stat.is_ok_and(|stat| extra.is_unchanged(&stat))
    };
    extras.iter().filter(&mut is_unchanged).cloned().collect()
}

/// Removes what was found and [`unchanged`], as far as it is the same still; a directory only if nothing is left in it. Returns
/// how many entries were removed.
///
/// A file is moved to where only this user can replace it, and looked at there: another that has just got its name is moved
/// back. Not without `staged`: in a directory that was exchanged, which has no name any more. Errors: the system's.
pub(super) fn remove(
    top: &Directory,
    order: &Order,
    extras: &[Extra],
    staged: Option<&Staged>,
) -> Result<usize, TargetError> {
    let mut parents = Parents::new(top);
    let mut removed = 0;
    for extra in extras {
        let outcome = parents.of(&extra.path).and_then(|(at, name)| {
            let stat = at.stat(name)?;
            if !extra.is(&stat) {
                return Err(Errno::NOENT);
            }
            // The mode of a directory of the tree is set at the end; another one keeps its own.
            let parent = split(&extra.path).0;
            let is_listed = parent.is_empty() || order.listing.find(parent).is_some();
            let own_mode = || at.own_stat().map(|stat| stat.st_mode & 0o7777);
            let mode = if is_listed { None } else { Some(own_mode()?) };
            let removed = with_write_permission(at, || match staged {
                _ if extra.is_directory => at.remove_directory(name),
                Some(staged) => remove_file(at, name, extra, staged.of(&extra.path).0),
                None => at.unlink(name),
            });
            if let Some(mode) = mode
                && own_mode()? != mode
            {
                at.disk().set_mode(at.as_fd(), mode)?;
            }
            removed
        });
        match outcome {
            Ok(()) => removed += 1,
            // Something else has its name, or something new or protected is in it.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NOTEMPTY | Errno::EXIST) => {}
            Err(error) => {
                return Err(refusal(&order.shown(&extra.path), "remove", 0, error.into()));
            }
        }
    }
    Ok(removed)
}

fn remove_file(
    at: &Directory,
    name: &OsStr,
    extra: &Extra,
    private: &Directory,
) -> Result<(), Errno> {
    let moved = OsStr::new(REMOVED);
    at.rename(name, private, moved)?;
    // The move may have changed the time of its last change.
    let removed = private.stat(moved).and_then(|stat| match stat.st_ino == extra.known.inode {
        true => private.unlink(moved),
        false => Err(Errno::NOENT),
    });
    if removed.is_err() {
        private.rename_with(moved, at, name, RenameFlags::NOREPLACE)?;
    }
    removed
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use tree::{Entry, Listing};

    use super::*;
    use crate::{
        Manifest, Target, claim::Owner, copy::Spot, messages::TreeOffer, place::Place,
        ranges::Ranges,
    };

    fn prepare(top: &Path, is_stopped: bool) -> Result<Target, TargetError> {
        let kind = Kind::File { bytes: 10 };
        let entry = Entry { path: "file".into(), kind, mode: 0o644, modified_ns: 0 };
        let encoded = Listing::new(vec![entry]).unwrap().encode().unwrap();
        let patterns = vec![(false, "*.b".to_owned()); 10];
        let deletion = Some(Deletion { at_top: true, prefix: Vec::new(), patterns });
        let offer = TreeOffer { deletion, ..TreeOffer::default() };
        let order = Order::of_tree("object", &encoded, &offer, top).unwrap();
        let manifest = Manifest { name: "object".into(), bytes: 10, mode: 0o755, modified_ns: 0 };
        let place = Place::anywhere(top).unwrap();
        let directory = place.parent().open_directory(place.name()).unwrap();
        let (spot, owner) = (Spot::Inside(directory, Some(place)), Owner::of_no_push("a"));
        let stop = AtomicBool::new(is_stopped);
        Target::prepare_tree(spot, top, order, manifest, &owner, &stop)
    }

    #[test]
    fn a_search_that_is_stopped_leaves_what_an_earlier_session_has_received() {
        let top = tempfile::tempdir().unwrap();
        fs::write(top.path().join("extra"), "").unwrap();
        let count = || fs::read_dir(top.path()).unwrap().count();
        let mut target = prepare(top.path(), false).unwrap();
        target.begin(&Ranges::default(), &AtomicBool::new(false)).unwrap();
        target.keep();
        assert_eq!(count(), 2, "what is staged, too");
        let stopped = prepare(top.path(), true).unwrap_err();
        assert!(stopped.to_string().contains("examine"), "{stopped}");
        assert_eq!(count(), 2);
        assert!(prepare(top.path(), false).is_ok());
    }
}
