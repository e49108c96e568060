//! Why entries are no tree.

use crate::{attributes::AttributesFault, path::PathFault};

/// Why entries are no tree. Entries are named by their number.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListingError {
    /// The first byte is none of a listing.
    #[error("the bytes are not a listing of this version")]
    Version,
    /// The bytes of an entry are none.
    #[error("entry {0} cannot be read")]
    Encoding(usize),
    /// An invalid path.
    #[error("entry {entry} has an invalid path {path:?}: {fault}")]
    Path {
        /// The entry.
        entry: usize,
        /// Its path, as far as that can be shown.
        path: String,
        /// What is wrong with it.
        fault: PathFault,
    },
    /// An invalid symbolic link.
    #[error("{path:?} is a symbolic link to {target:?}: {fault}")]
    Link {
        /// Its path.
        path: String,
        /// Where it leads.
        target: String,
        /// What is wrong with that.
        fault: PathFault,
    },
    /// A path that comes twice.
    #[error("{0:?} is there twice")]
    Twice(String),
    /// Entries are not in the order of their paths.
    #[error("entry {entry} ({path:?}) comes after what follows it")]
    Order {
        /// The entry.
        entry: usize,
        /// Its path.
        path: String,
    },
    /// The directory of an entry is not in the listing, or no directory.
    #[error("{0:?} is in no directory of the tree")]
    NoDirectory(String),
    /// Not permission bits, or not those of a file.
    #[error("{path:?} has the mode {mode:o}")]
    Mode {
        /// Its path.
        path: String,
        /// Its mode.
        mode: u16,
    },
    /// Attributes that the entry cannot have.
    #[error("{path:?} has invalid attributes: {fault}")]
    Attributes {
        /// Its path.
        path: String,
        /// What is wrong with them.
        fault: AttributesFault,
    },
    /// Data that a file with holes cannot have.
    #[error("{0:?} has invalid holes")]
    Holes(String),
    /// A further name of what is no earlier file.
    #[error("{path:?} is another name of entry {of}, which is not an earlier file")]
    NoFile {
        /// Its path.
        path: String,
        /// What it names.
        of: u32,
    },
    /// Too many entries or bytes.
    #[error("the tree is too large: {what} (at most {most}); push parts of it, or exclude some")]
    TooLarge {
        /// Of what.
        what: &'static str,
        /// The limit.
        most: u64,
    },
}

pub(crate) fn too_large(what: &'static str, most: u64) -> ListingError {
    ListingError::TooLarge { what, most }
}
