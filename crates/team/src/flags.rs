//! The values of flags in slots, and contents with a flag in every word.
//!
//! The i-th write to a ring goes to slot `i % slots`, and none is left out. So the last byte of a slot,
//! in which the flag of its last use is, differs from the next one if consecutive uses have
//! different flags: the reader resets nothing. Words further in front are not part of every use, and
//! may hold contents of former ones that look like any flag; they are reset to zero before a slot is free
//! ([`crate::slots::Slots::reset`]).
//!
//! A word is eight bytes at a multiple of eight: four of contents, then the number of the write. The
//! highest bit of that number is set, so that the last byte of a slot tells both kinds apart.

/// The flags of one ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Flags {
    slots: u64,
    planted: Option<PlantedBug>,
}

/// Bugs that tests plant, to show that they would be seen.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedBug {
    /// All uses of a slot have the same flag.
    SameFlag,
    /// Words of a slot are not reset.
    NoReset,
}

/// Bytes of contents in a word, before its flag.
const VALUE_BYTES: usize = 4;
/// Length of a word.
pub(crate) const WORD_BYTES: usize = 8;
/// In the last byte of a word, and of no flag of a single byte.
const WORD_BIT: u32 = 1 << 31;
/// Flags of a single byte.
const BYTE_FLAGS: u64 = 127;

impl Flags {
    pub(crate) fn new(slots: u32, planted: Option<PlantedBug>) -> Self {
        Self { slots: u64::from(slots), planted }
    }

    pub(crate) fn resets(self) -> bool {
        self.planted != Some(PlantedBug::NoReset)
    }

    /// Returns the number of the write whose flags this one has.
    fn flagged(self, number: u64) -> u64 {
        if self.planted == Some(PlantedBug::SameFlag) { 0 } else { number }
    }

    /// Returns the last byte of a slot for the write of this number: 1 to 127.
    pub(crate) fn byte(self, number: u64) -> u8 {
        1 + (self.flagged(number) / self.slots % BYTE_FLAGS) as u8
    }

    /// Returns the flag in each word of the write of this number.
    fn word(self, number: u64) -> u32 {
        WORD_BIT | self.flagged(number) as u32
    }

    /// Returns the end of the slot of the write of this number, in bytes from the start of the ring.
    pub(crate) fn end(self, number: u64, slot_bytes: usize) -> u64 {
        (number % self.slots + 1) * slot_bytes as u64
    }

    /// Writes bytes as words to `into`, which has [`words_bytes`] of them; zeros in front fill the
    /// first one.
    pub(crate) fn put_words(self, number: u64, contents: &[u8], header: &[u8], into: &mut [u8]) {
        let flag = self.word(number).to_le_bytes();
        let gap = into.len() / 2 - contents.len() - header.len();
        let mut values = std::iter::repeat_n(&0, gap).chain(contents).chain(header).copied();
        for word in into.chunks_exact_mut(WORD_BYTES) {
            word[..VALUE_BYTES].fill_with(|| values.next().unwrap_or(0));
            word[VALUE_BYTES..].copy_from_slice(&flag);
        }
    }

    /// Returns the contents of a word of the write of this number; `None` if it is of another one.
    pub(crate) fn value(self, number: u64, word: u64) -> Option<[u8; VALUE_BYTES]> {
        ((word >> 32) as u32 == self.word(number)).then(|| (word as u32).to_le_bytes())
    }
}

/// Returns the length in bytes of the words for this many bytes.
pub(crate) const fn words_bytes(bytes: usize) -> usize {
    bytes.div_ceil(VALUE_BYTES) * WORD_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_uses_of_a_slot_have_different_flags() {
        for slots in [1, 2, 3, 16, 4096] {
            let flags = Flags::new(slots, None);
            for number in (0..1000).chain((1 << 32) - 500..(1 << 32) + 500) {
                let (now, next) = (flags.byte(number), flags.byte(number + u64::from(slots)));
                assert!(now != next && (1..=127).contains(&now), "{number}: {now}");
                let (now, next) = (flags.word(number), flags.word(number + u64::from(slots)));
                assert!(now != next && now & next & WORD_BIT != 0);
            }
        }
    }

    #[test]
    fn words_hold_what_was_put() {
        let flags = Flags::new(4, None);
        for length in 0..20_u8 {
            let contents: Vec<u8> = (1..=length).collect();
            let mut words = vec![0; words_bytes(contents.len() + 2)];
            flags.put_words(70, &contents, &[100, 101], &mut words);
            let words = words.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            let words: Vec<u64> = words.collect();
            assert!(words.iter().all(|&word| flags.value(71, word).is_none()));
            let values = words.iter().flat_map(|&word| flags.value(70, word).unwrap());
            let values: Vec<u8> = values.skip_while(|&value| value == 0).collect();
            assert_eq!(values, [&contents[..], &[100, 101]].concat());
        }
    }
}
