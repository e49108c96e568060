//! What the root sends: a file, or a tree, here or elsewhere.

mod attributes;
mod difference;
mod error;
mod fetching;
mod file;
mod found;
mod holes;
mod identity;
mod listed;
mod lister;
mod names;
mod options;
mod remote;
mod scan;
mod status;
#[cfg(test)]
mod tests;
mod tree;
mod window;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::{Arc, atomic::AtomicBool},
};

use ::tree::Rule;
pub use attributes::KeptAttributes;
pub use error::SourceError;
pub use fetching::{RemoteChecksum, RemoteContents};
use file::FileSource;
pub(crate) use listed::ListedRemote;
pub use names::EntryNames;
pub use options::ListOptions;
use rdmc::Region;
use remote::RemoteSource;
pub use remote::{RemoteEntry, RemoteKind, RemoteShape};
use scan::name_of;
use tree::TreeSource;

use crate::{
    Manifest,
    digests::Digests,
    messages::{RemoteOffer, TreeOffer},
    owners::{Kept, names_of},
    ranges::{ByteRange, Ranges},
    resume::{ChunkDigests, SourceChunks},
    subtrees::Subtrees,
};

/// What is sent, open for reading.
#[derive(Debug)]
pub struct Source {
    contents: Contents,
    /// Receivers compare files by their contents, not by length and time.
    by_contents: bool,
    /// Receivers exchange an existing directory as a whole.
    atomic: bool,
    /// Receivers remove what only they have.
    deletes: bool,
    /// They list which entries change there.
    lists_changes: bool,
    /// Rules whose patterns have matched nothing.
    unmatched: Vec<Rule>,
    /// What of attributes is kept besides modes and times.
    kept: Option<(KeptAttributes, Kept)>,
    /// If hosts read it themselves.
    remote: Option<RemoteOffer>,
}

#[derive(Debug)]
enum Contents {
    File(FileSource),
    Tree(TreeSource),
    Remote(RemoteSource),
}

impl Contents {
    fn path(&self) -> &Path {
        match self {
            Self::File(file) => file.path(),
            Self::Tree(tree) => tree.path(),
            Self::Remote(remote) => remote.path(),
        }
    }

    /// Errors: attributes cannot be read; there are too many users.
    fn kept(&self, attributes: KeptAttributes) -> Result<Kept, SourceError> {
        let mut own = attributes.of_source(self.path())?;
        let mut ids = match self {
            Self::File(_) | Self::Remote(_) => BTreeSet::new(),
            Self::Tree(tree) => tree.ids(),
        };
        let note = |holder, id| {
            ids.insert((holder, id));
            id
        };
        own.map_ids(note);
        let names = if attributes.numbers { Ok(Vec::new()) } else { names_of(&ids) };
        let names = names.map_err(scan::system(self.path(), "list the owners of"))?;
        let KeptAttributes { access, extended, .. } = attributes;
        Ok(Kept { access, extended, own, names })
    }
}

impl From<Contents> for Source {
    fn from(contents: Contents) -> Self {
        let (by_contents, atomic, deletes, lists_changes) = Default::default();
        let (unmatched, kept, remote) = Default::default();
        Self { contents, by_contents, atomic, deletes, lists_changes, unmatched, kept, remote }
    }
}

impl Source {
    /// Opens a regular file for reading, and keeps its attributes.
    ///
    /// Errors: missing, not a regular file, not readable, contents of another length than its attributes have.
    pub fn open(path: &Path) -> Result<Self, SourceError> {
        FileSource::open(path).map(|file| Contents::File(file).into())
    }

    /// Opens what one path or several name. The copy of a file, or of a single directory, is the destination itself; those of
    /// several sources go into the destination under their names, of one whose contents are meant ([`Source::means_contents`])
    /// what it contains. Blocks while it looks at everything in directories.
    ///
    /// Errors: unreadable; the options leave nothing; a link leads nowhere or to a directory outside, unless links are sent as they
    /// are; something is neither file nor directory; two have the same name; it is too large. Panics without any path.
    pub fn of(paths: &[PathBuf], options: &ListOptions) -> Result<Self, SourceError> {
        let mut options = options.clone();
        let contents = match paths {
            [path] if path.is_dir() => {
                Contents::Tree(TreeSource::of_directory(path, &mut options)?)
            }
            [path] => {
                let file = FileSource::open(path)?;
                let name = name_of(path)?.unwrap_or_default();
                if !options.selection.takes(&name, false) {
                    return Err(SourceError::NothingLeft(path.clone()));
                }
                match TreeSource::of_file_with_holes(path, &name, &mut options)? {
                    Some(tree) => Contents::Tree(tree),
                    None => Contents::File(file),
                }
            }
            paths => Contents::Tree(TreeSource::of_several(paths, &mut options)?),
        };
        let kept = match options.attributes.any() {
            true => Some((options.attributes, contents.kept(options.attributes)?)),
            false => None,
        };
        Ok(Self { unmatched: options.unmatched(), kept, ..contents.into() })
    }

    /// What lies elsewhere: starts threads that fetch what is read of `contents`, and that end when this is dropped. `shown`: its
    /// URL, for messages. `name`: of the copy, for patterns. The copies of files have the mode 644, those of directories 755.
    ///
    /// Errors: the entries are no tree; the patterns leave nothing; attributes are to be kept; no thread.
    pub fn of_remote(
        shown: &str,
        name: &str,
        shape: RemoteShape,
        entries: Vec<RemoteEntry>,
        contents: Arc<dyn RemoteContents>,
        options: &ListOptions,
    ) -> Result<Self, SourceError> {
        let mut options = options.clone();
        if options.attributes.any() {
            return Err(SourceError::Remote(format!(
                "{shown}: it has no owners or other attributes that could be kept"
            )));
        }
        let remote = RemoteSource::open(
            shown,
            name,
            shape,
            entries,
            contents,
            &mut options,
            remote::LIMITS,
        )?;
        Ok(Self { unmatched: options.unmatched(), ..Contents::Remote(remote).into() })
    }

    /// Lets the hosts read it themselves, a share each, at this URL and with their own credentials; the URL has no secrets. What lies
    /// here is sent as always.
    #[must_use]
    pub fn read_by_hosts(mut self, url: &str, as_hub_cache: bool) -> Self {
        if let Contents::Remote(remote) = &self.contents {
            let (url, version) = (url.to_owned(), remote.version());
            self.remote = Some(RemoteOffer { url, as_hub_cache, version });
        }
        self
    }

    /// What hosts have to know to read it themselves, if they do.
    pub(crate) fn remote_offer(&self) -> Option<RemoteOffer> {
        self.remote.clone()
    }

    /// In which division hosts digest what they read.
    pub(crate) fn read_by_hosts_in(&self) -> Option<Subtrees> {
        match &self.contents {
            Contents::Remote(remote) if self.remote.is_some() => Some(remote.subtrees()),
            _ => None,
        }
    }

    /// What receivers have to know of attributes besides modes and times.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref().map(|(_, kept)| kept)
    }

    /// Whether a path means what a directory contains and not the directory, as with rsync: it ends with `/`, or with the name `.`
    /// or `..`.
    pub fn means_contents(path: &Path) -> bool {
        scan::is_contents(path)
    }

    /// The rules whose patterns have matched nothing that was looked at.
    pub fn unmatched(&self) -> &[Rule] {
        &self.unmatched
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

    /// Lets receivers remove what they have in the directories of a tree and the source has not, but for what the
    /// patterns leave out.
    #[must_use]
    pub fn delete(mut self, deletes: bool) -> Self {
        self.deletes = deletes;
        self
    }

    /// Lets receivers list which entries they change, not only how many ([`crate::Changes::listed`]).
    #[must_use]
    pub fn lists_changes(mut self, lists_changes: bool) -> Self {
        self.lists_changes = lists_changes;
        self
    }

    /// The names of its entries, which stay after it is closed.
    pub fn names(&self) -> EntryNames {
        match &self.contents {
            Contents::File(file) => EntryNames::of_file(&file.manifest().name),
            Contents::Tree(tree) => EntryNames::of_tree(tree.encoded()),
            Contents::Remote(remote) => EntryNames::of_tree(remote.encoded()),
        }
    }

    /// The bytes of an entry in the object; empty for an entry without contents.
    pub(crate) fn range_of(&self, entry: u32) -> ByteRange {
        match &self.contents {
            Contents::File(file) => (0, file.manifest().bytes),
            Contents::Tree(tree) => tree.range_of(entry),
            Contents::Remote(remote) => remote.range_of(entry),
        }
    }

    /// Name, length and attributes for receivers.
    pub fn manifest(&self) -> &Manifest {
        match &self.contents {
            Contents::File(file) => file.manifest(),
            Contents::Tree(tree) => tree.manifest(),
            Contents::Remote(remote) => remote.manifest(),
        }
    }

    /// Whether it is a file with holes, which are sent as zeros.
    pub fn has_holes(&self) -> bool {
        match &self.contents {
            Contents::File(file) => file.has_holes(),
            // They are not sent.
            Contents::Tree(_) | Contents::Remote(_) => false,
        }
    }

    /// How many directories, files and links a tree has; `None` of a file.
    pub fn entries(&self) -> Option<usize> {
        match &self.contents {
            Contents::File(_) => None,
            Contents::Tree(tree) => (!tree.is_file()).then(|| tree.entries()),
            Contents::Remote(remote) => (!remote.is_file()).then(|| remote.entries()),
        }
    }

    /// The files whose contents are sent.
    pub fn files(&self) -> impl Iterator<Item = &Path> {
        let (file, tree) = match &self.contents {
            Contents::File(file) => (Some(file.path()), None),
            Contents::Tree(tree) => (None, Some(tree)),
            Contents::Remote(_) => (None, None),
        };
        file.into_iter().chain(tree.into_iter().flat_map(TreeSource::files))
    }

    /// Whether it is sent as a tree: also a file with holes, or one that lies elsewhere.
    pub(crate) fn is_tree(&self) -> bool {
        matches!(self.contents, Contents::Tree(_) | Contents::Remote(_))
    }

    /// The path that was opened; the first of several.
    pub fn path(&self) -> &Path {
        self.contents.path()
    }

    /// The contents for sending; keeps the files open.
    ///
    /// Errors: the system's.
    pub fn region(&self) -> Result<Region, SourceError> {
        match &self.contents {
            Contents::File(file) => file.region(),
            Contents::Tree(tree) => tree.region(),
            Contents::Remote(remote) => remote.region(),
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
            Contents::Remote(remote) => remote.check_unchanged(),
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
            Contents::Remote(remote) => remote.look_again(),
        }?;
        let Some((attributes, kept)) = &self.kept else { return Ok(()) };
        match attributes.of_source(self.path())? == kept.own {
            true => Ok(()),
            false => {
                let (path, what) = (self.path().to_owned(), attributes::CHANGED.to_owned());
                Err(SourceError::Changed { path, what })
            }
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
            Contents::Remote(remote) => remote.digest(ranges, stop),
        }
    }

    /// [`crate::hash::probe`] of a file.
    pub(crate) fn probe(&self) -> Result<[u8; 32], SourceError> {
        match &self.contents {
            Contents::File(file) => file.probe(),
            Contents::Tree(_) | Contents::Remote(_) => Ok([0; 32]),
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
            // Comparing would take fetching what is sent anyway.
            Contents::Remote(_) => Ok(Ranges::default()),
        }
    }

    /// The BLAKE3 digest of a part of all contents. Blocks while it reads that.
    ///
    /// Errors: unreadable, or changed; stopped.
    pub(crate) fn digest_part(
        &self,
        part: ByteRange,
        stop: &AtomicBool,
    ) -> Result<blake3::Hash, SourceError> {
        match &self.contents {
            Contents::File(file) => file.digest_part(part, stop),
            Contents::Tree(tree) => tree.digest_range(part, stop),
            Contents::Remote(remote) => remote.digest_range(part, stop),
        }
    }

    /// The error for two reads with different digests.
    pub(crate) fn differs(&self) -> SourceError {
        match &self.contents {
            Contents::File(file) => file.differs(),
            Contents::Tree(tree) => tree.differs(),
            Contents::Remote(remote) => remote.differs(),
        }
    }

    /// What receivers have to know of a tree, and its encoded listing.
    pub(crate) fn tree(&self) -> Option<(TreeOffer, Arc<[u8]>)> {
        let (offer, deletion, encoded) = match &self.contents {
            Contents::File(_) => return None,
            Contents::Tree(tree) => (tree.offer(), tree.deletion(), tree.encoded()),
            Contents::Remote(remote) => (remote.offer(), remote.deletion(), remote.encoded()),
        };
        // A file with holes is compared as any other file of this machine.
        let by_contents = self.by_contents || offer.by_contents;
        let (atomic, lists_changes) = (self.atomic, self.lists_changes);
        let deletion = self.deletes.then(|| deletion.clone());
        let offer = TreeOffer { by_contents, atomic, deletion, lists_changes, ..offer };
        Some((offer, Arc::clone(encoded)))
    }
}
