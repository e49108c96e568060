//! The copy that a receiver makes: invisible until it is whole and verified.

use std::{
    fs::{self, File, Permissions},
    io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use rdmc::{Region, RegionError};
use rustix::{
    fs::{FallocateFlags, fallocate, fstatvfs},
    io::Errno,
};
use tempfile::NamedTempFile;

use crate::Manifest;

/// The longest file name in bytes that common file systems take.
const NAME_BYTES_MAX: usize = 255;
/// What a temporary name adds to the name: `.`, `.rdmc-` and six random characters.
const SUFFIX_BYTES: usize = 13;

/// A file on its way to a path: a temporary file `.NAME.rdmc-XXXXXX` in the same directory.
///
/// Its space is reserved when it is made, so that a full disk is noticed before the transfer, and
/// not by a signal in the middle of it. (Where a file system cannot reserve, free space is compared
/// once.) Dropping it unpublished removes the temporary file.
#[derive(Debug)]
pub struct Target {
    path: PathBuf,
    manifest: Manifest,
    temporary: NamedTempFile,
    region: Region,
}

/// Why a copy cannot be made or published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The directory of the path is not there.
    #[error("the directory {} does not exist; create it first, or choose another --dest", .0.display())]
    MissingParent(PathBuf),
    /// Something that is not a regular file has the name.
    #[error("{} is {kind} and will not be replaced; name a file as --dest", path.display())]
    InTheWay {
        /// Which.
        path: PathBuf,
        /// What it is, with an article.
        kind: &'static str,
    },
    /// The path does not end with a file's name.
    #[error("{} does not name a file", .0.display())]
    NoName(PathBuf),
    /// Not enough space.
    #[error("no space for {bytes} bytes in {}; free some, or choose another --dest", directory.display())]
    NoSpace {
        /// Where.
        directory: PathBuf,
        /// How much is needed.
        bytes: u64,
    },
    /// No right to write there.
    #[error("no permission to write in {}; choose another --dest or another user", .0.display())]
    NoPermission(PathBuf),
    /// The bytes are not those that were sent.
    #[error("the copy differs from what was sent: its digest is {received}, not {sent}")]
    Mismatch {
        /// Of the copy.
        received: blake3::Hash,
        /// Of the source.
        sent: blake3::Hash,
    },
    /// The system refused.
    #[error("cannot {what} {}: {error}", path.display())]
    System {
        /// Which file or directory.
        path: PathBuf,
        /// What was asked, as a verb.
        what: &'static str,
        /// The answer.
        error: io::Error,
    },
    /// The temporary file cannot be mapped.
    #[error("{}: {error}", path.display())]
    Map {
        /// The path that was asked for.
        path: PathBuf,
        /// Why.
        error: RegionError,
    },
}

/// Proof that a copy's digest equals the source's; only [`Verified::compare`] makes one.
#[derive(Debug)]
pub struct Verified(());

impl Verified {
    /// Compares digests. Errors: [`TargetError::Mismatch`].
    pub fn compare(received: blake3::Hash, sent: blake3::Hash) -> Result<Self, TargetError> {
        if received == sent { Ok(Self(())) } else { Err(TargetError::Mismatch { received, sent }) }
    }
}

impl Target {
    /// Makes the temporary file and reserves its space.
    ///
    /// Errors: the directory is missing, full or not writable; the path cannot be replaced.
    pub fn create(path: &Path, manifest: Manifest) -> Result<Self, TargetError> {
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| TargetError::NoName(path.to_owned()))?;
        let directory = directory_of(path);
        check_directory(directory)?;
        check_replaceable(path)?;
        let temporary = tempfile::Builder::new()
            .prefix(&format!(".{}.rdmc-", shortened(name)))
            .rand_bytes(6)
            .tempfile_in(directory)
            .map_err(|error| refusal(directory, "create a file in", manifest.bytes, error))?;
        reserve(temporary.as_file(), directory, manifest.bytes)?;
        let region = Region::map_file_writable(temporary.as_file(), manifest.bytes)
            .map_err(|error| TargetError::Map { path: path.to_owned(), error })?;
        Ok(Self { path: path.to_owned(), manifest, temporary, region })
    }

    /// What is to be received.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The name that it will have.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Where the bytes go: exactly the file's length, writable; what is written there is in the
    /// temporary file without a copy.
    pub fn region(&self) -> Region {
        self.region.clone()
    }

    /// The temporary file, for reading what has arrived. Errors: no descriptor can be had.
    pub fn file(&self) -> Result<File, TargetError> {
        self.temporary.as_file().try_clone().map_err(self.system("open"))
    }

    /// Gives the file its mode, modification time and name, and returns when all of that is on
    /// disk. What had the name before is replaced in one step. Blocks as long as the disk takes.
    ///
    /// Errors: the system's; the temporary file is gone then, and the old file still there.
    pub fn publish(self, _proof: &Verified) -> Result<(), TargetError> {
        let file = self.temporary.as_file();
        file.set_permissions(Permissions::from_mode(self.manifest.mode))
            .map_err(self.system("set the mode of"))?;
        // After the last write through the mapping, which would set it anew.
        file.set_modified(self.manifest.modified())
            .map_err(self.system("set the modification time of"))?;
        file.sync_all().map_err(self.system("write to disk"))?;
        let directory = directory_of(&self.path).to_owned();
        check_replaceable(&self.path)?;
        let Self { path, temporary, .. } = self;
        temporary.persist(&path).map_err(|failed| TargetError::System {
            path,
            what: "rename the temporary file to",
            error: failed.error,
        })?;
        // The rename itself has to reach the disk too.
        File::open(&directory).and_then(|opened| opened.sync_all()).map_err(|error| {
            TargetError::System { path: directory, what: "write to disk the directory", error }
        })
    }

    fn system(&self, what: &'static str) -> impl FnOnce(io::Error) -> TargetError {
        let path = self.path.clone();
        move |error| TargetError::System { path, what, error }
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

fn check_directory(directory: &Path) -> Result<(), TargetError> {
    match fs::metadata(directory) {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => {
            let error = io::ErrorKind::NotADirectory.into();
            Err(TargetError::System { path: directory.to_owned(), what: "write in", error })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            Err(TargetError::MissingParent(directory.to_owned()))
        }
        Err(error) => Err(refusal(directory, "examine", 0, error)),
    }
}

/// Only a regular file, or a link to one, is replaced.
fn check_replaceable(path: &Path) -> Result<(), TargetError> {
    let Ok(metadata) = fs::metadata(path) else { return Ok(()) };
    let kind = match metadata {
        metadata if metadata.is_file() => return Ok(()),
        metadata if metadata.is_dir() => "a directory",
        _ => "not a regular file",
    };
    Err(TargetError::InTheWay { path: path.to_owned(), kind })
}

/// As much of the name as leaves room for what makes it temporary.
fn shortened(name: &str) -> &str {
    &name[..name.floor_char_boundary(NAME_BYTES_MAX - SUFFIX_BYTES)]
}

fn reserve(file: &File, directory: &Path, bytes: u64) -> Result<(), TargetError> {
    if bytes == 0 {
        return Ok(());
    }
    let refused = |error: io::Error| refusal(directory, "reserve space in", bytes, error);
    loop {
        match fallocate(file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => break,
            Err(error) => return Err(refused(error.into())),
        }
    }
    let free = fstatvfs(file).map_err(|error| refused(error.into()))?;
    if free.f_bavail.saturating_mul(free.f_frsize) < bytes {
        return Err(refused(io::ErrorKind::StorageFull.into()));
    }
    file.set_len(bytes).map_err(refused)
}

/// The error for what a user can do something about, if it is one of those.
fn refusal(directory: &Path, what: &'static str, bytes: u64, error: io::Error) -> TargetError {
    let path = directory.to_owned();
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge => {
            TargetError::NoSpace { directory: path, bytes }
        }
        io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
            TargetError::NoPermission(path)
        }
        _ => TargetError::System { path, what, error },
    }
}
