//! The copy of a tree: hidden until it is complete and verified.

use std::{
    io,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use rdmc::{Region, Storage};
use rustix::{fs::FileType, io::Errno};
use tree::{Kind, Layout, Listing};

use super::{
    compare::Comparison,
    files::CopyFiles,
    publish::{PublishError, complete, replace_each, replace_in_place, replace_whole},
    staging::{Staging, open_directory},
};
use crate::{
    TargetError, Verified,
    changes::Changes,
    claim::{Claim, Owner},
    hash::digest_range,
    messages::TreeOffer,
    place::Place,
    ranges::{ByteRange, Ranges},
    resume::{ChunkDigests, Chunking},
    target::{claim, no_file, refusal},
};

/// Kept bytes between missing ones that are fewer than this are sent again: each range is a message.
const GAP_BYTES_MIN: u64 = 64 << 10;
/// Bytes copied at once.
const COPIED_BYTES: usize = 1 << 20;
/// The most ranges of kept bytes that are reported.
const RANGES_MAX: usize = 1 << 20;

/// What a receiver is to make.
pub(crate) struct TreeOrder {
    pub(crate) listing: Listing,
    /// Identifies the version of the tree.
    pub(crate) version: blake3::Hash,
    pub(crate) offer: TreeOffer,
}

/// A tree to be published at a path: a directory `.NAME.rdmc-VERSION` beside it, and what is kept of an existing one.
///
/// As of [`crate::Target`], no other process can make one for the path meanwhile. Dropping it unpublished removes the
/// directory; [`TreeTarget::keep`] leaves it for a later session with the same listing.
#[derive(Debug)]
pub(crate) struct TreeTarget {
    /// Of the copy; of several sources, of any name in the directory that they go into.
    place: Place,
    /// The copy, or the directory that the copies go into.
    path: PathBuf,
    order: Order,
    /// The existing directory with the tree's paths.
    existing: Option<Arc<OwnedFd>>,
    comparison: Comparison,
    staging: Option<Staging>,
    /// Once the root has compared what is there; `None` if nothing has to be done.
    files: Option<Arc<CopyFiles>>,
    /// The last field, so that it is dropped last.
    _claim: Claim,
}

/// [`TreeOrder`], shared with threads.
struct Order {
    listing: Arc<Listing>,
    layout: Arc<Layout>,
    version: blake3::Hash,
    offer: TreeOffer,
}

impl std::fmt::Debug for Order {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} entries", self.listing.entries().len())
    }
}

impl TreeTarget {
    /// Claims the place and looks at what is there. Creates nothing.
    ///
    /// Errors: another push owns the path; something is there that cannot be replaced.
    pub(crate) fn prepare(
        place: Place,
        path: PathBuf,
        order: TreeOrder,
        owner: &Owner,
    ) -> Result<Self, TargetError> {
        let claim = claim(&place, owner)?;
        let TreeOrder { listing, version, offer } = order;
        let layout = Arc::new(Layout::of(&listing));
        let listing = Arc::new(listing);
        let existing = match offer.top {
            None => Some(place.disk().shared()),
            Some(_) => existing_directory(&place, &path)?,
        };
        let comparison = match &existing {
            None => Comparison::of_nothing(&listing, &layout, &offer),
            Some(top) => Comparison::of(top, &listing, &layout, &offer).map_err(|in_the_way| {
                let entry = &listing.entries()[in_the_way.0];
                TargetError::DirectoryInTheWay {
                    path: path.join(std::ffi::OsStr::from_bytes(&entry.path)),
                    what: match entry.kind {
                        Kind::Link { .. } => "a link",
                        _ => "a file",
                    },
                }
            })?,
        };
        // What cannot be cleaned is removed, by dropping it.
        let staging = Staging::find(&place, &version)
            .and_then(|staging| staging.clean(&listing).is_ok().then_some(staging));
        place.remove_temporaries(staging.as_ref().map(|staging| staging.name.as_os_str()));
        let order = Order { listing, layout, version, offer };
        Ok(Self { place, path, order, existing, comparison, staging, files: None, _claim: claim })
    }

    /// What of the tree is there already.
    pub(crate) fn changes(&self) -> Changes {
        self.comparison.changes.clone()
    }

    /// The files that are there, of the right length and time: they stay without being read. None if files are
    /// compared by contents.
    pub(crate) fn kept(&self) -> Ranges {
        let mut kept = Ranges::default();
        if self.order.offer.by_contents {
            return kept;
        }
        let layout = &self.order.layout;
        for (file, _) in self.comparison.may_stay.iter().enumerate().filter(|(_, stays)| **stays) {
            let range = layout.range_of(file);
            kept.add((range.start, range.end));
        }
        let bytes = layout.bytes();
        let is_long =
            |&(start, end): &ByteRange| end - start >= GAP_BYTES_MIN || start == 0 || end == bytes;
        kept.iter().filter(is_long).take(RANGES_MAX).collect()
    }

    /// Digests of chunks of the object that are there, of an earlier session or of files to be compared by contents;
    /// `None` if there are none.
    ///
    /// Blocks while it reads, or until `stop`. Errors: the system's.
    pub(crate) fn chunk_digests(
        &self,
        stop: &AtomicBool,
    ) -> Result<Option<ChunkDigests>, TargetError> {
        let (known, may_stay) = (self.kept(), self.comparison.may_stay.clone());
        let staged = self.staging.as_ref().map(|staging| Arc::clone(&staging.top));
        let files = self.files_with(may_stay, staged);
        let bytes = self.order.layout.bytes();
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

    /// Begins the copy, of which these ranges are there. Unless nothing has to be done, makes the hidden directory.
    ///
    /// Blocks while it copies parts of existing files that do not stay, or until `stop`. Errors: no space; the system's.
    pub(crate) fn begin(&mut self, has: &Ranges, stop: &AtomicBool) -> Result<(), TargetError> {
        let layout = &self.order.layout;
        let kept: Vec<bool> = (self.comparison.may_stay.iter().enumerate())
            .map(|(file, &may_stay)| {
                let range = layout.range_of(file);
                may_stay && has.covers((range.start, range.end))
            })
            .collect();
        if self.comparison.is_same && kept.iter().all(|&is_kept| is_kept) {
            return Ok(());
        }
        let lacking = layout.bytes().saturating_sub(has.bytes());
        self.check_space(lacking)?;
        let staging = match self.staging.take() {
            Some(staging) => staging,
            None => Staging::create(&self.place, &self.order.version)
                .map_err(|error| no_file(&self.place, error))?,
        };
        let made = staging.make_directories(&self.order.listing);
        let staged = Arc::clone(&staging.top);
        self.staging = Some(staging);
        made.map_err(|(entry, error)| {
            let path = self.shown(&self.order.listing.entries()[entry].path);
            refusal(&path, "create", lacking, error.into())
        })?;
        let files = self.files_with(kept, Some(staged));
        self.copy_parts(&files, has, stop).map_err(self.system("copy what is there of"))?;
        self.files = Some(Arc::new(files));
        Ok(())
    }

    /// Copies what is right of existing files that do not stay.
    fn copy_parts(&self, files: &CopyFiles, has: &Ranges, stop: &AtomicBool) -> io::Result<()> {
        let was_read = self.files_with(self.comparison.may_stay.clone(), None);
        let mut buffer = vec![0; COPIED_BYTES];
        for file in (0..files.kept.len()).filter(|&file| was_read.kept[file] && !files.kept[file]) {
            let range = self.order.layout.range_of(file);
            let whole = [(range.start, range.end)].into_iter().collect();
            for (start, end) in has.intersection(&whole).iter() {
                for from in (start..end).step_by(COPIED_BYTES) {
                    if stop.load(Ordering::Relaxed) {
                        return Err(io::ErrorKind::Interrupted.into());
                    }
                    let piece = &mut buffer[..(end - from).min(COPIED_BYTES as u64) as usize];
                    was_read.read_at(piece, from)?;
                    files.write_at(piece, from)?;
                }
            }
        }
        Ok(())
    }

    /// Errors: the file system has less free space, or fewer files left.
    fn check_space(&self, bytes: u64) -> Result<(), TargetError> {
        let Ok(free) = self.place.disk().free() else { return Ok(()) };
        let entries = self.order.listing.entries().len() as u64;
        if free.f_bavail.saturating_mul(free.f_frsize) < bytes {
            let directory = self.place.directory().to_owned();
            return Err(TargetError::NoSpace { directory, bytes });
        }
        // File systems without a fixed number of inodes report 0 for both.
        if free.f_files != 0 && free.f_favail < entries {
            return Err(TargetError::NoInodes(self.place.directory().to_owned()));
        }
        Ok(())
    }

    fn files_with(&self, kept: Vec<bool>, staged: Option<Arc<OwnedFd>>) -> CopyFiles {
        let Order { listing, layout, offer, .. } = &self.order;
        let existing = self.existing.clone();
        CopyFiles::new((listing, layout), existing, kept, staged, (offer.by_contents, &self.path))
    }

    /// The files for the digest of the copy; `None` if nothing has to be done.
    pub(crate) fn files(&self) -> Option<Arc<CopyFiles>> {
        self.files.clone()
    }

    /// The region of all contents.
    ///
    /// Errors: longer than this machine can address.
    pub(crate) fn region(&self) -> Result<Region, TargetError> {
        let (bytes, shared) = (self.order.layout.bytes(), self.files.clone());
        let storage: Arc<dyn Storage> = match shared {
            Some(files) => files,
            // Nothing is missing; others may read it.
            None => Arc::new(self.files_with(vec![true; self.order.layout.files()], None)),
        };
        Region::from_storage(storage, bytes, self.files.is_some())
            .map_err(|error| TargetError::Map { path: self.path.clone(), error })
    }

    /// Leaves the hidden directory for a later session.
    pub(crate) fn keep(self) {
        if let Some(staging) = self.staging {
            staging.keep();
        }
    }

    /// The copy, or the directory that the copies go into.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Completes the tree and gives it its name, and returns once all of it is on disk; what had the name is removed.
    /// True if it was there already. Blocks for the disk.
    ///
    /// Errors: the system's; then what was there is unchanged, unless it was written in place.
    pub(crate) fn publish(mut self, _proof: &Verified) -> Result<bool, TargetError> {
        let (Some(mut staging), Some(files)) = (self.staging.take(), self.files.take()) else {
            return Ok(true);
        };
        let offer = self.order.offer;
        let in_place = offer.in_place && self.existing.is_some();
        let staged = Arc::clone(&staging.top);
        let completed = complete(&files, &staged, !in_place);
        let outcome = completed.and_then(|()| match (&self.existing, offer.top) {
            (Some(existing), top) if in_place => replace_in_place(existing, &staged, &files, top),
            (Some(existing), None) => replace_each(existing, &staged, &files),
            (_, top) => replace_whole(&self.place, &mut staging, &files, top),
        });
        outcome.map_err(|error| self.publish_error(error))?;
        // Before the claim ends: the directory has the old tree now.
        drop(staging);
        Ok(false)
    }

    fn publish_error(&self, failed: PublishError) -> TargetError {
        let PublishError { what, path, error } = failed;
        let path = self.shown(&path);
        match error {
            Errno::STALE => TargetError::Changed(path),
            Errno::XDEV | Errno::BUSY | Errno::INVAL | Errno::OPNOTSUPP
                if self.existing.is_some() =>
            {
                TargetError::NoExchange { path, error: error.into() }
            }
            error => TargetError::System { path, what, error: error.into() },
        }
    }

    fn shown(&self, path: &[u8]) -> PathBuf {
        match path {
            [] => self.path.clone(),
            path => self.path.join(std::ffi::OsStr::from_bytes(path)),
        }
    }

    fn system(&self, what: &'static str) -> impl FnOnce(io::Error) -> TargetError + use<> {
        let path = self.path.clone();
        move |error| TargetError::System { path, what, error }
    }
}

/// The directory of the place's name, if there is one.
///
/// Errors: something else has the name.
fn existing_directory(place: &Place, path: &Path) -> Result<Option<Arc<OwnedFd>>, TargetError> {
    match open_directory(&place.disk().shared(), place.name()) {
        Ok(directory) => Ok(Some(Arc::new(directory))),
        Err(Errno::NOENT) => Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            let kind = match place.occupant() {
                Some(FileType::Directory) => "a symbolic link to a directory",
                Some(FileType::RegularFile) => "a file",
                _ => "not a directory",
            };
            Err(TargetError::InTheWay { path: path.to_owned(), kind })
        }
        Err(error) => Err(refusal(path, "open", 0, error.into())),
    }
}
