//! The fields of control words.

/// Reads the fields of a control word, one after another. Integers are in little-endian order. `None`: the
/// word is too short.
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Begins at the first byte of a word.
    pub fn of(word: &'a [u8]) -> Self {
        Self(word)
    }

    /// Reads bytes.
    pub fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (first, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*first)
    }

    /// Reads one byte.
    pub fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    /// Reads an integer of four bytes.
    pub fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    /// Reads an integer of eight bytes.
    pub fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads all that is left as text. `None`: it is not UTF-8.
    pub fn text(&mut self) -> Option<&'a str> {
        std::str::from_utf8(std::mem::take(&mut self.0)).ok()
    }

    /// Returns whether all bytes were read.
    pub fn are_read(&self) -> bool {
        self.0.is_empty()
    }
}
