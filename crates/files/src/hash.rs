//! Digests of files, computed while they are received.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread::{self, JoinHandle},
};

use rustix::fs::{FallocateFlags, fallocate};

use crate::{
    pieces::PieceHasher,
    ranges::{ByteRange, Ranges},
    writeback::Writeback,
};

/// The shortest hole; divides [`crate::pieces::CHUNK_BYTES`].
const PAGE_BYTES: usize = 4 << 10;

/// The BLAKE3 digest of a file; reads it once.
///
/// Errors: the system's.
pub fn digest_of(path: &Path) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize())
}

/// The digest of a range of what `read` fills buffers with, from a position on; several threads call `read` if the range is
/// long.
///
/// Errors: too short, unreadable, or stopped.
pub(crate) fn digest_range(
    read: impl Fn(&mut [u8], u64) -> io::Result<()> + Sync,
    (start, end): ByteRange,
    stop: &AtomicBool,
) -> io::Result<blake3::Hash> {
    let mut hasher = PieceHasher::new(read, (start, end));
    hasher.advance(end - start, stop)?;
    hasher.digest().ok_or_else(incomplete)
}

fn incomplete() -> io::Error {
    io::Error::other("a piece is not hashed")
}

/// [`probe`] reads this many pieces of this length.
const PROBE_PIECES: u64 = 16;
const PROBE_PIECE_BYTES: u64 = 64 << 10;

/// The digest of a few pieces of an object of this length, from start to end: distinguishes most objects of one length
/// at little cost. Equality is no proof.
///
/// Errors: too short, unreadable.
pub(crate) fn probe(file: &File, bytes: u64) -> io::Result<[u8; 32]> {
    let mut hasher = blake3::Hasher::new();
    let mut piece = vec![0; PROBE_PIECE_BYTES.min(bytes) as usize];
    let last = bytes - piece.len() as u64;
    for number in 0..PROBE_PIECES {
        // Avoids the product `last * number`, which could overflow.
        let offset = last / (PROBE_PIECES - 1) * number
            + last % (PROBE_PIECES - 1) * number / (PROBE_PIECES - 1);
        file.read_exact_at(&mut piece, offset)?;
        hasher.update(&piece);
        if last == 0 {
            break;
        }
    }
    Ok(*hasher.finalize().as_bytes())
}

/// Hashes a file on a thread of its own while it is received, up to the first gap, and starts to write to disk what is
/// hashed.
///
/// It reads from the page cache and takes no leases, so it does not block writers. Where it lags behind it has further
/// threads for a while.
pub(crate) struct PrefixHasher {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Options of a [`PrefixHasher`].
#[derive(Clone, Default)]
pub(crate) struct HashOptions {
    /// Counts hashed bytes.
    pub(crate) worked: Arc<AtomicU64>,
    /// Zero pages become holes.
    pub(crate) makes_holes: bool,
    /// Bytes that were there before: they are hashed, but not written to disk.
    pub(crate) kept: Ranges,
}

impl HashOptions {
    /// After a part of a file was read, which begins at a multiple of [`crate::pieces::CHUNK_BYTES`].
    pub(crate) fn on_read(&self, file: &File, contents: &[u8], at: u64) {
        self.worked.fetch_add(contents.len() as u64, Ordering::Relaxed);
        if self.makes_holes {
            make_holes(file, at, contents);
        }
    }
}

/// The most that is hashed between looks at what has arrived.
const BACKLOG_BYTES: u64 = 64 << 20;

/// A file that is hashed as it arrives.
pub(crate) struct Growing<'a, R> {
    file: &'a File,
    hasher: PieceHasher<R>,
    bytes: u64,
    writeback: Writeback<'a>,
}

impl<'a, R> Growing<'a, R>
where
    R: Fn(&mut [u8], u64) -> io::Result<()> + Sync,
{
    /// For the file that is the part `holds` of an object, and that `read` reads.
    pub(crate) fn new(file: &'a File, holds: ByteRange, kept: &'a Ranges, read: R) -> Self {
        let bytes = holds.1 - holds.0;
        let hasher = PieceHasher::new(read, (0, bytes));
        Self { file, hasher, bytes, writeback: Writeback::new(kept, holds) }
    }

    /// Hashes some of the first `available` bytes if a piece of them is not hashed; true if it has.
    ///
    /// Errors: unreadable; stopped.
    pub(crate) fn advance(&mut self, available: u64, stop: &AtomicBool) -> io::Result<bool> {
        let before = self.hasher.hashed();
        self.hasher.advance(available.min(before + BACKLOG_BYTES), stop)?;
        let hashed = self.hasher.hashed();
        self.writeback.advance(self.file, hashed);
        Ok(hashed > before)
    }

    pub(crate) fn is_done(&self) -> bool {
        self.hasher.hashed() == self.bytes
    }

    /// Errors: it is not done.
    pub(crate) fn digest(self) -> io::Result<blake3::Hash> {
        self.hasher.digest().ok_or_else(incomplete)
    }
}

/// Sends a [`PrefixHasher`] the bytes (offset and length) that are in place.
pub(crate) type InPlace = Sender<(u64, u64)>;

impl PrefixHasher {
    /// Starts the thread for a file of this length, which calls `done` once: when all is hashed or reading fails, but
    /// not if this is dropped before. The thread also ends when the sender is dropped.
    ///
    /// Errors: no thread.
    pub(crate) fn start(
        file: File,
        bytes: u64,
        options: HashOptions,
        done: impl FnOnce(io::Result<blake3::Hash>) + Send + 'static,
    ) -> io::Result<(Self, InPlace)> {
        Self::run(move |in_place, stop| follow(&file, bytes, in_place, stop, &options), done)
    }

    /// The same for what `follow` reads and digests.
    pub(crate) fn run(
        follow: impl FnOnce(&Receiver<(u64, u64)>, &AtomicBool) -> io::Result<Option<blake3::Hash>>
        + Send
        + 'static,
        done: impl FnOnce(io::Result<blake3::Hash>) + Send + 'static,
    ) -> io::Result<(Self, InPlace)> {
        let (sender, in_place) = channel();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let body = move || {
            if let Some(outcome) = follow(&in_place, &stopped).transpose() {
                done(outcome);
            }
        };
        let thread = thread::Builder::new().name("rdmc-hash".into()).spawn(body)?;
        Ok((Self { stop, thread: Some(thread) }, sender))
    }
}

impl Drop for PrefixHasher {
    /// Ends the thread and its helpers: within one chunk each if the sender is dropped as well, and not before the disk has
    /// taken what is written to it at the moment.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // Not joined: it may wait for a sender that a callback still owns, and ends with that.
        drop(self.thread.take());
    }
}

/// `None` if it was stopped before the end.
fn follow(
    file: &File,
    bytes: u64,
    in_place: &Receiver<(u64, u64)>,
    stop: &AtomicBool,
    options: &HashOptions,
) -> io::Result<Option<blake3::Hash>> {
    let read = |into: &mut [u8], at| {
        file.read_exact_at(into, at)?;
        options.on_read(file, into, at);
        Ok(())
    };
    let mut here = Ranges::default();
    let mut growing = Growing::new(file, (0, bytes), &options.kept, read);
    while !growing.is_done() {
        let available = here.prefix().min(bytes);
        let has_advanced = match growing.advance(available, stop) {
            Err(_) if stop.load(Ordering::Relaxed) => return Ok(None),
            advanced => advanced?,
        };
        if !has_advanced && !take_arrived(&mut here, in_place) {
            return Ok(None);
        }
    }
    growing.digest().map(Some)
}

/// Waits for bytes, and adds all that have arrived; false if there will be no more.
pub(crate) fn take_arrived(here: &mut Ranges, in_place: &Receiver<(u64, u64)>) -> bool {
    let Ok(first) = in_place.recv() else { return false };
    let arrived = std::iter::once(first).chain(in_place.try_iter());
    here.extend(arrived.map(|(offset, length)| (offset, offset + length)));
    true
}

/// Makes holes of zero pages. `contents`: the file's bytes from `start`, which is a multiple of [`crate::pieces::CHUNK_BYTES`].
pub(crate) fn make_holes(file: &File, start: u64, contents: &[u8]) {
    let is_zero = |page: &[u8]| page.iter().all(|&byte| byte == 0);
    let pages: Vec<bool> = contents.chunks(PAGE_BYTES).map(is_zero).collect();
    let mut at = start;
    for run in pages.chunk_by(|one, other| one == other) {
        // The last page may extend beyond the end of the file, whose length stays.
        let length = (run.len() * PAGE_BYTES) as u64;
        if run[0] {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            // Fails on file systems without holes and on read-only files, which keep their space.
            let _ = fallocate(file, flags, at, length);
        }
        at += length;
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, time::Duration};

    use super::*;
    use crate::{
        disk::advice::{Advised, take},
        pieces::CHUNK_BYTES,
    };

    fn file_of(contents: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(contents).unwrap();
        file
    }

    #[test]
    fn blocks_in_any_order_give_the_digest_of_the_file() {
        for bytes in [0, 1, CHUNK_BYTES, CHUNK_BYTES * 3 + 5] {
            let contents: Vec<u8> = (0..bytes).map(|index| (index % 251) as u8).collect();
            let (sender, outcome) = channel();
            let worked = Arc::new(AtomicU64::new(0));
            let options = HashOptions {
                worked: Arc::clone(&worked),
                makes_holes: bytes % 2 == 0,
                ..HashOptions::default()
            };
            let done = move |digest| sender.send(digest).unwrap();
            let (_hasher, in_place) =
                PrefixHasher::start(file_of(&contents), bytes as u64, options, done).unwrap();
            let mut blocks: Vec<usize> = (0..bytes).step_by(100_000).collect();
            blocks.reverse();
            for offset in blocks {
                let length = (bytes - offset).min(100_000);
                in_place.send((offset as u64, length as u64)).unwrap();
            }
            let digest = outcome.recv_timeout(Duration::from_secs(30)).unwrap().unwrap();
            assert_eq!(digest, blake3::hash(&contents), "{bytes} bytes");
            assert_eq!(worked.load(Ordering::Relaxed), bytes as u64);
        }
    }

    /// A file of which a part is there before, and the rest arrives out of order.
    #[test]
    fn what_is_received_is_written_to_disk_once_it_is_hashed() {
        const MIB: usize = 1 << 20;
        let contents: Vec<u8> = (0..20 * MIB + 5).map(|at| (at % 253) as u8).collect();
        let file = file_of(&contents);
        let bytes = contents.len() as u64;
        let kept: Ranges = [(0, 3 * MIB as u64)].into_iter().collect();
        let options = HashOptions { kept, ..HashOptions::default() };
        let (sender, in_place) = channel();
        let follow = |in_place: &Receiver<_>| {
            take();
            follow(&file, bytes, in_place, &AtomicBool::new(false), &options).unwrap()
        };
        // The sender is dropped, so that it ends where bytes are missing.
        for arrived in [(0, 3), (3, 5), (9, 20)] {
            sender.send((arrived.0 * MIB as u64, (arrived.1 - arrived.0) * MIB as u64)).unwrap();
        }
        drop(sender);
        assert_eq!(follow(&in_place), None);
        assert_eq!(take(), [], "no whole step is hashed");

        let (sender, in_place) = channel();
        for offset in [17, 8, 0] {
            let end = (offset + 9) * MIB as u64;
            let offset = offset * MIB as u64;
            sender.send((offset, end.min(bytes) - offset)).unwrap();
        }
        drop(sender);
        assert_eq!(follow(&in_place), Some(blake3::hash(&contents)));
        let mib = MIB as u64;
        let written = [(3 * mib, 8 * mib), (8 * mib, 16 * mib), (16 * mib, bytes)];
        assert_eq!(take(), written.map(Advised::Writeback));
    }

    #[test]
    fn probes_cover_the_first_and_the_last_byte() {
        let piece = PROBE_PIECE_BYTES as usize;
        for bytes in [0, 1, piece, piece + 1, piece * 3, piece * 16 + 7, piece * 40 + 11] {
            let mut contents = vec![1; bytes];
            let of = |contents: &[u8]| probe(&file_of(contents), bytes as u64).unwrap();
            let before = of(&contents);
            assert_eq!(of(&contents), before);
            for at in [0, bytes.saturating_sub(1)].into_iter().filter(|_| bytes > 0) {
                contents[at] ^= 1;
                assert_ne!(of(&contents), before, "{bytes} bytes, {at}");
                contents[at] ^= 1;
            }
            contents.pop();
            assert_eq!(probe(&file_of(&contents), bytes as u64).is_err(), bytes > 0);
        }
    }

    #[test]
    fn dropping_the_sender_ends_it_without_a_digest() {
        let (sender, outcome) = channel();
        let done = move |digest| sender.send(digest).unwrap();
        let (_hasher, in_place) =
            PrefixHasher::start(file_of(b"abc"), 3, HashOptions::default(), done).unwrap();
        in_place.send((0, 2)).unwrap();
        drop(in_place);
        assert!(outcome.recv_timeout(Duration::from_secs(30)).is_err());
    }
}
