//! Files of a copy that can be read before the whole copy is published.

use std::{
    collections::{BTreeMap, VecDeque},
    ffi::OsStr,
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{PathBuf, absolute},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use rustix::fs::OFlags;
use tree::Kind;

use super::{files::CopyFiles, order::Order, staging::Staged};
use crate::{
    ranges::{ByteRange, Ranges},
    whole_files::WholeFiles,
};

/// A file of a copy that is complete, and equals what the server has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VerifiedFile {
    /// Its path in the copy; of a copy that is a file its name.
    pub path: PathBuf,
    /// Its length.
    pub bytes: u64,
    /// The absolute path at which it is now. Once the copy is published, it is at `destination` instead.
    pub at: PathBuf,
    /// The absolute path that it has in the published copy. Until then another file may be there.
    pub destination: PathBuf,
    /// The number by which a file at one of these paths is known to be this one.
    pub inode: u64,
    /// Identifies the version of the whole copy: a file of this version at this destination is always the same.
    pub version: [u8; 32],
}

/// Finds out when files of a copy are complete and verified, and queues each of them once.
///
/// For each file of the copy it needs a few bytes of memory, however slowly they are taken.
#[derive(Debug)]
pub(crate) struct VerifiedFiles {
    order: Arc<Order>,
    /// See [`VerifiedFile`].
    version: [u8; 32],
    /// By the number of the entry: it is staged.
    stages: Vec<bool>,
    staged: Option<Staged>,
    /// Further names of files, by the number of the file's entry.
    names: BTreeMap<usize, Vec<usize>>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    whole: WholeFiles,
    /// By the number of the entry: it was queued.
    is_queued: Vec<bool>,
    /// Numbers of entries.
    queue: VecDeque<usize>,
    is_published: bool,
}

impl VerifiedFiles {
    /// Of a copy that has begun, and of which these ranges are there and were compared. Makes files that are empty.
    pub(super) fn new(files: &CopyFiles, compared: &Ranges) -> Self {
        let order = &files.order;
        let mut names: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (number, entry) in order.entries().iter().enumerate() {
            if let Kind::Name { of } = entry.kind {
                names.entry(of as usize).or_default().push(number);
            }
        }
        let state = State {
            whole: WholeFiles::new(&order.layout),
            is_queued: vec![false; order.entries().len()],
            queue: VecDeque::new(),
            is_published: false,
        };
        let (stages, staged) = (files.stages.clone(), files.staged.clone());
        let (state, version) = (Mutex::new(state), *blake3::hash(&order.version).as_bytes());
        let verified = Self { order: Arc::clone(order), version, stages, staged, names, state };
        verified.queue_without_bytes(files);
        let whole = {
            let mut state = verified.lock();
            compared.iter().flat_map(|range| state.whole.add(range)).collect::<Vec<_>>()
        };
        whole.into_iter().for_each(|file| verified.queue(order.layout.entry(file)));
        verified
    }

    /// Queues the files of which the object has no bytes: empty ones, and those that are all hole.
    fn queue_without_bytes(&self, files: &CopyFiles) {
        for (number, entry) in self.order.entries().iter().enumerate() {
            let Some(bytes) = entry.bytes().filter(|_| self.order.layout.range(number).is_empty())
            else {
                continue;
            };
            let is_there = match (self.stages[number], bytes) {
                // Publishing tries again, and names the error.
                (true, 0) => files.open_staged(number, OFlags::RDWR | OFlags::CREATE).is_ok(),
                (true, _) => true,
                // One that stays for its length and time has not been read.
                (false, bytes) => bytes == 0 || self.order.by_contents,
            };
            if is_there {
                self.queue(number);
            }
        }
    }

    /// A range was received, equals the root's digest, and is in place. Does not block for files.
    pub(crate) fn add(&self, range: ByteRange) {
        let whole = self.lock().whole.add(range);
        let entries = whole.into_iter().map(|file| self.order.layout.entry(file));
        // What stays is not replaced by what was received: if it was not compared before, it still is not.
        entries.filter(|&entry| self.stages[entry]).for_each(|entry| self.queue(entry));
    }

    /// The copy is published: queues the files that were not queued before.
    pub(crate) fn add_all(&self) {
        let is_file = |number: &usize| self.order.entries()[*number].bytes().is_some();
        (0..self.order.entries().len()).filter(is_file).for_each(|number| self.queue(number));
        self.lock().is_published = true;
    }

    /// Takes the next file, if there is one, and looks where it is. One that has no name while the copy is being published waits for
    /// the end of that; one that was removed meanwhile is left out then.
    pub(crate) fn take(&self) -> Option<VerifiedFile> {
        loop {
            let (number, is_published) = {
                let mut state = self.lock();
                (state.queue.pop_front()?, state.is_published)
            };
            match self.find(number, is_published) {
                Ok(file) => return Some(file),
                Err(error) if is_published => {
                    tracing::debug!(number, %error, "a verified file is gone");
                }
                Err(_) => {
                    self.lock().queue.push_front(number);
                    return None;
                }
            }
        }
    }

    /// Queues an entry, and its further names; once.
    fn queue(&self, entry: usize) {
        let mut state = self.lock();
        for number in [entry].iter().chain(self.names.get(&entry).into_iter().flatten()) {
            if !std::mem::replace(&mut state.is_queued[*number], true) {
                state.queue.push_back(*number);
            }
        }
    }

    /// Errors: it is not there; what has its path in a copy that is not published yet may be another file.
    fn find(&self, number: usize, is_published: bool) -> io::Result<VerifiedFile> {
        let entries = self.order.entries();
        let path = &entries[number].path;
        let first = match entries[number].kind {
            Kind::Name { of } => of as usize,
            _ => number,
        };
        let destination = absolute(self.order.shown(path))?;
        let at = match self.staged.as_ref().filter(|_| self.stages[first]) {
            _ if is_published => destination.clone(),
            Some(staged) => absolute(staged.path_of(&entries[first].path))?,
            None => absolute(self.order.shown(&entries[first].path))?,
        };
        let inode = fs::symlink_metadata(&at)?.ino();
        let path = PathBuf::from(OsStr::from_bytes(path));
        let bytes = entries[first].bytes().unwrap_or(0);
        Ok(VerifiedFile { path, bytes, at, destination, inode, version: self.version })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
