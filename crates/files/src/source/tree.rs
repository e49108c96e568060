//! A directory, or several sources, as the source of a push (docs/decisions/trees.md).

use std::{
    collections::BTreeSet,
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    io,
    ops::ControlFlow,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, OpenOptionsExt},
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rdmc::{Region, Storage};
use rustix::fs::OFlags;
use tree::{Holder, Layout};

use super::{
    difference::{Comparison, Difference},
    error::SourceError,
    found::{Listed, Origin},
    holes::{data_of, may_have_holes},
    identity::{Identity, mode_changed},
    options::ListOptions,
    scan::{Scan, Take, name_of, system},
    status::{Status, modified_ns},
};
use crate::{
    Manifest,
    digests::Digests,
    hash,
    messages::{Deletion, Top, TreeOffer},
    open_files::{OpenFiles, read_pieces},
    ranges::{ByteRange, Ranges},
    read_ahead::ReadAhead,
    resume::{ChunkDigests, SourceChunks},
};

/// A tree that is read for sending: the contents of all its files, one after another.
#[derive(Debug)]
pub(super) struct TreeSource {
    path: PathBuf,
    sources: Sources,
    options: ListOptions,
    deletion: Deletion,
    manifest: Manifest,
    entries: usize,
    /// For receivers.
    encoded: Arc<[u8]>,
    top: Option<Top>,
    /// Of owners and in access lists.
    ids: BTreeSet<(Holder, u32)>,
    /// Nothing of it is a link, and its entries are found in the order of the listing: another look keeps none of them.
    is_in_order: bool,
    files: Arc<Files>,
}

/// What the tree is made of.
#[derive(Debug)]
struct Sources {
    named: Named,
    /// The copy of the only one, a directory, is the destination itself.
    is_top: bool,
    /// The only one is a file, and the destination is the path of its copy.
    is_file: bool,
}

/// The files with contents, in order.
struct Files {
    layout: Layout,
    /// By the number of the file among those with contents.
    origins: Vec<Origin>,
    open: OpenFiles,
    /// Of what is sent.
    ahead: ReadAhead,
    /// Why a file could not be read as it was listed: the first reason.
    fault: Mutex<Option<(PathBuf, Fault)>>,
}

/// The attributes of the tree's top now, and the first difference.
type Compared = (Option<Top>, Option<Difference>);

/// Why a file cannot be read as it was listed.
#[derive(Clone, Debug)]
enum Fault {
    Changed(String),
    /// By the system, with the number of its error.
    Unreadable(i32),
}

impl std::fmt::Debug for Files {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} files", self.origins.len())
    }
}

impl TreeSource {
    /// Lists one directory, whose copy is the destination itself.
    ///
    /// Errors: unreadable; something in it cannot be replicated.
    pub(super) fn of_directory(
        path: &Path,
        options: &mut ListOptions,
    ) -> Result<Self, SourceError> {
        let named = vec![(path.to_owned(), None)];
        Self::new(path, Sources { named, is_top: true, is_file: false }, options)
    }

    /// Lists a single file of this name if it has holes.
    pub(super) fn of_file_with_holes(
        path: &Path,
        name: &[u8],
        options: &mut ListOptions,
    ) -> Result<Option<Self>, SourceError> {
        let real = path.canonicalize().map_err(system(path, "examine"))?;
        let status = Status::from(&fs::metadata(&real).map_err(system(path, "examine"))?);
        if !may_have_holes(&status) || data_of(&real, status.bytes).is_none() {
            return Ok(None);
        }
        let named = vec![(real, Some(name.to_vec()))];
        Self::new(path, Sources { named, is_top: false, is_file: true }, options).map(Some)
    }

    pub(super) fn is_file(&self) -> bool {
        self.sources.is_file
    }

    /// Lists several sources, whose copies go into the destination under their names; of a directory with `/` at the
    /// end what it contains.
    ///
    /// Errors: as before; two have the same name.
    pub(super) fn of_several(
        paths: &[PathBuf],
        options: &mut ListOptions,
    ) -> Result<Self, SourceError> {
        Self::new(
            &paths[0],
            Sources { named: named(paths)?, is_top: false, is_file: false },
            options,
        )
    }

    fn new(path: &Path, sources: Sources, options: &mut ListOptions) -> Result<Self, SourceError> {
        let again = options.clone();
        let deletion = sources.deletion(&again)?;
        let (top, scan) = sources.scan(options, None)?;
        let is_in_order = sources.are_in_order() && !scan.has_links();
        let (listing, origins) = scan.finish(path)?;
        let encoded =
            listing.encode().map_err(|error| SourceError::Tree { path: path.to_owned(), error })?;
        let layout = Layout::of(&listing);
        let (entries, mut ids) = (listing.entries().len(), BTreeSet::new());
        drop(listing.map_ids(|holder, id| {
            ids.insert((holder, id));
            id
        }));
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let manifest = Manifest { name, bytes: layout.bytes(), mode: 0o600, modified_ns: 0 };
        let (open, ahead, fault) = Default::default();
        let files = Arc::new(Files { layout, origins, open, ahead, fault });
        let path = path.to_owned();
        let encoded = encoded.into();
        Ok(Self {
            path,
            sources,
            options: again,
            deletion,
            manifest,
            entries,
            encoded,
            top,
            ids,
            is_in_order,
            files,
        })
    }

    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn files(&self) -> impl Iterator<Item = &Path> {
        self.files.origins.iter().map(|origin| &*origin.path)
    }

    /// How many entries it has: directories, files and links.
    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// The numbers of users and groups in attributes of entries.
    pub(super) fn ids(&self) -> BTreeSet<(Holder, u32)> {
        self.ids.clone()
    }

    /// The listing for receivers.
    pub(super) fn encoded(&self) -> &Arc<[u8]> {
        &self.encoded
    }

    pub(super) fn offer(&self) -> TreeOffer {
        TreeOffer {
            listing_bytes: self.encoded.len() as u64,
            is_file: self.sources.is_file,
            by_contents: self.sources.is_file,
            top: self.top,
            ..TreeOffer::default()
        }
    }

    /// What receivers remove of what only they have, if they are asked to.
    pub(super) fn deletion(&self) -> &Deletion {
        &self.deletion
    }

    /// The bytes of an entry in the object; empty for an entry without contents.
    pub(super) fn range_of(&self, entry: u32) -> ByteRange {
        let range = self.files.layout.range(entry as usize);
        (range.start, range.end)
    }

    pub(super) fn region(&self) -> Result<Region, SourceError> {
        let files = Arc::clone(&self.files) as Arc<dyn Storage>;
        Region::from_storage(files, self.manifest.bytes, false)
            .map_err(|error| SourceError::Map { path: self.path.clone(), error })
    }

    /// Errors: a file was found to have changed, or was not readable, when it was read.
    pub(super) fn check_unchanged(&self) -> Result<(), SourceError> {
        let fault = self.files.fault.lock().unwrap_or_else(PoisonError::into_inner);
        match fault.clone() {
            Some((path, Fault::Changed(what))) => Err(SourceError::Changed { path, what }),
            Some((path, Fault::Unreadable(errno))) => {
                let error = io::Error::from_raw_os_error(errno);
                Err(SourceError::System { path, what: "read", error })
            }
            None => Ok(()),
        }
    }

    /// Lists everything again, and compares. The time of a directory is no difference: names that were not selected may
    /// come and go in it.
    ///
    /// Errors: something was added, removed, replaced or changed; unreadable.
    pub(super) fn look_again(&self) -> Result<(), SourceError> {
        self.check_unchanged()?;
        let at_once = if self.is_in_order { self.compare_at_once() } else { Ok(None) };
        let compared = match at_once {
            Ok(None) => self.compare_all(),
            at_once => at_once.map(Option::unwrap_or_default),
        };
        let (top, difference) = compared.map_err(|error| match error {
            // Since its directory was read.
            SourceError::Missing(path) => {
                SourceError::Changed { path, what: "it was removed or renamed".into() }
            }
            other => other,
        })?;
        if let Some(Difference { entry, what }) = difference {
            return Err(SourceError::Changed { path: self.sources.path_of(&entry), what });
        }
        let modes = (self.top.map(|top| top.mode), top.map(|top| top.mode));
        match modes {
            (Some(before), Some(now)) if before != now => Err(SourceError::Changed {
                path: self.path.clone(),
                what: mode_changed(before, now),
            }),
            _ => Ok(()),
        }
    }

    fn comparison(&self) -> Result<Comparison<'_>, SourceError> {
        let compared = Comparison::new(&self.encoded, &self.files.origins);
        compared.map_err(|error| SourceError::Tree { path: self.path.clone(), error })
    }

    /// Compares what is there now with what was sent, entry by entry as it is found. `None` if there is a link, which can only be
    /// compared once all is known that is there.
    fn compare_at_once(&self) -> Result<Option<Compared>, SourceError> {
        let (mut options, mut comparison) = (self.options.clone(), self.comparison()?);
        let mut take = |listed: Listed| comparison.compare(&listed);
        let (top, scan) = self.sources.scan(&mut options, Some(&mut take))?;
        if scan.has_links() {
            return Ok(None);
        }
        scan.for_each(&self.path, |_| ControlFlow::Continue(()))?;
        Ok(Some((top, comparison.end())))
    }

    /// The same once all was found.
    fn compare_all(&self) -> Result<Compared, SourceError> {
        let (mut options, mut comparison) = (self.options.clone(), self.comparison()?);
        let (top, scan) = self.sources.scan(&mut options, None)?;
        scan.for_each(&self.path, |listed| comparison.compare(&listed))?;
        Ok((top, comparison.end()))
    }

    /// Digests the files with a byte in one of these ranges. Blocks while it reads, or until `stop`.
    pub(super) fn digest(
        &self,
        ranges: &Ranges,
        stop: &AtomicBool,
    ) -> Result<Digests, SourceError> {
        let mut digests: Vec<(ByteRange, blake3::Hash)> = Vec::new();
        for range in ranges.iter() {
            for piece in self.files.layout.pieces(range.0..range.1) {
                let file = self.files.layout.range_of(piece.file);
                let file = (file.start, file.end);
                if digests.last().is_some_and(|(last, _)| *last == file) {
                    continue;
                }
                digests.push((file, self.digest_range(file, stop)?));
            }
        }
        Ok(Digests::Files(digests))
    }

    /// As [`SourceChunks::matching`]. None if its digests are invalid.
    pub(super) fn matching(
        &self,
        chunks: &mut SourceChunks,
        digests: &ChunkDigests,
        stop: &AtomicBool,
    ) -> Result<Ranges, SourceError> {
        let digest = |range| self.files.digest_range(range, stop);
        match chunks.matching(digests, digest) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Ranges::default()),
            other => other.map_err(|error| self.read_error(error)),
        }
    }

    /// The error for two reads with different digests.
    pub(super) fn differs(&self) -> SourceError {
        let what = "a file was written to, and its modification time was kept".to_owned();
        SourceError::Changed { path: self.path.clone(), what }
    }

    pub(super) fn digest_range(
        &self,
        range: ByteRange,
        stop: &AtomicBool,
    ) -> Result<blake3::Hash, SourceError> {
        if stop.load(Ordering::Relaxed) {
            return Err(self.read_error(io::ErrorKind::Interrupted.into()));
        }
        self.files.digest_range(range, stop).map_err(|error| self.read_error(error))
    }

    fn read_error(&self, error: io::Error) -> SourceError {
        match self.check_unchanged() {
            Err(changed) => changed,
            Ok(()) => SourceError::System { path: self.path.clone(), what: "read", error },
        }
    }
}

impl Files {
    /// Opens a file. Whether it is the one that was listed is still to be checked.
    fn open(&self, index: usize) -> io::Result<File> {
        let origin = &self.origins[index];
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(&origin.path);
        opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.changed(index, "it was removed or renamed".into()),
            _ => self.unreadable(index, &error),
        })
    }

    fn check(&self, index: usize, file: &File) -> io::Result<()> {
        let metadata = file.metadata()?;
        self.origins[index]
            .identity
            .check(&Identity::of(&Status::from(&metadata)))
            .map_err(|what| self.changed(index, what))
    }

    fn changed(&self, index: usize, what: String) -> io::Error {
        let path = &self.origins[index].path;
        let error = io::Error::other(format!("{} changed: {what}", path.display()));
        self.keep(path, Fault::Changed(what));
        error
    }

    fn unreadable(&self, index: usize, error: &io::Error) -> io::Error {
        let path = &self.origins[index].path;
        if let Some(errno) = error.raw_os_error() {
            self.keep(path, Fault::Unreadable(errno));
        }
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    }

    fn keep(&self, path: &Path, fault: Fault) {
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert((path.to_path_buf(), fault));
    }

    fn digest_range(&self, range: ByteRange, stop: &AtomicBool) -> io::Result<blake3::Hash> {
        let ahead = ReadAhead::default();
        hash::digest_range(|into, at| self.read(into, at, &ahead, range.1), range, stop)
    }

    /// Reads a range of all contents; asks ahead for what follows, up to a limit.
    fn read(&self, into: &mut [u8], offset: u64, ahead: &ReadAhead, limit: u64) -> io::Result<()> {
        read_pieces(&self.layout, into, offset, |piece, part| {
            let whole = self.origins[piece.file].identity.bytes();
            let is_whole = part.len() as u64 == whole;
            // What is read at once is opened outside of the lock, and checked once.
            let file = match is_whole {
                true => Arc::new(self.open(piece.file)?),
                false => self.open.get(piece.file, || {
                    let file = self.open(piece.file)?;
                    self.check(piece.file, &file)?;
                    Ok(file)
                })?,
            };
            let range = self.layout.range_of(piece.file);
            // Those with holes are not contiguous.
            let read = match is_whole || self.layout.has_holes(piece.file) {
                true => file.read_exact_at(part, piece.in_file.start),
                false => {
                    let holds = (range.start, range.end.min(limit));
                    ahead.read_exact(&file, holds, part, piece.in_object.start)
                }
            };
            // Before the error of a read: why it has failed. A change while it was read, too.
            self.check(piece.file, &file)?;
            read.map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    self.changed(piece.file, "it became shorter".into())
                }
                _ => self.unreadable(piece.file, &error),
            })
        })
    }
}

impl Storage for Files {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.read(into, offset, &self.ahead, u64::MAX)
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "a source is not written"))
    }

    fn name(&self) -> String {
        format!("a tree of {} files", self.origins.len())
    }
}

/// Sources in the order of their names in the tree; without a name those whose contents go to its top.
type Named = Vec<(PathBuf, Option<Vec<u8>>)>;

impl Sources {
    /// Whether one is scanned after another in the order of the listing: contents of several may come together at the top.
    fn are_in_order(&self) -> bool {
        self.named.len() == 1 || self.named.iter().all(|(_, name)| name.is_some())
    }

    /// Finds everything that is selected, now. With the attributes of the top, if the tree has one. `take`: as for [`Scan::new`].
    fn scan<'a>(
        &self,
        options: &'a mut ListOptions,
        take: Option<Take<'a>>,
    ) -> Result<(Option<Top>, Scan<'a>), SourceError> {
        let mut scan = Scan::new(options, take);
        let mut top = None;
        for (path, name) in &self.named {
            match name {
                _ if self.is_top => {
                    let metadata = fs::metadata(path).map_err(system(path, "examine"))?;
                    let status = Status::from(&metadata);
                    let modified_ns = modified_ns(|| path.clone(), &status)?;
                    top = Some(Top { mode: status.mode & 0o1777, modified_ns });
                    scan.add_single(path)?;
                }
                Some(name) => scan.add_named(path, name)?,
                None => scan.add_contents(path, b"")?,
            }
        }
        Ok((top, scan))
    }

    fn deletion(&self, options: &ListOptions) -> Result<Deletion, SourceError> {
        let means_contents = self.named.iter().any(|(_, name)| name.is_none());
        let prefix = match &self.named[..] {
            [(path, _)] if self.is_top => name_of(path)?.map(|name| [&name[..], b"/"].concat()),
            _ => None,
        };
        Ok(Deletion {
            at_top: self.is_top || means_contents,
            prefix: prefix.unwrap_or_default(),
            patterns: options.patterns(),
        })
    }

    /// Where an entry of the tree is, or was.
    fn path_of(&self, entry: &[u8]) -> PathBuf {
        let entry = Path::new(OsStr::from_bytes(entry));
        let paths = self.named.iter().filter_map(|(path, name)| match name {
            None => Some(path.join(entry)),
            Some(name) => {
                let below = entry.strip_prefix(OsStr::from_bytes(name)).ok()?;
                // Joining nothing adds a `/`.
                Some(if below.as_os_str().is_empty() { path.clone() } else { path.join(below) })
            }
        });
        let mut paths: Vec<PathBuf> = paths.collect();
        // Several directories may have their contents at the top.
        let found = paths.iter().position(|path| path.symlink_metadata().is_ok());
        if paths.is_empty() { entry.to_owned() } else { paths.swap_remove(found.unwrap_or(0)) }
    }
}

/// Errors: two have the same name.
fn named(paths: &[PathBuf]) -> Result<Named, SourceError> {
    let mut named: Named = Vec::new();
    for path in paths {
        named.push((path.clone(), name_of(path)?));
    }
    named.sort_by(|(_, one), (_, other)| one.cmp(other));
    for pair in named.windows(2) {
        if pair[0].1.is_some() && pair[0].1 == pair[1].1 {
            let (one, other) = (pair[0].0.clone(), pair[1].0.clone());
            return Err(SourceError::SameName { one, other });
        }
    }
    Ok(named)
}
