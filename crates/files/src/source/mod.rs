//! What the root sends: a file, or a tree.

mod difference;
mod error;
mod file;
mod identity;
mod scan;
mod tree;

use std::{
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use ::tree::Selection;
pub use error::SourceError;
use file::FileSource;
use rdmc::Region;
use tree::TreeSource;

use crate::{
    Manifest,
    digests::Digests,
    messages::TreeOffer,
    ranges::Ranges,
    resume::{ChunkDigests, SourceChunks},
};

/// What is sent, open for reading.
#[derive(Debug)]
pub struct Source {
    contents: Contents,
    /// Receivers compare files by their contents, not by length and time.
    by_contents: bool,
    /// Receivers exchange an existing directory as a whole.
    atomic: bool,
}

#[derive(Debug)]
enum Contents {
    File(FileSource),
    Tree(TreeSource),
}

impl From<Contents> for Source {
    fn from(contents: Contents) -> Self {
        Self { contents, by_contents: false, atomic: false }
    }
}

impl Source {
    /// Opens a regular file for reading, and keeps its attributes.
    ///
    /// Errors: missing, not a regular file, not readable, contents of another length than its attributes have.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        FileSource::open(path).map(|file| Contents::File(file).into())
    }

    /// Lists a directory; its copy is the destination itself. Blocks while it looks at everything in it.
    ///
    /// Errors: unreadable; it has a link that leads nowhere or to a directory outside, or something else that is
    /// neither file nor directory; it is too large.
    pub fn open_directory(path: &Path, selection: &Selection) -> Result<Self, SourceError> {
        TreeSource::of_directory(path, selection).map(|tree| Contents::Tree(tree).into())
    }

    /// Lists files and directories, whose copies go into the destination under their names; of a directory with `/` at
    /// the end what it contains.
    ///
    /// Errors: as [`Source::open_directory`]; two have the same name. Panics without any path.
    pub fn open_several(paths: &[PathBuf], selection: &Selection) -> Result<Self, SourceError> {
        TreeSource::of_several(paths, selection).map(|tree| Contents::Tree(tree).into())
    }

    /// Lets receivers compare the files of a tree that they have by their contents instead of length and time.
    #[must_use]
    pub fn by_contents(mut self, by_contents: bool) -> Self {
        self.by_contents = by_contents;
        self
    }

    /// Lets receivers exchange an existing directory as a whole, instead of updating it entry by entry.
    #[must_use]
    pub fn atomic(mut self, atomic: bool) -> Self {
        self.atomic = atomic;
        self
    }

    /// Name, length and attributes for receivers.
    pub fn manifest(&self) -> &Manifest {
        match &self.contents {
            Contents::File(file) => file.manifest(),
            Contents::Tree(tree) => tree.manifest(),
        }
    }

    /// Whether it has holes.
    pub fn has_holes(&self) -> bool {
        match &self.contents {
            Contents::File(file) => file.has_holes(),
            Contents::Tree(tree) => tree.has_holes(),
        }
    }

    /// How many directories, files and links a tree has; `None` of a file.
    pub fn entries(&self) -> Option<usize> {
        match &self.contents {
            Contents::File(_) => None,
            Contents::Tree(tree) => Some(tree.entries()),
        }
    }

    /// The path that was opened; the first of several.
    pub fn path(&self) -> &Path {
        match &self.contents {
            Contents::File(file) => file.path(),
            Contents::Tree(tree) => tree.path(),
        }
    }

    /// The contents for sending; keeps the files open.
    ///
    /// Errors: the system's.
    pub fn region(&self) -> Result<Region, SourceError> {
        match &self.contents {
            Contents::File(file) => file.region(),
            Contents::Tree(tree) => tree.region(),
        }
    }

    /// Checks that a file, open and at its path, has the same inode, length, modification time and mode as when it was
    /// opened; the files of a tree are checked whenever they are read, and all of it by [`Source::look_again`].
    ///
    /// Errors: [`SourceError::Changed`] with the difference.
    pub fn check_unchanged(&self) -> Result<(), SourceError> {
        match &self.contents {
            Contents::File(file) => file.check_unchanged(),
            Contents::Tree(tree) => tree.check_unchanged(),
        }
    }

    /// Looks at every name again, of a tree also for names that were added. Blocks: 100,000 entries take some tenths of a
    /// second.
    ///
    /// Errors: [`SourceError::Changed`] with the first difference; unreadable.
    pub fn look_again(&self) -> Result<(), SourceError> {
        match &self.contents {
            Contents::File(file) => file.check_unchanged(),
            Contents::Tree(tree) => tree.look_again(),
        }
    }

    /// The BLAKE3 digests: of a file, or of those files of a tree with a byte in these ranges of all contents. Blocks
    /// while it reads them once, or until `stop` (then with [`std::io::ErrorKind::Interrupted`]).
    ///
    /// Errors: unreadable, or changed.
    pub(crate) fn digest(
        &self,
        ranges: &Ranges,
        stop: &AtomicBool,
    ) -> Result<Digests, SourceError> {
        match &self.contents {
            Contents::File(file) => file.digest(stop).map(Digests::Whole),
            Contents::Tree(tree) => tree.digest(ranges, stop),
        }
    }

    /// [`crate::hash::probe`] of a file.
    pub(crate) fn probe(&self) -> Result<[u8; 32], SourceError> {
        match &self.contents {
            Contents::File(file) => file.probe(),
            Contents::Tree(_) => Ok([0; 32]),
        }
    }

    /// The ranges in which a receiver's data match; see [`SourceChunks::matching`]. None if its digests are invalid.
    pub(crate) fn matching(
        &self,
        chunks: &mut SourceChunks,
        digests: &ChunkDigests,
        stop: &AtomicBool,
    ) -> Result<Ranges, SourceError> {
        match &self.contents {
            Contents::File(file) => file.matching(chunks, digests, stop),
            Contents::Tree(tree) => tree.matching(chunks, digests, stop),
        }
    }

    /// The error for two reads with different digests.
    pub(crate) fn differs(&self) -> SourceError {
        match &self.contents {
            Contents::File(file) => file.differs(),
            Contents::Tree(tree) => tree.differs(),
        }
    }

    /// What receivers have to know of a tree, and its encoded listing.
    pub(crate) fn tree(&self) -> Option<(TreeOffer, Arc<[u8]>)> {
        let Contents::Tree(tree) = &self.contents else { return None };
        let (by_contents, atomic) = (self.by_contents, self.atomic);
        let offer = TreeOffer { by_contents, atomic, ..tree.offer() };
        Some((offer, Arc::clone(tree.encoded())))
    }
}
