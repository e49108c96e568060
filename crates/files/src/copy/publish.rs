//! Gives a verified copy its names, entry by entry.

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs::File,
    os::{fd::AsFd, unix::ffi::OsStrExt},
};

use rustix::{
    fs::{OFlags, RenameFlags, Stat},
    io::Errno,
};
use tree::{Entry, Kind};

use super::{
    apply::{Attributes, AttributesError, set_attributes},
    attributes::Wanted,
    error::{TargetError, refusal},
    files::CopyFiles,
    order::Order,
    parents::{Parents, is_below, split},
    probes::check_own,
    staging::Staged,
    there::{Found, Known, There, has_mode, has_time, is_top, modified_ns},
};
use crate::{disk::Directory, messages::Top};

/// Up to this many staged entries are written to disk one by one; for more, whole file systems are.
const SYNCED_MAX: usize = 256;

/// The publishing of one copy.
pub(super) struct Publication<'a> {
    order: &'a Order,
    stages: &'a [bool],
    staged: &'a Staged,
    there: &'a There,
    /// By the number of the entry: the inode of what was staged; 0 of what was not.
    inodes: Vec<u64>,
    /// Files and directories are written to disk one by one.
    syncs_each: bool,
    /// Directories in which names have changed.
    changed: BTreeMap<Vec<u8>, Directory>,
}

type Outcome = Result<(), TargetError>;

impl<'a> Publication<'a> {
    /// `stages`: by the number of the entry, whether it is staged.
    pub(super) fn new(
        order: &'a Order,
        stages: &'a [bool],
        staged: &'a Staged,
        there: &'a There,
    ) -> Self {
        Self {
            order,
            stages,
            staged,
            there,
            inodes: vec![0; stages.len()],
            syncs_each: stages.iter().filter(|&&stages| stages).count() <= SYNCED_MAX,
            changed: BTreeMap::new(),
        }
    }

    pub(super) fn staged(&self) -> &'a Staged {
        self.staged
    }

    /// The entries that are staged, with their numbers.
    fn staged_entries(&self) -> impl Iterator<Item = (usize, &'a Entry)> + use<'a> {
        let (order, stages) = (self.order, self.stages);
        order.entries().iter().enumerate().filter(move |(number, _)| stages[*number])
    }

    fn failed(&self, what: &'static str, path: &[u8]) -> impl FnOnce(Errno) -> TargetError + use<> {
        let path = self.order.shown(path);
        move |error| refusal(&path, what, 0, error.into())
    }

    /// Completes what is staged, but for further names of files: empty files, links, attributes of all but directories; and writes it
    /// to disk. Returns the inodes.
    pub(super) fn complete(&mut self, files: &CopyFiles) -> Result<Vec<u64>, TargetError> {
        for (number, entry) in self.staged_entries() {
            let (directory, name) = self.staged.of(&entry.path);
            match &entry.kind {
                Kind::Directory => {}
                Kind::File { bytes } => self.complete_file(files, number, *bytes)?,
                Kind::Name { .. } => continue,
                Kind::Link { target } => {
                    let made = directory.make_link(name, OsStr::from_bytes(target));
                    made.map_err(|error| files.create_error(number, error))?;
                    let set = directory.set_link_modified_ns(name, entry.modified_ns);
                    set.map_err(self.failed("set the time of", &entry.path))?;
                    if let Some(wanted) = self.order.wanted(number) {
                        let opened = directory.open_path(name);
                        let opened = opened.map_err(self.failed("open", &entry.path))?;
                        self.set_owner_of_link(directory, &opened, wanted, &entry.path)?;
                    }
                }
            }
            if self.inodes[number] == 0 {
                let stat = directory.stat(name).map_err(self.failed("examine", &entry.path))?;
                self.inodes[number] = stat.st_ino;
            }
        }
        if !self.syncs_each {
            for directory in self.staged.directories() {
                let synced = directory.disk().sync_file_system(directory.as_fd());
                synced.map_err(self.failed("write to disk", b""))?;
            }
        }
        Ok(self.inodes.clone())
    }

    /// What is staged was completed before, and has these inodes.
    pub(super) fn completed(&mut self, inodes: Vec<u64>) {
        self.inodes = inodes;
    }

    /// Gives a staged file its mode and time, unless it got them when it was written, and writes it to disk.
    fn complete_file(&mut self, files: &CopyFiles, number: usize, bytes: u64) -> Outcome {
        let finished = files.finished(number);
        if let Some(inode) = finished.filter(|_| !self.syncs_each) {
            self.inodes[number] = inode;
            return Ok(());
        }
        let path = &self.order.entries()[number].path;
        let (directory, name) = self.staged.of(path);
        let failed = || self.failed("write to disk", path);
        let file = match bytes {
            // A file that is one, and no tree, has been created.
            0 if !self.order.is_file => self.create_empty(files, number)?,
            _ => directory.open(name, OFlags::RDONLY).map_err(failed())?,
        };
        let inode = match finished {
            Some(inode) => inode,
            None => set_attributes(directory, &file, self.attributes(number))
                .map_err(|error| error.named(self.order, path))?,
        };
        if self.syncs_each {
            directory.disk().sync(&file).map_err(failed())?;
        }
        self.inodes[number] = inode;
        Ok(())
    }

    fn create_empty(&self, files: &CopyFiles, number: usize) -> Result<File, TargetError> {
        let path = &self.order.entries()[number].path;
        let created = files.open_staged(number, OFlags::RDWR | OFlags::CREATE);
        let file = created
            .map_err(|error| TargetError::stored(error, "create", &self.order.shown(path)))?;
        let (directory, _) = self.staged.of(path);
        directory.disk().set_len(&file, 0).map_err(self.failed("create", path))?;
        Ok(file)
    }

    /// What an entry is to have.
    fn attributes(&self, number: usize) -> Attributes<'a> {
        let entry = &self.order.entries()[number];
        let wanted = self.order.wanted(number);
        Attributes { mode: entry.mode.into(), modified_ns: entry.modified_ns, wanted }
    }

    fn set_owner_of_link(
        &self,
        directory: &Directory,
        opened: impl AsFd,
        wanted: Wanted<'_>,
        path: &[u8],
    ) -> Outcome {
        let set = wanted.set_owner(directory.disk(), opened);
        set.map_err(|refused| refused.of(self.order.shown(path)))
    }

    /// Stages further names of files. Files that stay get a later time of change by that.
    pub(super) fn link_names(&mut self, files: &CopyFiles) -> Outcome {
        for (number, entry) in self.staged_entries() {
            if let Kind::Name { of } = entry.kind {
                self.link(files, number, of as usize)?;
            }
        }
        Ok(())
    }

    /// Stages a further name of a file.
    fn link(&mut self, files: &CopyFiles, number: usize, first: usize) -> Outcome {
        let (path, of) = (&self.order.entries()[number].path, &self.order.entries()[first].path);
        let (to, name) = self.staged.of(path);
        let linked = match (self.stages[first], &files.existing) {
            (true, _) => {
                let (from, first_name) = self.staged.of(of);
                from.link(first_name, to, name)
            }
            (false, Some(existing)) => Parents::new(existing)
                .of(of)
                .and_then(|(from, first_name)| from.link(first_name, to, name)),
            (false, None) => Err(Errno::NOENT),
        };
        linked.map_err(|error| files.create_error(number, error))?;
        self.inodes[number] = match self.stages[first] {
            true => self.inodes[first],
            false => self.there.inode(first).unwrap_or(0),
        };
        Ok(())
    }

    /// Links the files that stay where everything else is staged, for a directory that is exchanged.
    pub(super) fn link_kept(&self, existing: &Directory) -> Outcome {
        let mut parents = Parents::new(existing);
        for (number, entry) in self.order.entries().iter().enumerate() {
            if self.stages[number] || !matches!(entry.kind, Kind::File { .. }) {
                continue;
            }
            let (to, staged) = self.staged.of(&entry.path);
            let linked = parents.of(&entry.path).and_then(|(from, name)| {
                match from.link(name, to, staged) {
                    // By an earlier session.
                    Err(Errno::EXIST) => {
                        to.unlink(staged)?;
                        from.link(name, to, staged)
                    }
                    linked => linked,
                }
            });
            linked.map_err(self.failed("keep", &entry.path))?;
            // Something else may have got the name since it was checked.
            let stat = to.stat(staged).map_err(self.failed("examine", &entry.path))?;
            if Some(stat.st_ino) != self.there.inode(number) {
                return Err(TargetError::Changed(self.order.shown(&entry.path)));
            }
        }
        Ok(())
    }

    /// Checks that what stays is as it was when it was compared.
    pub(super) fn check_kept(&self, existing: &Directory) -> Outcome {
        let mut parents = Parents::new(existing);
        for (number, entry) in self.order.entries().iter().enumerate() {
            let expected = match (&entry.kind, self.there.found[number]) {
                _ if self.stages[number] => continue,
                (Kind::File { .. }, Found::File { known, .. }) => Some(known),
                (Kind::Name { of }, Found::Same) => {
                    let Some(first) = self.there.inode(*of as usize) else { continue };
                    let stat = parents.of(&entry.path).and_then(|(at, name)| at.stat(name));
                    if stat.is_ok_and(|stat| stat.st_ino == first) {
                        continue;
                    }
                    None
                }
                (Kind::Link { target }, Found::Link { .. }) => {
                    let text = parents.of(&entry.path).and_then(|(at, name)| at.read_link(name));
                    if text.is_ok_and(|text| text == *target) {
                        continue;
                    }
                    None
                }
                _ => continue,
            };
            let stat = parents.of(&entry.path).and_then(|(at, name)| at.stat(name));
            if expected.is_none() || stat.ok().map(|stat| Known::of(&stat)) != expected {
                return Err(TargetError::Changed(self.order.shown(&entry.path)));
            }
        }
        Ok(())
    }

    /// Corrects attributes of files and links that stay; before they get further names, which changes them.
    pub(super) fn correct_kept(&self, existing: &Directory) -> Outcome {
        let mut parents = Parents::new(existing);
        for (number, entry) in self.order.entries().iter().enumerate() {
            let (Found::File { known, is_finished: false, .. }
            | Found::Link { known, is_finished: false }) = self.there.found[number]
            else {
                continue;
            };
            if self.stages[number] {
                continue;
            }
            let failed = || self.failed("set mode and time of", &entry.path);
            let (to, name) = parents.of(&entry.path).map_err(failed())?;
            let opened = to.open_path(name).map_err(failed())?;
            if Known::of(&to.disk().stat(&opened).map_err(failed())?) != known {
                return Err(TargetError::Changed(self.order.shown(&entry.path)));
            }
            match (&entry.kind, self.order.wanted(number)) {
                (Kind::Link { .. }, wanted) => {
                    let set = to.set_link_modified_ns(name, entry.modified_ns);
                    set.map_err(failed())?;
                    if let Some(wanted) = wanted {
                        self.set_owner_of_link(to, &opened, wanted, &entry.path)?;
                    }
                }
                _ => {
                    let set = set_attributes(to, &opened, self.attributes(number));
                    set.map_err(|error| error.named(self.order, &entry.path))?;
                }
            }
        }
        Ok(())
    }

    /// Moves what is staged to where it belongs.
    ///
    /// Errors: the system's; then a part may be published, and what is left is staged still.
    pub(super) fn move_all(&mut self, existing: &Directory) -> Outcome {
        let mut parents = Parents::new(existing);
        // It has its name with all that is in it.
        let mut moved: Option<&[u8]> = None;
        let mut checked: Option<&[u8]> = None;
        for (number, entry) in self.staged_entries() {
            let is_moved = moved.is_some_and(|moved| is_below(&entry.path, moved));
            if is_moved {
                continue;
            }
            let (to, name) = parents
                .of(&entry.path)
                .map_err(self.failed("open the directory of", &entry.path))?;
            let parent = split(&entry.path).0;
            if checked != Some(parent) {
                self.check_directory(parent, to)?;
                checked = Some(parent);
            }
            match entry.kind {
                Kind::Directory => {
                    if self.move_directory(to, name, number)? {
                        moved = Some(&entry.path);
                    }
                }
                _ => self.move_entry(to, name, number)?,
            }
            self.note_change(&entry.path, to);
        }
        Ok(())
    }

    /// Checks that an open directory is the one that was looked at, or that has been made.
    fn check_directory(&self, path: &[u8], directory: &Directory) -> Outcome {
        let Some(number) = self.order.listing.find(path) else { return Ok(()) };
        let stat = directory.own_stat().map_err(self.failed("examine", path))?;
        match self.inode_of_directory(number) == Some(stat.st_ino) {
            true => Ok(()),
            false => Err(TargetError::Changed(self.order.shown(path))),
        }
    }

    fn inode_of_directory(&self, number: usize) -> Option<u64> {
        match self.stages[number] {
            true => Some(self.inodes[number]),
            false => self.there.inode(number),
        }
    }

    fn note_change(&mut self, path: &[u8], directory: &Directory) {
        let parent = split(path).0;
        if !self.changed.contains_key(parent) && self.changed.len() <= SYNCED_MAX {
            self.changed.insert(parent.to_vec(), directory.clone());
        }
    }

    /// Moves a file or a link; replaces what has the name.
    fn move_entry(&self, to: &Directory, name: &OsStr, number: usize) -> Outcome {
        let path = &self.order.entries()[number].path;
        let (from, staged) = self.staged.of(path);
        let has_group =
            self.order.wanted(number).is_some_and(|wanted| wanted.attributes.group.is_some());
        let with_group = if has_group { Ok(()) } else { self.with_group(to, from, staged) };
        let moved =
            with_group.and_then(|()| with_write_permission(to, || from.rename(staged, to, name)));
        moved.map_err(|error| match error {
            Errno::ISDIR | Errno::NOTEMPTY | Errno::EXIST => TargetError::DirectoryInTheWay {
                path: self.order.shown(path),
                what: "another entry",
            },
            error => self.failed("rename the temporary file to", path)(error),
        })
    }

    /// Gives a staged file the group of a directory with the set-group-id bit, as if it were made in it.
    fn with_group(&self, to: &Directory, from: &Directory, staged: &OsStr) -> Result<(), Errno> {
        let parent = to.own_stat()?;
        if parent.st_mode & 0o2000 == 0 || from.own_stat()?.st_gid == parent.st_gid {
            return Ok(());
        }
        // A user who is not in that group cannot; the file keeps its own then.
        let opened = from.open_path(staged)?;
        let _ = from.disk().set_group(&opened, parent.st_gid);
        Ok(())
    }

    /// Moves a directory with all that is in it; false if there is one now, into which its entries go one by one.
    fn move_directory(
        &mut self,
        to: &Directory,
        name: &OsStr,
        number: usize,
    ) -> Result<bool, TargetError> {
        let path = &self.order.entries()[number].path;
        if matches!(self.there.found[number], Found::Other) {
            // A file or a link, which a rename of a directory does not replace.
            match with_write_permission(to, || to.unlink(name)) {
                Ok(()) | Err(Errno::NOENT | Errno::ISDIR) => {}
                Err(error) => return Err(self.failed("remove", path)(error)),
            }
        }
        let (from, staged) = self.staged.of(path);
        let flags = RenameFlags::NOREPLACE;
        let moved = with_write_permission(to, || from.rename_with(staged, to, name, flags));
        match moved {
            Ok(()) => return Ok(true),
            Err(Errno::EXIST) => {}
            // The file system has no such rename.
            Err(Errno::INVAL | Errno::NOSYS) => match to.make_directory(name, 0o700) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(self.failed("create", path)(error)),
            },
            Err(error) => {
                return Err(self.failed("rename the temporary directory to", path)(error));
            }
        }
        let inode = to.open_directory(name).and_then(|directory| Ok(directory.own_stat()?.st_ino));
        self.inodes[number] = inode.map_err(self.failed("open", path))?;
        Ok(false)
    }

    /// Sets modes and times of directories, the deepest first, since changes in a directory change its time; and writes
    /// them to disk. A directory of another user keeps its own, as only that user and root may set them.
    pub(super) fn finish_directories(&self, top: &Directory) -> Outcome {
        let mut parents = Parents::new(top);
        for (number, entry) in self.order.entries().iter().enumerate().rev() {
            if entry.kind != Kind::Directory {
                continue;
            }
            let directory = parents.open(&entry.path);
            let directory = directory.map_err(self.failed("open", &entry.path))?;
            self.check_directory(&entry.path, &directory)?;
            let stat = directory.own_stat().map_err(self.failed("examine", &entry.path))?;
            let wanted = self.order.wanted(number);
            let has_wanted =
                wanted.is_none_or(|wanted| wanted.is_had_by(&stat, || Ok(directory.as_fd())));
            let is_finished =
                has_mode(&stat, entry.mode.into()) && has_time(&stat, entry) && has_wanted;
            if let Some(wanted) = wanted.filter(|_| !has_wanted) {
                check_own(self.order, &entry.path, &directory, wanted)?;
            }
            if !is_finished && self.order.may_set(&stat) {
                let set = set_attributes(&directory, directory.as_fd(), self.attributes(number));
                set.map_err(|error| error.named(self.order, &entry.path))?;
            }
            if self.syncs_each && (self.stages[number] || self.changed.contains_key(&entry.path)) {
                directory.sync().map_err(self.failed("write to disk", &entry.path))?;
            }
        }
        Ok(())
    }

    /// Checks that every entry that was staged has its name, and that none has taken another's.
    pub(super) fn check_names(&self, top: &Directory) -> Outcome {
        let mut parents = Parents::new(top);
        for (number, entry) in self.staged_entries() {
            let stat = parents.of(&entry.path).and_then(|(at, name)| at.stat(name));
            let inode = stat.ok().map(|stat| stat.st_ino);
            if inode == Some(self.inodes[number]) {
                continue;
            }
            let other = self.inodes.iter().position(|&other| Some(other) == inode);
            let path = self.order.shown(&entry.path);
            return Err(match other {
                Some(other) => {
                    let one = self.order.shown(&self.order.entries()[other].path);
                    TargetError::Collision { one, other: path }
                }
                None => TargetError::Changed(path),
            });
        }
        Ok(())
    }

    /// Writes the new names in the top directory to disk; with many entries those of all file systems.
    pub(super) fn sync_names(&self, top: &Directory) -> Outcome {
        if self.syncs_each {
            return top.sync().map_err(self.failed("write to disk", b""));
        }
        // Directories of what was staged are on the same file systems.
        for directory in self.staged.directories() {
            let synced = directory.disk().sync_file_system(directory.as_fd());
            synced.map_err(self.failed("write to disk", b""))?;
        }
        Ok(())
    }
}

/// Sets the attributes of the top directory, if it is this user's; false if they were set before.
///
/// Errors: it is another user's, and would have to get other ones than mode and time.
pub(super) fn finish_top(
    directory: &Directory,
    Top { mode, modified_ns }: Top,
    order: &Order,
) -> Result<bool, TargetError> {
    let named = |error: AttributesError| error.named(order, b"");
    let stat = directory.own_stat().map_err(|error| named(error.into()))?;
    let wanted = order.wanted_of_top();
    let has_wanted = wanted.is_none_or(|wanted| wanted.is_had_by(&stat, || Ok(directory.as_fd())));
    if let Some(wanted) = wanted.filter(|_| !has_wanted) {
        check_own(order, b"", directory, wanted)?;
    }
    if is_top(&stat, Some(Top { mode, modified_ns })) && has_wanted || !order.may_set(&stat) {
        return Ok(false);
    }
    let attributes = Attributes { mode, modified_ns, wanted };
    set_attributes(directory, directory.as_fd(), attributes).map(|_| true).map_err(named)
}

/// Repeats a change in a directory of this user with its owner's write permission, if that was missing. Its mode is
/// set with those of all directories at the end.
pub(super) fn with_write_permission(
    directory: &Directory,
    change: impl Fn() -> Result<(), Errno>,
) -> Result<(), Errno> {
    match change() {
        Err(Errno::ACCESS) => {
            let mode = directory.own_stat()?.st_mode & 0o7777;
            if mode & 0o700 == 0o700 {
                return Err(Errno::ACCESS);
            }
            directory.disk().set_mode(directory.as_fd(), mode | 0o700)?;
            change()
        }
        outcome => outcome,
    }
}

/// The attributes that a directory has.
pub(super) fn top_of(stat: &Stat) -> Top {
    Top { mode: stat.st_mode & 0o1777, modified_ns: modified_ns(stat) }
}

/// The attributes of a directory that has none of a source.
pub(super) fn new_top() -> Top {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let modified_ns = now.map_or(0, |time| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX));
    Top { mode: 0o777 & !crate::system::umask(), modified_ns }
}
