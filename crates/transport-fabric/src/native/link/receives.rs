//! Receives: those queued, those posted, and those announced to the peer.

use std::collections::VecDeque;

use transport::{Token, WriteLease};

use crate::native::{
    link::{
        ops::Op,
        paths::device_of,
        posting::{DATA_TAG, Posting, Trouble},
    },
    registration,
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
            let context = with.ops.add(Op::Receive(into, token, registration.clone()));
            let span = registration::span(start, bytes, registration.as_deref());
            // SAFETY: the op holds the write lease until the receive completes, or its endpoint is
            // closed (`Ops::clear`).
            if let Err(error) = unsafe { sys::post_receive(&endpoint, way, span, context) } {
                if let Some(Op::Receive(into, token, _)) = with.ops.take(context) {
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

    /// Returns the receives to announce to the peer: from the one that it has requested, or the
    /// last.
    pub fn to_tell(&self) -> Receives {
        let last = self.posted.saturating_sub(LENGTHS_MAX as u64);
        let wanted = self.peer_wants.filter(|&wanted| wanted < self.posted);
        let first = wanted.unwrap_or(last).max(self.lengths_first);
        let skip = (first - self.lengths_first) as usize;
        let count = LENGTHS_MAX.min(self.posted.saturating_sub(first) as usize);
        Receives { first, lengths: self.lengths.iter().skip(skip).take(count).copied().collect() }
    }

    /// Records that the announcement was sent.
    pub fn told(&mut self) {
        if self.peer_wants.is_some_and(|wanted| wanted < self.posted) {
            self.peer_wants = None;
        }
    }

    /// Handles the peer's request for the announcement of a receive. Returns whether it can be
    /// announced now; otherwise it is announced as soon as it is posted.
    ///
    /// Errors: the peer holds a block without a credit, or a block that is too long; as text.
    pub fn wanted(&mut self, index: u64, bytes: u64) -> Result<bool, String> {
        let known = index.checked_sub(self.lengths_first).and_then(|at| usize::try_from(at).ok());
        match known.and_then(|at| self.lengths.get(at)) {
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
