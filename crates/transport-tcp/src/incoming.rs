//! The receiving half of a stream: frames in, posted memory filled, completions out.

use std::{collections::VecDeque, io::IoSliceMut};

use mio::net::TcpStream;
use rustix::io::{Errno, readv};
use transport::{CONTROL_BYTES_MAX, Completion, EndpointId, Token, WriteLease};

use crate::wire::{CONTROL_FRAME_BYTES_MAX, HEADER_BYTES, Header};

/// Room for frames that are not data. A heap of small control words is read by one system call.
const LOOKAHEAD_BYTES: usize = 512;

/// Where payload goes that nobody wants any more.
const DISCARD_BYTES: usize = 16 << 10;

/// What is asked for at once even when the budget of the round is nearly used up.
const READ_BYTES_MIN: usize = 64 << 10;

/// Memory offered for one block.
struct PostedReceive {
    lease: WriteLease,
    token: Token,
    /// Number of the block on its endpoint, modulo 2^32.
    block: u32,
    filled_bytes: usize,
    /// Set by the first segment.
    immediate: Option<u32>,
}

/// The payload that is being read. It belongs to the first posted receive, or to nobody.
#[derive(Clone, Copy)]
struct Segment {
    rest_bytes: usize,
    last: bool,
}

/// The receiving half of one stream. Payload is read by the kernel straight into posted memory;
/// headers and control words into a small buffer, the lookahead.
///
/// The rule that keeps payload out of the lookahead: it is only given as much room as frames other
/// than data are known to fill, unless no memory is posted, when no data can come (a peer that
/// sends it all the same breaks the protocol).
pub(crate) struct Incoming {
    receives: VecDeque<PostedReceive>,
    segment: Option<Segment>,
    lookahead: [u8; LOOKAHEAD_BYTES],
    /// Bytes of `lookahead` that are read and not yet understood: always less than one frame
    /// between calls.
    ahead_bytes: usize,
    /// The endpoint is closing: blocks are read and dropped.
    discarding: bool,
    said_bye: bool,
}

/// What one system call did.
pub(crate) struct Moved {
    /// Bytes that were moved.
    pub(crate) bytes: usize,
    /// Bytes that were asked for. Fewer moved means that the socket is empty (or full), or that
    /// memory failed, which the next call will tell.
    pub(crate) wanted: usize,
}

impl Incoming {
    pub(crate) fn new() -> Self {
        Self {
            receives: VecDeque::new(),
            segment: None,
            lookahead: [0; LOOKAHEAD_BYTES],
            ahead_bytes: 0,
            discarding: false,
            said_bye: false,
        }
    }

    pub(crate) fn post(&mut self, lease: WriteLease, token: Token, block: u32) {
        self.receives.push_back(PostedReceive {
            lease,
            token,
            block,
            filled_bytes: 0,
            immediate: None,
        });
    }

    /// Whether the peer has said that nothing more comes.
    pub(crate) fn said_bye(&self) -> bool {
        self.said_bye
    }

    /// Hands back all memory; blocks that still arrive are dropped from now on.
    pub(crate) fn discard(&mut self, endpoint: EndpointId, completed: &mut Vec<Completion>) {
        self.discarding = true;
        for PostedReceive { lease, token, .. } in self.receives.drain(..) {
            drop(lease);
            completed.push(Completion::Cancelled { endpoint, token });
        }
    }

    /// One system call. `budget_bytes` is how much may be read in this round, more or less.
    ///
    /// Call [`Incoming::parse`] afterwards, before anything else.
    pub(crate) fn read(&mut self, socket: &TcpStream, budget_bytes: usize) -> Result<Moved, Errno> {
        let ahead_room = self.ahead_room();
        let Some(Segment { rest_bytes, .. }) = self.segment else {
            let room = &mut self.lookahead[self.ahead_bytes..][..ahead_room];
            let bytes = readv(socket, &mut [IoSliceMut::new(room)])?;
            self.ahead_bytes += bytes;
            return Ok(Moved { bytes, wanted: ahead_room });
        };
        let part_bytes = rest_bytes.min(budget_bytes.max(READ_BYTES_MIN));
        let mut discarded;
        let payload: &mut [u8] = match self.receives.front_mut() {
            Some(receive) if !self.discarding => {
                &mut receive.lease[receive.filled_bytes..][..part_bytes]
            }
            _ => {
                discarded = [0; DISCARD_BYTES];
                &mut discarded[..part_bytes.min(DISCARD_BYTES)]
            }
        };
        let part_bytes = payload.len();
        // The header behind the payload comes with it: one system call per segment, not two.
        let ahead_wanted = if part_bytes == rest_bytes { ahead_room } else { 0 };
        let ahead = &mut self.lookahead[self.ahead_bytes..][..ahead_wanted];
        let bytes = readv(socket, &mut [IoSliceMut::new(payload), IoSliceMut::new(ahead)])?;
        self.ahead_bytes += bytes.saturating_sub(part_bytes);
        self.fill(bytes.min(part_bytes));
        Ok(Moved { bytes, wanted: part_bytes + ahead_wanted })
    }

    /// How many bytes may be read into the lookahead behind the current segment, if any, and
    /// cannot be payload that has a place to go. At least one.
    fn ahead_room(&self) -> usize {
        let capacity = LOOKAHEAD_BYTES - self.ahead_bytes;
        let block_goes_on = self.segment.is_some_and(|segment| !segment.last);
        let others = self.receives.len() - usize::from(self.segment.is_some() && !self.discarding);
        if self.discarding || (others == 0 && !block_goes_on) {
            return capacity;
        }
        let Some(header) = self.lookahead[..self.ahead_bytes].first_chunk() else {
            return HEADER_BYTES - self.ahead_bytes;
        };
        // A whole header that `parse` has left there is that of a control word in pieces.
        let body_bytes = match Header::decode(header) {
            Ok(Header::Control { bytes }) => bytes,
            _ => CONTROL_BYTES_MAX,
        };
        (HEADER_BYTES + body_bytes + HEADER_BYTES - self.ahead_bytes).min(capacity)
    }

    fn fill(&mut self, bytes: usize) {
        if let Some(segment) = &mut self.segment {
            segment.rest_bytes -= bytes;
        }
        if let Some(receive) = self.receives.front_mut() {
            receive.filled_bytes += bytes;
        }
    }

    /// Understands what was read. The error says what the peer did wrong.
    pub(crate) fn parse(
        &mut self,
        endpoint: EndpointId,
        completed: &mut Vec<Completion>,
    ) -> Result<(), String> {
        let mut at = 0;
        while !self.said_bye {
            at += self.end_segment(at, endpoint, completed);
            if self.segment.is_some() {
                break;
            }
            let ahead = &self.lookahead[at..self.ahead_bytes];
            let Some((header, body)) = ahead.split_first_chunk::<HEADER_BYTES>() else { break };
            match Header::decode(header).map_err(|error| error.to_string())? {
                Header::Data { bytes, last, immediate, block } => {
                    self.begin_segment(bytes, last, immediate, block)?;
                }
                Header::Control { bytes } => {
                    let Some(word) = body.get(..bytes) else { break };
                    completed.push(Completion::Control { endpoint, word: word.to_vec() });
                    at += bytes;
                }
                Header::Heartbeat => {}
                Header::Bye => self.said_bye = true,
            }
            at += HEADER_BYTES;
        }
        self.lookahead.copy_within(at..self.ahead_bytes, 0);
        self.ahead_bytes -= at;
        debug_assert!(self.said_bye || self.ahead_bytes < CONTROL_FRAME_BYTES_MAX);
        Ok(())
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
            if block != receive.block {
                return Err(format!("block {block} came instead of {}", receive.block));
            }
            if *receive.immediate.get_or_insert(immediate) != immediate {
                return Err("the immediate changed inside a block".into());
            }
            let room_bytes = receive.lease.bytes() - receive.filled_bytes;
            if bytes > room_bytes {
                return Err(format!(
                    "a block longer than the {} bytes posted",
                    receive.lease.bytes()
                ));
            }
        }
        self.segment = Some(Segment { rest_bytes: bytes, last });
        Ok(())
    }

    /// Ends the segment, and its block, if all of it is there. Answers how many bytes of the
    /// lookahead (from `at`) were payload that nobody wants.
    fn end_segment(
        &mut self,
        at: usize,
        endpoint: EndpointId,
        completed: &mut Vec<Completion>,
    ) -> usize {
        let Some(segment) = &mut self.segment else { return 0 };
        let mut dropped_bytes = 0;
        if self.discarding {
            dropped_bytes = segment.rest_bytes.min(self.ahead_bytes - at);
            segment.rest_bytes -= dropped_bytes;
        }
        let Segment { rest_bytes, last } = *segment;
        if rest_bytes > 0 {
            return dropped_bytes;
        }
        self.segment = None;
        if last && !self.discarding {
            // There is one: `begin_segment` has seen it.
            if let Some(receive) = self.receives.pop_front() {
                let PostedReceive { lease, token, filled_bytes, immediate, .. } = receive;
                drop(lease);
                completed.push(Completion::Received {
                    endpoint,
                    token,
                    bytes: filled_bytes as u64,
                    immediate: immediate.unwrap_or(0),
                });
            }
        }
        dropped_bytes
    }
}
