//! One session of a receiver as other threads see it.

use std::{
    mem,
    path::PathBuf,
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use crate::{
    copy::{VerifiedFile, VerifiedFiles},
    ranges::ByteRange,
    reason::shortened,
};

/// The most notes of a session.
const NOTES_MAX: usize = 20;
/// Fewer bytes are no progress: a root could send one a minute.
const PROGRESS_BYTES: u64 = 64 << 10;

/// One session of a receiver as other threads see it: whether it makes progress, what it is about, and a way to end it.
#[derive(Default, Debug)]
pub struct Reception {
    /// In bytes; a step counts as [`PROGRESS_BYTES`].
    progress: AtomicU64,
    ended: OnceLock<String>,
    published: OnceLock<PathBuf>,
    /// Bytes of the object that are in place.
    received: AtomicU64,
    record: Mutex<Record>,
    /// Of what is fetched, if they are reported.
    files: OnceLock<VerifiedFiles>,
}

/// What is known of a session, for the log of its receiver. Text of the root's is shortened, not escaped.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Record {
    /// Where the root wants its copy.
    pub destination: Option<String>,
    /// Length of the object, of a stream what was written out.
    pub bytes: Option<u64>,
    /// The digest that the copy was verified by: BLAKE3 of the contents, of a stream of the digests of its pieces.
    pub digest: Option<[u8; 32]>,
    /// What this host keeps to itself, such as why another member cannot be reached; at most 20.
    pub notes: Vec<String>,
}

impl Reception {
    /// A number that grows with what moves the session forward: by one for each 64 KiB received, read and written, and for each
    /// of the few steps up to the copy's end. Not with messages, of which a root can send any number.
    pub fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed) / PROGRESS_BYTES
    }

    /// Ends the session within a fraction of a second, unless it prepares or publishes a copy; the root receives the reason. Does
    /// not wait. May be called before the session begins.
    pub fn end(&self, reason: &str) {
        let _ = self.ended.set(reason.to_owned());
    }

    /// The path of the copy, once it is published. The session may go on after that ([`super::Fetch::shares`]).
    pub fn published_path(&self) -> Option<&PathBuf> {
        self.published.get()
    }

    /// Bytes of the object that are in place, of [`Record::bytes`].
    pub fn received_bytes(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Length of the object, once it was offered.
    pub fn offered_bytes(&self) -> Option<u64> {
        self.lock().bytes
    }

    /// Takes the next file of the copy that is complete and verified, in the order in which they became so; each file once. Nothing unless
    /// [`super::Fetch::reports_files`].
    ///
    /// A file that was received is verified once each chunk with a byte of it equals the server's digest. So is one that was there, if
    /// it was compared. One that stays unread, for its length and time, is reported when the copy is published, as is whatever was not
    /// before: after [`Reception::published_path`] has given a path, no file is added. Symbolic links are no files.
    pub fn take_verified_file(&self) -> Option<VerifiedFile> {
        self.files.get()?.take()
    }

    /// What is known so far; the notes are taken.
    pub fn take_record(&self) -> Record {
        let mut record = self.lock();
        let notes = mem::take(&mut record.notes);
        Record { notes, ..record.clone() }
    }

    pub(super) fn ended(&self) -> Option<&String> {
        self.ended.get()
    }

    /// Bytes were received, read or written.
    pub(super) fn advanced(&self, bytes: u64) {
        self.progress.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A step is completed that no session has twice.
    pub(super) fn stepped(&self) {
        self.advanced(PROGRESS_BYTES);
    }

    pub(super) fn offered(&self, destination: &str, bytes: Option<u64>) {
        let mut record = self.lock();
        (record.destination, record.bytes) = (Some(shortened(destination)), bytes);
    }

    /// The copy has begun. Once in a session.
    pub(super) fn reports(&self, files: VerifiedFiles) {
        let _ = self.files.set(files);
    }

    /// A range that equals the root's digest is in place.
    pub(super) fn chunk_verified(&self, range: ByteRange) {
        self.files.get().into_iter().for_each(|files| files.add(range));
    }

    pub(super) fn published(&self, path: PathBuf) {
        self.files.get().into_iter().for_each(VerifiedFiles::add_all);
        let _ = self.published.set(path);
    }

    pub(super) fn received(&self, bytes: u64) {
        self.received.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn written(&self, bytes: u64) {
        self.lock().bytes = Some(bytes);
    }

    pub(super) fn verified(&self, digest: &blake3::Hash) {
        self.lock().digest = Some(*digest.as_bytes());
    }

    pub(super) fn note(&self, note: &str) {
        let mut record = self.lock();
        if record.notes.len() < NOTES_MAX {
            record.notes.push(shortened(note));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Record> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
