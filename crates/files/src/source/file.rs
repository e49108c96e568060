//! A regular file as the source of a push.

use std::{
    fs::{File, Metadata, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Arc, OnceLock, atomic::AtomicBool},
};

use rdmc::{Region, Storage};
use rustix::fs::{OFlags, SeekFrom, seek};

use super::{
    error::SourceError,
    identity::Identity,
    status::{Status, modified_ns},
};
use crate::{
    Manifest, hash,
    ranges::{ByteRange, Ranges},
    read_ahead::ReadAhead,
    resume::{ChunkDigests, SourceChunks},
};

/// A regular file that is open for sending.
///
/// It is read block by block and never mapped: a file that shrinks is an error, while access to a mapping beyond its
/// end would kill the process.
#[derive(Debug)]
pub(super) struct FileSource {
    path: PathBuf,
    file: Arc<File>,
    manifest: Manifest,
    identity: Identity,
    /// The number of the system's error by which it could not be read to be sent.
    unreadable: Arc<OnceLock<i32>>,
}

/// The bytes of a file as they are sent.
struct Sent {
    file: Arc<File>,
    bytes: u64,
    name: String,
    ahead: ReadAhead,
    unreadable: Arc<OnceLock<i32>>,
}

impl Storage for Sent {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let read = self.ahead.read_exact(&self.file, (0, self.bytes), into, offset);
        read.map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other("the file has shrunk"),
            _ => {
                if let Some(errno) = error.raw_os_error() {
                    self.unreadable.get_or_init(|| errno);
                }
                error
            }
        })
    }

    fn write_at(&self, _bytes: &[u8], _offset: u64) -> io::Result<()> {
        Err(io::Error::new(io::ErrorKind::ReadOnlyFilesystem, "a source is not written"))
    }

    fn name(&self) -> String {
        self.name.clone()
    }
}

impl FileSource {
    /// Opens a regular file for reading, and keeps its attributes.
    ///
    /// Errors: missing, not a regular file, not readable, contents of another length than its attributes have.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let system = |what| {
            move |error: io::Error| match error.kind() {
                io::ErrorKind::NotFound => SourceError::Missing(path.to_owned()),
                _ => SourceError::System { path: path.to_owned(), what, error },
            }
        };
        // Opening a FIFO must not block.
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NONBLOCK.bits().cast_signed())
            .open(path)
            .map_err(system("read"))?;
        let metadata = file.metadata().map_err(system("examine"))?;
        if !metadata.is_file() {
            let kind = kind_of(&metadata);
            return Err(SourceError::NotAFile { path: path.to_owned(), kind });
        }
        let name = path.file_name().ok_or_else(|| SourceError::Name(path.to_owned()))?;
        let manifest = Manifest {
            // For information only; the destination is a path of its own.
            name: name.to_string_lossy().into_owned(),
            bytes: metadata.len(),
            mode: metadata.mode() & 0o777,
            modified_ns: modified_ns(|| path.to_owned(), &Status::from(&metadata))?,
        };
        let identity = Identity::of(&Status::from(&metadata));
        let (path, file) = (path.to_owned(), Arc::new(file));
        let source = Self { path, file, manifest, identity, unreadable: Arc::default() };
        source.check_length()?;
        Ok(source)
    }

    /// Errors: reads do not end at the length of the attributes; the file has changed.
    fn check_length(&self) -> Result<(), SourceError> {
        let bytes = self.manifest.bytes;
        let can_read = |at| {
            let read = self.file.read_at(&mut [0], at);
            read.map(|count| count > 0).map_err(|error| SourceError::System {
                path: self.path.clone(),
                what: "read",
                error,
            })
        };
        let instead = match (bytes == 0 || can_read(bytes - 1)?, can_read(bytes)?) {
            (true, false) => return Ok(()),
            (false, _) => "less",
            (true, true) => "more",
        };
        self.check_unchanged()?;
        Err(SourceError::NotStored { path: self.path.clone(), bytes, instead })
    }

    /// Name, length and attributes for receivers.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Whether it has holes.
    pub fn has_holes(&self) -> bool {
        // The file position that this changes is never used.
        let hole = seek(&*self.file, SeekFrom::Hole(0));
        hole.is_ok_and(|at| at < self.manifest.bytes)
    }

    /// The path that was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The contents for sending; keeps the file open.
    ///
    /// Errors: more than this machine can address.
    pub fn region(&self) -> Result<Region, SourceError> {
        let (file, bytes) = (Arc::clone(&self.file), self.manifest.bytes);
        let name = self.path.display().to_string();
        let unreadable = Arc::clone(&self.unreadable);
        let sent = Sent { file, bytes, name, ahead: ReadAhead::default(), unreadable };
        Region::from_storage(Arc::new(sent), bytes, false)
            .map_err(|error| SourceError::Map { path: self.path.clone(), error })
    }

    /// Checks that the open file and the file at its path have the same inode, length, modification time and mode as when
    /// it was opened.
    ///
    /// Errors: [`SourceError::Changed`] with the difference; it could not be read to be sent.
    pub fn check_unchanged(&self) -> Result<(), SourceError> {
        let system =
            |error| SourceError::System { path: self.path.clone(), what: "examine", error };
        if let Some(&errno) = self.unreadable.get() {
            return Err(self.read_error(io::Error::from_raw_os_error(errno)));
        }
        self.compare(&self.file.metadata().map_err(system)?)?;
        match std::fs::metadata(&self.path) {
            Ok(metadata) => self.compare(&metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(self.changed("it was removed or renamed".into()))
            }
            Err(error) => Err(system(error)),
        }
    }

    /// The BLAKE3 digest of the contents. Blocks while it reads them once, or until `stop` (then with
    /// [`io::ErrorKind::Interrupted`]).
    ///
    /// Errors: unreadable, or shorter than before.
    pub fn digest(&self, stop: &AtomicBool) -> Result<blake3::Hash, SourceError> {
        self.digest_range((0, self.manifest.bytes), stop).map_err(|error| self.read_error(error))
    }

    /// [`hash::probe`] of the contents.
    pub(crate) fn probe(&self) -> Result<[u8; 32], SourceError> {
        hash::probe(&self.file, self.manifest.bytes).map_err(|error| self.read_error(error))
    }

    /// The BLAKE3 digest of a part of the contents. Errors: as [`FileSource::digest`].
    pub(super) fn digest_part(
        &self,
        part: ByteRange,
        stop: &AtomicBool,
    ) -> Result<blake3::Hash, SourceError> {
        self.digest_range(part, stop).map_err(|error| self.read_error(error))
    }

    fn digest_range(&self, range: ByteRange, stop: &AtomicBool) -> io::Result<blake3::Hash> {
        let ahead = ReadAhead::default();
        let read = |into: &mut [u8], at| ahead.read_exact(&self.file, (0, range.1), into, at);
        hash::digest_range(read, range, stop)
    }

    fn read_error(&self, error: io::Error) -> SourceError {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => self.changed("it became shorter".into()),
            _ => SourceError::System { path: self.path.clone(), what: "read", error },
        }
    }

    /// The ranges in which a receiver's file matches; see [`SourceChunks::matching`]. None if its digests are invalid.
    pub(crate) fn matching(
        &self,
        chunks: &mut SourceChunks,
        digests: &ChunkDigests,
        stop: &AtomicBool,
    ) -> Result<Ranges, SourceError> {
        match chunks.matching(digests, |range| self.digest_range(range, stop)) {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Ranges::default()),
            other => other.map_err(|error| self.read_error(error)),
        }
    }

    fn compare(&self, metadata: &Metadata) -> Result<(), SourceError> {
        self.identity
            .check(&Identity::of(&Status::from(metadata)))
            .map_err(|what| self.changed(what))
    }

    /// The error for two reads with different digests.
    pub(crate) fn differs(&self) -> SourceError {
        self.changed("it was written to, and its modification time was kept".into())
    }

    fn changed(&self, what: String) -> SourceError {
        SourceError::Changed { path: self.path.clone(), what }
    }
}

fn kind_of(metadata: &Metadata) -> &'static str {
    if metadata.is_dir() { "a directory" } else { "not a regular file" }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::disk::advice::{Advised, need_disk, take};

    fn written(bytes: usize) -> (tempfile::TempDir, PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("object");
        fs::write(&path, vec![7; bytes]).unwrap();
        (directory, path)
    }

    fn never() -> AtomicBool {
        AtomicBool::new(false)
    }

    #[test]
    fn a_file_is_described_read_and_hashed() {
        let (_directory, path) = written(300_000);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        let source = FileSource::open(&path).unwrap();
        let manifest = source.manifest();
        assert_eq!((manifest.name.as_str(), manifest.bytes), ("object", 300_000));
        assert_eq!(manifest.mode, 0o640);
        assert_eq!(manifest.modified(), fs::metadata(&path).unwrap().modified().unwrap());
        assert_eq!(source.region().unwrap().len(), 300_000);
        assert_eq!(source.digest(&never()).unwrap(), blake3::hash(&vec![7; 300_000]));
        source.check_unchanged().unwrap();
    }

    #[test]
    fn what_follows_is_asked_for_once_a_block_is_not_in_memory() {
        let (_directory, path) = written(2_000_000);
        let source = FileSource::open(&path).unwrap();
        let region = source.region().unwrap();
        take();
        let mut block = vec![0; 500_000];
        let asked = [(0, false), (500_000, true), (1_000_000, false)].map(|(start, is_needed)| {
            need_disk(is_needed);
            let lease = region.read_stored(start..start + block.len()).unwrap();
            lease.copy_to(&mut block).unwrap();
            assert_eq!(block, [7; 500_000]);
            take()
        });
        assert_eq!(asked, [vec![], vec![Advised::ReadAhead((500_000, 2_000_000))], vec![]]);
        // Of a range, nothing beyond it.
        need_disk(true);
        source.digest_range((500, 1_000_000), &never()).unwrap();
        assert_eq!(take(), [Advised::ReadAhead((500, 1_000_000))]);
    }

    #[test]
    fn files_that_cannot_be_sent_are_named_with_the_reason() {
        let (directory, path) = written(1);
        let missing = FileSource::open(&directory.path().join("other")).unwrap_err();
        assert!(missing.to_string().contains("other does not exist"), "{missing}");
        let inside_a_file = FileSource::open(&path.join("x")).unwrap_err();
        assert!(inside_a_file.to_string().contains("cannot read"), "{inside_a_file}");
        let directory = FileSource::open(directory.path()).unwrap_err();
        assert!(directory.to_string().contains("is a directory"), "{directory}");
        let device = FileSource::open(Path::new("/dev/null")).unwrap_err();
        assert!(device.to_string().contains("not a regular file"), "{device}");
        let generated = FileSource::open(Path::new("/proc/cpuinfo")).unwrap_err().to_string();
        assert!(generated.contains("0 bytes, but reading it gives more"), "{generated}");
        let attribute = Path::new("/sys/class/net/lo/mtu");
        if !attribute.exists() {
            println!("SKIPPED: one part needs /sys");
            return;
        }
        let generated = FileSource::open(attribute).unwrap_err().to_string();
        assert!(generated.contains("bytes, but reading it gives less"), "{generated}");
    }

    #[test]
    fn every_kind_of_change_is_detected() {
        let changed = |change: fn(&Path)| {
            let (_directory, path) = written(10);
            let source = FileSource::open(&path).unwrap();
            change(&path);
            source.check_unchanged().unwrap_err().to_string()
        };
        let append = |path: &Path| {
            fs::OpenOptions::new().append(true).open(path).unwrap().write_all(b"x").unwrap();
        };
        assert!(changed(append).contains("had 10 bytes and has 11"));
        let touch = |path: &Path| {
            let file = fs::OpenOptions::new().write(true).open(path).unwrap();
            file.set_modified(std::time::UNIX_EPOCH).unwrap();
        };
        assert!(changed(touch).contains("written to"));
        assert!(changed(|path| fs::remove_file(path).unwrap()).contains("removed"));
        let replace = |path: &Path| {
            fs::write(path.with_extension("new"), [7; 10]).unwrap();
            fs::rename(path.with_extension("new"), path).unwrap();
        };
        assert!(changed(replace).contains("another file"));
        let chmod = |path: &Path| {
            fs::set_permissions(path, fs::Permissions::from_mode(0o400)).unwrap();
        };
        assert!(changed(chmod).contains("and is 400"));
    }

    #[test]
    fn a_file_that_cannot_be_read_to_be_sent_is_named_with_the_error() {
        let (directory, path) = written(10);
        let mut source = FileSource::open(&path).unwrap();
        source.file = Arc::new(File::open(directory.path()).unwrap());
        let region = source.region().unwrap();
        region.read_stored(0..10).unwrap().copy_to(&mut [0; 10]).unwrap_err();
        let error = source.check_unchanged().unwrap_err().to_string();
        assert!(error.contains("object: Is a directory (os error 21)"), "{error}");
    }

    #[test]
    fn a_file_that_has_become_shorter_has_no_digest() {
        let (_directory, path) = written(10);
        let source = FileSource::open(&path).unwrap();
        fs::write(&path, [7; 3]).unwrap();
        let error = source.digest(&never()).unwrap_err();
        assert!(error.to_string().contains("became shorter"), "{error}");
    }
}
