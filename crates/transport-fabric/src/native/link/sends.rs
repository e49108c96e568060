//! Sends: those that wait for the peer's receives, and those posted.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use transport::{ArrivingRead, Memory, ReadLease, Token};

use crate::native::{
    link::{
        ops::Op,
        paths::device_of,
        posting::{DATA_TAG, Posting, Trouble},
        segments::Segments,
    },
    pinned::{self, Pinned},
    ring::{Note, Receives},
    sys,
};

/// The sends of one rail that the provider has at a time, however long they are: the next is ready when one
/// completes, while
/// control words can overtake the queued ones and a close can cancel them.
const SENDS_POSTED_MIN: usize = 4;
/// It has more of short ones, up to this number and length: enough that a fast network does not wait for
/// the next poll. With
/// 512 KiB blocks of 64 KiB to three receivers took up to 10 % longer.
const SENDS_POSTED_MAX: usize = 64;
const POSTED_BYTES_MAX: u64 = 256 << 10;
/// The most receives of the peer that one link stores.
const PEER_LENGTHS_MAX: usize = 4096;

/// Memory to send.
pub enum Contents {
    Whole(ReadLease),
    /// That of a block that is being received.
    Arriving(ArrivingRead),
}

struct Send {
    from: Contents,
    immediate: u32,
    token: Token,
}

/// A send of which the provider has messages, or has had all.
struct Open {
    /// Dropped before the lease.
    pinned: Option<Arc<Pinned>>,
    send: Send,
    segments: Segments,
    /// How many of its messages were posted, and how many of these have completed.
    posted: usize,
    completed: usize,
}

/// The blocks of which the provider has messages.
#[derive(Clone, Copy, Default)]
struct Posted {
    sends: usize,
    bytes: u64,
}

impl Posted {
    /// Returns whether the provider may have a further send of this many bytes, by its queue's length.
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
    /// Those that have begun, by index: they keep their memory until all of their messages have
    /// completed, or their endpoint is closed.
    open: BTreeMap<u64, Open>,
    held: Posted,
    /// How many have begun in all: one begins when all messages of the one before were posted.
    started: u64,
    /// Lengths of the receives that the peer has announced, by index.
    peer_lengths: BTreeMap<u64, u32>,
    asked_for: Option<u64>,
}

impl Contents {
    /// Returns the length of the whole block.
    fn bytes(&self) -> usize {
        match self {
            Self::Whole(lease) => lease.bytes(),
            Self::Arriving(read) => read.bytes(),
        }
    }

    /// Returns how many bytes can be sent now.
    fn arrived(&self) -> usize {
        match self {
            Self::Whole(lease) => lease.bytes(),
            Self::Arriving(read) => read.arrived().len(),
        }
    }

    /// Returns the start of the block, of which what has arrived may be read while this exists.
    fn start(&self) -> *const u8 {
        match self {
            Self::Whole(lease) => lease.as_ptr(),
            Self::Arriving(read) => read.as_ptr(),
        }
    }

    fn memory(&self) -> Memory<'_> {
        match self {
            Self::Whole(lease) => lease.memory(),
            Self::Arriving(read) => read.memory(),
        }
    }
}

impl Open {
    fn is_posted(&self) -> bool {
        self.posted == self.segments.count()
    }
}

impl SendQueue {
    pub fn push(&mut self, from: Contents, immediate: u32, token: Token) {
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

    /// Posts as many as the provider accepts, the peer has receives for, and are in memory.
    pub fn post(&mut self, with: &mut Posting<'_>) -> Result<(), Trouble> {
        while self.post_messages(with)? && self.begin(with)? {}
        Ok(())
    }

    /// Returns whether a block that is being received holds back messages.
    pub fn follows(&self) -> bool {
        let last = self.started.checked_sub(1).and_then(|block| self.open.get(&block));
        last.is_some_and(|open| {
            !open.is_posted() && matches!(open.send.from, Contents::Arriving(_))
        })
    }

    /// Takes the first send that waits, if the peer has a receive for it and the provider has room.
    fn begin(&mut self, with: &mut Posting<'_>) -> Result<bool, Trouble> {
        let (rails, info) = (with.paths.rails(), &with.devices[0].info);
        let Some(bytes) = self.waiting.front().map(|send| send.from.bytes() as u64) else {
            return Ok(false);
        };
        if !self.held.has_room(bytes, rails, info.sends_max) {
            return Ok(false);
        }
        let block = self.started;
        let memory_bytes = self.peer_lengths.get(&block).copied().map(u64::from);
        let Some(memory_bytes) = memory_bytes.filter(|&memory_bytes| bytes <= memory_bytes) else {
            // The engine has a credit for the receive, by a control word whose slot also
            // announced the receive here. If it did not, the peer is asked to announce it, or
            // to end the link.
            if self.asked_for != Some(block) {
                self.asked_for = Some(block);
                with.ring.push(Note::Wants { index: block, bytes });
            }
            return Ok(false);
        };
        let Some(send) = self.waiting.pop_front() else { return Ok(false) };
        let path = 1 + (block % rails as u64) as usize;
        let registrar = &with.devices[device_of(path)].registrar;
        let (start, length) = (send.from.start(), send.from.bytes());
        let pinned = match registrar.cover(&send.from.memory(), start, length) {
            Ok(pinned) => pinned,
            Err(error) => {
                self.waiting.push_front(send);
                return Err(Trouble::Memory(error));
            }
        };
        let segments = Segments::of(memory_bytes as usize, info);
        self.open.insert(block, Open { pinned, send, segments, posted: 0, completed: 0 });
        self.peer_lengths.remove(&block);
        self.held.sends += 1;
        self.held.bytes += bytes;
        self.started += 1;
        Ok(true)
    }

    /// Posts what has arrived of the send that has begun last. Returns whether that was all of it.
    fn post_messages(&mut self, with: &mut Posting<'_>) -> Result<bool, Trouble> {
        let Some(block) = self.started.checked_sub(1) else { return Ok(true) };
        let path = 1 + (block % with.paths.rails() as u64) as usize;
        let (Some(open), Some(endpoint)) = (self.open.get_mut(&block), with.paths.endpoint(path))
        else {
            return Ok(true);
        };
        let way = with.paths.way(path, DATA_TAG, false);
        let Send { from, immediate, .. } = &open.send;
        while open.posted < open.segments.count() {
            let part = open.segments.range(open.posted, from.bytes());
            if part.end > from.arrived() {
                return Ok(false);
            }
            let (start, bytes) = (from.start().wrapping_add(part.start), part.len());
            if let Some(pinned) = &open.pinned {
                // SAFETY: the piece covers the whole block, and this part of it does not change
                // before the lease ends: it is leased for reading, or has arrived.
                unsafe { pinned.before_reading(start, bytes) }
            }
            let context = with.ops.add(Op::Send { block, bytes });
            let span = pinned::span(start.cast_mut(), bytes, open.pinned.as_deref());
            // SAFETY: leased for reading, or what has arrived of a lease of such; `open` keeps the lease
            // until all messages have completed, or their endpoint is closed (`SendQueue::clear`).
            if let Err(error) = unsafe { sys::post_send(&endpoint, way, span, *immediate, context) }
            {
                with.ops.take(context);
                return Err(Trouble::Refused(error));
            }
            open.posted += 1;
        }
        Ok(true)
    }

    /// Records that a message of this block has completed without an error. Returns the token of the
    /// send if it was the last.
    pub fn completed(&mut self, block: u64) -> Option<Token> {
        let open = self.open.get_mut(&block)?;
        open.completed += 1;
        if open.completed < open.segments.count() {
            return None;
        }
        let open = self.open.remove(&block)?;
        self.held.sends -= 1;
        self.held.bytes -= open.send.from.bytes() as u64;
        Some(open.send.token)
    }

    /// Removes the sends that the provider does not have.
    pub fn cancel(&mut self) -> impl Iterator<Item = Token> + '_ {
        self.waiting.drain(..).map(|send| send.token)
    }

    /// Drops the leases of all others, once nothing accesses their memory any more; returns their
    /// tokens.
    pub fn clear(&mut self) -> Vec<Token> {
        std::mem::take(&mut self.open).into_values().map(|open| open.send.token).collect()
    }
}

#[cfg(test)]
mod tests {
    use transport::Region;

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
    /// Messages of one block complete in any order; only the last hands it back.
    #[test]
    fn a_send_keeps_its_memory_until_its_last_message() {
        let (memory, mut queue) = (Region::zeroed(250 << 10), SendQueue::default());
        let open = |bytes: usize| Open {
            pinned: None,
            send: Send {
                from: Contents::Whole(memory.read(0..bytes).unwrap()),
                immediate: 0,
                token: Token(bytes as u64),
            },
            segments: Segments::cut(250 << 10),
            posted: 4,
            completed: 0,
        };
        queue.open.insert(0, open(250 << 10));
        queue.open.insert(1, open(1));
        (queue.started, queue.held) = (2, Posted { sends: 2, bytes: (250 << 10) + 1 });
        for block in [0, 1, 0, 0, 1, 1] {
            assert_eq!(queue.completed(block), None);
        }
        assert_eq!(queue.completed(0), Some(Token(250 << 10)));
        assert!(memory.write(1..2).is_ok() && memory.write(0..1).is_err());
        assert_eq!((queue.held.sends, queue.held.bytes), (1, 1));
        assert_eq!(queue.clear(), [Token(1)]);
        assert!(memory.write(0..1).is_ok());
        assert_eq!(queue.completed(1), None, "it is cleared");
    }
}
