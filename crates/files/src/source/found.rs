//! What a scan finds, and what a listing has of it.

use std::{
    ops::Range,
    path::{Path, PathBuf},
};

use tree::{Attributes, Entry};

use super::{
    holes::{data_of, has_only, may_have_holes},
    identity::Identity,
    status::Status,
};

/// What was found under one path.
pub(super) struct Found {
    /// In the tree.
    pub(super) path: Vec<u8>,
    /// The source in the lister's order.
    pub(super) root: u32,
    /// Of the entry itself; of a link that is followed, of what it leads to.
    pub(super) status: Status,
    pub(super) link: Option<Box<Link>>,
    /// Of the entry itself.
    pub(super) modified_ns: i64,
    /// User and group of the entry itself.
    pub(super) owner: (u32, u32),
}

/// A source, on disk and in the tree.
pub(super) struct Root {
    pub(super) path: PathBuf,
    pub(super) under_bytes: usize,
}

pub(super) struct Link {
    pub(super) text: Vec<u8>,
    /// The path without links that it leads to; `None` if it is sent as it is.
    pub(super) to: Option<PathBuf>,
}

/// A file whose contents are sent.
pub(super) struct Origin {
    pub(super) path: Box<Path>,
    pub(super) identity: Identity,
    /// It seems to have holes.
    has_holes: bool,
}

impl Origin {
    pub(super) fn new(path: PathBuf, status: &Status) -> Self {
        Self {
            path: path.into(),
            identity: Identity::of(status),
            has_holes: may_have_holes(status),
        }
    }

    /// Where it has data, if it has holes.
    pub(super) fn data(&self) -> Option<Vec<Range<u64>>> {
        self.has_holes.then(|| data_of(&self.path, self.identity.bytes())).flatten()
    }

    /// Whether it reads as zeros outside of these ranges.
    pub(super) fn has_only(&self, data: &[Range<u64>]) -> bool {
        has_only(&self.path, data, self.identity.bytes())
    }
}

/// An entry of a tree, with what its listing has of it and where its contents are.
pub(super) struct Listed {
    pub(super) entry: Entry,
    /// If they are kept.
    pub(super) attributes: Option<Attributes>,
    /// Of a file with contents.
    pub(super) origin: Option<Origin>,
}
