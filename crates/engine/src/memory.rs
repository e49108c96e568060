//! The memory of messages that are not complete.

use std::{collections::BTreeMap, ops::Range};

use transport::{LeaseError, Region, Reservation};

/// Returns a range of a region. Lengths were checked against regions, which are no longer than
/// memory.
pub(crate) fn range(offset: u64, bytes: u64) -> Range<usize> {
    offset as usize..(offset + bytes) as usize
}

/// The memory of messages that are not complete, by number. What is to be sent, or was received and may
/// still have to be passed on, cannot be written by the application: its members would get different
/// messages.
#[derive(Default)]
pub(crate) struct Memory(BTreeMap<u64, Held>);

struct Held {
    region: Region,
    reservation: Option<Reservation>,
}

impl Memory {
    pub(crate) fn insert(&mut self, message: u64, region: Region) {
        self.0.insert(message, Held { region, reservation: None });
    }

    /// Reserves a range of a message until it is complete. Errors: out of range.
    pub(crate) fn reserve(&mut self, message: u64, range: Range<usize>) -> Result<(), LeaseError> {
        let Some(Held { region, reservation }) = self.0.get_mut(&message) else { return Ok(()) };
        reservation.get_or_insert_with(|| region.reserve()).add(range)
    }

    pub(crate) fn get(&self, message: u64) -> Option<&Region> {
        self.0.get(&message).map(|held| &held.region)
    }

    /// Takes the memory of a message, which may be written from now on.
    pub(crate) fn take(&mut self, message: u64) -> Option<Region> {
        self.0.remove(&message).map(|held| held.region)
    }

    /// Takes the memory of all messages.
    pub(crate) fn take_all(&mut self) -> Vec<(u64, Region)> {
        let all = std::mem::take(&mut self.0).into_iter();
        all.map(|(message, held)| (message, held.region)).collect()
    }
}
