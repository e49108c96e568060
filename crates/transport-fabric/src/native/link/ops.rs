//! Posts that the provider has, by their numbers, and whether they complete.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use transport::{EndpointId, ReadLease, Token};

use crate::native::pinned::Pinned;

/// A lower bound on the rate of supported networks, so that long blocks do not count as lost.
const SLOW_BYTES_PER_S: u64 = 10 << 20;

/// A post that the provider has. The queues of sends and receives keep the memory of blocks until all
/// messages of a block are done; a write holds its own. The lease comes last: it is dropped after the
/// registration of its memory.
pub enum Op {
    /// A message of this many bytes of the block of this index.
    Send {
        block: u64,
        bytes: usize,
    },
    /// The message of this index for the receive of this index.
    Receive {
        block: u64,
        segment: usize,
    },
    Write(Option<Arc<Pinned>>, Token, ReadLease),
    /// A control word being sent; its staging slot may be reused once the peer has read it.
    Word,
    /// A receive for a control word: an entry of the receive queue, or a slot.
    Place,
}

/// The open posts of one link.
pub struct Ops {
    link: EndpointId,
    open: HashMap<u32, Op>,
    next: u32,
    /// Posts that have completed.
    answered: u64,
    /// The value of `answered` at an earlier check with open posts, and the time of that check.
    unanswered: Option<(u64, Instant)>,
}

impl Ops {
    pub fn new(link: EndpointId) -> Self {
        Self { link, open: HashMap::new(), next: 1, answered: 0, unanswered: None }
    }

    /// Stores a post that is about to be made; returns the context to post it with.
    pub fn add(&mut self, op: Op) -> u64 {
        // Numbers wrap around; few are open at a time, so the next is nearly always free. Zero stays free:
        // an error of an injected post may be reported with a context of zero.
        while self.next == 0 || self.open.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.open.insert(number, op);
        self.link.0 << 32 | u64::from(number)
    }

    /// Removes the post with this context, which has completed or was refused.
    pub fn take(&mut self, context: u64) -> Option<Op> {
        self.open.remove(&(context as u32))
    }

    /// Returns how many words have no completion yet.
    #[cfg(test)]
    pub fn words(&self) -> usize {
        self.open.values().filter(|op| matches!(op, Op::Word)).count()
    }

    /// Records a completion without an error.
    pub fn note_answer(&mut self) {
        self.answered += 1;
    }

    /// Returns whether no post has completed for `timeout` plus the time that the longest message
    /// takes over a slow network. To be called periodically.
    pub fn misses_answers(&mut self, now: Instant, timeout: Duration) -> bool {
        let open = self.open.values().filter_map(|op| match op {
            Op::Send { bytes, .. } => Some(*bytes as u64),
            Op::Write(.., lease) => Some(lease.bytes() as u64),
            Op::Word => Some(0),
            Op::Receive { .. } | Op::Place => None,
        });
        let since = match (open.max(), self.unanswered) {
            (None, _) => {
                self.unanswered = None;
                return false;
            }
            (Some(bytes), Some((answered, since))) if answered == self.answered => {
                since + Duration::from_secs(bytes / SLOW_BYTES_PER_S)
            }
            _ => {
                self.unanswered = Some((self.answered, now));
                return false;
            }
        };
        now.saturating_duration_since(since) >= timeout
    }

    /// Drops the leases of writes, once nothing accesses memory any more; returns their tokens.
    pub fn clear(&mut self) -> Vec<Token> {
        let tokens = std::mem::take(&mut self.open).into_values().filter_map(|op| match op {
            Op::Write(_, token, _) => Some(token),
            Op::Send { .. } | Op::Receive { .. } | Op::Word | Op::Place => None,
        });
        tokens.collect()
    }
}
