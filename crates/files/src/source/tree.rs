//! A directory, or several sources, as the source of a push (docs/decisions/trees.md).

use std::{
    fs::{self, File, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use rdmc::{Region, Storage};
use rustix::fs::OFlags;
use tree::Layout;

use super::{
    error::SourceError,
    options::ListOptions,
    scan::{Origin, Scan, modified_ns, name_of, system},
};
use crate::{
    Manifest,
    digests::Digests,
    hash,
    messages::{Top, TreeOffer},
    open_files::{OpenFiles, read_pieces},
    ranges::{ByteRange, Ranges},
    read_ahead::ReadAhead,
    resume::{ChunkDigests, SourceChunks},
};

/// A tree that is read for sending: the contents of all its files, one after another.
#[derive(Debug)]
pub(super) struct TreeSource {
    path: PathBuf,
    manifest: Manifest,
    entries: usize,
    /// For receivers.
    encoded: Arc<[u8]>,
    top: Option<Top>,
    has_holes: bool,
    files: Arc<Files>,
}

/// The files with contents, in order.
struct Files {
    layout: Layout,
    /// By the number of the file among those with contents.
    origins: Vec<Origin>,
    open: OpenFiles,
    /// Of what is sent.
    ahead: ReadAhead,
    /// The first change that was found.
    changed: Mutex<Option<(PathBuf, String)>>,
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
        let metadata = fs::metadata(path).map_err(system(path, "examine"))?;
        let modified_ns = modified_ns(path, &metadata)?;
        let top = Top { mode: metadata.mode() & 0o1777, modified_ns };
        let mut scan = Scan::new(options);
        scan.add_single(path)?;
        Self::new(path, scan, Some(top))
    }

    /// Lists several sources, whose copies go into the destination under their names; of a directory with `/` at the
    /// end what it contains.
    ///
    /// Errors: as before; two have the same name.
    pub(super) fn of_several(
        paths: &[PathBuf],
        options: &mut ListOptions,
    ) -> Result<Self, SourceError> {
        let mut scan = Scan::new(options);
        for (path, name) in named(paths)? {
            match name {
                Some(name) => scan.add_named(&path, &name)?,
                None => scan.add_contents(&path, b"")?,
            }
        }
        Self::new(&paths[0], scan, None)
    }

    fn new(path: &Path, scan: Scan<'_>, top: Option<Top>) -> Result<Self, SourceError> {
        let has_holes = scan.has_holes;
        let (listing, origins) = scan.finish(path)?;
        let encoded =
            listing.encode().map_err(|error| SourceError::Tree { path: path.to_owned(), error })?;
        let layout = Layout::of(&listing);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let manifest = Manifest { name, bytes: layout.bytes(), mode: 0o600, modified_ns: 0 };
        let (open, ahead, changed) = Default::default();
        let files = Arc::new(Files { layout, origins, open, ahead, changed });
        let (path, entries) = (path.to_owned(), listing.entries().len());
        Ok(Self { path, manifest, entries, encoded: encoded.into(), top, has_holes, files })
    }

    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn has_holes(&self) -> bool {
        self.has_holes
    }

    /// How many entries it has: directories, files and links.
    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    /// The listing for receivers.
    pub(super) fn encoded(&self) -> &Arc<[u8]> {
        &self.encoded
    }

    pub(super) fn offer(&self) -> TreeOffer {
        TreeOffer {
            listing_bytes: self.encoded.len() as u64,
            top: self.top,
            by_contents: false,
            in_place: false,
            lists_changes: false,
        }
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

    /// Errors: a file was found to have changed when it was read.
    pub(super) fn check_unchanged(&self) -> Result<(), SourceError> {
        let changed = self.files.changed.lock().unwrap_or_else(PoisonError::into_inner);
        match changed.clone() {
            Some((path, what)) => Err(SourceError::Changed { path, what }),
            None => Ok(()),
        }
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

    fn digest_range(
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
    /// Opens a file, which has to be the one that was listed.
    fn open(&self, index: usize) -> io::Result<File> {
        let origin = &self.origins[index];
        let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(&origin.path);
        let file = opened.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => self.changed(index, "it was removed or renamed".into()),
            _ => named_error(&origin.path, &error),
        })?;
        self.check(index, &file)?;
        Ok(file)
    }

    fn check(&self, index: usize, file: &File) -> io::Result<()> {
        let metadata = file.metadata()?;
        self.origins[index].identity.check(&metadata).map_err(|what| self.changed(index, what))
    }

    fn changed(&self, index: usize, what: String) -> io::Error {
        let path = &self.origins[index].path;
        let error = io::Error::other(format!("{} changed: {what}", path.display()));
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        changed.get_or_insert((path.clone(), what));
        error
    }

    fn digest_range(&self, range: ByteRange, stop: &AtomicBool) -> io::Result<blake3::Hash> {
        let ahead = ReadAhead::default();
        hash::digest_range(|into, at| self.read(into, at, (&ahead, range.1)), range, stop)
    }

    /// Reads a range of all contents; asks ahead for what follows, up to a limit.
    fn read(
        &self,
        into: &mut [u8],
        offset: u64,
        (ahead, limit): (&ReadAhead, u64),
    ) -> io::Result<()> {
        read_pieces(&self.layout, into, offset, |piece, part| {
            let whole = self.origins[piece.file].identity.bytes();
            let is_whole = part.len() as u64 == whole;
            let file = self.open.get(piece.file, is_whole, || self.open(piece.file))?;
            let range = self.layout.range_of(piece.file);
            let read = match is_whole {
                true => file.read_exact_at(part, piece.in_file.start),
                false => {
                    let holds = (range.start, range.end.min(limit));
                    ahead.read_exact(&file, holds, part, piece.in_object.start)
                }
            };
            read.map_err(|error| match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    self.changed(piece.file, "it became shorter".into())
                }
                _ => named_error(&self.origins[piece.file].path, &error),
            })?;
            // A change while it was read, too.
            self.check(piece.file, &file)
        })
    }
}

impl Storage for Files {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.read(into, offset, (&self.ahead, u64::MAX))
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "a source is not written"))
    }

    fn name(&self) -> String {
        format!("a tree of {} files", self.origins.len())
    }
}

fn named_error(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// Sources in the order of their names in the tree; without a name those whose contents go to its top.
type Named = Vec<(PathBuf, Option<Vec<u8>>)>;

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
