//! Why something cannot be sent.

use std::{io, path::PathBuf};

use rdmc::RegionError;
use tree::{ListingError, PATH_BYTES_MAX};

use crate::place::start;

/// Why a file cannot be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// The file does not exist.
    #[error("{} does not exist; check the spelling and the current directory", .0.display())]
    Missing(PathBuf),
    /// Not a regular file.
    #[error("{} is {kind}; only files and directories can be replicated", path.display())]
    NotAFile {
        /// The path that was given.
        path: PathBuf,
        /// What it is, with an article.
        kind: &'static str,
    },
    /// The system generates its contents when it is read, as in /proc and /sys.
    #[error(
        "{} has a length of {bytes} bytes, but reading it gives {instead}: its contents are generated when it is read; \
         copy it to a file first, and push that", path.display()
    )]
    NotStored {
        /// The path of the file.
        path: PathBuf,
        /// Its length by its attributes.
        bytes: u64,
        /// `more` or `less`.
        instead: &'static str,
    },
    /// The same in a tree.
    #[error(
        "{} is on a file system whose contents are generated when they are read; --exclude it, or copy it to a file or a directory first, and \
         push that", .0.display()
    )]
    Generated(PathBuf),
    /// The path does not end with a name.
    #[error("{} does not end with a file's name; name the file", .0.display())]
    Name(PathBuf),
    /// The contents or the name changed after the file was opened.
    #[error("{} changed while it was sent ({what}): run the push again", path.display())]
    Changed {
        /// The path of what changed.
        path: PathBuf,
        /// What changed.
        what: String,
    },
    /// An error of the system.
    #[error("cannot {what} {}: {error}", path.display())]
    System {
        /// The path that the operation was on.
        path: PathBuf,
        /// The operation, as a verb.
        what: &'static str,
        /// The error.
        error: io::Error,
    },
    /// Neither a file nor a directory nor a link.
    #[error("{} is {kind}, which cannot be replicated; exclude it", path.display())]
    Special {
        /// The path of what cannot be sent.
        path: PathBuf,
        /// What it is, with an article.
        kind: &'static str,
    },
    /// A path that is longer than the system opens.
    #[error(
        "{}... is a path of {} bytes, but at most {PATH_BYTES_MAX} can be opened; start the push in a directory further down, \
         or exclude it",
        start(.0), .0.as_os_str().len()
    )]
    LongPath(PathBuf),
    /// Patterns leave out all that was named.
    #[error("the patterns leave nothing of {} to send; see --exclude and --include", .0.display())]
    NothingLeft(PathBuf),
    /// A modification time that cannot be sent.
    #[error(
        "{} has a modification time {seconds} s from 1970; only the years 1678 to 2261 can be sent: touch it, or exclude it",
        path.display()
    )]
    Time {
        /// The path of what has that time.
        path: PathBuf,
        /// In seconds since 1970, negative before.
        seconds: i64,
    },
    /// A symbolic link that leads back to itself.
    #[error(
        "{} is a symbolic link to {}, which is part of a loop of links; exclude the link, or send links as they are (--links)",
        path.display(), target.display()
    )]
    Loop {
        /// The path of the link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A symbolic link that leads nowhere.
    #[error(
        "{} is a symbolic link to {}, which does not exist; exclude the link, or send links as they are (--links)",
        path.display(), target.display()
    )]
    Dangling {
        /// The path of the link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// A symbolic link to a directory that is not in the tree.
    #[error(
        "{} is a symbolic link to the directory {}, which is outside of what is pushed; exclude the link, push that \
         directory as well, or send links as they are (--links)", path.display(), target.display()
    )]
    DirectoryOutside {
        /// The path of the link.
        path: PathBuf,
        /// Where it leads.
        target: PathBuf,
    },
    /// Something that lies elsewhere cannot be read, or has changed. Names it, and says what to do.
    #[error("{0}")]
    Remote(String),
    /// Two sources would have one name at the receivers.
    #[error("{} and {} have the same name; push them one after the other, or rename one", one.display(), other.display())]
    SameName {
        /// The first.
        one: PathBuf,
        /// The second.
        other: PathBuf,
    },
    /// The tree cannot be described to receivers.
    #[error("{}: {error}", path.display())]
    Tree {
        /// The source.
        path: PathBuf,
        /// Why its entries are no listing.
        error: ListingError,
    },
    /// The file cannot be read in blocks.
    #[error("{}: {error}", path.display())]
    Map {
        /// The path of the file.
        path: PathBuf,
        /// Why no region can be made of it.
        error: RegionError,
    },
}
