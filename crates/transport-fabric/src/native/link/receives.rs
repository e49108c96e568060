//! Receives: those queued, those posted, and those announced to the peer.

use std::collections::VecDeque;

use transport::{Token, WriteLease};

use crate::native::{
    link::{
        ops::Op,
        paths::device_of,
        posting::{DATA_TAG, Posting, Trouble},
    },
    pinned,
    ring::{LENGTHS_MAX, Note, Receives},
    sys,
};

/// The most receives of one rail that the provider has at a time.
const RECEIVES_POSTED_MAX: usize = 64;

/// The receives of one link.
#[derive(Default)]
pub struct ReceiveQueue {
    waiting: VecDeque<(WriteLease, Token)>,
    /// How many the provider has.
    open: usize,
    /// How many were posted in all.
    posted: u64,
    /// Lengths of the last receives that were posted or are queued, from this index on.
    lengths: VecDeque<u32>,
    lengths_first: u64,
    /// The peer was told of those before this index.
    told: u64,
    /// The peer waits for the announcement of the receive of this index.
    peer_wants: Option<u64>,
}

impl ReceiveQueue {
    pub fn push(&mut self, into: WriteLease, token: Token) {
        // Checked to be at most 2^32 - 1.
        self.lengths.push_back(into.bytes() as u32);
        self.waiting.push_back((into, token));
    }

    /// Posts as many as the provider accepts.
    pub fn post(&mut self, with: &mut Posting<'_>) -> Result<(), Trouble> {
        let rails = with.paths.rails();
        let most = RECEIVES_POSTED_MAX.min(with.devices[0].info.receives_max) * rails;
        while self.open < most {
            let Some((mut into, token)) = self.waiting.pop_front() else { return Ok(()) };
            let path = 1 + (self.posted % rails as u64) as usize;
            let Some(endpoint) = with.paths.endpoint(path) else { return Ok(()) };
            let (start, bytes) = (into.as_mut_ptr(), into.bytes());
            let registrar = &with.devices[device_of(path)].registrar;
            let registration = match registrar.cover(&into.memory(), start, bytes) {
                Ok(registration) => registration,
                Err(error) => {
                    self.waiting.push_front((into, token));
                    return Err(Trouble::Memory(error));
                }
            };
            let way = with.paths.way(path, DATA_TAG, true);
            let context = with.ops.add(Op::Receive(registration.clone(), token, into));
            let span = pinned::span(start, bytes, registration.as_deref());
            // SAFETY: the op holds the write lease until the receive completes, or its endpoint is
            // closed (`Ops::clear`).
            if let Err(error) = unsafe { sys::post_receive(&endpoint, way, span, context) } {
                if let Some(Op::Receive(_, token, into)) = with.ops.take(context) {
                    self.waiting.push_front((into, token));
                }
                return Err(Trouble::Refused(error));
            }
            self.open += 1;
            self.posted += 1;
            if self.peer_wants.is_some_and(|wanted| wanted < self.posted) {
                with.ring.push(Note::Consumed);
            }
        }
        Ok(())
    }

    /// Records that a receive has completed or failed.
    pub fn completed(&mut self) {
        self.open -= 1;
        // Rails may be ahead of one another, by as much as they have posted.
        let keep = 2 * (self.open + self.waiting.len()) + LENGTHS_MAX;
        while self.lengths.len() > keep {
            self.lengths.pop_front();
            self.lengths_first += 1;
        }
    }

    /// Returns the receives to announce to the peer: from the one that it has requested on, or those that
    /// it was not told of.
    pub fn to_tell(&self) -> Receives {
        let wanted = self.peer_wants.filter(|&wanted| wanted < self.posted);
        let first = wanted.unwrap_or(self.told).max(self.lengths_first);
        let skip = (first - self.lengths_first) as usize;
        let count = LENGTHS_MAX.min(self.posted.saturating_sub(first) as usize);
        Receives { first, lengths: self.lengths.iter().skip(skip).take(count).copied().collect() }
    }

    /// Records that the announcement of the receives before this index was sent. Words arrive, so each is
    /// announced once.
    pub fn told(&mut self, until: u64) {
        self.told = self.told.max(until);
        if self.peer_wants.is_some_and(|wanted| wanted < self.posted) {
            self.peer_wants = None;
        }
    }

    /// Handles the peer's request for the announcement of a receive. Returns whether it can be
    /// announced now; otherwise it is announced as soon as it is posted.
    ///
    /// Errors: the peer holds a block without a credit, or a block that is too long; as text.
    pub fn wanted(&mut self, index: u64, bytes: u64) -> Result<bool, String> {
        // The request may have waited behind words that announced the receive; the block has come since.
        let Some(at) = index.checked_sub(self.lengths_first) else { return Ok(false) };
        match usize::try_from(at).ok().and_then(|at| self.lengths.get(at)) {
            None => Err("sent a block without a credit for it".into()),
            Some(&length) if bytes > u64::from(length) => Err(format!(
                "sent a block of {bytes} bytes, longer than the memory of {length} for it"
            )),
            Some(_) => {
                self.peer_wants = Some(index);
                Ok(index < self.posted)
            }
        }
    }

    /// Removes the receives that the provider does not have.
    pub fn cancel(&mut self) -> impl Iterator<Item = Token> + '_ {
        self.waiting.drain(..).map(|(_, token)| token)
    }
}

#[cfg(test)]
mod tests {
    use transport::Region;

    use super::*;

    /// A queue of which the provider has all receives, each one byte longer than the one before.
    fn posted(receives: usize) -> ReceiveQueue {
        let (memory, mut queue) = (Region::zeroed(1_000), ReceiveQueue::default());
        for bytes in 1..=receives {
            queue.push(memory.write(0..bytes).unwrap(), Token(0));
            queue.waiting.clear();
        }
        (queue.open, queue.posted) = (receives, receives as u64);
        queue
    }

    /// Takes an announcement as it is sent.
    fn tell(queue: &mut ReceiveQueue) -> Receives {
        let told = queue.to_tell();
        queue.told(told.first + told.lengths.len() as u64);
        told
    }

    #[test]
    fn each_receive_is_announced_once_and_again_on_request() {
        let mut queue = posted(10);
        assert_eq!(tell(&mut queue), Receives { first: 0, lengths: (1..=8).collect() });
        assert_eq!(tell(&mut queue), Receives { first: 8, lengths: vec![9, 10] });
        assert_eq!(tell(&mut queue), Receives { first: 10, lengths: vec![] });
        assert_eq!(queue.wanted(3, 4), Ok(true));
        assert_eq!(tell(&mut queue), Receives { first: 3, lengths: (4..=10).collect() });
        assert_eq!(tell(&mut queue), Receives { first: 10, lengths: vec![] });
    }

    #[test]
    fn requests_are_late_or_break_the_protocol() {
        let mut queue = posted(40);
        assert!(queue.wanted(40, 1).unwrap_err().contains("without a credit"));
        assert!(queue.wanted(u64::MAX, 1).unwrap_err().contains("without a credit"));
        assert!(queue.wanted(3, 5).unwrap_err().contains("longer"));
        (0..40).for_each(|_| queue.completed());
        assert_eq!(queue.wanted(3, 4), Ok(false), "the block has come since");
        assert_eq!(tell(&mut queue), Receives { first: 32, lengths: (33..=40).collect() });
        assert!(queue.wanted(40, 1).is_err());
    }
}
