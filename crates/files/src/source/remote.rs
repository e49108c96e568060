//! What lies elsewhere, as the source of a push: each byte is normally fetched once, for sending and for its digest
//! (docs/decisions/remote.md).

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, atomic::AtomicBool},
};

use rdmc::Region;
use tree::{Entry, Kind, Layout, Listing};

use super::{
    error::SourceError,
    fetching::{Fetched, Fetching, Plan, RemoteContents},
    options::ListOptions,
    window::{Limits, Reader},
};
use crate::{
    Manifest,
    digests::Digests,
    hash,
    messages::{Deletion, Top, TreeOffer},
    ranges::{ByteRange, Ranges},
    subtrees::Subtrees,
};

/// 192 MiB at most: enough for eight connections, and for hosts that start to receive some seconds after the first.
pub(super) const LIMITS: Limits = Limits { chunk_bytes: 8 << 20, chunks_max: 24, fetches_max: 8 };
/// How much is digested at once where bytes are needed in order.
const STEP_BYTES: u64 = 1 << 20;
const FILE_MODE: u16 = 0o644;
const DIRECTORY_MODE: u16 = 0o755;

/// A file or a link of what a URL names. A path and a target are checked as those of any tree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RemoteEntry {
    /// Relative to what the URL names, with `/` between names. Of a single file its name.
    pub path: Vec<u8>,
    /// Modification time in nanoseconds since 1970: another one if the contents are others.
    pub modified_ns: i64,
    /// What it is.
    pub kind: RemoteKind,
}

/// What a remote entry is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RemoteKind {
    /// A file of this length in bytes.
    File(u64),
    /// A symbolic link with this text.
    Link(Vec<u8>),
}

/// What the copy of a remote source is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RemoteShape {
    /// A file: the destination is the path of the copy.
    File,
    /// A directory: the destination is the copy.
    Directory,
    /// What is in a directory: the same, with paths for patterns that begin in it.
    Contents,
}

/// A remote source that is open.
#[derive(Debug)]
pub(super) struct RemoteSource {
    shown: PathBuf,
    manifest: Manifest,
    entries: usize,
    /// For receivers.
    encoded: Arc<[u8]>,
    is_file: bool,
    top: Option<Top>,
    deletion: Deletion,
    /// Digests of files that were read, by their number; held while one is read.
    digests: Mutex<BTreeMap<usize, blake3::Hash>>,
    fetching: Fetching,
}

impl RemoteSource {
    /// Lists what a URL names and starts the threads that fetch it. `name`: of the copy; `shown`: the URL, for messages.
    ///
    /// Errors: the entries are no tree; the patterns leave nothing; no thread.
    pub(super) fn open(
        shown: &str,
        name: &str,
        shape: RemoteShape,
        entries: Vec<RemoteEntry>,
        contents: Arc<dyn RemoteContents>,
        options: &mut ListOptions,
        limits: Limits,
    ) -> Result<Self, SourceError> {
        let shown = PathBuf::from(shown);
        let tree = |error| SourceError::Tree { path: shown.clone(), error };
        let prefix = match shape {
            RemoteShape::Directory => format!("{name}/").into_bytes(),
            RemoteShape::File | RemoteShape::Contents => Vec::new(),
        };
        let numbers: BTreeMap<Vec<u8>, usize> =
            entries.iter().zip(0..).map(|(entry, number)| (entry.path.clone(), number)).collect();
        let newest_ns = entries.iter().map(|entry| entry.modified_ns).max().unwrap_or_default();
        let had_entries = !entries.is_empty();
        let listing = listing(entries, &prefix, newest_ns, options).map_err(tree)?;
        if listing.entries().is_empty() && had_entries {
            return Err(SourceError::NothingLeft(shown));
        }
        let encoded: Arc<[u8]> = listing.encode().map_err(tree)?.into();
        let layout = Layout::of(&listing);
        let number = |file| numbers[&listing.entries()[layout.entry(file)].path];
        let of_files = (0..layout.files()).map(number).collect();
        let manifest =
            Manifest { name: name.to_owned(), bytes: layout.bytes(), mode: 0o600, modified_ns: 0 };
        let is_file = shape == RemoteShape::File;
        let top = Top { mode: DIRECTORY_MODE.into(), modified_ns: newest_ns };
        let deletion = Deletion { at_top: true, prefix, patterns: options.patterns() };
        let entries = listing.entries().len();
        let shown_name = shown.display().to_string();
        let fetching = Fetching::start(shown_name, layout, of_files, contents, limits)
            .map_err(super::scan::system(&shown, "start threads for"))?;
        Ok(Self {
            manifest,
            entries,
            encoded,
            is_file,
            top: (!is_file).then_some(top),
            deletion,
            digests: Mutex::default(),
            fetching,
            shown,
        })
    }

    /// The URL.
    pub(super) fn path(&self) -> &Path {
        &self.shown
    }

    pub(super) fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    pub(super) fn entries(&self) -> usize {
        self.entries
    }

    pub(super) fn is_file(&self) -> bool {
        self.is_file
    }

    pub(super) fn encoded(&self) -> &Arc<[u8]> {
        &self.encoded
    }

    pub(super) fn deletion(&self) -> &Deletion {
        &self.deletion
    }

    pub(super) fn offer(&self) -> TreeOffer {
        let listing_bytes = self.encoded.len() as u64;
        TreeOffer { listing_bytes, is_file: self.is_file, top: self.top, ..TreeOffer::default() }
    }

    /// The bytes of an entry in the object; empty for an entry without contents.
    pub(super) fn range_of(&self, entry: u32) -> ByteRange {
        let range = self.fetched().layout().range(entry as usize);
        (range.start, range.end)
    }

    pub(super) fn region(&self) -> Result<Region, SourceError> {
        Region::from_storage(Arc::clone(self.fetching.fetched()) as _, self.manifest.bytes, false)
            .map_err(|error| SourceError::Map { path: self.shown.clone(), error })
    }

    /// Errors: something could not be read, or was not what was listed.
    pub(super) fn check_unchanged(&self) -> Result<(), SourceError> {
        match self.fetched().fault() {
            Some(fault) => Err(SourceError::Remote(fault.to_owned())),
            None => Ok(()),
        }
    }

    /// The division of its files into subtrees.
    pub(super) fn subtrees(&self) -> Subtrees {
        self.fetched().subtrees()
    }

    /// The digest of the versions of all files.
    pub(super) fn version(&self) -> [u8; 32] {
        self.fetched().version()
    }

    /// Asks the source whether it still has what was listed. Errors: it has not, or does not answer.
    pub(super) fn look_again(&self) -> Result<(), SourceError> {
        self.check_unchanged()?;
        self.fetched().contents().look_again().map_err(SourceError::Remote)
    }

    /// Digests the files with a byte in one of these ranges, which hosts lack and are sent; compares them with the checksums that
    /// the source has. What was read once is not read again: a copy that differs from it is wrong. Blocks until all has come, or
    /// until `stop`.
    pub(super) fn digest(
        &self,
        ranges: &Ranges,
        stop: &AtomicBool,
    ) -> Result<Digests, SourceError> {
        let fetched = self.fetched();
        // Of all hosts; what is not sent after all is forgotten once nobody reads it for some time.
        fetched.plan(Reader::Sender, ranges.iter());
        let mut known = self.digests.lock().unwrap_or_else(PoisonError::into_inner);
        let pieces = ranges.iter().flat_map(|(start, end)| fetched.layout().pieces(start..end));
        let files: BTreeSet<usize> = pieces.map(|piece| piece.file).collect();
        let new = files.iter().filter(|file| !known.contains_key(file));
        let plan: Vec<ByteRange> = new.map(|&file| self.range_of_file(file)).collect();
        let _plan = Plan::new(fetched, Reader::Digest, plan);
        let mut digests = Vec::new();
        for file in files {
            let digest = match known.get(&file) {
                Some(&digest) => digest,
                None => self.digest_file(file, stop)?,
            };
            known.insert(file, digest);
            digests.push((self.range_of_file(file), digest));
        }
        Ok(Digests::Files(digests))
    }

    /// The BLAKE3 digest of a range. Blocks until it has come, or until `stop`.
    pub(super) fn digest_range(
        &self,
        range: ByteRange,
        stop: &AtomicBool,
    ) -> Result<blake3::Hash, SourceError> {
        let read = |into: &mut [u8], at| self.fetched().read(Reader::Digest, into, at, stop);
        hash::digest_range(read, range, stop).map_err(|error| self.read_error(error))
    }

    /// The error for two reads with different digests.
    pub(super) fn differs(&self) -> SourceError {
        SourceError::Changed { path: self.shown.clone(), what: "it gives other bytes".into() }
    }

    fn digest_file(&self, file: usize, stop: &AtomicBool) -> Result<blake3::Hash, SourceError> {
        let (start, end) = self.range_of_file(file);
        let fetched = self.fetched();
        let Some(mut checksum) = fetched.contents().checksum(fetched.entry(file)) else {
            return self.digest_range((start, end), stop);
        };
        let (mut hasher, mut at) = (blake3::Hasher::new(), start);
        let mut step = vec![0; STEP_BYTES.min(end - start) as usize];
        while at < end {
            let part = &mut step[..STEP_BYTES.min(end - at) as usize];
            let read = fetched.read(Reader::Digest, part, at, stop);
            read.map_err(|error| self.read_error(error))?;
            hasher.update(part);
            checksum.update(part);
            at += part.len() as u64;
        }
        let compared = checksum.finish().map_err(|fault| fetched.fail(fault));
        compared.map_err(|error| self.read_error(error))?;
        Ok(hasher.finalize())
    }

    fn range_of_file(&self, file: usize) -> ByteRange {
        let range = self.fetched().layout().range_of(file);
        (range.start, range.end)
    }

    fn fetched(&self) -> &Fetched {
        self.fetching.fetched()
    }

    fn read_error(&self, error: std::io::Error) -> SourceError {
        match self.check_unchanged() {
            Err(fault) => fault,
            Ok(()) => SourceError::System { path: self.shown.clone(), what: "read", error },
        }
    }
}

/// The entries that the patterns take, and the directories that they are in. `prefix`: what patterns see before the paths.
fn listing(
    entries: Vec<RemoteEntry>,
    prefix: &[u8],
    directory_ns: i64,
    options: &mut ListOptions,
) -> Result<Listing, tree::ListingError> {
    let mut listed: Vec<Entry> = Vec::new();
    let mut directories: BTreeMap<Vec<u8>, bool> = BTreeMap::new();
    for RemoteEntry { path, modified_ns, kind } in entries {
        let ends = path.iter().zip(0..).filter(|(byte, _)| **byte == b'/').map(|(_, end)| end);
        let is_taken = ends.into_iter().all(|end: usize| {
            let directory = &path[..end];
            *directories
                .entry(directory.to_vec())
                .or_insert_with(|| options.selection.takes(&[prefix, directory].concat(), true))
        });
        if !is_taken || !options.selection.takes(&[prefix, &path].concat(), false) {
            continue;
        }
        let kind = match kind {
            RemoteKind::File(bytes) => Kind::File { bytes },
            RemoteKind::Link(target) => Kind::Link { target },
        };
        listed.push(Entry { path, mode: FILE_MODE, modified_ns, kind });
    }
    let taken = directories.into_iter().filter(|(_, is_taken)| *is_taken);
    let directory = |(path, _)| {
        let kind = Kind::Directory;
        Entry { path, mode: DIRECTORY_MODE, modified_ns: directory_ns, kind }
    };
    listed.extend(taken.map(directory));
    Listing::new(listed)
}

#[cfg(test)]
mod tests {
    use std::{
        ops::Range,
        sync::atomic::{AtomicU64, Ordering},
        thread,
        time::Duration,
    };

    use rdmc::Storage;
    use tree::{Rule, Selection};

    use super::*;
    use crate::{RemoteChecksum, Source, digests::CopyDigest};

    const SMALL: Limits = Limits { chunk_bytes: 10_000, chunks_max: 4, fetches_max: 3 };
    static GO_ON: AtomicBool = AtomicBool::new(false);

    /// Files whose bytes follow from their entry and position; counts what is read.
    #[derive(Default, Debug)]
    struct Made {
        read: AtomicU64,
        /// An entry whose checksum is another one.
        wrong: Option<usize>,
        /// An entry that cannot be read.
        unreadable: Option<usize>,
    }

    struct Sum {
        is_wrong: bool,
        bytes: u64,
    }

    fn byte(entry: usize, at: u64) -> u8 {
        (entry as u64 * 91 + at * 7 % 251) as u8
    }

    impl RemoteContents for Made {
        fn read(
            &self,
            entry: usize,
            range: Range<u64>,
            take: &mut dyn FnMut(&[u8]),
        ) -> Result<(), String> {
            if self.unreadable == Some(entry) {
                return Err(format!("entry {entry} cannot be read"));
            }
            self.read.fetch_add(range.end - range.start, Ordering::Relaxed);
            let bytes: Vec<u8> = range.map(|at| byte(entry, at)).collect();
            bytes.chunks(999).for_each(take);
            Ok(())
        }

        fn version(&self, entry: usize) -> String {
            entry.to_string()
        }

        fn checksum(&self, entry: usize) -> Option<Box<dyn RemoteChecksum>> {
            let is_wrong = self.wrong == Some(entry);
            entry.is_multiple_of(2).then(|| Box::new(Sum { is_wrong, bytes: 0 }) as _)
        }

        fn look_again(&self) -> Result<(), String> {
            Ok(())
        }

        fn stop(&self) {}
    }

    impl RemoteChecksum for Sum {
        fn update(&mut self, bytes: &[u8]) {
            self.bytes += bytes.len() as u64;
        }

        fn finish(self: Box<Self>) -> Result<(), String> {
            match self.is_wrong || self.bytes == 0 {
                true => Err("it has another checksum".into()),
                false => Ok(()),
            }
        }
    }

    fn file(path: &str, bytes: u64) -> RemoteEntry {
        RemoteEntry { path: path.into(), modified_ns: 7, kind: RemoteKind::File(bytes) }
    }

    /// Files of 25,000 bytes each, not in the order of their paths.
    fn files() -> Vec<RemoteEntry> {
        ["sub/d", "b", "a", "sub/c"].map(|path| file(path, 25_000)).to_vec()
    }

    fn open(made: &Arc<Made>) -> RemoteSource {
        let (name, shape) = ("model", RemoteShape::Directory);
        let (made, options) = (Arc::clone(made), &mut ListOptions::default());
        RemoteSource::open("s3://b/model", name, shape, files(), made as _, options, SMALL).unwrap()
    }

    /// What the object of [`files`] is.
    fn object() -> Vec<u8> {
        [2, 1, 3, 0].iter().flat_map(|&entry| (0..25_000).map(move |at| byte(entry, at))).collect()
    }

    fn send(source: &RemoteSource, ranges: &[ByteRange]) {
        let object = object();
        for &(start, end) in ranges {
            for at in (start..end).step_by(1700) {
                let mut block = vec![0; 1700.min(end - at) as usize];
                source.fetching.fetched().read_at(&mut block, at).unwrap();
                assert!(block[..] == object[at as usize..][..block.len()], "at {at}");
            }
        }
    }

    #[test]
    fn what_is_sent_and_digested_at_once_is_fetched_once() {
        for all in [&[(0, 100_000)][..], &[(0, 25_000), (30_000, 30_001), (75_000, 100_000)]] {
            let made = Arc::new(Made::default());
            let source = open(&made);
            let ranges: Ranges = all.iter().copied().collect();
            let digests = thread::scope(|scope| {
                let digests = scope.spawn(|| source.digest(&ranges, &GO_ON).unwrap());
                while made.read.load(Ordering::Relaxed) == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
                send(&source, all);
                digests.join().unwrap()
            });
            // A file is digested as a whole.
            let digested: u64 = if all.len() == 1 { 100_000 } else { 75_000 };
            let read = made.read.load(Ordering::Relaxed);
            assert_eq!(read, digested);
            let Digests::Files(files) = digests else { panic!("{digests:?}") };
            assert_eq!(files.iter().map(|((start, end), _)| end - start).sum::<u64>(), digested);
            let (mut found, mut expected) = (CopyDigest::default(), CopyDigest::default());
            for ((start, end), digest) in files {
                found.add(start, &digest);
                expected.add(start, &blake3::hash(&object()[start as usize..end as usize]));
            }
            assert_eq!(found.finish(), expected.finish());
            // What is known is not read again; what has to be sent again is.
            source.digest(&ranges, &GO_ON).unwrap();
            assert_eq!(made.read.load(Ordering::Relaxed), read);
            send(&source, &[(0, 100_000)]);
            assert!(made.read.load(Ordering::Relaxed) <= read + 100_000);
        }
    }

    #[test]
    fn a_checksum_that_differs_ends_all_reading() {
        let made = Arc::new(Made { wrong: Some(2), ..Made::default() });
        let source = open(&made);
        source.check_unchanged().unwrap();
        let all = [(0, 100_000)].into_iter().collect();
        let error = source.digest(&all, &GO_ON).unwrap_err().to_string();
        assert_eq!(error, "it has another checksum");
        assert_eq!(source.check_unchanged().unwrap_err().to_string(), error);
        assert_eq!(source.look_again().unwrap_err().to_string(), error);
        let fetched = source.fetching.fetched();
        assert_eq!(fetched.read_at(&mut [0], 0).unwrap_err().to_string(), error);
    }

    #[test]
    fn what_cannot_be_read_is_said_to_every_reader() {
        let made = Arc::new(Made { unreadable: Some(1), ..Made::default() });
        let source = open(&made);
        let all = [(0, 100_000)].into_iter().collect();
        let error = source.digest(&all, &GO_ON).unwrap_err().to_string();
        assert_eq!(error, "entry 1 cannot be read");
        let fetched = source.fetching.fetched();
        assert_eq!(fetched.read_at(&mut [0], 99_999).unwrap_err().to_string(), error);
        // A reader that is to stop does not wait for anything.
        let stopped = open(&Arc::default()).digest(&all, &AtomicBool::new(true)).unwrap_err();
        assert!(stopped.to_string().contains("interrupted"), "{stopped}");
    }

    #[test]
    fn entries_that_are_no_tree_are_refused() {
        let long = "x".repeat(256);
        let cases: [(&[&str], &str); 9] = [
            (&["../a"], ". or .. in it"),
            (&["a/../b"], ". or .. in it"),
            (&["/etc/passwd"], "it has no bytes"),
            (&["a\0b"], "a byte of it is 0"),
            (&["a//b"], "more than 255"),
            (&["a/"], "more than 255"),
            (&["a", "a"], "is there twice"),
            (&["a", "a/b"], "is there twice"),
            (&[&long], "more than 255"),
        ];
        for (paths, expected) in cases {
            let entries = paths.iter().map(|path| file(path, 1)).collect();
            let (shape, options) = (RemoteShape::Contents, ListOptions::default());
            let made = Arc::new(Made::default());
            let error = Source::of_remote("s3://b/p", "p", shape, entries, made, &options);
            let error = error.unwrap_err().to_string();
            assert!(error.contains("s3://b/p: ") && error.contains(expected), "{paths:?}: {error}");
        }
        let huge = vec![file("a", u64::MAX), file("b", u64::MAX)];
        let made: Arc<Made> = Arc::default();
        let (shape, options) = (RemoteShape::Contents, ListOptions::default());
        let refused = Source::of_remote("s3://b/p", "p", shape, huge, made, &options);
        assert!(refused.is_err());
    }

    #[test]
    fn links_lead_into_the_tree() {
        let link = |target: &str| RemoteEntry {
            kind: RemoteKind::Link(target.into()),
            ..file("snapshots/1/a", 0)
        };
        let open = |target: &str| {
            let entries = vec![file("blobs/x", 5), link(target)];
            let (shape, options) = (RemoteShape::Contents, ListOptions::default());
            Source::of_remote("hf://o/m", "m", shape, entries, Arc::new(Made::default()), &options)
        };
        let source = open("../../blobs/x").unwrap();
        assert_eq!((source.entries(), source.manifest().bytes), (Some(5), 5));
        assert!(open("../../../etc/passwd").is_err() && open("/etc/passwd").is_err());
    }

    #[test]
    fn patterns_select_as_in_a_directory() {
        let names = |shape, rules: &[Rule]| {
            let options = ListOptions::new(Selection::new(rules).unwrap());
            let made = Arc::new(Made::default());
            let source = Source::of_remote("s3://b/model", "model", shape, files(), made, &options);
            source.map(|source| (source.names().to_vec().join(" "), source.unmatched().len()))
        };
        let exclude = |pattern: &str| Rule::Exclude(pattern.into());
        let all = names(RemoteShape::Directory, &[]).unwrap();
        assert_eq!(all, ("a b sub/ sub/c sub/d".into(), 0));
        let some = names(RemoteShape::Directory, &[exclude("/model/sub"), exclude("/b")]).unwrap();
        assert_eq!(some, ("a b".into(), 1));
        let some = names(RemoteShape::Contents, &[exclude("/b"), exclude("c")]).unwrap();
        assert_eq!(some, ("a sub/ sub/d".into(), 0));
        let none = names(RemoteShape::Contents, &[exclude("*")]).unwrap_err().to_string();
        assert!(none.contains("leave nothing of s3://b/model"), "{none}");
    }
}
