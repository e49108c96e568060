//! What the provider has: posts by their numbers, and whether they are answered.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use transport::{EndpointId, ReadLease, Token, WriteLease};

use crate::native::registration::Pinned;

/// No network that this is for is slower, so that a block that takes its time is no loss.
const SLOW_BYTES_PER_S: u64 = 10 << 20;

/// Something that the provider has. Holds what the network touches until it is done.
pub enum Op {
    Send(ReadLease, Token, #[allow(dead_code, reason = "keeps it")] Option<Arc<Pinned>>),
    Receive(WriteLease, Token, Option<Arc<Pinned>>),
    Write(ReadLease, Token, #[allow(dead_code, reason = "keeps it")] Option<Arc<Pinned>>),
    /// A control word on its way out; its staging slot is ours again once the peer has read it.
    Word,
    /// Where a control word may come in: nothing but a place in the receive queue, or a slot.
    Place,
}

/// The posts of one link that are open.
pub struct Ops {
    link: EndpointId,
    open: HashMap<u32, Op>,
    next: u32,
    /// Posts that have completed.
    answered: u64,
    /// Since when that number has been what it is though something is posted, as far as checked.
    unanswered: Option<(u64, Instant)>,
}

impl Ops {
    pub fn new(link: EndpointId) -> Self {
        Self { link, open: HashMap::new(), next: 0, answered: 0, unanswered: None }
    }

    /// Keeps what is about to be posted; returns the context to post it with.
    pub fn add(&mut self, op: Op) -> u64 {
        // Round and round; with few open at a time the next is free.
        while self.open.contains_key(&self.next) {
            self.next = self.next.wrapping_add(1);
        }
        let number = self.next;
        self.next = number.wrapping_add(1);
        self.open.insert(number, op);
        self.link.0 << 32 | u64::from(number)
    }

    /// What was posted with this context, and is done or was refused.
    pub fn take(&mut self, context: u64) -> Option<Op> {
        self.open.remove(&(context as u32))
    }

    /// Something has completed without an error.
    pub fn note_answer(&mut self) {
        self.answered += 1;
    }

    /// Whether nothing that this end has sent completes for so long, and for what the longest block
    /// takes over a slow network. To be asked now and then.
    pub fn misses_answers(&mut self, now: Instant, timeout: Duration) -> bool {
        let open = self.open.values().filter_map(|op| match op {
            Op::Send(lease, ..) | Op::Write(lease, ..) => Some(lease.bytes() as u64),
            Op::Word => Some(0),
            Op::Receive(..) | Op::Place => None,
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

    /// Drops all leases, once nothing accesses memory any more; returns whose posts they were.
    pub fn clear(&mut self) -> Vec<Token> {
        let tokens = std::mem::take(&mut self.open).into_values().filter_map(|op| match op {
            Op::Send(_, token, _) | Op::Receive(_, token, _) | Op::Write(_, token, _) => {
                Some(token)
            }
            Op::Word | Op::Place => None,
        });
        tokens.collect()
    }
}
