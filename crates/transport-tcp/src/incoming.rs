//! The receiving half of a stream: parses frames, fills posted memory, reports completions.

use std::io::IoSliceMut;

use rustix::io::Errno;
use transport::{
    CONTROL_BYTES_MAX, Cause, Completion, EndpointId, PROOF_BYTES, PeerMemory, PostError, Token,
    WriteLease,
};

use crate::{
    byte_stream::ByteStream,
    inbound::Channels,
    messages::PartialMessage,
    moved::Moved,
    segment_read::SegmentRead,
    settings::SEGMENT_BYTES,
    wire::{
        ADDRESS_BYTES, CONTROL_FRAME_BYTES_MAX, HEADER_BYTES, Header, PLACE_BYTES, Place, WireError,
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
/// On a shared connection frames are for the channel that was selected last. Between segments another one may be selected.
pub(crate) struct Incoming {
    pub(crate) channels: Channels,
    /// Control words and messages may come: they are on the first stream of a connection alone.
    takes_words: bool,
    message: PartialMessage,
    segment: Option<Segment>,
    lookahead: Box<[u8]>,
    /// Bytes of `lookahead` that were read and not yet parsed: always less than one frame between
    /// calls.
    ahead_bytes: usize,
    /// What came behind a segment whose length was guessed wrong, in place of the lookahead; empty between calls.
    strays: Vec<u8>,
    /// Length of the last segment that did not end its block, by which the next ones are guessed; at first the default.
    usual_bytes: usize,
    /// A channel was selected since the last segment, and before it: those of several channels alternate.
    was_selected: bool,
    alternates: bool,
}

impl Incoming {
    /// Begins with one channel, number 0: the only one, or, on a shared connection, one that no group has.
    pub(crate) fn new(endpoint: EndpointId, is_shared: bool) -> Self {
        Self {
            channels: Channels::new(endpoint, is_shared),
            takes_words: true,
            message: PartialMessage::default(),
            segment: None,
            lookahead: Box::new([0; LOOKAHEAD_BYTES]),
            ahead_bytes: 0,
            strays: Vec::new(),
            usual_bytes: SEGMENT_BYTES,
            was_selected: false,
            alternates: false,
        }
    }

    /// From now on control words and messages are refused, of which there may be more than their owner takes.
    pub(crate) fn refuse_words(&mut self) {
        self.takes_words = false;
    }

    pub(crate) fn post(&mut self, number: u32, lease: WriteLease, token: Token, block: u32) {
        if let Some(inbound) = self.channels.get(number) {
            inbound.post(lease, token, block);
        }
    }

    /// Lets the peer write into memory until the endpoint ends.
    pub(crate) fn expose(
        &mut self,
        number: u32,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        let Some(inbound) = self.channels.get(number) else { return Ok(()) };
        if inbound.exposed.contains_key(&key) {
            return Err(PostError::System(format!("key {key} is in use")));
        }
        inbound.exposed.insert(key, memory);
        if self.lookahead.len() < LOOKAHEAD_OF_WRITES_BYTES {
            let mut longer = vec![0; LOOKAHEAD_OF_WRITES_BYTES].into_boxed_slice();
            longer[..self.ahead_bytes].copy_from_slice(&self.lookahead[..self.ahead_bytes]);
            self.lookahead = longer;
        }
        Ok(())
    }

    /// Returns whether the only channel has received its bye, behind which nothing is awaited.
    pub(crate) fn received_bye(&self) -> bool {
        !self.channels.is_shared && self.channels.all.current.received_bye
    }

    /// Cancels all receives of a channel; blocks that still arrive are dropped from now on.
    pub(crate) fn discard(&mut self, number: u32, completed: &mut Vec<Completion>) {
        if number == self.channels.all.number
            && let Some(segment) = &mut self.segment
        {
            segment.into = Into::Discard;
        }
        if let Some(inbound) = self.channels.get(number) {
            inbound.discard(completed);
        }
    }

    /// Reads once. `budget_bytes` is roughly how much may be read in this round.
    ///
    /// Call [`Incoming::parse`] afterwards, before the next read; receives may be posted meanwhile, and channels be added or end.
    pub(crate) fn read(
        &mut self,
        stream: &mut impl ByteStream,
        budget_bytes: usize,
    ) -> Result<Moved, Errno> {
        let ahead_free = self.ahead_free();
        let budget_bytes = budget_bytes.max(READ_BYTES_MIN);
        match &self.segment {
            Some(Segment { into: Into::Receive { .. }, .. }) => {
                self.read_block(stream, budget_bytes, ahead_free)
            }
            None if self.ahead_bytes == 0 && !self.has_short_frames() && self.may_guess() => {
                self.read_block(stream, budget_bytes, ahead_free)
            }
            Some(Segment { into: Into::Discard, .. }) => {
                self.read_discarded(stream, budget_bytes, ahead_free)
            }
            _ => {
                let ahead = &mut self.lookahead[self.ahead_bytes..][..ahead_free];
                let bytes = stream.read(&mut [IoSliceMut::new(ahead)])?;
                self.ahead_bytes += bytes;
                Ok(Moved { bytes, wanted: ahead_free })
            }
        }
    }

    /// Reads payload of the current segment and, with it, what follows in the block or at least its next header: one
    /// read for several segments.
    fn read_block(
        &mut self,
        stream: &mut impl ByteStream,
        budget_bytes: usize,
        ahead_free: usize,
    ) -> Result<Moved, Errno> {
        let may_guess = self.may_guess();
        let Some(receive) = self.channels.all.current.receives.front_mut() else {
            return Err(Errno::INVAL);
        };
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
        let bytes = read.read(stream, &mut receive.lease, ahead)?;
        let wanted = read.wanted_bytes() + ahead_wanted;
        self.take_segments(&read, bytes);
        Ok(Moved { bytes, wanted })
    }

    /// Returns whether frames are to be expected that are no blocks' payload: writes, or references in place
    /// of long blocks.
    fn has_short_frames(&self) -> bool {
        !self.channels.all.current.exposed.is_empty()
            || self.channels.all.current.references.is_trusted()
    }

    /// Returns whether the next frame is likely to be a segment of the first posted receive, and bytes behind its block may be
    /// written: the memory of a receive that is followed has no contents but its block.
    fn may_guess(&self) -> bool {
        let goes_on = match &self.segment {
            None => true,
            Some(Segment { into: Into::Receive { last }, .. }) => !last,
            Some(_) => false,
        };
        goes_on
            && !self.alternates
            && self
                .channels
                .all
                .current
                .receives
                .front()
                .is_some_and(|receive| receive.lease.is_followed())
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
                let memory = self
                    .channels
                    .all
                    .current
                    .receives
                    .front()
                    .map_or(&[][..], |receive| &receive.lease);
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
        stream: &mut impl ByteStream,
        budget_bytes: usize,
        ahead_free: usize,
    ) -> Result<Moved, Errno> {
        let rest_bytes = self.segment.as_ref().map_or(0, |segment| segment.rest_bytes);
        let mut discarded = [0; DISCARD_BYTES];
        let part_bytes = rest_bytes.min(budget_bytes).min(DISCARD_BYTES);
        let ahead_wanted = if part_bytes == rest_bytes { ahead_free } else { 0 };
        let ahead = &mut self.lookahead[self.ahead_bytes..][..ahead_wanted];
        let payload = &mut discarded[..part_bytes];
        let bytes = stream.read(&mut [IoSliceMut::new(payload), IoSliceMut::new(ahead)])?;
        self.ahead_bytes += bytes.saturating_sub(part_bytes);
        self.fill(bytes.min(part_bytes));
        Ok(Moved { bytes, wanted: part_bytes + ahead_wanted })
    }

    /// Returns how many bytes may be read into the lookahead behind the current segment, if any,
    /// without reading payload that has a destination. At least one.
    fn ahead_free(&self) -> usize {
        let capacity = self.lookahead.len() - self.ahead_bytes;
        let (in_block, block_goes_on, write_bytes) = match &self.segment {
            Some(Segment { into: Into::Receive { last }, .. }) => (true, !last, 0),
            Some(Segment { into: Into::Exposed { .. }, rest_bytes }) => (false, false, *rest_bytes),
            _ => (false, false, 0),
        };
        let others = self.channels.all.current.receives.len() - usize::from(in_block);
        let is_due = !self.channels.all.current.discarding && (others > 0 || block_goes_on);
        if !is_due && !self.channels.is_shared {
            return capacity;
        }
        if !is_due || self.has_short_frames() {
            // They come at any time, and so do blocks of other channels. Short ones still share a system call, and little of
            // a block is copied.
            return capacity.min(write_bytes + LOOKAHEAD_BYTES);
        }
        let Some(header) = self.lookahead[..self.ahead_bytes].first_chunk() else {
            // Where channels alternate one is selected before each segment. Otherwise a few bytes of payload are copied.
            let headers = if self.alternates { 2 } else { 1 };
            return headers * HEADER_BYTES - self.ahead_bytes;
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
        match (&mut segment.into, self.channels.all.current.receives.front_mut()) {
            (Into::Exposed { at, .. }, _) => *at += bytes,
            (Into::Receive { .. }, Some(receive)) => receive.fill(bytes),
            _ => {}
        }
    }

    /// Parses what was read. Errors: the peer broke the protocol, or memory failed.
    pub(crate) fn parse(&mut self, completed: &mut Vec<Completion>) -> Result<(), Cause> {
        if !self.strays.is_empty() {
            let strays = std::mem::take(&mut self.strays);
            let at = self.parse_frames(&strays, completed)?;
            // The beginning of a frame.
            let rest = &strays[at..];
            self.lookahead[..rest.len()].copy_from_slice(rest);
            self.ahead_bytes = rest.len();
            return Ok(());
        }
        let mut lookahead = std::mem::take(&mut self.lookahead);
        let outcome = self.parse_frames(&lookahead[..self.ahead_bytes], completed);
        let at = *outcome.as_ref().unwrap_or(&0);
        lookahead.copy_within(at..self.ahead_bytes, 0);
        self.lookahead = lookahead;
        self.ahead_bytes -= at;
        debug_assert!(outcome.is_err() || self.ahead_bytes < CONTROL_FRAME_BYTES_MAX);
        outcome.map(drop)
    }

    /// Parses whole frames and returns their length; the rest is the beginning of a frame.
    fn parse_frames(
        &mut self,
        frames: &[u8],
        completed: &mut Vec<Completion>,
    ) -> Result<usize, Cause> {
        let mut at = 0;
        loop {
            at += self.end_segment(&frames[at..], completed)?;
            if self.segment.is_some() {
                break;
            }
            let Some((header, body)) = frames[at..].split_first_chunk::<HEADER_BYTES>() else {
                break;
            };
            let header = Header::decode(header).map_err(wrong)?;
            let Some(body) = body.get(..header.whole_body_bytes()) else { break };
            self.channels.check(header)?;
            if !self.takes_words
                && matches!(header, Header::Control { .. } | Header::Message { .. })
            {
                let why = "a control word or a message on another stream than the first";
                return Err(Cause::Protocol(why.into()));
            }
            self.take_frame(header, body, completed)?;
            at += HEADER_BYTES + body.len();
        }
        self.channels.report(completed);
        Ok(at)
    }

    fn take_frame(
        &mut self,
        header: Header,
        body: &[u8],
        completed: &mut Vec<Completion>,
    ) -> Result<(), Cause> {
        let taken = match header {
            Header::Data { bytes, last, immediate, block } => {
                self.begin_segment(bytes, last, immediate, block)
            }
            Header::Control { .. } => {
                let (endpoint, word) = (self.channels.all.current.endpoint, body.to_vec());
                if !self.channels.all.current.has_ended {
                    completed.push(Completion::Control { endpoint, word });
                }
                Ok(())
            }
            Header::Write { bytes, immediate, key } => {
                let place = body.first_chunk::<PLACE_BYTES>().ok_or(WireError::StrayValue);
                let place = Place::decode(place.map_err(wrong)?, bytes).map_err(wrong)?;
                self.begin_write(bytes, place, immediate, key)
            }
            Header::Introduction { pid } => {
                self.channels.news_of_memory();
                self.channels.all.current.references.introduce(pid)
            }
            Header::Challenge => {
                let proof = body.first_chunk::<PROOF_BYTES>().ok_or(WireError::StrayValue);
                self.channels.news_of_memory();
                self.channels.all.current.references.set_challenge(*proof.map_err(wrong)?)
            }
            Header::Proof => {
                let address = body.first_chunk::<ADDRESS_BYTES>().ok_or(WireError::StrayValue);
                let address = u64::from_le_bytes(*address.map_err(wrong)?);
                self.channels.news_of_memory();
                self.channels.all.current.references.prove(address)
            }
            Header::Readable => {
                self.channels.news_of_memory();
                self.channels.all.current.references.set_readable();
                Ok(())
            }
            Header::Reference { bytes, immediate, block } => {
                let address = body.first_chunk::<ADDRESS_BYTES>().ok_or(WireError::StrayValue);
                let address = u64::from_le_bytes(*address.map_err(wrong)?);
                self.channels.news_to_copy();
                self.channels.all.current.begin_copy(bytes, immediate, block, address)
            }
            Header::Copied { block } => {
                self.channels.news_of_memory();
                self.channels.all.current.references.acknowledge(block);
                Ok(())
            }
            Header::Heartbeat => Ok(()),
            Header::Bye => {
                self.channels.receive_bye();
                Ok(())
            }
            Header::Channel { number } => {
                self.channels.report(completed);
                self.was_selected = true;
                return self.channels.select(number);
            }
            Header::Message { last, .. } => {
                let message = self.message.add(body, last).map_err(Cause::Protocol)?;
                self.channels.news.messages.extend(message);
                Ok(())
            }
        };
        if let Err(why) = taken {
            if let Header::Data { bytes, .. } | Header::Write { bytes, .. } = header {
                // It is read over.
                self.segment = Some(Segment { rest_bytes: bytes, into: Into::Discard });
            }
            self.refuse(self.channels.all.number, Cause::Protocol(why), completed);
        }
        Ok(())
    }

    /// Lets a channel end whose peer broke the protocol, or whose memory failed.
    pub(crate) fn refuse(&mut self, number: u32, cause: Cause, completed: &mut Vec<Completion>) {
        self.discard(number, completed);
        self.channels.news.refused.push((number, cause));
    }

    fn begin_segment(
        &mut self,
        bytes: usize,
        last: bool,
        immediate: u32,
        block: u32,
    ) -> Result<(), String> {
        let mut into = Into::Discard;
        if !self.channels.all.current.discarding {
            let receive = self
                .channels
                .all
                .current
                .receives
                .front_mut()
                .ok_or("a block for which no memory was posted")?;
            receive.check(bytes, immediate, block)?;
            into = Into::Receive { last };
        }
        if !last {
            self.usual_bytes = bytes;
        }
        self.alternates = std::mem::take(&mut self.was_selected);
        self.segment = Some(Segment { rest_bytes: bytes, into });
        Ok(())
    }

    fn begin_write(
        &mut self,
        bytes: usize,
        place: Place,
        immediate: Option<u32>,
        key: u32,
    ) -> Result<(), String> {
        if self.channels.all.current.discarding {
            self.segment = Some(Segment { rest_bytes: bytes, into: Into::Discard });
            return Ok(());
        }
        let exposed = self.channels.all.current.exposed.get(&key);
        let memory =
            exposed.ok_or_else(|| format!("a write to key {key}, which is not exposed"))?;
        let Place { offset, rest_bytes } = place;
        if offset.checked_add(rest_bytes).is_none_or(|end| end > memory.len() as u64) {
            return Err(format!(
                "a write of {rest_bytes} bytes at {offset} of the {} bytes of key {key}",
                memory.len()
            ));
        }
        let ends = immediate.filter(|_| bytes as u64 == rest_bytes);
        let into = Into::Exposed { memory: memory.clone(), at: offset as usize, ends };
        self.segment = Some(Segment { rest_bytes: bytes, into });
        Ok(())
    }

    /// Consumes the payload at the start of `ahead`, and returns its length. Ends the segment, and
    /// its block or write, if it is complete.
    fn end_segment(
        &mut self,
        ahead: &[u8],
        completed: &mut Vec<Completion>,
    ) -> Result<usize, Cause> {
        let taken_bytes = self.take_payload(ahead)?;
        let Some(segment) = self.segment.take_if(|segment| segment.rest_bytes == 0) else {
            return Ok(taken_bytes);
        };
        let endpoint = self.channels.all.current.endpoint;
        match segment.into {
            // The receive exists: `begin_segment` has checked it.
            Into::Receive { last: true } => {
                if let Some(receive) = self.channels.all.current.receives.pop_front() {
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
        match (&mut segment.into, self.channels.all.current.receives.front_mut()) {
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

fn wrong(error: WireError) -> Cause {
    Cause::Protocol(error.to_string())
}
