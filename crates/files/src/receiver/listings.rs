//! What a receiver holds of listings of trees, in all its sessions.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use plan::size;

use super::error::ReceiveError;

/// The memory of listings of trees, for all sessions of a receiver. Counts encoded bytes; decoded, and while it is compared with
/// what is there, a listing takes several times as much. Room is taken when a listing is offered, so that a host without room is
/// refused alone and the group that relays the listing does not fail at others.
#[derive(Debug)]
pub struct Listings {
    bytes_max: u64,
    held: Mutex<u64>,
}

impl Default for Listings {
    fn default() -> Self {
        Self::new(Self::BYTES_MAX)
    }
}

impl Listings {
    /// The default of how much is held: two of the longest listings.
    pub const BYTES_MAX: u64 = 512 << 20;

    /// For listings that have this many bytes together.
    pub fn new(bytes_max: u64) -> Self {
        Self { bytes_max, held: Mutex::default() }
    }

    /// Takes room for a listing, before any of it comes, until what is returned is dropped.
    ///
    /// Errors: there is no room.
    pub(super) fn hold(self: &Arc<Self>, bytes: u64) -> Result<Held, ReceiveError> {
        let mut held = self.lock();
        let all = held.saturating_add(bytes);
        if all <= self.bytes_max {
            *held = all;
            return Ok(Held { listings: Arc::clone(self), bytes });
        }
        let (own, most, others) =
            (size::show(bytes), size::show(self.bytes_max), size::show(*held));
        let wait = if *held > 0 && bytes <= self.bytes_max { "push again later, or " } else { "" };
        Err(ReceiveError::Refused(format!(
            "the list of files takes {own}, but this receiver holds at most {most} of lists, of which other pushes have \
             {others}; {wait}start it with a larger --max-lists"
        )))
    }

    fn lock(&self) -> MutexGuard<'_, u64> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Room for one listing.
#[derive(Debug)]
pub(super) struct Held {
    listings: Arc<Listings>,
    bytes: u64,
}

impl Drop for Held {
    fn drop(&mut self) {
        *self.listings.lock() -= self.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_sessions_share_the_room_and_give_it_back() {
        let listings = Arc::new(Listings::new(10 << 10));
        let refused = |bytes| listings.hold(bytes).unwrap_err().to_string();
        let first = listings.hold(6 << 10).unwrap();
        let why = refused(5 << 10);
        assert!(why.contains("at most 10 KiB of lists, of which other pushes have 6 KiB"), "{why}");
        assert!(why.contains("push again later, or start it with a larger --max-lists"), "{why}");
        let second = listings.hold(4 << 10).unwrap();
        drop(first);
        let third = listings.hold(6 << 10).unwrap();
        drop((second, third));
        // Never, and not by others.
        let why = refused(u64::MAX);
        assert!(!why.contains("later"), "{why}");
        assert!(listings.hold(10 << 10).is_ok());
    }
}
