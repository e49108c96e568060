//! Memory that peers may write at any time.

use std::{
    fmt, io,
    ops::Range,
    os::fd::OwnedFd,
    slice,
    sync::{
        Arc,
        atomic::{AtomicU8, AtomicU64, Ordering, fence},
    },
};

use rustix::io::pwrite;

use crate::{
    ledger::LeaseError,
    pages::{FileAccess, Pages},
};

/// The granularity in which zeros are left out when contents are copied, so that they take no memory.
const PIECE_BYTES: usize = 4096;

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
/// model, as memory that a device writes is. [`PeerMemory::share`] and [`PeerMemory::unshare`] are called on that same
/// thread.
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
    kind: Kind,
    state: AtomicU8,
}

enum Kind {
    /// A boxed slice turned into a raw pointer.
    Heap,
    Own(Pages),
    /// Of another process.
    Peers(#[expect(dead_code, reason = "unmaps them")] Pages, FileAccess),
}

/// [`Bytes::state`]: private pages; pages of a file; or pages whose address a network has, so that they must not be replaced.
const PRIVATE: u8 = 0;
const SHARED: u8 = 1;
const PINNED: u8 = 2;

// SAFETY: the bytes are accessed only by atomic copies and by the network; the owner only frees
// them.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl PeerMemory {
    /// Allocates memory, all zeros. Its pages take no memory before they are first written.
    pub fn zeroed(bytes: usize) -> Self {
        // Miri maps nothing. A process with very many mappings gets memory that cannot be shared.
        let pages = (bytes > 0 && !cfg!(miri)).then(|| Pages::zeroed(bytes).ok()).flatten();
        match pages {
            Some(pages) => Self::new(pages.start(), bytes, Kind::Own(pages)),
            None => Self::from_vec(vec![0; bytes]),
        }
    }

    /// Takes ownership of a vector; [`PeerMemory::try_into_vec`] returns it. Such memory cannot be shared.
    pub fn from_vec(vector: Vec<u8>) -> Self {
        let bytes = vector.len();
        let start = Box::into_raw(vector.into_boxed_slice()).cast::<u8>();
        Self::new(start, bytes, Kind::Heap)
    }

    /// Maps the memory that another process has shared by [`PeerMemory::share`], or says to have: its bytes may be anything
    /// and change at any time.
    ///
    /// Errors: it is not such memory of this length, or does not allow the access.
    pub fn of_peer(file: &OwnedFd, bytes: usize, access: FileAccess) -> io::Result<Self> {
        let pages = Pages::of_file(file, bytes, access)?;
        Ok(Self::new(pages.start(), bytes, Kind::Peers(pages, access)))
    }

    fn new(start: *mut u8, bytes: usize, kind: Kind) -> Self {
        Self(Arc::new(Bytes { start, bytes, kind, state: AtomicU8::new(PRIVATE) }))
    }

    /// Lets processes that get the returned file map this memory ([`PeerMemory::of_peer`]), until [`PeerMemory::unshare`]. Contents
    /// and address stay. Copies what is not zero once.
    ///
    /// Errors: the memory is shared already, was pinned or was not made by [`PeerMemory::zeroed`]; the system has no file
    /// descriptors left.
    pub fn share(&self, access: FileAccess) -> io::Result<OwnedFd> {
        let Kind::Own(pages) = &self.0.kind else { return Err(io::ErrorKind::Unsupported.into()) };
        if self.change(PRIVATE, SHARED).is_err() {
            return Err(io::ErrorKind::ResourceBusy.into());
        }
        let fill = |file: &OwnedFd| {
            self.copy_pieces(|at, piece| match pwrite(file, piece, at as u64)? {
                written if written == piece.len() => Ok(()),
                _ => Err(io::ErrorKind::WriteZero.into()),
            })
        };
        pages
            .make_file(access, fill)
            .inspect_err(|_| self.0.state.store(PRIVATE, Ordering::Relaxed))
    }

    /// Ends what [`PeerMemory::share`] has begun: whatever is written to the file from now on does not appear here. Copies what
    /// is not zero once, unless the caller's is the only handle to this memory. Memory that is not shared stays as it is.
    ///
    /// Errors: the system has no memory; it is shared still.
    pub fn unshare(&self) -> io::Result<()> {
        let Kind::Own(pages) = &self.0.kind else { return Ok(()) };
        if self.0.state.load(Ordering::Relaxed) != SHARED || Arc::strong_count(&self.0) == 1 {
            return Ok(());
        }
        pages.leave_file(|new| {
            let _ = self.copy_pieces(|at, piece| {
                // SAFETY: the new pages are as many, nothing else refers to them, and they do not overlap the piece.
                unsafe {
                    new.start().add(at).copy_from_nonoverlapping(piece.as_ptr(), piece.len())
                };
                Ok(())
            });
        })?;
        self.0.state.store(PRIVATE, Ordering::Relaxed);
        Ok(())
    }

    /// Returns a pointer to the first byte, for registration with a network; valid while a clone of this exists, and
    /// always for the same pages. `None` if the memory is shared with another process.
    pub fn pin(&self) -> Option<*mut u8> {
        match self.change(PRIVATE, PINNED) {
            Ok(_) | Err(PINNED) => Some(self.0.start),
            Err(_) => None,
        }
    }

    fn change(&self, from: u8, to: u8) -> Result<u8, u8> {
        self.0.state.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed)
    }

    /// Passes copies of all pieces that are not zero, with their positions. Errors: the first one of `take`.
    fn copy_pieces(&self, mut take: impl FnMut(usize, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut piece = [0; PIECE_BYTES];
        for at in (0..self.len()).step_by(PIECE_BYTES) {
            let piece = &mut piece[..PIECE_BYTES.min(self.len() - at)];
            self.copy_out(at, piece).map_err(io::Error::other)?;
            if piece.iter().any(|&byte| byte != 0) {
                take(at, piece)?;
            }
        }
        Ok(())
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.0.bytes
    }

    /// Returns whether the length is zero.
    pub fn is_empty(&self) -> bool {
        self.0.bytes == 0
    }

    /// Returns the address of the first byte.
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
    /// An acquire load: neither the compiler nor the processor moves later loads before it. It pairs
    /// with the release stores of [`PeerMemory::publish`] in another process. Where the writer is an adapter,
    /// or the kernel on behalf of another process, it is for the transport to say whether their
    /// stores have an order (`transport::Visibility`).
    ///
    /// Errors: out of range.
    #[inline]
    pub fn load_byte(&self, at: usize) -> Result<u8, LeaseError> {
        let (head, words, tail) = self.cells(at, 1)?;
        debug_assert!(words.is_empty(), "one byte is no word");
        let cell = head.first().or(tail.first());
        let byte = cell.map_or(0, |cell| cell.load(Ordering::Relaxed));
        // Not an acquire load: of memory that may not be written, only relaxed ones are defined.
        fence(Ordering::Acquire);
        Ok(byte)
    }

    /// Loads the eight bytes at `at` by one load, as [`PeerMemory::load_byte`] loads one; the first
    /// byte is the least significant. `None` if their address is not a multiple of eight: they
    /// could become visible in parts.
    ///
    /// Errors: out of range.
    #[inline]
    pub fn load_word(&self, at: usize) -> Result<Option<u64>, LeaseError> {
        let (_, words, _) = self.cells(at, 8)?;
        let word = words.first().map(|cell| u64::from_le(cell.load(Ordering::Relaxed)));
        // As above.
        fence(Ordering::Acquire);
        Ok(word)
    }

    /// Copies `bytes` into the memory from `at` on.
    ///
    /// Errors: out of range, or the memory may only be read.
    pub fn copy_in(&self, at: usize, bytes: &[u8]) -> Result<(), LeaseError> {
        self.store(at, bytes, Ordering::Relaxed)
    }

    /// Copies `bytes` into the memory from `at` on so that they become visible in ascending order, after all that this thread
    /// has stored before, and eight of them at once where their address is a multiple of eight: to
    /// [`PeerMemory::load_byte`] and [`PeerMemory::load_word`] in any process that has the memory.
    ///
    /// Every store is a release store: on x86-64 as fast as others (16 MiB at 0.9 of the rate of `memcpy`), on aarch64 the
    /// instruction `stlr`.
    ///
    /// Errors: as for [`PeerMemory::copy_in`].
    #[inline]
    pub fn publish(&self, at: usize, bytes: &[u8]) -> Result<(), LeaseError> {
        self.store(at, bytes, Ordering::Release)
    }

    #[inline]
    fn store(&self, at: usize, bytes: &[u8], order: Ordering) -> Result<(), LeaseError> {
        if matches!(self.0.kind, Kind::Peers(_, FileAccess::Read)) {
            return Err(LeaseError::ReadOnly);
        }
        let (head, words, tail) = self.cells(at, bytes.len())?;
        let (begin, rest) = bytes.split_at(head.len());
        let (middle, end) = rest.split_at(words.len() * 8);
        for (byte, cell) in begin.iter().zip(head) {
            cell.store(*byte, order);
        }
        for (bytes, cell) in middle.chunks_exact(8).zip(words) {
            let mut word = [0; 8];
            word.copy_from_slice(bytes);
            cell.store(u64::from_ne_bytes(word), order);
        }
        for (byte, cell) in end.iter().zip(tail) {
            cell.store(*byte, order);
        }
        Ok(())
    }

    /// Returns the bytes as a vector, or `self` if a clone exists, as while a network uses the memory. The vector is that
    /// of [`PeerMemory::from_vec`], and a copy of other memory.
    pub fn try_into_vec(self) -> Result<Vec<u8>, Self> {
        if !matches!(self.0.kind, Kind::Heap) {
            if Arc::strong_count(&self.0) > 1 {
                return Err(self);
            }
            let mut copy = vec![0; self.len()];
            let copied = self.copy_out(0, &mut copy);
            return if copied.is_ok() { Ok(copy) } else { Err(self) };
        }
        let memory = Arc::try_unwrap(self.0).map_err(Self)?;
        let memory = std::mem::ManuallyDrop::new(memory);
        // SAFETY: made by `from_vec` of a boxed slice of this start and length; this is the only
        // owner, and it is not dropped; its other fields have nothing to drop.
        Ok(unsafe { Vec::from_raw_parts(memory.start, memory.bytes, memory.bytes) })
    }

    /// Returns the bytes of a range as atomics.
    #[inline]
    fn cells(&self, at: usize, bytes: usize) -> Result<Cells<'_>, LeaseError> {
        let range = Range { start: at, end: at.saturating_add(bytes) };
        if range.end > self.len() {
            return Err(LeaseError::OutOfRange { range, bytes: self.len() });
        }
        // SAFETY: in range, initialised, and freed only with `self`; pages that take the place of
        // others are initialised, too. Atomics may be shared, and this process accesses the bytes in no
        // other way. Those of pages that may not be written are only loaded, relaxed (`store`).
        let cells =
            unsafe { slice::from_raw_parts(self.0.start.add(at).cast::<AtomicU8>(), bytes) };
        // SAFETY: any eight bytes are a valid `u64`.
        Ok(unsafe { cells.align_to::<AtomicU64>() })
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        if !matches!(self.kind, Kind::Heap) {
            return;
        }
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

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no files in memory")]
    fn shared_memory_is_written_by_others_until_it_is_unshared() {
        const BYTES: usize = 10_001;
        let memory = PeerMemory::zeroed(BYTES);
        memory.copy_in(4_090, &[5; 10]).unwrap();
        let file = memory.share(FileAccess::Write).unwrap();
        assert!(memory.share(FileAccess::Write).is_err() && memory.pin().is_none());
        let others = PeerMemory::of_peer(&file, BYTES, FileAccess::Write).unwrap();
        let bytes_of = |memory: &PeerMemory| {
            let mut bytes = vec![0; BYTES];
            memory.copy_out(0, &mut bytes).unwrap();
            bytes
        };
        assert_eq!(bytes_of(&others), bytes_of(&memory));
        others.publish(9_999, &[1, 2]).unwrap();
        memory.copy_in(1, &[9]).unwrap();
        assert_eq!(bytes_of(&others), bytes_of(&memory));
        let clone = memory.clone();
        memory.unshare().unwrap();
        others.copy_in(0, &[8; BYTES]).unwrap();
        let mut expected = vec![0; BYTES];
        expected[4_090..4_100].fill(5);
        (expected[1], expected[9_999], expected[10_000]) = (9, 1, 2);
        assert_eq!(bytes_of(&clone), expected);
        assert!(memory.share(FileAccess::Read).is_ok(), "with others");
        drop(clone);
        assert_eq!(memory.try_into_vec().unwrap(), expected);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no files in memory")]
    fn memory_for_reading_is_not_written() {
        let memory = PeerMemory::zeroed(64);
        let file = memory.share(FileAccess::Read).unwrap();
        assert!(PeerMemory::of_peer(&file, 64, FileAccess::Write).is_err());
        let others = PeerMemory::of_peer(&file, 64, FileAccess::Read).unwrap();
        memory.publish(8, &7_u64.to_le_bytes()).unwrap();
        assert_eq!(others.load_word(8), Ok(Some(7)));
        assert_eq!(others.publish(8, &[1]), Err(LeaseError::ReadOnly));
        assert!(PeerMemory::from_vec(vec![0; 64]).share(FileAccess::Read).is_err());
        let pinned = PeerMemory::zeroed(64);
        assert!(pinned.pin() == pinned.pin() && pinned.pin() == Some(pinned.start()));
        assert!(pinned.share(FileAccess::Read).is_err());
    }

    /// Whose length may change, whose pages may be missing, and those of another length.
    #[test]
    #[cfg_attr(miri, ignore = "Miri has no files in memory")]
    fn files_that_could_kill_who_maps_them_are_refused() {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        let refused = |file: &OwnedFd, bytes| {
            PeerMemory::of_peer(file, bytes, FileAccess::Read).unwrap_err().to_string()
        };
        let file = memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, 8192).unwrap();
        assert!(refused(&file, 8192).contains("its length may change"));
        fcntl_add_seals(&file, SealFlags::GROW).unwrap();
        assert!(refused(&file, 8192).contains("its length may change"));
        fcntl_add_seals(&file, SealFlags::SHRINK).unwrap();
        for bytes in [0, 8191, 8193, usize::MAX] {
            assert!(refused(&file, bytes).contains("the one that was said"), "{bytes}");
        }
        PeerMemory::of_peer(&file, 8192, FileAccess::Read).unwrap();
        let null = OwnedFd::from(std::fs::File::open("/dev/null").unwrap());
        assert!(!refused(&null, 4096).is_empty());
        if let Ok(huge) = memfd_create("x", MemfdFlags::ALLOW_SEALING | MemfdFlags::HUGETLB) {
            ftruncate(&huge, 2 << 20).unwrap();
            fcntl_add_seals(&huge, SealFlags::SHRINK | SealFlags::GROW).unwrap();
            assert!(refused(&huge, 2 << 20).contains("not a memory file"));
        }
    }
}
