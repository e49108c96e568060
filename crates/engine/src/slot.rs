//! A small message in its slot, for the thread that runs callbacks.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering, fence},
    },
};

use transport::{LeaseError, PeerMemory, Region};

/// What the engine and the thread that copies messages out of slots tell each other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    /// All messages below were copied, or reported as complete before.
    done: AtomicU64,
    /// Whether something besides the slot waits until messages are taken.
    is_awaited: AtomicBool,
}

impl Tally {
    /// Sets whether something besides the slots waits until messages are taken. The caller looks for
    /// replies after this, before it waits: then either it finds a reply, or the thread that gives it finds
    /// that it is awaited.
    pub(crate) fn set_awaited(&self, is_awaited: bool) {
        if self.0.is_awaited.swap(is_awaited, Ordering::Relaxed) != is_awaited {
            fence(Ordering::SeqCst);
        }
    }

    /// Returns the number below which the application is done with all messages, as far as it has copied
    /// the last of them itself.
    pub(crate) fn done(&self) -> u64 {
        self.0.done.load(Ordering::Relaxed)
    }
}

/// A small message that lies complete in its slot. It stays there until [`crate::Engine::taken`] or
/// [`crate::Engine::accept`] is called for it; any thread may copy it.
#[derive(Clone)]
pub struct Slot {
    ring: PeerMemory,
    start: usize,
    bytes: usize,
    number: u64,
    ends_batch: bool,
    tally: Tally,
}

impl Slot {
    /// Of the message `number`, whose first byte is at `start` of the ring. `ends_batch`: the root is notified
    /// of freed slots once this one is free, if not before.
    pub(crate) fn new(
        ring: &PeerMemory,
        start: usize,
        bytes: usize,
        number: u64,
        ends_batch: bool,
        tally: &Tally,
    ) -> Self {
        Self { ring: ring.clone(), start, bytes, number, ends_batch, tally: tally.clone() }
    }

    /// Copies the message into a region of its length or more.
    ///
    /// Errors: the region is too short, read-only or in use.
    pub fn copy_to(&self, region: &Region) -> Result<(), LeaseError> {
        let mut into = region.write(0..self.bytes)?;
        self.ring.copy_out(self.start, &mut into)
    }

    /// Notes that the application has the message, and is done with it; earlier messages must be complete.
    /// Returns whether [`crate::Engine::taken`] must be called at once; it may wait otherwise until the
    /// engine is called for another reason.
    ///
    /// On a thread that does not call the engine itself: to be called after the request to do so is where
    /// the thread that does looks before each wait.
    pub fn note_done(&self) -> bool {
        self.tally.0.done.store(self.number + 1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.ends_batch || self.tally.0.is_awaited.load(Ordering::Relaxed)
    }
}

impl fmt::Debug for Slot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slot").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
