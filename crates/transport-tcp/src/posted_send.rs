//! A posted send: its memory, its destination, and the segments that it is cut into.

use std::ops::Range;

use transport::{ArrivingRead, ReadLease, Token};

use crate::wire::{HEADER_BYTES, Header, PLACE_BYTES, Place};

/// What has arrived of a block is sent on at once, if it is at least this long, or the rest. Links deliver packets in
/// bunches, and a member that is late finds more: segments become as long as what one wake-up brings. Segments of a fixed part of
/// a block would wait for the next bunch at each hop.
const CUT_THROUGH_BYTES_MIN: usize = 4 << 10;

/// Shorter blocks come by one wake-up or two as it is.
pub(crate) const CUT_THROUGH_BLOCK_BYTES_MIN: u64 = 16 << 10;

/// A block to send, or a one-sided write.
pub(crate) struct PostedSend {
    from: From,
    token: Token,
    to: To,
    /// How many bytes may be sent now: all, or as many as had arrived at the last
    /// [`PostedSend::follow`].
    ready_bytes: usize,
    pub(crate) sent_bytes: usize,
}

/// Memory to send.
enum From {
    Whole(ReadLease),
    Arriving(ArrivingRead),
}

/// The destination of payload at the peer.
#[derive(Clone, Copy)]
pub(crate) enum To {
    /// The peer's receive of this number on this stream of its endpoint, modulo 2^32.
    Receive { block: u32, immediate: u32 },
    /// Memory that the peer has exposed; without an immediate the peer's transport reports nothing.
    Exposed { key: u32, offset: u64, immediate: Option<u32> },
}

/// The bytes before the payload of a segment: perhaps the selection of its channel, its header, and its place if it has one.
pub(crate) struct Head {
    encoded: [u8; 2 * HEADER_BYTES + PLACE_BYTES],
    bytes: usize,
}

impl Head {
    fn new(header: Header, place: Option<Place>) -> Self {
        let mut head = Self { encoded: [0; 2 * HEADER_BYTES + PLACE_BYTES], bytes: 0 };
        head.add(&header.encode());
        place.iter().for_each(|place| head.add(&place.encode()));
        head
    }

    fn add(&mut self, bytes: &[u8]) {
        self.encoded[self.bytes..][..bytes.len()].copy_from_slice(bytes);
        self.bytes += bytes.len();
    }

    /// Returns this head behind the selection of its channel.
    pub(crate) fn selecting(&self, number: u32) -> Self {
        let mut head = Self::new(Header::Channel { number }, None);
        head.add(self.as_slice());
        head
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        &self.encoded[..self.bytes]
    }
}

impl PostedSend {
    pub(crate) fn new(lease: ReadLease, token: Token, to: To) -> Self {
        let ready_bytes = lease.bytes();
        Self { from: From::Whole(lease), token, to, ready_bytes, sent_bytes: 0 }
    }

    /// A block that is sent while it arrives.
    pub(crate) fn arriving(read: ArrivingRead, token: Token, to: To) -> Self {
        let from = From::Arriving(read);
        let mut send = Self { from, token, to, ready_bytes: 0, sent_bytes: 0 };
        send.follow();
        send
    }

    /// Looks how much has arrived. Returns whether some has not.
    pub(crate) fn follow(&mut self) -> bool {
        if let From::Arriving(read) = &self.from {
            self.ready_bytes = read.arrived().len();
        }
        self.ready_bytes < self.bytes()
    }

    /// Returns whether it is a block, not a write.
    pub(crate) fn is_block(&self) -> bool {
        self.block().is_some()
    }

    /// Returns the number of the block on its stream, modulo 2^32.
    pub(crate) fn block(&self) -> Option<u32> {
        match self.to {
            To::Receive { block, .. } => Some(block),
            To::Exposed { .. } => None,
        }
    }

    /// Returns the frame that refers to the block and its address, if all of it is there.
    pub(crate) fn reference(&self) -> Option<(Header, u64)> {
        let To::Receive { block, immediate } = self.to else { return None };
        if self.ready_bytes < self.bytes() {
            return None;
        }
        let bytes = u32::try_from(self.bytes()).ok()?;
        let address = self.contents().as_ptr().addr() as u64;
        Some((Header::Reference { bytes, immediate, block }, address))
    }

    /// Returns the length of the whole block or write.
    pub(crate) fn bytes(&self) -> usize {
        match &self.from {
            From::Whole(lease) => lease.bytes(),
            From::Arriving(read) => read.bytes(),
        }
    }

    /// Returns what may be sent now.
    pub(crate) fn contents(&self) -> &[u8] {
        match &self.from {
            From::Whole(lease) => lease,
            From::Arriving(read) => &read.arrived()[..self.ready_bytes],
        }
    }

    /// Returns whether a segment that begins at byte `from` may be sent now.
    pub(crate) fn has_segment(&self, from: usize) -> bool {
        self.ready_bytes == self.bytes() || self.ready_bytes >= from + CUT_THROUGH_BYTES_MIN
    }

    /// Returns the head and the range of the segment that begins at byte `from`.
    pub(crate) fn segment(&self, from: usize, segment_bytes: usize) -> (Head, Range<usize>) {
        let end = self.ready_bytes.min(from + segment_bytes);
        let bytes = end - from;
        let head = match self.to {
            To::Receive { block, immediate } => {
                let last = end == self.bytes();
                Head::new(Header::Data { bytes, last, immediate, block }, None)
            }
            To::Exposed { key, offset, immediate } => {
                let rest_bytes = (self.bytes() - from) as u64;
                // A write beyond the exposed memory is refused by the peer at its first segment.
                let place = Place { offset: offset.saturating_add(from as u64), rest_bytes };
                Head::new(Header::Write { bytes, immediate, key }, Some(place))
            }
        };
        (head, from..end)
    }

    /// Drops the lease.
    pub(crate) fn into_token(self) -> Token {
        self.token
    }
}
