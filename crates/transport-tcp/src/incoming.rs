//! The receiving half of a stream: parses frames, fills posted memory, reports completions.

use std::{
    collections::{HashMap, VecDeque},
    io::IoSliceMut,
};

use mio::net::TcpStream;
use rustix::io::{Errno, readv};
use transport::{
    CONTROL_BYTES_MAX, Cause, Completion, EndpointId, PeerMemory, PostError, Token, WriteLease,
};

use crate::{
    moved::Moved,
    posted_receive::PostedReceive,
    record::Opener,
    references::References,
    segment_read::SegmentRead,
    settings::SEGMENT_BYTES,
    wire::{
        ADDRESS_BYTES, CONTROL_FRAME_BYTES_MAX, HEADER_BYTES, Header, INTRODUCTION_BYTES,
        Introduction, PLACE_BYTES, Place, WireError,
    },
};

/// The length of the buffer for frames other than data: one system call reads many control words.
const LOOKAHEAD_BYTES: usize = 512;

/// Its length if the peer may write to exposed memory: payload of writes passes through it, many
/// short writes or a large part of a long one per system call.
const LOOKAHEAD_OF_WRITES_BYTES: usize = 64 << 10;

/// The length of the buffer for payload that an endpoint drops while it is closing.
const DISCARD_BYTES: usize = 16 << 10;

/// The least number of bytes to read at once, even when the budget of the round is nearly used up.
const READ_BYTES_MIN: usize = 64 << 10;

/// The segment whose payload is being read.
struct Segment {
    rest_bytes: usize,
    into: Into,
}

/// The destination of payload.
enum Into {
    /// The first posted receive. The block ends with the segment that is `last`.
    Receive { last: bool },
    /// Exposed memory. If there is an immediate to report, the write ends with this segment, and
    /// is reported.
    Exposed {
        memory: PeerMemory,
        /// The destination of the rest of the payload.
        at: usize,
        ends: Option<u32>,
    },
    /// The payload is dropped: the endpoint is closing.
    Discard,
}

/// The receiving half of one stream. The kernel copies payload directly into posted memory, and
/// headers and control words into a small buffer, the lookahead.
///
/// To keep the payload of blocks out of the lookahead, no more is read into it than is certain to
/// be filled by frames other than data. The exception is when no memory is posted: then no data may
/// arrive (a peer that sends some breaks the protocol). With exposed memory the lookahead is
/// longer: small writes are frequent, and their payload is always copied, since there are no
/// references to exposed memory. Its whole length is used while no block is due.
///
/// With `records`, records are read instead, and the lookahead stays empty: payload is copied to
/// its destination once its record is authenticated.
pub(crate) struct Incoming {
    receives: VecDeque<PostedReceive>,
    segment: Option<Segment>,
    exposed: HashMap<u32, PeerMemory>,
    pub(crate) references: References,
    records: Option<Opener>,
    lookahead: Box<[u8]>,
    /// Bytes of `lookahead` that were read and not yet parsed: always less than one frame between
    /// calls.
    ahead_bytes: usize,
    /// What came behind a segment whose length was guessed wrong, in place of the lookahead; empty between calls.
    strays: Vec<u8>,
    /// Length of the last segment that did not end its block, by which the next ones are guessed; at first the default.
    usual_bytes: usize,
    /// The endpoint is closing: blocks are read and dropped.
    discarding: bool,
    received_bye: bool,
}

impl Incoming {
    pub(crate) fn new(records: Option<Opener>) -> Self {
        Self {
            records,
            receives: VecDeque::new(),
            segment: None,
            exposed: HashMap::new(),
            references: References::default(),
            lookahead: Box::new([0; LOOKAHEAD_BYTES]),
            ahead_bytes: 0,
            strays: Vec::new(),
            usual_bytes: SEGMENT_BYTES,
            discarding: false,
            received_bye: false,
        }
    }

    pub(crate) fn post(&mut self, lease: WriteLease, token: Token, block: u32) {
        self.receives.push_back(PostedReceive::new(lease, token, block));
    }

    /// Lets the peer write into memory until the endpoint ends.
    pub(crate) fn expose(&mut self, key: u32, memory: PeerMemory) -> Result<(), PostError> {
        if self.exposed.contains_key(&key) {
            return Err(PostError::System(format!("key {key} is in use")));
        }
        self.exposed.insert(key, memory);
        if self.records.is_none() && self.lookahead.len() < LOOKAHEAD_OF_WRITES_BYTES {
            let mut longer = vec![0; LOOKAHEAD_OF_WRITES_BYTES].into_boxed_slice();
            longer[..self.ahead_bytes].copy_from_slice(&self.lookahead[..self.ahead_bytes]);
            self.lookahead = longer;
        }
        Ok(())
    }

    /// Returns whether the peer has sent its last frame.
    pub(crate) fn received_bye(&self) -> bool {
        self.received_bye
    }

    /// Cancels all receives; blocks that still arrive are dropped from now on.
    pub(crate) fn discard(&mut self, endpoint: EndpointId, completed: &mut Vec<Completion>) {
        self.discarding = true;
        self.exposed.clear();
        if let Some(segment) = &mut self.segment {
            segment.into = Into::Discard;
        }
        self.references.discard(endpoint, completed);
        for receive in self.receives.drain(..) {
            receive.cancel(endpoint, completed);
        }
    }

    /// Makes one system call. `budget_bytes` is roughly how much may be read in this round.
    ///
    /// Call [`Incoming::parse`] afterwards, before anything else.
    pub(crate) fn read(&mut self, socket: &TcpStream, budget_bytes: usize) -> Result<Moved, Errno> {
        if let Some(records) = &mut self.records {
            return records.read(socket);
        }
        let ahead_free = self.ahead_free();
        let budget_bytes = budget_bytes.max(READ_BYTES_MIN);
        match &self.segment {
            Some(Segment { into: Into::Receive { .. }, .. }) => {
                self.read_block(socket, budget_bytes, ahead_free)
            }
            None if self.ahead_bytes == 0 && !self.has_short_frames() && self.may_guess() => {
                self.read_block(socket, budget_bytes, ahead_free)
            }
            Some(Segment { into: Into::Discard, .. }) => {
                self.read_discarded(socket, budget_bytes, ahead_free)
            }
            _ => {
                let ahead = &mut self.lookahead[self.ahead_bytes..][..ahead_free];
                let bytes = readv(socket, &mut [IoSliceMut::new(ahead)])?;
                self.ahead_bytes += bytes;
                Ok(Moved { bytes, wanted: ahead_free })
            }
        }
    }

    /// Reads payload of the current segment and, with it, what follows in the block or at least its next header: one system
    /// call for several segments.
    fn read_block(
        &mut self,
        socket: &TcpStream,
        budget_bytes: usize,
        ahead_free: usize,
    ) -> Result<Moved, Errno> {
        let may_guess = self.may_guess();
        let Some(receive) = self.receives.front_mut() else { return Err(Errno::INVAL) };
        let rest_bytes = self.segment.as_ref().map_or(0, |segment| segment.rest_bytes);
        let part_bytes = rest_bytes.min(budget_bytes);
        let mut read = SegmentRead::of_part(part_bytes);
        let mut ahead_wanted = 0;
        if part_bytes == rest_bytes {
            ahead_wanted = ahead_free;
            if may_guess {
                let behind_bytes = receive.lease.bytes() - part_bytes;
                read = read.with_guesses(self.usual_bytes, behind_bytes, budget_bytes);
                ahead_wanted = ahead_wanted.min(HEADER_BYTES);
            }
        }
        let ahead = &mut self.lookahead[self.ahead_bytes..][..ahead_wanted];
        let bytes = read.read(socket, &mut receive.lease, ahead)?;
        let wanted = read.wanted_bytes() + ahead_wanted;
        self.take_segments(&read, bytes);
        Ok(Moved { bytes, wanted })
    }

    /// Returns whether frames are to be expected that are no blocks' payload: writes, or references in place
    /// of long blocks.
    fn has_short_frames(&self) -> bool {
        !self.exposed.is_empty() || self.references.is_trusted()
    }

    /// Returns whether the next frame is likely to be a segment of the first posted receive, and bytes behind its block may be
    /// written: the memory of a receive that is followed has no contents but its block.
    fn may_guess(&self) -> bool {
        let goes_on = match &self.segment {
            None => true,
            Some(Segment { into: Into::Receive { last }, .. }) => !last,
            Some(_) => false,
        };
        goes_on && self.receives.front().is_some_and(|receive| receive.lease.is_followed())
    }

    /// Accounts for `bytes` bytes that were read, as far as the guesses were right.
    fn take_segments(&mut self, read: &SegmentRead, bytes: usize) {
        let filled_bytes = bytes.min(read.part_bytes);
        self.fill(filled_bytes);
        let mut left_bytes = bytes - filled_bytes;
        for index in 0..read.guesses() {
            if left_bytes == 0 {
                return;
            }
            let Some(length) = self.begin_guessed(read, index, left_bytes) else {
                let memory = self.receives.front().map_or(&[][..], |receive| &receive.lease);
                let ahead = &self.lookahead[self.ahead_bytes..];
                self.strays = read.in_line(index, left_bytes, memory, ahead);
                return;
            };
            left_bytes -= HEADER_BYTES;
            let filled_bytes = left_bytes.min(length);
            self.fill(filled_bytes);
            left_bytes -= filled_bytes;
        }
        self.ahead_bytes += left_bytes;
    }

    /// Begins a guessed segment in place of the one before it, which is complete, and returns its length; `None` if the guess was
    /// wrong.
    fn begin_guessed(&mut self, read: &SegmentRead, index: usize, bytes: usize) -> Option<usize> {
        let (length, header) = read.guessed(index, bytes)?;
        let Header::Data { bytes, last, immediate, block } = header else { return None };
        self.begin_segment(bytes, last, immediate, block).ok()?;
        Some(length)
    }

    /// Reads payload of a block that is dropped.
    fn read_discarded(
        &mut self,
        socket: &TcpStream,
        budget_bytes: usize,
        ahead_free: usize,
    ) -> Result<Moved, Errno> {
        let rest_bytes = self.segment.as_ref().map_or(0, |segment| segment.rest_bytes);
        let mut discarded = [0; DISCARD_BYTES];
        let part_bytes = rest_bytes.min(budget_bytes).min(DISCARD_BYTES);
        let ahead_wanted = if part_bytes == rest_bytes { ahead_free } else { 0 };
        let ahead = &mut self.lookahead[self.ahead_bytes..][..ahead_wanted];
        let payload = &mut discarded[..part_bytes];
        let bytes = readv(socket, &mut [IoSliceMut::new(payload), IoSliceMut::new(ahead)])?;
        self.ahead_bytes += bytes.saturating_sub(part_bytes);
        self.fill(bytes.min(part_bytes));
        Ok(Moved { bytes, wanted: part_bytes + ahead_wanted })
    }

    /// Returns how many bytes may be read into the lookahead behind the current segment, if any,
    /// without reading payload that has a destination. At least one.
    fn ahead_free(&self) -> usize {
        let capacity = self.lookahead.len() - self.ahead_bytes;
        let (in_block, block_goes_on) = match &self.segment {
            Some(Segment { into: Into::Receive { last }, .. }) => (true, !last),
            _ => (false, false),
        };
        let others = self.receives.len() - usize::from(in_block);
        if self.discarding || (others == 0 && !block_goes_on) {
            return capacity;
        }
        if self.has_short_frames() {
            // They come at any time. Short ones still share a system call, and little of a block is copied.
            return capacity.min(LOOKAHEAD_BYTES);
        }
        let Some(header) = self.lookahead[..self.ahead_bytes].first_chunk() else {
            return HEADER_BYTES - self.ahead_bytes;
        };
        // A whole header that `parse` has left there belongs to a frame whose body is incomplete.
        let body_bytes = match Header::decode(header).map(Header::whole_body_bytes) {
            Ok(0) | Err(_) => CONTROL_BYTES_MAX,
            Ok(bytes) => bytes,
        };
        (HEADER_BYTES + body_bytes + HEADER_BYTES - self.ahead_bytes).min(capacity)
    }

    fn fill(&mut self, bytes: usize) {
        let Some(segment) = &mut self.segment else { return };
        segment.rest_bytes -= bytes;
        match (&mut segment.into, self.receives.front_mut()) {
            (Into::Exposed { at, .. }, _) => *at += bytes,
            (Into::Receive { .. }, Some(receive)) => receive.fill(bytes),
            _ => {}
        }
    }

    /// Parses what was read. Errors: the peer broke the protocol, a record is corrupt, or memory
    /// failed.
    pub(crate) fn parse(
        &mut self,
        endpoint: EndpointId,
        completed: &mut Vec<Completion>,
    ) -> Result<(), Cause> {
        if let Some(mut records) = self.records.take() {
            let outcome = self.parse_records(&mut records, endpoint, completed);
            self.records = Some(records);
            return outcome;
        }
        if !self.strays.is_empty() {
            let strays = std::mem::take(&mut self.strays);
            let at = self.parse_frames(&strays, endpoint, completed)?;
            // The rest is the beginning of a frame, or comes behind a bye.
            let rest = if self.received_bye { &[][..] } else { &strays[at..] };
            self.lookahead[..rest.len()].copy_from_slice(rest);
            self.ahead_bytes = rest.len();
            return Ok(());
        }
        let mut lookahead = std::mem::take(&mut self.lookahead);
        let outcome = self.parse_frames(&lookahead[..self.ahead_bytes], endpoint, completed);
        let at = *outcome.as_ref().unwrap_or(&0);
        lookahead.copy_within(at..self.ahead_bytes, 0);
        self.lookahead = lookahead;
        self.ahead_bytes -= at;
        debug_assert!(
            self.received_bye || outcome.is_err() || self.ahead_bytes < CONTROL_FRAME_BYTES_MAX
        );
        outcome.map(drop)
    }

    fn parse_records(
        &mut self,
        records: &mut Opener,
        endpoint: EndpointId,
        completed: &mut Vec<Completion>,
    ) -> Result<(), Cause> {
        while !self.received_bye
            && let Some(frames) =
                records.next().map_err(|bad_tag| Cause::Corrupt(bad_tag.to_string()))?
        {
            let parsed_bytes = self.parse_frames(frames, endpoint, completed)?;
            if !self.received_bye && (parsed_bytes < frames.len() || self.segment.is_some()) {
                return Err(Cause::Protocol("a frame that does not end with its record".into()));
            }
        }
        Ok(())
    }

    /// Parses whole frames and returns their length; the rest is the beginning of a frame.
    fn parse_frames(
        &mut self,
        frames: &[u8],
        endpoint: EndpointId,
        completed: &mut Vec<Completion>,
    ) -> Result<usize, Cause> {
        let wrong = |error: WireError| Cause::Protocol(error.to_string());
        let mut at = 0;
        while !self.received_bye {
            at += self.end_segment(&frames[at..], endpoint, completed)?;
            if self.segment.is_some() {
                break;
            }
            let Some((header, body)) = frames[at..].split_first_chunk::<HEADER_BYTES>() else {
                break;
            };
            match Header::decode(header).map_err(wrong)? {
                Header::Data { bytes, last, immediate, block } => {
                    self.begin_segment(bytes, last, immediate, block).map_err(Cause::Protocol)?;
                }
                Header::Control { bytes } => {
                    let Some(word) = body.get(..bytes) else { break };
                    completed.push(Completion::Control { endpoint, word: word.to_vec() });
                    at += bytes;
                }
                Header::Write { bytes, immediate, key } => {
                    let Some(place) = body.first_chunk::<PLACE_BYTES>() else { break };
                    let place = Place::decode(place, bytes).map_err(wrong)?;
                    self.begin_write(bytes, place, immediate, key).map_err(Cause::Protocol)?;
                    at += PLACE_BYTES;
                }
                Header::Introduction => {
                    let Some(said) = body.first_chunk::<INTRODUCTION_BYTES>() else { break };
                    let introduction = Introduction::decode(said);
                    self.references.introduce(introduction).map_err(Cause::Protocol)?;
                    at += INTRODUCTION_BYTES;
                }
                Header::Readable => self.references.set_readable(),
                Header::Reference { bytes, immediate, block } => {
                    let Some(address) = body.first_chunk::<ADDRESS_BYTES>() else { break };
                    let address = u64::from_le_bytes(*address);
                    self.begin_copy(bytes, immediate, block, address).map_err(Cause::Protocol)?;
                    at += ADDRESS_BYTES;
                }
                Header::Copied { block } => self.references.acknowledge(block),
                Header::Heartbeat => {}
                Header::Bye => self.received_bye = true,
                Header::Corrupt => return Err(Cause::Corrupt("as the peer reports".into())),
            }
            at += HEADER_BYTES;
        }
        if let Some(receive) = self.receives.front_mut() {
            receive.report(endpoint, completed);
        }
        Ok(at)
    }

    fn begin_segment(
        &mut self,
        bytes: usize,
        last: bool,
        immediate: u32,
        block: u32,
    ) -> Result<(), String> {
        if !self.discarding {
            let receive =
                self.receives.front_mut().ok_or("a block for which no memory was posted")?;
            receive.check(bytes, immediate, block)?;
        }
        if !last {
            self.usual_bytes = bytes;
        }
        let into = if self.discarding { Into::Discard } else { Into::Receive { last } };
        self.segment = Some(Segment { rest_bytes: bytes, into });
        Ok(())
    }

    /// Takes the first posted receive for a block in the peer's memory.
    fn begin_copy(
        &mut self,
        bytes: u32,
        immediate: u32,
        block: u32,
        address: u64,
    ) -> Result<(), String> {
        if !self.references.is_trusted() {
            return Err("it refers to memory that cannot be read here".into());
        }
        if self.discarding {
            return Ok(());
        }
        let mut receive =
            self.receives.pop_front().ok_or("a block for which no memory was posted")?;
        let checked = match receive.filled_bytes {
            0 => receive.check(bytes as usize, immediate, block),
            _ => Err("a reference inside a block".into()),
        };
        if checked.is_err() {
            self.receives.push_front(receive);
        } else {
            self.references.push(receive, address, bytes);
        }
        checked
    }

    fn begin_write(
        &mut self,
        bytes: usize,
        place: Place,
        immediate: Option<u32>,
        key: u32,
    ) -> Result<(), String> {
        let mut into = Into::Discard;
        if !self.discarding {
            let memory = self
                .exposed
                .get(&key)
                .ok_or_else(|| format!("a write to key {key}, which is not exposed"))?;
            let Place { offset, rest_bytes } = place;
            if offset.checked_add(rest_bytes).is_none_or(|end| end > memory.len() as u64) {
                return Err(format!(
                    "a write of {rest_bytes} bytes at {offset} of the {} bytes of key {key}",
                    memory.len()
                ));
            }
            let ends = immediate.filter(|_| bytes as u64 == rest_bytes);
            into = Into::Exposed { memory: memory.clone(), at: offset as usize, ends };
        }
        self.segment = Some(Segment { rest_bytes: bytes, into });
        Ok(())
    }

    /// Consumes the payload at the start of `ahead`, and returns its length. Ends the segment, and
    /// its block or write, if it is complete.
    fn end_segment(
        &mut self,
        ahead: &[u8],
        endpoint: EndpointId,
        completed: &mut Vec<Completion>,
    ) -> Result<usize, Cause> {
        let taken_bytes = self.take_payload(ahead)?;
        let Some(segment) = self.segment.take_if(|segment| segment.rest_bytes == 0) else {
            return Ok(taken_bytes);
        };
        match segment.into {
            // The receive exists: `begin_segment` has checked it.
            Into::Receive { last: true } => {
                if let Some(receive) = self.receives.pop_front() {
                    receive.complete(endpoint, completed);
                }
            }
            Into::Exposed { ends: Some(immediate), .. } => {
                completed.push(Completion::Written { endpoint, immediate });
            }
            _ => {}
        }
        Ok(taken_bytes)
    }

    fn take_payload(&mut self, ahead: &[u8]) -> Result<usize, Cause> {
        let Some(segment) = &mut self.segment else { return Ok(0) };
        let payload = &ahead[..segment.rest_bytes.min(ahead.len())];
        match (&mut segment.into, self.receives.front_mut()) {
            (Into::Exposed { memory, at, .. }, _) => {
                memory.copy_in(*at, payload).map_err(|error| Cause::Protocol(error.to_string()))?;
            }
            (Into::Receive { .. }, Some(receive)) => {
                receive.lease[..payload.len()].copy_from_slice(payload);
            }
            _ => {}
        }
        let bytes = payload.len();
        self.fill(bytes);
        Ok(bytes)
    }
}
