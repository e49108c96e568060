//! How an end says that it sleeps, and how the other one knows that it has to wake it.
//!
//! An end that is about to sleep says so in its segment and then looks for news once more. The other end publishes news and
//! then looks whether its peer sleeps. There is a fence between the two at both ends, so at least one of them sees what the other
//! one has stored.

use crate::ring::{SLEEP_AT, Shared};

/// In the word of an end: it is asleep, and it needs space in its ring. The other bits count its sleeps.
const ASLEEP: u64 = 1;
const NEEDS_SPACE: u64 = 2;

/// The sleeps of an end, and those of its peer that it has ended.
#[derive(Default, Debug)]
pub(crate) struct Sleep {
    count: u64,
    /// The peer's sleep out of which it was last woken.
    woken: u64,
}

impl Sleep {
    /// Says in this end's segment that it is about to sleep. It has to look for news before it does.
    pub(crate) fn doze<S: Shared>(&mut self, own: &S, needs_space: bool) {
        self.count += 1;
        let space = if needs_space { NEEDS_SPACE } else { 0 };
        own.publish(SLEEP_AT, self.count << 2 | ASLEEP | space);
        S::fence();
    }

    /// Says that this end is awake.
    pub(crate) fn wake<S: Shared>(&self, own: &S) {
        own.publish(SLEEP_AT, self.count << 2);
    }

    /// Returns whether the peer has to be woken for news that was published: records, or else space. True once for each of
    /// its sleeps; whatever a hostile peer says.
    pub(crate) fn has_to_wake<S: Shared>(&mut self, peer: &S, are_records: bool) -> bool {
        S::fence();
        let word = peer.load(SLEEP_AT);
        let concerns = are_records || word & NEEDS_SPACE != 0;
        let has_to = word & ASLEEP != 0 && concerns && word >> 2 != self.woken;
        if has_to {
            self.woken = word >> 2;
        }
        has_to
    }
}

#[cfg(test)]
mod tests {
    use transport::PeerMemory;

    use super::*;
    use crate::ring::segment_bytes;

    #[test]
    fn each_sleep_is_ended_once_by_what_concerns_it() {
        let segment = PeerMemory::zeroed(segment_bytes(4096));
        let (mut sleeper, mut other) = (Sleep::default(), Sleep::default());
        assert!(!other.has_to_wake(&segment, true));
        sleeper.doze(&segment, false);
        assert!(!other.has_to_wake(&segment, false), "space does not concern it");
        assert!(other.has_to_wake(&segment, true) && !other.has_to_wake(&segment, true));
        sleeper.wake(&segment);
        assert!(!other.has_to_wake(&segment, true));
        sleeper.doze(&segment, true);
        assert!(other.has_to_wake(&segment, false) && !other.has_to_wake(&segment, true));
    }
}
