//! Receives: those queued, those posted, and those announced to the peer.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use transport::{Completion, EndpointId, Token, WriteLease};

use crate::native::{
    link::{
        arrival::Arrival,
        ops::Op,
        paths::device_of,
        posting::{DATA_TAG, Posting, Trouble},
        segments::Segments,
    },
    pinned::{self, Pinned},
    ring::{LENGTHS_MAX, Note, Receives},
    sys::{self, RawCompletion},
};

/// The most receives of one rail that the provider has at a time.
const RECEIVES_POSTED_MAX: usize = 64;

/// A receive of which the provider has messages, or has had all.
struct Open {
    /// Dropped before the lease.
    pinned: Option<Arc<Pinned>>,
    /// What has not arrived, if it is followed; otherwise all.
    lease: WriteLease,
    token: Token,
    arrival: Arrival,
    /// How many of its messages were posted.
    posted: usize,
    /// The length of what the lease has given up.
    advanced: usize,
    /// Its owner was notified that the block is arriving.
    is_reported: bool,
}

/// The receives of one link.
#[derive(Default)]
pub struct ReceiveQueue {
    waiting: VecDeque<(WriteLease, Token)>,
    /// Those that have begun, by index: they keep their memory until all of their messages have
    /// completed, or their endpoint is closed.
    open: BTreeMap<u64, Open>,
    /// How many messages the provider has.
    messages: usize,
    /// How many were posted in all, with all of their messages.
    posted: u64,
    /// Lengths of the last receives that were posted or are queued, from this index on.
    lengths: VecDeque<u32>,
    lengths_first: u64,
    /// The peer was notified of those before this index.
    told: u64,
    /// The peer waits for the announcement of the receive of this index.
    peer_wants: Option<u64>,
}

impl Open {
    fn new(
        pinned: Option<Arc<Pinned>>,
        lease: WriteLease,
        token: Token,
        segments: Segments,
    ) -> Self {
        let arrival = Arrival::new(segments);
        Self { pinned, lease, token, arrival, posted: 0, advanced: 0, is_reported: false }
    }

    /// Returns the start of what the message of this index fills, which has not arrived.
    fn start(&mut self, segment: usize) -> *mut u8 {
        let offset = self.arrival.segments().place(segment).start - self.advanced;
        self.lease.as_mut_ptr().wrapping_add(offset)
    }

    /// Takes a message that the provider has completed. Errors: as text.
    fn take(&mut self, segment: usize, raw: &RawCompletion) -> Result<(), String> {
        let place_bytes = self.arrival.segments().place(segment).len();
        let start = self.start(segment);
        if let Some(pinned) = &self.pinned {
            // SAFETY: the lease is for writing and covers this part, which has not counted as arrived;
            // the provider has completed its receive.
            unsafe { pinned.after_writing(start, place_bytes.min(raw.bytes as usize)) }
        }
        let bytes = self.arrival.add(segment, raw.bytes as usize, raw.data as u32)?;
        if self.lease.is_followed() {
            self.lease.advance(bytes);
            self.advanced += bytes;
        }
        Ok(())
    }

    /// Returns whether its owner has to be notified that the block is arriving.
    fn begins(&mut self) -> bool {
        self.arrival.bytes() > 0
            && self.lease.is_followed()
            && !std::mem::replace(&mut self.is_reported, true)
    }
}

impl ReceiveQueue {
    pub fn push(&mut self, into: WriteLease, token: Token) {
        // Checked to be at most 2^32 - 1.
        self.lengths.push_back(into.bytes() as u32);
        self.waiting.push_back((into, token));
    }

    /// Posts as many as the provider accepts.
    pub fn post(&mut self, with: &mut Posting<'_>) -> Result<(), Trouble> {
        while self.open.contains_key(&self.posted) || self.begin(with)? {
            self.post_messages(with)?;
            self.posted += 1;
            if self.peer_wants.is_some_and(|wanted| wanted < self.posted) {
                with.ring.push(Note::Consumed);
            }
        }
        Ok(())
    }

    /// Takes the first receive that waits, if the provider has room for its messages.
    fn begin(&mut self, with: &Posting<'_>) -> Result<bool, Trouble> {
        let (rails, info) = (with.paths.rails(), &with.devices[0].info);
        let Some((into, _)) = self.waiting.front() else { return Ok(false) };
        let segments = Segments::of(into.bytes(), info);
        let most = RECEIVES_POSTED_MAX.min(info.receives_max) * rails;
        let has_room = self.messages + segments.count() <= info.receives_max * rails;
        if self.open.len() >= most || (!has_room && self.messages > 0) {
            return Ok(false);
        }
        let path = 1 + (self.posted % rails as u64) as usize;
        let Some((mut into, token)) = self.waiting.pop_front() else { return Ok(false) };
        let (start, bytes) = (into.as_mut_ptr(), into.bytes());
        match with.devices[device_of(path)].registrar.cover(&into.memory(), start, bytes) {
            Ok(pinned) => {
                self.open.insert(self.posted, Open::new(pinned, into, token, segments));
                Ok(true)
            }
            Err(error) => {
                self.waiting.push_front((into, token));
                Err(Trouble::Memory(error))
            }
        }
    }

    /// Posts the messages of the receive that has begun last.
    fn post_messages(&mut self, with: &mut Posting<'_>) -> Result<(), Trouble> {
        let block = self.posted;
        let path = 1 + (block % with.paths.rails() as u64) as usize;
        let (Some(open), Some(endpoint)) = (self.open.get_mut(&block), with.paths.endpoint(path))
        else {
            return Ok(());
        };
        let way = with.paths.way(path, DATA_TAG, true);
        while open.posted < open.arrival.segments().count() {
            let segment = open.posted;
            let (start, bytes) =
                (open.start(segment), open.arrival.segments().place(segment).len());
            let context = with.ops.add(Op::Receive { block, segment });
            let span = pinned::span(start, bytes, open.pinned.as_deref());
            // SAFETY: a part of the write lease that no other message fills and that has not been
            // given up; `open` keeps the lease until all of its messages have completed, or its
            // endpoint is closed (`ReceiveQueue::clear`).
            if let Err(error) = unsafe { sys::post_receive(&endpoint, way, span, context) } {
                with.ops.take(context);
                return Err(Trouble::Refused(error));
            }
            open.posted += 1;
            self.messages += 1;
        }
        Ok(())
    }

    /// Handles a message of a block that has come without an error. Returns what is to be reported.
    ///
    /// Errors: how the peer broke the protocol, as text.
    pub fn completed(
        &mut self,
        endpoint: EndpointId,
        block: u64,
        segment: usize,
        raw: &RawCompletion,
    ) -> Result<Option<Completion>, String> {
        self.messages -= 1;
        let Some(open) = self.open.get_mut(&block) else { return Ok(None) };
        open.take(segment, raw)?;
        let (token, immediate) = (open.token, open.arrival.immediate());
        if !open.arrival.is_complete() {
            return Ok(open.begins().then_some(Completion::Arriving {
                endpoint,
                token,
                immediate,
            }));
        }
        let bytes = open.arrival.bytes() as u64;
        self.open.remove(&block);
        self.forget_lengths();
        Ok(Some(Completion::Received { endpoint, token, bytes, immediate }))
    }

    fn forget_lengths(&mut self) {
        // Rails may be ahead of one another, by as much as they have posted.
        let keep = 2 * (self.open.len() + self.waiting.len()) + LENGTHS_MAX;
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

    /// Drops the leases of all others, once nothing accesses their memory any more; returns their
    /// tokens.
    pub fn clear(&mut self) -> Vec<Token> {
        std::mem::take(&mut self.open).into_values().map(|open| open.token).collect()
    }
}

#[cfg(test)]
mod tests {
    use transport::Region;

    use super::*;

    /// Begins the first receive that waits, of which the provider has no message yet.
    fn begin(queue: &mut ReceiveQueue, is_cut: bool) {
        let (lease, token) = queue.waiting.pop_front().unwrap();
        let segments = match is_cut {
            true => Segments::cut(lease.bytes()),
            false => Segments::whole(lease.bytes()),
        };
        queue.open.insert(queue.posted, Open::new(None, lease, token, segments));
    }

    fn come(bytes: usize) -> RawCompletion {
        RawCompletion { bytes: bytes as u64, data: 9, ..RawCompletion::default() }
    }

    /// A queue of which the provider has all receives, each one byte longer than the one before.
    fn posted(receives: usize) -> ReceiveQueue {
        let mut queue = ReceiveQueue::default();
        for bytes in 1..=receives {
            queue.push(Region::zeroed(bytes).write(0..bytes).unwrap(), Token(0));
            begin(&mut queue, false);
            queue.messages += 1;
            queue.posted += 1;
        }
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
        for block in 0..40 {
            let done = queue.completed(EndpointId(0), block, 0, &come(1));
            assert!(matches!(done, Ok(Some(Completion::Received { bytes: 1, .. }))));
        }
        assert_eq!(queue.wanted(3, 4), Ok(false), "the block has come since");
        assert_eq!(tell(&mut queue), Receives { first: 32, lengths: (33..=40).collect() });
        assert!(queue.wanted(40, 1).is_err());
    }
    /// Segments that complete out of order: the memory is free part by part if it is followed, and
    /// handed back with the last message.
    #[test]
    fn a_receive_keeps_its_memory_until_its_last_message() {
        const BYTES: usize = 512 << 10;
        const PART: usize = BYTES / 8;
        let (endpoint, token, immediate) = (EndpointId(3), Token(4), 9);
        for is_followed in [true, false] {
            let (memory, mut queue) = (Region::zeroed(BYTES), ReceiveQueue::default());
            let mut lease = memory.write(0..BYTES).unwrap();
            let arriving = is_followed.then(|| lease.arriving());
            queue.push(lease, token);
            begin(&mut queue, true);
            queue.messages = 8;
            for segment in [1, 3, 2] {
                assert_eq!(queue.completed(endpoint, 0, segment, &come(PART)), Ok(None));
            }
            assert!(memory.write(0..1).is_err());
            let begins = Completion::Arriving { endpoint, token, immediate };
            let reported = queue.completed(endpoint, 0, 0, &come(PART));
            assert_eq!(reported, Ok(is_followed.then_some(begins)));
            assert_eq!(memory.read(0..4 * PART).is_ok(), is_followed);
            assert!(memory.read(4 * PART..BYTES).is_err());
            for segment in [7, 6, 4] {
                let bytes = if segment == 4 { PART } else { 0 };
                assert_eq!(queue.completed(endpoint, 0, segment, &come(bytes)), Ok(None));
            }
            let bytes = 5 * PART as u64 + 1;
            let whole = Completion::Received { endpoint, token, bytes, immediate };
            assert_eq!(queue.completed(endpoint, 0, 5, &come(1)), Ok(Some(whole)));
            assert!(memory.write(0..BYTES).is_ok() && queue.clear().is_empty());
            let arrived = arriving.map(|arriving| arriving.read(BYTES).unwrap().arrived().len());
            assert_eq!(arrived, is_followed.then_some(bytes as usize));
        }
    }

    #[test]
    fn what_has_come_in_part_is_cleared_once() {
        let (memory, mut queue) = (Region::zeroed(1 << 20), ReceiveQueue::default());
        queue.push(memory.write(0..1 << 20).unwrap(), Token(1));
        begin(&mut queue, true);
        queue.messages = 8;
        assert_eq!(queue.completed(EndpointId(0), 0, 0, &come(128 << 10)), Ok(None));
        assert!(queue.completed(EndpointId(0), 0, 1, &come(1 << 20)).is_err());
        assert!(memory.write(0..1).is_err(), "the provider may have other parts");
        assert_eq!(queue.clear(), [Token(1)]);
        assert!(memory.write(0..1 << 20).is_ok() && queue.clear().is_empty());
    }
}
