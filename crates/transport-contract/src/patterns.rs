//! Patterns that memory is filled with, and checks of them.

use std::ops::Range;

use transport::{PeerMemory, Region};

/// The byte that memory is filled with before anything is received into it.
pub(crate) const POISON: u8 = 0xA7;

/// Bytes that differ between blocks, and between positions in blocks.
pub(crate) fn pattern(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..bytes)
        .map(|_| {
            // One step of a linear congruential generator, whose high bits are random enough.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 56) as u8
        })
        .collect()
}

/// Returns memory with the pattern of `seed`.
pub(crate) fn patterned(seed: u64, bytes: usize) -> Region {
    Region::from_vec(pattern(seed, bytes))
}

/// Returns memory filled with poison.
pub(crate) fn poisoned(bytes: usize) -> Region {
    Region::from_vec(vec![POISON; bytes])
}

/// As [`poisoned`]; of a kind that processes can share.
pub(crate) fn poisoned_for_peers(bytes: usize) -> PeerMemory {
    let memory = PeerMemory::zeroed(bytes);
    memory.copy_in(0, &vec![POISON; bytes]).expect("it is all of it");
    memory
}

/// Memory that the suite checks after a transfer.
pub(crate) trait Contents {
    fn contents(&self, range: Range<usize>) -> Vec<u8>;
}

impl Contents for Region {
    fn contents(&self, range: Range<usize>) -> Vec<u8> {
        self.read(range).expect("there is no writer").to_vec()
    }
}

impl Contents for PeerMemory {
    fn contents(&self, range: Range<usize>) -> Vec<u8> {
        let mut copy = vec![0; range.len()];
        self.copy_out(range.start, &mut copy).expect("it is in range");
        copy
    }
}

/// Checks that the range holds the pattern of `seed`.
#[track_caller]
pub(crate) fn assert_pattern(memory: &impl Contents, range: Range<usize>, seed: u64) {
    let is_it = memory.contents(range.clone()) == pattern(seed, range.len());
    assert!(is_it, "bytes {range:?} are not those of block {seed}");
}

/// Checks that nothing was written to the range.
#[track_caller]
pub(crate) fn assert_poison(memory: &impl Contents, range: Range<usize>) {
    let wrong = memory.contents(range.clone()).iter().position(|&byte| byte != POISON);
    assert!(wrong.is_none(), "byte {wrong:?} of {range:?} was written");
}
