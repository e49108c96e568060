//! Sends: those that wait for the peer's receives, and those posted.

use std::collections::{BTreeMap, VecDeque};

use transport::{ReadLease, Token};

use crate::native::{
    link::{
        ops::Op,
        paths::device_of,
        posting::{DATA_TAG, Posting, Trouble},
    },
    pinned,
    ring::{Note, Receives},
    sys,
};

/// So many sends of one rail the provider has at a time however long they are: the next is ready when one
/// completes, while control words can overtake the queued ones and a close can cancel them.
const SENDS_POSTED_MIN: usize = 4;
/// Of short ones it has more, up to so many, and so many bytes: enough that a fast network does not wait for
/// the next poll.
const SENDS_POSTED_MAX: usize = 64;
const POSTED_BYTES_MAX: u64 = 256 << 10;
/// The most receives of the peer that one link stores.
const PEER_LENGTHS_MAX: usize = 4096;

struct Send {
    from: ReadLease,
    immediate: u32,
    token: Token,
}

/// What the provider has of a link's sends.
#[derive(Clone, Copy, Default)]
struct Posted {
    sends: usize,
    bytes: u64,
}

impl Posted {
    /// Returns whether the provider may have a further send of so many bytes, by its queue's length.
    fn has_room(self, bytes: u64, rails: usize, queue_length: usize) -> bool {
        // Half of a queue at most: control words may share it.
        let most = SENDS_POSTED_MAX.min(queue_length / 2).max(SENDS_POSTED_MIN);
        let is_short = self.bytes + bytes <= POSTED_BYTES_MAX * rails as u64;
        self.sends < SENDS_POSTED_MIN * rails || (is_short && self.sends < most * rails)
    }
}

/// The sends of one link.
#[derive(Default)]
pub struct SendQueue {
    waiting: VecDeque<Send>,
    open: Posted,
    /// How many were posted in all.
    started: u64,
    /// Lengths of the receives that the peer has announced, by index.
    peer_lengths: BTreeMap<u64, u32>,
    asked_for: Option<u64>,
}

impl SendQueue {
    pub fn push(&mut self, from: ReadLease, immediate: u32, token: Token) {
        self.waiting.push_back(Send { from, immediate, token });
    }

    /// Stores the receives that the peer has announced.
    pub fn learn(&mut self, receives: Receives) {
        for (index, length) in (receives.first..).zip(receives.lengths) {
            if index >= self.started && self.peer_lengths.len() < PEER_LENGTHS_MAX {
                self.peer_lengths.insert(index, length);
            }
        }
    }

    /// Posts as many as the provider accepts and the peer has receives for.
    pub fn post(&mut self, with: &mut Posting<'_>) -> Result<(), Trouble> {
        let (rails, queue_length) = (with.paths.rails(), with.devices[0].info.sends_max);
        while let Some(bytes) = self.waiting.front().map(|send| send.from.bytes() as u64)
            && self.open.has_room(bytes, rails, queue_length)
        {
            let index = self.started;
            let posted_bytes = self.peer_lengths.get(&index).copied().map(u64::from);
            if posted_bytes.is_none_or(|posted_bytes| posted_bytes < bytes) {
                // The engine has a credit for the receive, by a control word whose slot also
                // announced the receive here. If it did not, the peer is asked to announce it, or
                // to end the link.
                if self.asked_for != Some(index) {
                    self.asked_for = Some(index);
                    with.ring.push(Note::Wants { index, bytes });
                }
                return Ok(());
            }
            let Some(Send { from, immediate, token }) = self.waiting.pop_front() else {
                return Ok(());
            };
            let path = 1 + (self.started % rails as u64) as usize;
            let Some(endpoint) = with.paths.endpoint(path) else { return Ok(()) };
            let (start, bytes) = (from.as_ptr().cast_mut(), from.bytes());
            let registrar = &with.devices[device_of(path)].registrar;
            let registration = match registrar.cover_to_read(&from) {
                Ok(registration) => registration,
                Err(error) => {
                    self.waiting.push_front(Send { from, immediate, token });
                    return Err(Trouble::Memory(error));
                }
            };
            let way = with.paths.way(path, DATA_TAG, false);
            let context = with.ops.add(Op::Send(registration.clone(), token, from));
            let span = pinned::span(start, bytes, registration.as_deref());
            // SAFETY: the op holds the read lease until the send completes, or its endpoint is
            // closed (`Ops::clear`).
            if let Err(error) = unsafe { sys::post_send(&endpoint, way, span, immediate, context) }
            {
                if let Some(Op::Send(_, token, from)) = with.ops.take(context) {
                    self.waiting.push_front(Send { from, immediate, token });
                }
                return Err(Trouble::Refused(error));
            }
            self.peer_lengths.remove(&index);
            self.open.sends += 1;
            self.open.bytes += bytes as u64;
            self.started += 1;
        }
        Ok(())
    }

    /// Records that a send of so many bytes has completed or failed.
    pub fn completed(&mut self, bytes: usize) {
        self.open.sends -= 1;
        self.open.bytes -= bytes as u64;
    }

    /// Removes the sends that the provider does not have.
    pub fn cancel(&mut self) -> impl Iterator<Item = Token> + '_ {
        self.waiting.drain(..).map(|send| send.token)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many sends of this length are posted before one completes.
    fn posted(bytes: u64, rails: usize, queue_length: usize) -> usize {
        let mut open = Posted::default();
        while open.has_room(bytes, rails, queue_length) {
            open.sends += 1;
            open.bytes += bytes;
        }
        open.sends
    }

    #[test]
    fn short_sends_are_posted_by_bytes_and_long_ones_by_number() {
        assert_eq!(posted(1, 1, 256), 64);
        assert_eq!(posted(0, 1, 256), 64, "empty blocks are counted, too");
        assert_eq!(posted(4 << 10, 1, 256), 64);
        assert_eq!(posted(32 << 10, 1, 256), 8);
        assert_eq!(posted((64 << 10) + 1, 1, 256), 4);
        assert_eq!(posted(u64::from(u32::MAX), 1, 256), 4);
        assert_eq!(posted(32 << 10, 3, 256), 24, "each rail has its share");
        assert_eq!(posted(1, 1, 40), 20, "a short queue is half full at most");
        assert_eq!(posted(1, 1, 2), 4);
    }
}
