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

use crate::ranges::{ByteRange, Ranges};

/// Length of reads: enough for BLAKE3's vector code, small enough for a cache.
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// The shortest hole; divides [`CHUNK_BYTES`].
const PAGE_BYTES: usize = 4 << 10;

/// The BLAKE3 digest of a file; reads it once.
///
/// Errors: the system's.
pub fn digest_of(path: &Path) -> io::Result<blake3::Hash> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(File::open(path)?)?;
    Ok(hasher.finalize())
}

/// The digest of a range of what `read` fills buffers with, from a position on.
///
/// Errors: too short, unreadable, or stopped.
pub(crate) fn digest_range(
    read: impl Fn(&mut [u8], u64) -> io::Result<()>,
    (start, end): ByteRange,
    stop: &AtomicBool,
) -> io::Result<blake3::Hash> {
    let mut reader = ChunkReader::new(read, start);
    while reader.position < end {
        if stop.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        reader.advance(end)?;
    }
    Ok(reader.hasher.finalize())
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

/// Hashes what `read` reads, sequentially from a position.
struct ChunkReader<R> {
    read: R,
    hasher: blake3::Hasher,
    buffer: Vec<u8>,
    position: u64,
}

impl<R> ChunkReader<R>
where
    R: Fn(&mut [u8], u64) -> io::Result<()>,
{
    fn new(read: R, position: u64) -> Self {
        Self { read, hasher: blake3::Hasher::new(), buffer: Vec::new(), position }
    }

    /// Hashes the next chunk, up to `end` at most.
    fn advance(&mut self, end: u64) -> io::Result<()> {
        let left = end - self.position;
        let length = usize::try_from(left).map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
        if self.buffer.len() < length {
            self.buffer.resize(length, 0);
        }
        let chunk = &mut self.buffer[..length];
        (self.read)(chunk, self.position)?;
        self.hasher.update(chunk);
        self.position += length as u64;
        Ok(())
    }
}

/// Hashes a file on a thread of its own while it is received, up to the first gap.
///
/// It reads from the page cache and takes no leases, so it does not block writers.
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
        Self::run(move |in_place, stop| follow(&file, bytes, in_place, (stop, &options)), done)
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
    /// Ends the thread: within one chunk if the sender is dropped as well.
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
    (stop, options): (&AtomicBool, &HashOptions),
) -> io::Result<Option<blake3::Hash>> {
    let mut here = Ranges::default();
    let mut reader = ChunkReader::new(|into: &mut [u8], at| file.read_exact_at(into, at), 0);
    while reader.position < bytes {
        let Ok((offset, length)) = in_place.recv() else { return Ok(None) };
        let arrived = std::iter::once((offset, length)).chain(in_place.try_iter());
        here.extend(arrived.map(|(offset, length)| (offset, offset + length)));
        let end = here.prefix().min(bytes);
        // Full chunks except at the end: hashing small pieces costs several times as much.
        while reader.position + CHUNK_BYTES as u64 <= end || (end == bytes && reader.position < end)
        {
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            let before = reader.position;
            reader.advance(end)?;
            let length = reader.position - before;
            options.worked.fetch_add(length, Ordering::Relaxed);
            if options.makes_holes {
                make_holes(file, before, &reader.buffer[..length as usize]);
            }
        }
    }
    Ok(Some(reader.hasher.finalize()))
}

/// Makes holes of zero pages. `contents`: the file's bytes from `start`, which is a multiple of [`CHUNK_BYTES`].
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
            let options = HashOptions { worked: Arc::clone(&worked), makes_holes: bytes % 2 == 0 };
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
