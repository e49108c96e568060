//! BLAKE3 of an object in pieces, which threads hash independently: each is a subtree of the digest's tree (section 2.1
//! of the BLAKE3 paper).

use std::{
    collections::BTreeMap,
    io,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use blake3::{
    Hash, Hasher,
    hazmat::{ChainingValue, HasherExt, Mode, merge_subtrees_non_root, merge_subtrees_root},
};

use crate::ranges::ByteRange;

/// Length of a piece; a power of two of BLAKE3's chunks.
pub(crate) const PIECE_BYTES: u64 = 1 << 20;
/// Length of reads: enough for BLAKE3's vector code, small enough for a cache; divides [`PIECE_BYTES`].
pub(crate) const CHUNK_BYTES: usize = 256 << 10;
/// One more thread for each of these pieces that can be hashed at once: many times the cost of starting it.
const PIECES_PER_THREAD: u64 = 4;
/// The most threads.
const THREADS_MAX: usize = 8;

/// Hashes what `read` fills buffers with, from a position on; several threads call it at the same time.
pub(crate) struct PieceHasher<R> {
    read: R,
    start: u64,
    bytes: u64,
    /// Pieces before this one are hashed.
    next: u64,
    subtrees: Mutex<Subtrees>,
    threads_max: usize,
    /// The calling thread's, kept from call to call.
    buffer: Vec<u8>,
}

impl<R> PieceHasher<R>
where
    R: Fn(&mut [u8], u64) -> io::Result<()> + Sync,
{
    /// For a range of what `read` reads. One core is left to the threads that send and receive.
    pub(crate) fn new(read: R, range: ByteRange) -> Self {
        let can_use_several = (range.1 - range.0) / PIECE_BYTES >= 2 * PIECES_PER_THREAD;
        let cores = || thread::available_parallelism().map_or(1, usize::from);
        let threads = if can_use_several { (cores() - 1).clamp(1, THREADS_MAX) } else { 1 };
        Self::with_threads(read, range, threads)
    }

    fn with_threads(read: R, (start, end): ByteRange, threads_max: usize) -> Self {
        let bytes = end - start;
        let subtrees = Mutex::new(Subtrees::new(bytes.div_ceil(PIECE_BYTES)));
        Self { read, start, bytes, next: 0, subtrees, threads_max, buffer: Vec::new() }
    }

    /// How many bytes from the start of the range are hashed.
    pub(crate) fn hashed(&self) -> u64 {
        self.bytes.min(self.next * PIECE_BYTES)
    }

    /// Hashes the pieces among the first `available` bytes of the range. Blocks while it reads them, or until `stop`; has
    /// no threads when it returns.
    ///
    /// Errors: those of `read`; [`io::ErrorKind::Interrupted`] if it was stopped. It cannot be continued then.
    pub(crate) fn advance(&mut self, available: u64, stop: &AtomicBool) -> io::Result<()> {
        let end = match available >= self.bytes {
            true => self.bytes.div_ceil(PIECE_BYTES),
            false => available / PIECE_BYTES,
        };
        let pieces = end.saturating_sub(self.next);
        let helpers = (pieces / PIECES_PER_THREAD).min(self.threads_max as u64).saturating_sub(1);
        let next = AtomicU64::new(self.next);
        let mut buffer = std::mem::take(&mut self.buffer);
        thread::scope(|scope| {
            let start = |_| {
                let named = thread::Builder::new().name("rdmc-hash".into());
                let help = || self.work(&mut Vec::new(), &next, end, stop);
                // Without a thread the others hash its pieces.
                named.spawn_scoped(scope, help).ok()
            };
            let helpers: Vec<_> = (0..helpers).map_while(start).collect();
            let own = self.work(&mut buffer, &next, end, stop);
            helpers.into_iter().fold(own, |outcome, helper| {
                let panicked = |_| Err(io::Error::other("a thread that hashes has panicked"));
                outcome.and(helper.join().unwrap_or_else(panicked))
            })
        })?;
        (self.next, self.buffer) = (self.next.max(end), buffer);
        Ok(())
    }

    /// Hashes pieces that no other thread has taken.
    fn work(
        &self,
        buffer: &mut Vec<u8>,
        next: &AtomicU64,
        end: u64,
        stop: &AtomicBool,
    ) -> io::Result<()> {
        loop {
            let piece = next.fetch_add(1, Ordering::Relaxed);
            if piece >= end {
                return Ok(());
            }
            match self.hash_piece(piece, buffer, stop) {
                Ok(hasher) => lock(&self.subtrees).add(piece, &hasher),
                Err(error) => {
                    // Ends the other threads.
                    next.store(end, Ordering::Relaxed);
                    return Err(error);
                }
            }
        }
    }

    fn hash_piece(
        &self,
        piece: u64,
        buffer: &mut Vec<u8>,
        stop: &AtomicBool,
    ) -> io::Result<Hasher> {
        let mut hasher = Hasher::new();
        let mut position = piece * PIECE_BYTES;
        hasher.set_input_offset(position);
        let end = self.bytes.min(position + PIECE_BYTES);
        while position < end {
            if stop.load(Ordering::Relaxed) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let length = CHUNK_BYTES.min((end - position) as usize);
            if buffer.len() < length {
                buffer.resize(length, 0);
            }
            let chunk = &mut buffer[..length];
            (self.read)(chunk, self.start + position)?;
            hasher.update(chunk);
            position += length as u64;
        }
        Ok(hasher)
    }

    /// The digest; `None` unless all pieces are hashed.
    pub(crate) fn digest(self) -> Option<Hash> {
        self.subtrees.into_inner().unwrap_or_else(PoisonError::into_inner).digest()
    }
}

fn lock(subtrees: &Mutex<Subtrees>) -> std::sync::MutexGuard<'_, Subtrees> {
    subtrees.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Chaining values of pieces in any order. Two siblings are merged at once, so that few are kept.
struct Subtrees {
    pieces: u64,
    /// By height and number at that height; without the last piece, which may be short and belongs to no complete
    /// subtree but the root's.
    complete: BTreeMap<(u32, u64), ChainingValue>,
    last: Option<ChainingValue>,
    /// The digest if there is one piece.
    only: Option<Hash>,
}

impl Subtrees {
    fn new(pieces: u64) -> Self {
        let only = (pieces == 0).then(|| blake3::hash(b""));
        Self { pieces, complete: BTreeMap::new(), last: None, only }
    }

    fn add(&mut self, piece: u64, hasher: &Hasher) {
        if self.pieces == 1 {
            self.only = Some(hasher.finalize());
            return;
        }
        let mut value = hasher.finalize_non_root();
        if piece == self.pieces - 1 {
            self.last = Some(value);
            return;
        }
        let (mut height, mut number) = (0, piece);
        while let Some(sibling) = self.complete.remove(&(height, number ^ 1)) {
            let (left, right) = if number % 2 == 0 { (value, sibling) } else { (sibling, value) };
            value = merge_subtrees_non_root(&left, &right, Mode::Hash);
            (height, number) = (height + 1, number / 2);
        }
        self.complete.insert((height, number), value);
    }

    fn digest(self) -> Option<Hash> {
        if self.only.is_some() {
            return self.only;
        }
        let mut right = self.last?;
        // One subtree for each bit of the number of pieces before the last; the lower, the further to the right.
        let before = self.pieces - 1;
        if self.complete.len() != before.count_ones() as usize {
            return None;
        }
        let mut lefts = self.complete.into_values().peekable();
        while let Some(left) = lefts.next() {
            if lefts.peek().is_none() {
                return Some(merge_subtrees_root(&left, &right, Mode::Hash));
            }
            right = merge_subtrees_non_root(&left, &right, Mode::Hash);
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Condvar, atomic::AtomicUsize};

    use proptest::prelude::*;

    use super::*;

    const PIECE: usize = PIECE_BYTES as usize;
    static GO_ON: AtomicBool = AtomicBool::new(false);

    fn contents(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at % 251) as u8 ^ (at / PIECE) as u8).collect()
    }

    fn reader(contents: &[u8]) -> impl Fn(&mut [u8], u64) -> io::Result<()> + Sync {
        |into, at| {
            into.copy_from_slice(&contents[at as usize..][..into.len()]);
            Ok(())
        }
    }

    #[test]
    fn every_number_of_pieces_and_threads_gives_the_digest_of_the_bytes() {
        let all = contents(PIECE * 17 + 1);
        for pieces in 0..=17 {
            for rest in [0, 1] {
                let bytes = &all[..pieces * PIECE + rest];
                for threads in [1, 3] {
                    let range = (0, bytes.len() as u64);
                    let mut hasher = PieceHasher::with_threads(reader(bytes), range, threads);
                    hasher.advance(range.1, &GO_ON).unwrap();
                    assert_eq!(hasher.hashed(), range.1);
                    let case = format!("{} bytes, {threads} threads", bytes.len());
                    assert_eq!(hasher.digest(), Some(blake3::hash(bytes)), "{case}");
                }
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 20, ..ProptestConfig::default() })]

        #[test]
        fn what_is_available_by_and_by_is_hashed_once(
            start in 0_usize..PIECE, steps in prop::collection::vec(0..PIECE * 5, 1..6),
        ) {
            let bytes = steps.iter().sum::<usize>();
            let all = contents(start + bytes);
            let read_bytes = AtomicUsize::new(0);
            let read = |into: &mut [u8], at| {
                read_bytes.fetch_add(into.len(), Ordering::Relaxed);
                reader(&all)(into, at)
            };
            let range = (start as u64, all.len() as u64);
            let mut hasher = PieceHasher::with_threads(read, range, 2);
            let mut available = 0;
            for step in steps {
                available += step as u64;
                hasher.advance(available, &GO_ON).unwrap();
                prop_assert!(hasher.hashed() <= available);
                prop_assert!(hasher.hashed() + PIECE_BYTES > available);
            }
            prop_assert_eq!(hasher.digest(), Some(blake3::hash(&all[start..])));
            prop_assert_eq!(read_bytes.into_inner(), bytes);
        }

        #[test]
        fn pieces_in_any_order_leave_few_values(order in Just((0..33_u64).collect::<Vec<_>>()).prop_shuffle()) {
            let values: Vec<Hasher> = (0..33_u64).map(|piece| {
                let mut hasher = Hasher::new();
                hasher.set_input_offset(piece * PIECE_BYTES).update(&vec![piece as u8; PIECE]);
                hasher
            }).collect();
            let whole: Vec<u8> = (0..33_u8).flat_map(|piece| vec![piece; PIECE]).collect();
            let mut subtrees = Subtrees::new(33);
            for piece in order {
                subtrees.add(piece, &values[piece as usize]);
            }
            prop_assert_eq!(subtrees.complete.len(), 1);
            prop_assert_eq!(subtrees.digest(), Some(blake3::hash(&whole)));
        }
    }

    #[test]
    fn a_digest_needs_all_pieces() {
        let all = contents(PIECE * 4);
        for available in [0, 1, 3 * PIECE as u64, 4 * PIECE as u64 - 1] {
            let mut hasher = PieceHasher::new(reader(&all), (0, all.len() as u64));
            hasher.advance(available, &GO_ON).unwrap();
            assert_eq!(hasher.hashed(), available / PIECE_BYTES * PIECE_BYTES);
            assert_eq!(hasher.digest(), None, "{available}");
        }
    }

    /// Reads wait for each other, so that it would not end with fewer threads.
    #[test]
    fn a_backlog_is_hashed_by_several_threads_and_a_short_one_by_the_caller() {
        let all = contents(PIECE * 12);
        let waiting = (Mutex::new(0), Condvar::new());
        let read = |into: &mut [u8], at| {
            let mut readers = waiting.0.lock().unwrap();
            *readers += 1;
            waiting.1.notify_all();
            while *readers < 3 {
                readers = waiting.1.wait(readers).unwrap();
            }
            drop(readers);
            reader(&all)(into, at)
        };
        let mut hasher = PieceHasher::with_threads(read, (0, all.len() as u64), 3);
        hasher.advance(all.len() as u64, &GO_ON).unwrap();
        assert_eq!(hasher.digest(), Some(blake3::hash(&all)));

        let caller = thread::current().id();
        let read = |into: &mut [u8], at| {
            assert_eq!(thread::current().id(), caller);
            reader(&all)(into, at)
        };
        let mut hasher = PieceHasher::with_threads(read, (0, all.len() as u64), 3);
        for available in (0..=all.len() as u64).step_by(7 * PIECE) {
            hasher.advance(available, &GO_ON).unwrap();
        }
    }

    #[test]
    fn an_error_and_a_stop_end_all_threads() {
        let all = contents(PIECE * 16);
        let reads = AtomicUsize::new(0);
        let read = |into: &mut [u8], at: u64| {
            reads.fetch_add(1, Ordering::Relaxed);
            match at / PIECE_BYTES {
                0 => Err(io::Error::other("broken")),
                _ => reader(&all)(into, at),
            }
        };
        let mut hasher = PieceHasher::with_threads(read, (0, all.len() as u64), 1);
        let error = hasher.advance(all.len() as u64, &GO_ON).unwrap_err();
        assert_eq!(error.to_string(), "broken");
        assert_eq!(reads.into_inner(), 1);

        for threads in [1, 4] {
            let stop = AtomicBool::new(false);
            let read = |into: &mut [u8], at: u64| {
                if at >= 3 * PIECE_BYTES {
                    stop.store(true, Ordering::Relaxed);
                }
                reader(&all)(into, at)
            };
            let range = (0, all.len() as u64);
            let mut hasher = PieceHasher::with_threads(read, range, threads);
            let error = hasher.advance(range.1, &stop).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::Interrupted);
            assert_eq!(hasher.digest(), None);
        }
    }
}
