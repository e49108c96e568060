//! Slots on their way to others: registered memory in which contents and header stand side by side.

use collective::{HEADER_BYTES, Header};
use transport::{ReadLease, Region};

use crate::flags::{Flags, words_bytes};

/// Memory for slots that are being written to others.
pub(crate) struct Staging {
    region: Region,
    slot_bytes: usize,
    free: Vec<u32>,
}

impl Staging {
    pub(crate) fn new(slots: u32, slot_bytes: u32) -> Self {
        let region = Region::zeroed(slots as usize * slot_bytes as usize);
        Self { region, slot_bytes: slot_bytes as usize, free: (0..slots).rev().collect() }
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Stages contents with their header; as words for the write of a number, where that is given. Returns the number of the
    /// staged slot, and what is to be written.
    ///
    /// # Panics
    /// There is no room.
    pub(crate) fn stage(
        &mut self,
        contents: &[u8],
        header: &Header,
        as_words: Option<(Flags, u64)>,
    ) -> (u32, ReadLease) {
        let number = self.free.pop().expect("the caller has checked that there is room");
        let end = (number as usize + 1) * self.slot_bytes;
        let bytes = HEADER_BYTES + contents.len();
        let start = end - as_words.map_or(bytes, |_| words_bytes(bytes));
        let mut lease = self.region.write(start..end).expect("nobody else uses a free slot");
        if let Some((flags, write)) = as_words {
            flags.put_words(write, contents, &header.encode(), &mut lease);
        } else {
            lease[..contents.len()].copy_from_slice(contents);
            lease[contents.len()..].copy_from_slice(&header.encode());
        }
        drop(lease);
        (number, self.region.read(start..end).expect("nobody writes a staged slot"))
    }

    /// Takes back a staged slot that the transport does not use any more.
    pub(crate) fn free(&mut self, number: u32) {
        self.free.push(number);
    }
}
