//! The file that the root sends.

use std::{
    fs::{File, Metadata, OpenOptions},
    io,
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::atomic::AtomicBool,
};

use rdmc::{Region, RegionError};
use rustix::fs::{OFlags, SeekFrom, seek};

use crate::{
    Manifest, hash,
    leftover::{Chunks, Leftover},
    ranges::Ranges,
};

/// A regular file that is open for sending.
///
/// It is read block by block while it is sent, never mapped: a file that shrinks is an error, while a
/// process is killed for touching a mapping of what is gone.
#[derive(Debug)]
pub struct Source {
    path: PathBuf,
    file: File,
    manifest: Manifest,
    identity: Identity,
}

/// What must stay as it was while the file is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Identity {
    device: u64,
    inode: u64,
    bytes: u64,
    modified: (i64, i64),
}

/// Why a file cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// There is nothing of that name.
    #[error("{} does not exist; check the spelling and the current directory", .0.display())]
    Missing(PathBuf),
    /// Not a regular file.
    #[error("{} is {kind}; only regular files can be replicated", path.display())]
    NotAFile {
        /// Which.
        path: PathBuf,
        /// What it is instead, with an article.
        kind: &'static str,
    },
    /// The system makes it up when it is read, as in /proc and /sys.
    #[error(
        "{} tells a length of {bytes} bytes, and reads give {instead}: it is made when it is read; copy \
         it to a file first, and push that", path.display()
    )]
    NotStored {
        /// Which.
        path: PathBuf,
        /// What its length is said to be.
        bytes: u64,
        /// `more` or `less`.
        instead: &'static str,
    },
    /// The path does not end with a name.
    #[error("{} does not end with a file's name; name the file", .0.display())]
    Name(PathBuf),
    /// The contents or the name changed after the file was opened.
    #[error("{} changed while it was sent ({what}): run it again", path.display())]
    Changed {
        /// Which.
        path: PathBuf,
        /// What about it.
        what: String,
    },
    /// The system refused.
    #[error("cannot {what} {}: {error}", path.display())]
    System {
        /// Which.
        path: PathBuf,
        /// What was asked of it, as a verb.
        what: &'static str,
        /// Its answer.
        error: io::Error,
    },
    /// The file cannot be read in blocks.
    #[error("{}: {error}", path.display())]
    Map {
        /// Which.
        path: PathBuf,
        /// Why.
        error: RegionError,
    },
}

impl Source {
    /// Opens a regular file for reading, and takes note of what it is.
    ///
    /// Errors: missing, not a regular file, not readable, not stored with the length that it tells.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        let system = |what| {
            move |error: io::Error| match error.kind() {
                io::ErrorKind::NotFound => SourceError::Missing(path.to_owned()),
                _ => SourceError::System { path: path.to_owned(), what, error },
            }
        };
        // Not blocking: a name that turns out to be a FIFO must not be waited for.
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
        let seconds_ns = metadata.mtime().saturating_mul(1_000_000_000);
        let manifest = Manifest {
            // Only told: destinations are names of their own.
            name: name.to_string_lossy().into_owned(),
            bytes: metadata.len(),
            mode: metadata.mode() & 0o777,
            modified_ns: seconds_ns.saturating_add(metadata.mtime_nsec()),
        };
        let identity = Identity::of(&metadata);
        let source = Self { path: path.to_owned(), file, manifest, identity };
        source.check_length()?;
        Ok(source)
    }

    /// Whether reads end where the length says. Errors: they do not; it has grown already.
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

    /// What receivers are told.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Whether parts of it take no space.
    pub fn has_holes(&self) -> bool {
        // Nothing reads from where this leaves the file: all reads say where.
        let hole = seek(&self.file, SeekFrom::Hole(0));
        hole.is_ok_and(|at| at < self.manifest.bytes)
    }

    /// Where it was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The contents for sending; the file stays open as long as any clone of the region.
    ///
    /// Errors: the system refuses.
    pub fn region(&self) -> Result<Region, SourceError> {
        Region::from_file(&self.file, self.manifest.bytes)
            .map_err(|error| SourceError::Map { path: self.path.clone(), error })
    }

    /// Whether the open file, and the file under its name, are what was opened: same inode,
    /// length and modification time.
    ///
    /// Errors: [`SourceError::Changed`] says what differs.
    pub fn check_unchanged(&self) -> Result<(), SourceError> {
        let system =
            |error| SourceError::System { path: self.path.clone(), what: "examine", error };
        self.compare(&self.file.metadata().map_err(system)?)?;
        match std::fs::metadata(&self.path) {
            Ok(metadata) => self.compare(&metadata),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(self.changed("it was removed or renamed".into()))
            }
            Err(error) => Err(system(error)),
        }
    }

    /// The BLAKE3 digest of the contents, by reading them once; takes as long as that takes, or
    /// until `stop` is set (then with [`io::ErrorKind::Interrupted`]).
    ///
    /// Errors: unreadable, or shorter than it was.
    pub fn digest(&self, stop: &AtomicBool) -> Result<blake3::Hash, SourceError> {
        hash::digest_range(&self.file, (0, self.manifest.bytes), stop).map_err(|error| match error
            .kind()
        {
            io::ErrorKind::UnexpectedEof => self.changed("it became shorter".into()),
            _ => SourceError::System { path: self.path.clone(), what: "read", error },
        })
    }

    /// By which a receiver sees whether a file that it has is worth comparing; see [`hash::probe`].
    pub(crate) fn probe(&self) -> Result<[u8; 32], SourceError> {
        hash::probe(&self.file, self.manifest.bytes).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.changed("it became shorter".into()),
            _ => SourceError::System { path: self.path.clone(), what: "read", error },
        })
    }

    /// Which bytes of what a receiver has are these; see [`Chunks::matching`]. Nothing of it is
    /// believed that cannot be right.
    pub(crate) fn matching(
        &self,
        chunks: &mut Chunks,
        leftover: &Leftover,
        stop: &AtomicBool,
    ) -> Result<Ranges, SourceError> {
        match chunks.matching(leftover, |range| hash::digest_range(&self.file, range, stop)) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(self.changed("it became shorter".into()))
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidData => Ok(Ranges::default()),
            other => other.map_err(|error| SourceError::System {
                path: self.path.clone(),
                what: "read",
                error,
            }),
        }
    }

    fn compare(&self, metadata: &Metadata) -> Result<(), SourceError> {
        let (then, now) = (self.identity, Identity::of(metadata));
        if (then.device, then.inode) != (now.device, now.inode) {
            return Err(self.changed("another file has its name now".into()));
        }
        if then.bytes != now.bytes {
            let still = if now.bytes > then.bytes { ": is it still being written?" } else { "" };
            let what = format!("it had {} bytes and has {} now{still}", then.bytes, now.bytes);
            return Err(self.changed(what));
        }
        if then.modified != now.modified {
            return Err(self.changed("it was written to".into()));
        }
        Ok(())
    }

    /// It was read twice, and was not the same.
    pub(crate) fn reads_differently(&self) -> SourceError {
        self.changed("it was written to, and its modification time was kept".into())
    }

    fn changed(&self, what: String) -> SourceError {
        SourceError::Changed { path: self.path.clone(), what }
    }
}

impl Identity {
    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

fn kind_of(metadata: &Metadata) -> &'static str {
    if metadata.is_dir() { "a directory" } else { "not a regular file" }
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write, os::unix::fs::PermissionsExt};

    use super::*;

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
        let source = Source::open(&path).unwrap();
        let manifest = source.manifest();
        assert_eq!((manifest.name.as_str(), manifest.bytes), ("object", 300_000));
        assert_eq!(manifest.mode, 0o640);
        assert_eq!(manifest.modified(), fs::metadata(&path).unwrap().modified().unwrap());
        assert_eq!(source.region().unwrap().len(), 300_000);
        assert_eq!(source.digest(&never()).unwrap(), blake3::hash(&vec![7; 300_000]));
        source.check_unchanged().unwrap();
    }

    #[test]
    fn what_cannot_be_sent_is_named_with_the_reason() {
        let (directory, path) = written(1);
        let missing = Source::open(&directory.path().join("other")).unwrap_err();
        assert!(missing.to_string().contains("other does not exist"), "{missing}");
        let inside_a_file = Source::open(&path.join("x")).unwrap_err();
        assert!(inside_a_file.to_string().contains("cannot read"), "{inside_a_file}");
        let directory = Source::open(directory.path()).unwrap_err();
        assert!(directory.to_string().contains("is a directory"), "{directory}");
        let device = Source::open(Path::new("/dev/null")).unwrap_err();
        assert!(device.to_string().contains("not a regular file"), "{device}");
        let made_up = Source::open(Path::new("/proc/cpuinfo")).unwrap_err().to_string();
        assert!(made_up.contains("0 bytes, and reads give more"), "{made_up}");
        let attribute = Path::new("/sys/class/net/lo/mtu");
        if !attribute.exists() {
            println!("SKIPPED: one part needs /sys");
            return;
        }
        let made_up = Source::open(attribute).unwrap_err().to_string();
        assert!(made_up.contains("bytes, and reads give less"), "{made_up}");
    }

    #[test]
    fn every_kind_of_change_is_noticed() {
        let changed = |change: fn(&Path)| {
            let (_directory, path) = written(10);
            let source = Source::open(&path).unwrap();
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
    }

    #[test]
    fn a_file_that_has_become_shorter_has_no_digest() {
        let (_directory, path) = written(10);
        let source = Source::open(&path).unwrap();
        fs::write(&path, [7; 3]).unwrap();
        let error = source.digest(&never()).unwrap_err();
        assert!(error.to_string().contains("became shorter"), "{error}");
    }
}
