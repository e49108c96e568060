//! Memory that peers may write at any time.

use std::{
    fmt,
    ops::Range,
    slice,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering},
    },
};

use crate::{ledger::LeaseError, zeros::unused_zeros};

/// Memory for one-sided writes of peers.
///
/// The network may write it at any time, so no references to its bytes are given: they are copied
/// out, and the copy is checked. Clones share the memory. Any thread may copy.
///
/// Invariant of its users: this process does not access the same bytes on two threads at once with
/// different widths, of which one writes. The copies use words of eight bytes where they are aligned and
/// bytes elsewhere, and Rust leaves races of atomics of different sizes undefined. [`PeerMemory::copy_in`]
/// is called on the thread that also makes the loads ([`PeerMemory::load_byte`]) of that memory, the one
/// that calls the transport; other threads copy out of a range only while no peer may
/// write it, as of a slot that is in use. What an adapter or another process writes is outside of that
/// model, as memory that a device writes is.
///
/// ```compile_fail
/// let memory = memory::PeerMemory::zeroed(8);
/// let bytes: &[u8] = &memory;
/// ```
#[derive(Clone)]
pub struct PeerMemory(Arc<Bytes>);

/// The bytes before the first aligned word, the aligned words, and the bytes after them.
type Cells<'a> = (&'a [AtomicU8], &'a [AtomicU64], &'a [AtomicU8]);

struct Bytes {
    start: *mut u8,
    bytes: usize,
}

// SAFETY: the bytes are accessed only by atomic copies and by the network; the owner only frees
// them.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl PeerMemory {
    /// Allocates memory, all zeros. Its pages take no memory before they are first written.
    pub fn zeroed(bytes: usize) -> Self {
        Self::from_vec(unused_zeros(bytes))
    }

    /// Takes ownership of a vector; [`PeerMemory::try_into_vec`] returns it.
    pub fn from_vec(vector: Vec<u8>) -> Self {
        let bytes = vector.len();
        let start = Box::into_raw(vector.into_boxed_slice()).cast::<u8>();
        Self(Arc::new(Bytes { start, bytes }))
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.bytes
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.0.bytes == 0
    }

    /// Returns a pointer to the first byte, for registration with a network; valid while a clone of
    /// this exists.
    pub fn start(&self) -> *mut u8 {
        self.0.start
    }

    /// Copies the bytes from `at` on to `into`. If a peer writes them at the same time, the copy
    /// may mix old and new bytes.
    ///
    /// Errors: out of range.
    pub fn copy_out(&self, at: usize, into: &mut [u8]) -> Result<(), LeaseError> {
        let (head, words, tail) = self.cells(at, into.len())?;
        let (begin, rest) = into.split_at_mut(head.len());
        let (middle, end) = rest.split_at_mut(words.len() * 8);
        for (byte, cell) in begin.iter_mut().zip(head).chain(end.iter_mut().zip(tail)) {
            *byte = cell.load(Ordering::Relaxed);
        }
        for (bytes, cell) in middle.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&cell.load(Ordering::Relaxed).to_ne_bytes());
        }
        Ok(())
    }

    /// Loads the byte at `at`. What the network has made visible before that byte, by the order that
    /// it keeps, is visible to loads after this one.
    ///
    /// An acquire load: neither the compiler nor the processor moves later loads before it. It
    /// pairs with no release store, since the writer is an adapter, or the kernel on behalf of
    /// another process; whether their stores have an order is for the transport to say
    /// (`transport::Visibility`).
    ///
    /// Errors: out of range.
    pub fn load_byte(&self, at: usize) -> Result<u8, LeaseError> {
        let (head, words, tail) = self.cells(at, 1)?;
        debug_assert!(words.is_empty(), "one byte is no word");
        let cell = head.first().or(tail.first());
        Ok(cell.map_or(0, |cell| cell.load(Ordering::Acquire)))
    }

    /// Loads the eight bytes at `at` by one load, as [`PeerMemory::load_byte`] loads one; the first
    /// byte is the least significant. `None` if their address is not a multiple of eight: they
    /// could become visible in parts.
    ///
    /// Errors: out of range.
    pub fn load_word(&self, at: usize) -> Result<Option<u64>, LeaseError> {
        let (_, words, _) = self.cells(at, 8)?;
        Ok(words.first().map(|cell| u64::from_le(cell.load(Ordering::Acquire))))
    }

    /// Copies `bytes` into the memory from `at` on, in ascending order.
    ///
    /// Errors: out of range.
    pub fn copy_in(&self, at: usize, bytes: &[u8]) -> Result<(), LeaseError> {
        let (head, words, tail) = self.cells(at, bytes.len())?;
        let (begin, rest) = bytes.split_at(head.len());
        let (middle, end) = rest.split_at(words.len() * 8);
        for (byte, cell) in begin.iter().zip(head) {
            cell.store(*byte, Ordering::Relaxed);
        }
        for (bytes, cell) in middle.chunks_exact(8).zip(words) {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            cell.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        for (byte, cell) in end.iter().zip(tail) {
            cell.store(*byte, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the vector, or `self` if a clone exists, as while a network uses the memory.
    pub fn try_into_vec(self) -> Result<Vec<u8>, Self> {
        let memory = Arc::try_unwrap(self.0).map_err(Self)?;
        let memory = std::mem::ManuallyDrop::new(memory);
        // SAFETY: made by `from_vec` of a boxed slice of this start and length; this is the only
        // owner, and it is not dropped.
        Ok(unsafe { Vec::from_raw_parts(memory.start, memory.bytes, memory.bytes) })
    }

    /// Returns the bytes of a range as atomics.
    fn cells(&self, at: usize, bytes: usize) -> Result<Cells<'_>, LeaseError> {
        let range = Range { start: at, end: at.saturating_add(bytes) };
        if range.end > self.len() {
            return Err(LeaseError::OutOfRange { range, bytes: self.len() });
        }
        // SAFETY: in range, initialised, and freed only with `self`. Atomics may be shared, and
        // this process accesses the bytes in no other way.
        let cells =
            unsafe { slice::from_raw_parts(self.0.start.add(at).cast::<AtomicU8>(), bytes) };
        // SAFETY: any eight bytes are a valid `u64`.
        Ok(unsafe { cells.align_to::<AtomicU64>() })
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        // SAFETY: made by `from_vec` of a boxed slice of this start and length; the last owner.
        drop(unsafe { Vec::from_raw_parts(self.start, self.bytes, self.bytes) });
    }
}

impl fmt::Debug for PeerMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PeerMemory").field("bytes", &self.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also where the allocator gives memory that was written before.
    #[test]
    fn memory_is_zero_when_it_is_allocated() {
        // Miri takes a second for some 10,000 bytes.
        let repeats = if cfg!(miri) { 2 } else { 20 };
        for bytes in
            [0, 1, 4_095, 70_000, 300_001].into_iter().filter(|&it| !cfg!(miri) || it < 10_000)
        {
            for _ in 0..repeats {
                let memory = PeerMemory::zeroed(bytes);
                let mut found = vec![9; bytes];
                memory.copy_out(0, &mut found).unwrap();
                assert!(found.iter().all(|&byte| byte == 0));
                memory.copy_in(0, &vec![7; bytes]).unwrap();
            }
        }
    }

    #[test]
    fn every_range_is_copied_exactly() {
        let memory = PeerMemory::from_vec((0..40).collect());
        for start in 0..=40 {
            for end in start..=40 {
                let mut copy = vec![0; end - start];
                memory.copy_out(start, &mut copy).unwrap();
                assert!(copy.iter().copied().eq(start as u8..end as u8), "{start}..{end}");
                let other = PeerMemory::zeroed(40);
                other.copy_in(start, &copy).unwrap();
                let all = other.try_into_vec().unwrap();
                assert_eq!(all[start..end], copy);
                assert!(all[..start].iter().chain(&all[end..]).all(|&byte| byte == 0));
            }
        }
        assert!(memory.copy_out(39, &mut [0; 2]).is_err());
        assert!(memory.copy_in(usize::MAX, &[0; 2]).is_err());
        let clone = memory.clone();
        assert!(clone.try_into_vec().is_err());
        assert_eq!(memory.try_into_vec().unwrap().len(), 40);
    }
    #[test]
    fn bytes_and_aligned_words_are_loaded() {
        let memory = PeerMemory::from_vec((0..40).collect());
        let skew = memory.start().align_offset(8);
        for at in 0..40 {
            assert_eq!(memory.load_byte(at), Ok(at as u8));
            let word = memory.load_word(at);
            if at > 32 {
                assert!(word.is_err(), "{at}");
            } else if at % 8 == skew {
                let expected = std::array::from_fn(|index| (at + index) as u8);
                assert_eq!(word, Ok(Some(u64::from_le_bytes(expected))));
            } else {
                assert_eq!(word, Ok(None), "{at}");
            }
        }
        assert!(memory.load_byte(40).is_err() && memory.load_byte(usize::MAX).is_err());
    }
}
