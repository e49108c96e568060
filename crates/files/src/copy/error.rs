//! Why a copy cannot be made.

use std::{
    io,
    path::{Path, PathBuf},
};

use rdmc::RegionError;
use rustix::io::Errno;

use tree::PATH_BYTES_MAX;

use crate::place::{NAME_BYTES_MAX, PlaceError, start};

/// Why a copy cannot be made or published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The directory of the path does not exist.
    #[error("the directory {} does not exist; create it first (--mkdir makes it where a push starts the receiver), or choose another --dest", .0.display())]
    MissingParent(PathBuf),
    /// Only the host has it, so deep that it is not removed.
    #[error(
        "{}... is to be removed, but its path has {} bytes, and at most {PATH_BYTES_MAX} are possible; remove it there, \
         --exclude it, \
         or push without --delete", start(.0), .0.as_os_str().len()
    )]
    Deep(PathBuf),
    /// Something has the name that the copy may not replace.
    #[error("{} is {kind} and will not be replaced; {remedy}", path.display())]
    InTheWay {
        /// The path of what is there.
        path: PathBuf,
        /// What it is, with an article.
        kind: &'static str,
        /// What to do.
        remedy: &'static str,
    },
    /// Something that has to be changed, replaced or removed and cannot.
    #[error("{} is {what}, and this push would change it; undo that ({remedy}), --exclude it, or choose another --dest", path.display())]
    Fixed {
        /// Its path.
        path: PathBuf,
        /// What prevents it, as a description of it.
        what: &'static str,
        /// By which command.
        remedy: &'static str,
    },
    /// A directory would have to become something else.
    #[error("{} is a directory, but {what} needs its name; remove it first, or choose another --dest", path.display())]
    DirectoryInTheWay {
        /// The path of the directory.
        path: PathBuf,
        /// What it is to become, with an article.
        what: &'static str,
    },
    /// Two entries of a tree are one file or directory at this host.
    #[error(
        "{} and {} are the same file here: the file system does not distinguish their names, or the host has linked them; \
         rename or --exclude one", one.display(), other.display()
    )]
    Collision {
        /// The first.
        one: PathBuf,
        /// The other.
        other: PathBuf,
    },
    /// Something that the file system does not have.
    #[error("cannot create {}: {error}; the file system there has no {what}: {remedy}, or choose another --dest", path.display())]
    Unsupported {
        /// The path of the entry.
        path: PathBuf,
        /// What it does not have.
        what: &'static str,
        /// What to do.
        remedy: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// An attribute that was asked for.
    #[error("cannot give {} {what}, as the source has it: {error}; {remedy}", path.display())]
    Attributes {
        /// The path of the entry.
        path: PathBuf,
        /// The attribute.
        what: String,
        /// What to do.
        remedy: &'static str,
        /// The system's error.
        error: io::Error,
    },
    /// Attributes that are none, or too many names.
    #[error("the root's list of attributes is invalid: {0}")]
    Kept(&'static str),
    /// The directory of the destination's name was made during the push.
    #[error("{} was created during the push; run the push again: received data is kept", .0.display())]
    Appeared(PathBuf),
    /// Something else has the destination's name than when the push began.
    #[error("{} was replaced or moved away during the push; run the push again: received data is kept", .0.display())]
    Replaced(PathBuf),
    /// It cannot be exchanged as a whole.
    #[error("{} cannot be exchanged as a whole: {reason}; without --atomic it is updated entry by entry", path.display())]
    NotAtomic {
        /// The destination.
        path: PathBuf,
        /// What stands against it.
        reason: String,
    },
    /// Something came into the old directory that the new one has as well.
    #[error(
        "{} is the new copy; {} is the rest of the old one, with an entry that could not be moved: move or remove it, and run \
         the push again", path.display(), old.display()
    )]
    Left {
        /// The destination.
        path: PathBuf,
        /// The old directory.
        old: PathBuf,
    },
    /// A directory in which only owners may replace their files.
    #[error("{} belongs to another user, and its directory has the sticky bit; let its owner or root push, or choose another --dest", .0.display())]
    Sticky(PathBuf),
    /// The listing of a tree is no tree.
    #[error("the root's list of files is invalid: {0}")]
    Listing(#[from] tree::ListingError),
    /// An entry has a name of what is staged, or of a lock.
    #[error("the root's list of files is invalid: {} has the form of a temporary file of rdmc", .0.display())]
    Reserved(PathBuf),
    /// A pattern of what is to stay.
    #[error("the root's patterns are invalid: {0}")]
    Pattern(#[from] tree::PatternError),
    /// The path does not end with a file's name.
    #[error("{:?} does not name a file; name one as --dest", .0.display().to_string())]
    NoName(PathBuf),
    /// The name is too long for common file systems.
    #[error("the name of {} is longer than {NAME_BYTES_MAX} bytes; choose a shorter --dest", .0.display())]
    LongName(PathBuf),
    /// It is not below the receiver's directory.
    #[error("{} leads out of this receiver's directory by a symbolic link; choose another --dest", .0.display())]
    Outside(PathBuf),
    /// Not enough space.
    #[error("no space{} in {} (ENOSPC); free some, or choose another --dest", of(*bytes), directory.display())]
    NoSpace {
        /// The directory in which the copy is made.
        directory: PathBuf,
        /// How much is needed; 0 if that is not known.
        bytes: u64,
    },
    /// More than this user's quota.
    #[error("this user's quota has no space{} in {} (EDQUOT); free some, or choose another --dest", of(*bytes), directory.display())]
    Quota {
        /// The directory in which the copy is made.
        directory: PathBuf,
        /// How much is needed; 0 if that is not known.
        bytes: u64,
    },
    /// No inodes left.
    #[error("no more files can be created in {}: its file system has no inodes left; remove files, or choose another --dest", .0.display())]
    NoInodes(PathBuf),
    /// Longer than files can be there.
    #[error(
        "no file can be long enough{} in {}: its file system or the receiver (ulimit -f) has a limit (EFBIG); raise it, or \
         choose another --dest", of(*bytes), directory.display()
    )]
    TooLong {
        /// The directory in which the copy is made.
        directory: PathBuf,
        /// How long it is to be; 0 if that is not known.
        bytes: u64,
    },
    /// A read-only file system.
    #[error("the file system of {} is read-only; choose another --dest, or mount it for writing", .0.display())]
    ReadOnly(PathBuf),
    /// A file system without locks, on which two pushes could write at the same time.
    #[error("the file system of {} has no file locks; choose another --dest, or mount it with them (flock)", .0.display())]
    NoLocks(PathBuf),
    /// Another push owns it.
    #[error("{} is already being written{owner}; wait for that push, or end it", path.display())]
    Busy {
        /// The destination.
        path: PathBuf,
        /// The host and process of the owner, if known; follows the word "already".
        owner: String,
    },
    /// Another host of the same push owns it.
    #[error(
        "{} is already being written{owner}, in the same push: both hosts share a file system; name only one of them, \
         or put {{host}} into --dest",
        path.display()
    )]
    Shared {
        /// The destination.
        path: PathBuf,
        /// The host and process of the owner; follows the word "already".
        owner: String,
        /// The host's name.
        host: String,
    },
    /// No permission to write there.
    #[error("no permission to write in {}; choose another --dest or another user", .0.display())]
    NoPermission(PathBuf),
    /// An existing file that was equal to the source has changed.
    #[error("{} was changed while it was compared; run the push again", .0.display())]
    Changed(PathBuf),
    /// The digests of copy and source differ.
    #[error("the copy differs from what was sent: its digest is {received}, not {sent}")]
    Mismatch {
        /// Of the copy.
        received: blake3::Hash,
        /// Of the source.
        sent: blake3::Hash,
    },
    /// What is received cannot be written, or read back.
    #[error("cannot {what} {}: {error}{}", path.display(), remedy(error))]
    Storage {
        /// Which file.
        path: PathBuf,
        /// `read` or `write`.
        what: &'static str,
        /// The error.
        error: io::Error,
    },
    /// An error of the system.
    #[error("cannot {what} {}: {error}", path.display())]
    System {
        /// Which file or directory.
        path: PathBuf,
        /// The operation, as a verb.
        what: &'static str,
        /// The error.
        error: io::Error,
    },
    /// The temporary file cannot be written in blocks.
    #[error("{}: {error}", path.display())]
    Map {
        /// The destination.
        path: PathBuf,
        /// Why no region can be made of it.
        error: RegionError,
    },
}

impl TargetError {
    /// The error for a file or directory with the immutable or append-only attribute (chattr(1)).
    pub(crate) fn immutable(path: PathBuf) -> Self {
        Self::Fixed { path, what: "immutable or append-only", remedy: "chattr -i -a" }
    }

    /// The error for something that is mounted and would be replaced.
    pub(crate) fn mounted(path: PathBuf) -> Self {
        Self::Fixed { path, what: "a mount", remedy: "umount" }
    }

    /// The error of a storage, which may be one of these already.
    pub(crate) fn stored(error: io::Error, what: &'static str, path: &Path) -> Self {
        match error.downcast::<Self>() {
            Ok(known) => known,
            Err(error) => refusal(path, what, 0, error),
        }
    }

    /// The error for what was received and cannot be read.
    pub(crate) fn read_back(path: &Path, error: io::Error) -> io::Error {
        let (kind, path) = (error.kind(), path.to_owned());
        io::Error::new(kind, Self::Storage { path, what: "read", error })
    }

    /// The error for a name that the file system does not take.
    pub(crate) fn refused_name(path: PathBuf, error: Errno) -> Self {
        let (what, remedy) = ("such names", "rename or --exclude it");
        Self::Unsupported { path, what, remedy, error: error.into() }
    }

    /// The error for a path whose place cannot be opened.
    pub(crate) fn no_place(path: &Path, error: PlaceError) -> Self {
        let directory = path.parent().unwrap_or(path);
        match error {
            error if error.is_missing() => Self::MissingParent(directory.to_owned()),
            PlaceError::NoName => Self::NoName(path.to_owned()),
            PlaceError::Outside => Self::Outside(path.to_owned()),
            PlaceError::Directory(error) => refusal(directory, "write in", 0, error),
        }
    }
}

/// How much is needed, if that is known; begins with a space.
fn of(bytes: u64) -> String {
    if bytes > 0 { format!(" for {bytes} bytes") } else { String::new() }
}

/// What to do about an error of what is received; begins with `; `.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull => "; free some space there, or choose another --dest",
        io::ErrorKind::QuotaExceeded => {
            "; that is this user's quota: free some of it, or choose another --dest"
        }
        io::ErrorKind::FileTooLarge => {
            "; the file is longer than its file system or the receiver (ulimit -f) allows: raise the limit, or choose another \
             --dest"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "; its file system has become read-only: look for the reason in that machine's log"
        }
        _ => "",
    }
}

/// The error with a remedy, if there is one for this kind.
pub(crate) fn refusal(
    directory: &Path,
    what: &'static str,
    bytes: u64,
    error: io::Error,
) -> TargetError {
    let path = directory.to_owned();
    match error.kind() {
        io::ErrorKind::StorageFull => TargetError::NoSpace { directory: path, bytes },
        io::ErrorKind::QuotaExceeded => TargetError::Quota { directory: path, bytes },
        io::ErrorKind::FileTooLarge => TargetError::TooLong { directory: path, bytes },
        io::ErrorKind::ReadOnlyFilesystem => TargetError::ReadOnly(path),
        io::ErrorKind::PermissionDenied => TargetError::NoPermission(path),
        _ => TargetError::System { path, what, error },
    }
}
