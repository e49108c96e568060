//! The copy that a receiver makes: hidden until it is complete and verified.

use std::{
    fs::File,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rdmc::{Region, Storage};
use rustix::{fs::RenameFlags, io::Errno};

use super::{
    atomic,
    error::{TargetError, refusal},
    extras::{self, Extra},
    files::CopyFiles,
    held::{Existing, Held, check_inside, check_replaceable, hold, no_file},
    look::look,
    order::Order,
    probes,
    publish::{Publication, finish_top, new_top, top_of},
    staging::{RESERVED_BYTES_MIN, Staging},
    there::{Found, There},
    verified::Verified,
    verified_files::VerifiedFiles,
};
use crate::{
    Manifest,
    changes::{Change, Changes},
    claim::Owner,
    disk::Directory,
    hash::digest_range,
    place::Place,
    ranges::{ByteRange, Ranges},
    resume::{ChunkDigests, Chunking},
};

/// Bytes copied between checks of the stop flag.
const COPIED_BYTES: u64 = 64 << 20;
/// Kept bytes between missing ones that are fewer than this are sent again: each range is a message.
const GAP_BYTES_MIN: u64 = 64 << 10;
/// The most ranges of kept bytes that are reported.
const RANGES_MAX: usize = 1 << 20;

/// The copy of a file or of a tree, to be published at a path (docs/decisions/publishing.md).
///
/// Until it is published or dropped no process can make another target for the path, of any version of any source: it
/// holds a lock, which ends with its process.
///
/// Space is reserved at the start, so that a full disk is detected before the transfer. (Where a file system cannot
/// reserve, or is in memory, free space is checked once.) Dropping it unpublished removes what is staged; [`Target::keep`] leaves it
/// for a later session, which finds it by the version of the source.
#[derive(Debug)]
pub struct Target {
    place: Place,
    order: Arc<Order>,
    manifest: Manifest,
    /// The directory with the entries that are there; of a file, that of its name.
    existing: Option<Directory>,
    there: There,
    /// What only the host has and is to be removed.
    extras: Vec<Extra>,
    staging: Option<Staging>,
    /// Once the root has compared what is there.
    files: Option<Arc<CopyFiles>>,
    /// The inodes of what is staged, once all of it is complete and on disk.
    stored: Option<Vec<u64>>,
    /// Dropped last.
    held: Held,
}

/// A copy once it is published, to be read for others.
#[derive(Debug)]
pub(crate) struct PublishedCopy {
    place: Place,
    order: Arc<Order>,
    /// The directory that it was made in; none for a new one.
    existing: Option<Directory>,
}

impl PublishedCopy {
    /// The region of all contents, read-only. What was changed since is read as it is.
    ///
    /// Errors: it is not there any more; longer than this machine can address.
    pub(crate) fn region(&self) -> Result<Region, TargetError> {
        let (path, place) = (|| self.place.path().to_owned(), &self.place);
        let directory = match &self.existing {
            Some(directory) => directory.clone(),
            None => place.parent().open_directory(place.name()).map_err(|error| {
                TargetError::System { path: path(), what: "open", error: error.into() }
            })?,
        };
        let stages = vec![false; self.order.entries().len()];
        let files = Arc::new(CopyFiles::new(&self.order, Some(directory), stages, None));
        Region::from_storage(files, self.order.bytes(), false)
            .map_err(|error| TargetError::Map { path: path(), error })
    }
}

/// Where a tree goes.
pub(crate) enum Spot {
    /// A name that nothing has.
    Name(Place),
    /// A directory that is there; its name, if it is in a directory that could be opened.
    Inside(Directory, Option<Place>),
}

/// Checks that what was found where a tree goes is still there, and nothing else.
///
/// Errors: [`TargetError::Appeared`], [`TargetError::Replaced`].
fn check_spot(place: &Place, there: &Existing<'_>, is_exchanged: bool) -> Result<(), TargetError> {
    let path = || place.path().to_owned();
    if there.directory.is_none() {
        return match place.occupant() {
            None => Ok(()),
            Some(_) => Err(TargetError::Appeared(path())),
        };
    }
    let name = there.name.or(is_exchanged.then_some(place));
    match (Existing { name, ..*there }).was_replaced() {
        false => Ok(()),
        true => Err(TargetError::Replaced(path())),
    }
}

impl Target {
    /// Begins the copy of a file.
    ///
    /// Blocks while it reserves space, and up to 3 seconds for another session of the path that is ending. Errors: the
    /// directory is missing, full or not writable; another push owns the path; the path cannot be replaced.
    pub fn create(path: &Path, manifest: Manifest) -> Result<Self, TargetError> {
        let place = Place::anywhere(path).map_err(|error| TargetError::no_place(path, error))?;
        Self::create_at(place, manifest, &Owner::of_no_push(""))
    }

    /// The same at a place that is open already.
    pub(crate) fn create_at(
        place: Place,
        manifest: Manifest,
        owner: &Owner,
    ) -> Result<Self, TargetError> {
        let order = Order::of_file(&place, &manifest, None)?;
        let mut target = Self::prepare_file(place, order, manifest, owner)?;
        target.begin(&Ranges::default(), &AtomicBool::new(false))?;
        Ok(target)
    }

    /// Claims the place of a file and looks at what is there; creates nothing else.
    ///
    /// Errors: as for [`Target::create`].
    pub(crate) fn prepare_file(
        place: Place,
        order: Order,
        manifest: Manifest,
        owner: &Owner,
    ) -> Result<Self, TargetError> {
        check_replaceable(&place)?;
        let held = hold(&place, owner, &Existing::default(), &order)?;
        let existing = Some(place.parent().clone());
        let order = Arc::new(order);
        let (there, staging) = look(&place, &order, existing.as_ref().filter(|_| order.looks))?;
        let (extras, files, stored) = (Vec::new(), None, None);
        Ok(Self { place, order, manifest, existing, there, extras, staging, files, stored, held })
    }

    /// Claims the place of a tree and looks at what is there; creates nothing else.
    ///
    /// Blocks while it looks, or until `stop`. Errors: another push owns the path; what is there cannot be replaced; stopped.
    pub(crate) fn prepare_tree(
        spot: Spot,
        path: &Path,
        order: Order,
        manifest: Manifest,
        owner: &Owner,
        stop: &AtomicBool,
    ) -> Result<Self, TargetError> {
        let (place, existing, name) = match spot {
            Spot::Name(place) => (place, None, None),
            Spot::Inside(directory, Some(name)) if order.atomic => (name, Some(directory), None),
            Spot::Inside(..) if order.atomic => {
                let reason = "its directory cannot be written".to_owned();
                return Err(TargetError::NotAtomic { path: path.to_owned(), reason });
            }
            Spot::Inside(directory, name) => {
                (Place::inside(directory.clone(), path), Some(directory), name)
            }
        };
        let there = Existing { directory: existing.as_ref(), name: name.as_ref() };
        let held = hold(&place, owner, &there, &order)?;
        if !order.dry_run {
            // Another push may have ended while this one waited for it.
            check_spot(&place, &there, order.atomic)?;
            if let Some(name) = name.as_ref().filter(|_| held.is_claimed_beside()) {
                Staging::move_inside(name, &place, &order);
            }
            // Before what is there is looked at: it may have further names in them.
            Staging::remove_others(&place, &order);
            atomic::recover(name.as_ref().unwrap_or(&place), existing.as_ref())?;
        }
        let order = Arc::new(order);
        let (there, mut staging) = look(&place, &order, existing.as_ref())?;
        let extras = match (&existing, &order.deletion) {
            (Some(at), Some(deletion)) => extras::find(at, &order, deletion, stop, &there),
            _ => Ok(Vec::new()),
        };
        let keep = |_: &_| staging.take().into_iter().for_each(Staging::keep);
        let (extras, files, stored) = (extras.inspect_err(keep)?, None, None);
        Ok(Self { place, order, manifest, existing, there, extras, staging, files, stored, held })
    }

    /// The files of a tree that are there, of the right length and time: they stay without being read. None if files are
    /// compared by contents.
    pub(crate) fn kept(&self) -> Ranges {
        let mut kept = Ranges::default();
        let (order, bytes) = (&self.order, self.order.bytes());
        if order.by_contents {
            return kept;
        }
        for file in 0..order.layout.files() {
            if let Found::File { may_stay: true, .. } = self.there.found[order.layout.entry(file)] {
                let range = order.layout.range_of(file);
                kept.add((range.start, range.end));
            }
        }
        let is_long =
            |&(start, end): &ByteRange| end - start >= GAP_BYTES_MIN || start == 0 || end == bytes;
        kept.iter().filter(is_long).take(RANGES_MAX).collect()
    }

    /// What the push changes here.
    pub(crate) fn changes(&self) -> Changes {
        let mut changes = self.there.changes(&self.order);
        if !self.order.is_file && self.order.top.is_some() {
            changes.set_top(match self.held.before() {
                None => Change::New,
                Some(_) if self.has_top() => Change::Kept,
                Some(_) => Change::Attributes,
            });
            self.held.note_others(&self.order, &mut changes);
        }
        self.extras.iter().for_each(|extra| changes.remove(extra.path()));
        changes
    }

    /// Whether what has the destination's name has the attributes of the tree's top, or keeps its own.
    fn has_top(&self) -> bool {
        let has_wanted = || match (&self.existing, self.order.wanted_of_top()) {
            (Some(existing), Some(wanted)) => existing
                .own_stat()
                .is_ok_and(|stat| wanted.is_had_by(&stat, || Ok(existing.as_fd()))),
            _ => true,
        };
        self.held.has_top(&self.order) && has_wanted()
    }

    /// Digests of chunks of the object that are there, of an earlier session or of files to be compared by contents;
    /// `None` if there are none.
    ///
    /// Blocks while it reads, or until `stop`. Errors: the system's.
    pub(crate) fn chunk_digests(
        &self,
        stop: &AtomicBool,
    ) -> Result<Option<ChunkDigests>, TargetError> {
        let known = self.kept();
        let is_file = |found: &Found| matches!(found, Found::File { .. });
        let files = self.files_with(self.there.found.iter().map(|found| !is_file(found)).collect());
        let bytes = self.order.bytes();
        let chunking = Chunking::of(bytes);
        let there = files.there();
        let is_wanted = |range: ByteRange| there.covers(range) && !known.covers(range);
        let next = |mut position: u64| {
            while position < bytes {
                let range = chunking.range((position / chunking.chunk_bytes) as u32);
                if is_wanted(range) {
                    return Ok(Some(position));
                }
                position = range.1;
            }
            Ok(None)
        };
        let read = |into: &mut [u8], at| files.read_at(into, at);
        ChunkDigests::of_chunks(chunking, next, |range| digest_range(read, range, stop))
            .map_err(self.system("read what is there of"))
    }

    /// Begins the copy, of which these ranges are there. Unless nothing has to be done, stages what is missing.
    ///
    /// Blocks while it reserves space and copies parts of existing files that do not stay, or until `stop`. Errors: no
    /// space; something that has to change may not be changed; the system's.
    pub(crate) fn begin(&mut self, has: &Ranges, stop: &AtomicBool) -> Result<(), TargetError> {
        let mut stages = self.stages(has);
        if !self.has_work(&stages) {
            self.files = Some(Arc::new(self.files_with(stages)));
            return Ok(());
        }
        match &self.existing {
            Some(existing) if self.order.atomic => {
                atomic::check(&self.place, existing, &self.order, &self.there)?;
                // All but files is made anew.
                for (stages, entry) in stages.iter_mut().zip(self.order.entries()) {
                    *stages |= entry.bytes().is_none();
                }
            }
            Some(existing) => {
                super::permission::check(existing, &self.order, &self.there, &stages)?;
            }
            None => {}
        }
        let staging = match self.staging.take() {
            Some(staging) => staging,
            None => Staging::create(
                &self.place,
                &self.order,
                self.existing.as_ref(),
                &self.there,
                self.held.claim().map_err(|error| no_file(&self.place, error))?,
            )
            .map_err(|error| no_file(&self.place, error))?,
        };
        let made = self.staging.insert(staging).make_directories(&self.order, &stages);
        let files = self.files_with(stages);
        made.map_err(|(entry, error)| files.create_error(entry, error))?;
        if let (true, Some(existing), Some((staged, _))) =
            (self.order.atomic, &self.existing, self.staging.as_ref().and_then(Staging::top))
        {
            atomic::copy_attributes(existing, staged, &self.order)?;
        }
        let reserved_bytes_min = if self.order.is_file { 1 } else { RESERVED_BYTES_MIN };
        super::space::reserve(&files, reserved_bytes_min)?;
        let existing = self.existing.as_ref();
        probes::check(&self.place, existing, &self.order, &self.there, &files)?;
        self.copy_parts(&files, has, stop).map_err(self.system("copy what is there of"))?;
        self.files = Some(Arc::new(files));
        Ok(())
    }

    /// By the number of the entry: whether it has to be staged.
    fn stages(&self, has: &Ranges) -> Vec<bool> {
        let mut stages: Vec<bool> = Vec::with_capacity(self.there.found.len());
        for (number, found) in self.there.found.iter().enumerate() {
            let stays = match (found, &self.order.entries()[number].kind) {
                (Found::Directory { .. } | Found::Link { .. }, _) => true,
                (Found::File { may_stay, .. }, _) => {
                    let range = self.order.layout.range(number);
                    *may_stay && (range.is_empty() || has.covers((range.start, range.end)))
                }
                (Found::Same, tree::Kind::Name { of }) => !stages[*of as usize],
                (Found::Nothing | Found::Other | Found::Same, _) => false,
            };
            stages.push(!stays);
        }
        stages
    }

    /// Copies what is right of existing files that do not stay.
    fn copy_parts(&self, files: &CopyFiles, has: &Ranges, stop: &AtomicBool) -> io::Result<()> {
        for file in 0..self.order.layout.files() {
            let entry = self.order.layout.entry(file);
            let is_there = matches!(self.there.found[entry], Found::File { .. });
            if !files.stages[entry] || !is_there {
                continue;
            }
            let range = self.order.layout.range_of(file);
            let right = has.intersection(&[(range.start, range.end)].into_iter().collect());
            if right.bytes() == 0 {
                continue;
            }
            let from = files.open_existing(file)?;
            for (start, end) in right.iter() {
                for part in (start..end).step_by(COPIED_BYTES as usize) {
                    if stop.load(Ordering::Relaxed) {
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                    let part = part..end.min(part + COPIED_BYTES);
                    for piece in self.order.layout.pieces(part) {
                        files.copy(&from, file, (piece.in_file.start, piece.in_file.end))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn files_with(&self, stages: Vec<bool>) -> CopyFiles {
        let staged = self.staging.as_ref();
        let staged = staged.map(|staging| (staging.staged.clone(), staging.is_there.clone()));
        CopyFiles::new(&self.order, self.existing.clone(), stages, staged)
    }

    /// The files for the digest of the copy, once it has begun.
    pub(crate) fn files(&self) -> Option<Arc<CopyFiles>> {
        self.files.clone()
    }

    /// Finds out which files can be read before the copy is published, once it has begun with these ranges. What stays without being
    /// read ([`Target::kept`]) does not count as compared.
    pub(crate) fn verified_files(&self, has: &Ranges) -> Option<VerifiedFiles> {
        let read = self.kept().missing(self.order.bytes());
        Some(VerifiedFiles::new(self.files.as_ref()?, &has.intersection(&read)))
    }

    /// For reading the copy once it is published, but not where a directory is exchanged.
    pub(crate) fn to_be_read(&self) -> PublishedCopy {
        let (place, order, existing) =
            (self.place.clone(), Arc::clone(&self.order), self.existing.clone());
        PublishedCopy { place, order, existing }
    }

    /// Whether it is the copy of a file whose contents are all of the object.
    pub(crate) fn is_file(&self) -> bool {
        self.order.is_file && !self.order.is_listed
    }

    /// Leaves what is staged for a later session, but not the space of what was not written.
    pub fn keep(mut self) {
        if let Some(staging) = self.staging.take() {
            staging.release(&self.order);
            staging.keep();
        }
    }

    /// Sets the modification time that the copy of a file is to have.
    pub(crate) fn set_modified_ns(&mut self, modified_ns: i64) -> Result<(), TargetError> {
        self.manifest.modified_ns = modified_ns;
        self.order = Arc::new(Order::of_file(&self.place, &self.manifest, None)?);
        Ok(())
    }

    /// The source's name, length and attributes.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The destination: the copy, or the directory that copies of several sources go into.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// The region of all contents, of exactly the source's length. Read-only if nothing is missing.
    ///
    /// Errors: longer than this machine can address; the copy has not begun.
    pub fn region(&self) -> Result<Region, TargetError> {
        let path = || self.place.path().to_owned();
        let Some(files) = self.files.clone() else {
            let error = io::ErrorKind::NotFound.into();
            return Err(TargetError::System { path: path(), what: "receive", error });
        };
        let (bytes, is_writable) = (self.order.bytes(), files.stages.contains(&true));
        Region::from_storage(files as Arc<dyn Storage>, bytes, is_writable)
            .map_err(|error| TargetError::Map { path: path(), error })
    }

    /// The file, for reading what has arrived. Errors: no descriptor; it is a tree.
    pub fn file(&self) -> Result<File, TargetError> {
        let staged = self.staging.as_ref().and_then(Staging::file).map(File::try_clone);
        let opened = match (staged, &self.files) {
            (Some(file), _) => file,
            (None, Some(files)) if self.order.bytes() > 0 => files.open_file(0),
            (None, _) => self.place.open_occupant(),
        };
        opened.map_err(self.system("open"))
    }

    /// Does everything that comes before the first change that others can see: gives what is staged its attributes, and returns once it
    /// is on disk. What is staged must not be written to any more. Blocks for the disk.
    ///
    /// Errors: the system's; what stays, or the path, was changed meanwhile. Then what is staged stays, for a later session.
    pub(crate) fn store(mut self, _proof: &Verified) -> Result<Self, TargetError> {
        match self.store_files() {
            Ok(()) => Ok(self),
            Err(error) => {
                self.keep();
                Err(error)
            }
        }
    }

    fn store_files(&mut self) -> Result<(), TargetError> {
        let files = self.begun_files()?;
        self.check_publishable()?;
        if let Some(staging) = self.staging.as_ref().filter(|_| self.has_work(&files.stages)) {
            let mut publication =
                Publication::new(&self.order, &files.stages, &staging.staged, &self.there);
            if let Some(existing) = &self.existing {
                publication.check_kept(existing)?;
            }
            self.stored = Some(publication.complete(&files)?);
        }
        Ok(())
    }

    /// Gives the copy its attributes and its name, entry by entry if it is a directory that is there, and returns once all of it
    /// is on disk. True if it was there already. Blocks for the disk.
    ///
    /// Errors: the system's; something was changed meanwhile. Then what is staged stays, for a later session.
    pub fn publish(mut self, _proof: &Verified) -> Result<bool, TargetError> {
        match self.publish_files() {
            Ok(was_there) => self.finish(was_there),
            Err(error) => {
                self.keep();
                Err(error)
            }
        }
    }

    /// The same, but nothing stays for a later session: what cannot be resumed.
    pub(crate) fn publish_or_remove(mut self, _proof: &Verified) -> Result<bool, TargetError> {
        let was_there = self.publish_files()?;
        self.finish(was_there)
    }

    fn publish_files(&mut self) -> Result<bool, TargetError> {
        let files = self.begun_files()?;
        self.files = None;
        self.check_publishable()?;
        let stored = self.stored.take();
        let was_there = match &self.staging {
            Some(staging) if self.has_work(&files.stages) => {
                let mut publication =
                    Publication::new(&self.order, &files.stages, &staging.staged, &self.there);
                self.publish_staged(&mut publication, &files, stored).map(|()| false)
            }
            _ => self.publish_kept(&files).map(|is_changed| !is_changed),
        }?;
        // Success is reported only if the path leads to the copy.
        self.check_place()?;
        Ok(was_there)
    }

    /// Errors: the copy has not begun.
    fn begun_files(&self) -> Result<Arc<CopyFiles>, TargetError> {
        let missing = || self.system("publish")(io::Error::from(io::ErrorKind::NotFound));
        self.files.clone().ok_or_else(missing)
    }

    /// Checks that the copy can get its name.
    fn check_publishable(&self) -> Result<(), TargetError> {
        if self.order.is_file {
            check_replaceable(&self.place)?;
        }
        self.check_place()
    }

    /// Whether something is staged or removed. A directory that is not there is made, whatever is in it.
    fn has_work(&self, stages: &[bool]) -> bool {
        stages.contains(&true) || self.existing.is_none() || !self.extras.is_empty()
    }

    fn publish_staged(
        &self,
        publication: &mut Publication<'_>,
        files: &CopyFiles,
        stored: Option<Vec<u64>>,
    ) -> Result<(), TargetError> {
        let complete = |publication: &mut Publication<'_>| {
            match stored {
                Some(inodes) => publication.completed(inodes),
                None => drop(publication.complete(files)?),
            }
            publication.link_names(files)
        };
        let unchanged = |existing| extras::unchanged(existing, &self.extras);
        let extras = self.existing.as_ref().map(unchanged).unwrap_or_default();
        if let Some(existing) = &self.existing
            && !self.order.atomic
        {
            publication.check_kept(existing)?;
            publication.correct_kept(existing)?;
            complete(publication)?;
            publication.move_all(existing)?;
            let staged = Some(publication.staged());
            extras::remove(existing, &self.order, &extras, staged)?;
            self.staging.iter().for_each(Staging::remove_inner);
            publication.finish_directories(existing)?;
            publication.check_names(existing)?;
            return publication.sync_names(existing);
        }
        if let Some(existing) = &self.existing {
            publication.check_kept(existing)?;
            publication.correct_kept(existing)?;
            publication.link_kept(existing)?;
        }
        complete(publication)?;
        let Some((staged, name)) = self.staging.as_ref().and_then(Staging::top) else {
            return Ok(());
        };
        publication.finish_directories(staged)?;
        publication.check_names(staged)?;
        let system = |what| move |error: Errno| self.failed(what, error);
        let top = self.order.top.unwrap_or_else(|| self.held.before().map_or_else(new_top, top_of));
        finish_top(staged, top, &self.order)?;
        publication.sync_names(staged)?;
        if let Some(existing) = &self.existing {
            check_inside(&self.place, existing)?;
            atomic::exchange(&self.place, existing, staged, name, &self.order)?;
            // Before they are moved.
            extras::remove(existing, &self.order, &extras, None)?;
            atomic::sweep_all(&self.place, existing, staged, &self.order.listing)?;
            // What was moved and removed has changed them.
            publication.finish_directories(staged)?;
            finish_top(staged, top, &self.order)?;
            return publication.sync_names(staged);
        }
        let parent = self.place.parent();
        match parent.rename_with(name, parent, self.place.name(), RenameFlags::NOREPLACE) {
            Ok(()) => {}
            Err(Errno::EXIST) => {
                return Err(TargetError::Appeared(self.place.path().to_owned()));
            }
            // The file system has no such rename. One of a directory replaces nothing but an empty directory.
            Err(Errno::INVAL | Errno::NOSYS) if self.place.occupant().is_none() => parent
                .rename(name, parent, self.place.name())
                .map_err(system("rename the temporary directory to"))?,
            Err(error) => return Err(self.failed("rename the temporary directory to", error)),
        }
        parent.sync().map_err(system("write to disk the directory of"))
    }

    /// Checks that the directory in which names are changed still has its path.
    fn check_place(&self) -> Result<(), TargetError> {
        match self.place.has_its_path().map_err(|error| self.failed("examine", error))? {
            true => Ok(()),
            false => Err(TargetError::Replaced(self.place.directory().to_owned())),
        }
    }

    /// Nothing is staged: corrects attributes. True if any were corrected.
    fn publish_kept(&self, files: &CopyFiles) -> Result<bool, TargetError> {
        let Some(existing) = &self.existing else { return Ok(false) };
        if self.order.atomic {
            let is_it = self.place.parent().is_named_directory(existing, self.place.name());
            if is_it != Ok(true) {
                return Err(TargetError::Replaced(self.place.path().to_owned()));
            }
        }
        let had_top = self.has_top();
        let staged = super::staging::Staged::default();
        let publication = Publication::new(&self.order, &files.stages, &staged, &self.there);
        publication.check_kept(existing)?;
        publication.correct_kept(existing)?;
        publication.finish_directories(existing)?;
        if self.order.is_file {
            let synced = self.file()?.sync_all();
            synced.map_err(self.system("write to disk"))?;
            existing.sync().map_err(|error| self.failed("write to disk", error))?;
            // A file is the same whatever its attributes were.
            return Ok(false);
        }
        if let (true, Some(top)) = (self.order.atomic, self.order.top) {
            // Nothing of this session is in it.
            finish_top(existing, top, &self.order)?;
        }
        Ok(!had_top || !self.there.found.iter().all(Found::is_finished))
    }

    /// Ends the staging, the claim, and then the work on the top directory.
    fn finish(self, was_there: bool) -> Result<bool, TargetError> {
        let Self { place, order, staging, held, .. } = self;
        match staging {
            // It has its name.
            Some(staging) if held.directory().is_none() => staging.keep(),
            // Nothing but directories is left.
            staging => drop(staging),
        }
        place.remove_temporaries(None);
        if let Some(top) = order.top {
            held.finish(top, &order)?;
        }
        Ok(was_there)
    }

    fn failed(&self, what: &'static str, error: Errno) -> TargetError {
        refusal(self.place.path(), what, 0, error.into())
    }

    fn system<E: Into<io::Error>>(
        &self,
        what: &'static str,
    ) -> impl FnOnce(E) -> TargetError + use<E> {
        let path = self.place.path().to_owned();
        move |error| TargetError::stored(error.into(), what, &path)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::{
        disk::advice::{Advised, take},
        hash::probe,
    };

    #[test]
    fn what_is_copied_of_an_existing_file_is_written_to_disk() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("copy");
        std::fs::write(&path, [7; 10_000]).unwrap();
        // It cannot stay, as others could write to it.
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let probe = probe(&File::open(&path).unwrap(), 10_000).unwrap();
        let manifest = Manifest { name: "a".into(), bytes: 10_000, mode: 0o600, modified_ns: 0 };
        let (place, owner) = (Place::anywhere(&path).unwrap(), Owner::of_no_push(""));
        let order = Order::of_file(&place, &manifest, Some(probe)).unwrap();
        let mut target = Target::prepare_file(place, order, manifest, &owner).unwrap();
        take();
        let has = [(0, 4_000), (5_000, 10_000)];
        target.begin(&has.into_iter().collect(), &AtomicBool::new(false)).unwrap();
        assert_eq!(take(), has.map(Advised::Writeback));
    }
}
