//! The frames between two peers. All input is untrusted until it is decoded here.
//!
//! A stream is a sequence of frames; a frame is a header of 16 bytes, then its body.
//!
//! | bytes | meaning (numbers are little endian) |
//! |---|---|
//! | 0 | kind: 1 data, 2 control, 3 heartbeat, 4 bye, 5 write, 6 proof, 7 introduction, 8 readable, 9 reference, 10 copied, 11 channel, 12 message, 13 challenge |
//! | 1 | flags: bit 0 = last segment of its block (data) or part of its message; bit 1 = its end is not reported (write only); others 0 |
//! | 2..4 | `RD`, so that a loss of framing is detected at once |
//! | 4..8 | length of the body in bytes; reference: length of the block |
//! | 8..12 | data: the immediate of the block, the same in each segment; reference: the immediate of the block; write that is reported: its immediate; otherwise 0 |
//! | 12..16 | data, reference, copied: number of the block on its endpoint, modulo 2^32; write: the key; channel: its number; introduction: number of the process; otherwise 0 |
//!
//! A block is one or more consecutive data frames (control frames and heartbeats may stand
//! between), of which only the last has the flag. Only a block of 0 bytes has an empty data frame.
//! Heartbeat and bye have no body. No frame follows a bye.
//!
//! A one-sided write is one or more write frames. Between header and body is the place, two numbers
//! of 8 bytes: the offset of this body in the exposed memory, and how many bytes of the write are
//! left from there on. The last frame of a write is the one whose body is all that is left.
//!
//! Between processes of one machine (docs/decisions/one-machine.md) an introduction, without a body, says which
//! process its sender is. A challenge answers with 16 random bytes, which that places in its memory; a proof says where,
//! by an address of 8 bytes; a readable, without a body, that they were read there. From then on a block may be a
//! reference instead of data frames: 8 bytes follow, its address in the sender's memory. A copied, without a body, reports that its sender has copied the block of this number.
//!
//! On a connection that groups share (docs/decisions/shared-connections.md) the frames behind a channel, which
//! has no body and may stand between segments, are of the channel with its number, up to the next one; on each stream 0 is selected at first, which is no group's. Heartbeats
//! and messages are the connection's, whatever is selected. A message is one or more message frames of 1 to 64 bytes,
//! of which only the last has the flag. No frame of a channel follows its bye.

use transport::{CONTROL_BYTES_MAX, PROOF_BYTES};

use crate::settings::SEGMENT_BYTES_MAX;

/// Length of every header.
pub(crate) const HEADER_BYTES: usize = 16;

/// Length of the place that follows the header of a write.
pub(crate) const PLACE_BYTES: usize = 16;

/// Length of the address that follows the header of a reference or a proof.
pub(crate) const ADDRESS_BYTES: usize = 8;

/// The longest frame that is not data.
pub(crate) const CONTROL_FRAME_BYTES_MAX: usize = HEADER_BYTES + CONTROL_BYTES_MAX;

const MARK: [u8; 2] = *b"RD";
const FLAG_LAST: u8 = 1;
const FLAG_UNREPORTED: u8 = 2;

/// A header whose values were checked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Header {
    /// A segment of a block; `bytes` of payload follow.
    Data { bytes: usize, last: bool, immediate: u32, block: u32 },
    /// A control word; its `bytes` (1 to 64) follow.
    Control { bytes: usize },
    /// A part of a one-sided write; its place and `bytes` of payload follow. Without an immediate
    /// its end is not reported.
    Write { bytes: usize, immediate: Option<u32>, key: u32 },
    /// The peer is alive.
    Heartbeat,
    /// The peer sends nothing more on this stream.
    Bye,
    /// Blocks may be copied out of the memory of the peer, which is this process.
    Introduction { pid: u32 },
    /// A proof follows that the peer wants to be placed in this end's memory.
    Challenge,
    /// The address follows at which the peer has placed the proof that it was sent.
    Proof,
    /// The peer can read this end's memory.
    Readable,
    /// A block of `bytes` (at least 1) in the peer's memory; its address follows.
    Reference { bytes: u32, immediate: u32, block: u32 },
    /// The peer has copied a block.
    Copied { block: u32 },
    /// The frames that follow are of the channel with this number.
    Channel { number: u32 },
    /// A part of a message between the ends of a shared connection; its `bytes` (1 to 64) follow.
    Message { bytes: usize, last: bool },
}

/// Why a header was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum WireError {
    #[error("bytes that are not a frame: {0:02x?}")]
    NotAFrame([u8; 4]),
    #[error("a segment of {0} bytes")]
    SegmentLength(u32),
    #[error("a reference to no bytes")]
    EmptyReference,
    #[error("a challenge or a proof of {0} bytes")]
    ProofLength(u32),
    #[error("a control word of {0} bytes")]
    ControlLength(u32),
    #[error("a frame with values that its kind does not have")]
    StrayValue,
}

impl Header {
    pub(crate) fn encode(self) -> [u8; HEADER_BYTES] {
        let (kind, flags, bytes, immediate, block) = match self {
            Header::Data { bytes, last, immediate, block } => {
                (1, if last { FLAG_LAST } else { 0 }, bytes, immediate, block)
            }
            Header::Control { bytes } => (2, 0, bytes, 0, 0),
            Header::Write { bytes, immediate: Some(immediate), key } => {
                (5, 0, bytes, immediate, key)
            }
            Header::Write { bytes, immediate: None, key } => (5, FLAG_UNREPORTED, bytes, 0, key),
            Header::Heartbeat => (3, 0, 0, 0, 0),
            Header::Bye => (4, 0, 0, 0, 0),
            Header::Introduction { pid } => (7, 0, 0, 0, pid),
            Header::Readable => (8, 0, 0, 0, 0),
            Header::Reference { bytes, immediate, block } => {
                (9, 0, bytes as usize, immediate, block)
            }
            Header::Copied { block } => (10, 0, 0, 0, block),
            Header::Channel { number } => (11, 0, 0, 0, number),
            Header::Message { bytes, last } => (12, if last { FLAG_LAST } else { 0 }, bytes, 0, 0),
            Header::Challenge => (13, 0, PROOF_BYTES, 0, 0),
            Header::Proof => (6, 0, ADDRESS_BYTES, 0, 0),
        };
        debug_assert!(
            kind == 9 || bytes <= SEGMENT_BYTES_MAX,
            "callers cut blocks, and the limit fits u32"
        );
        let mut header = [0; HEADER_BYTES];
        header[0] = kind;
        header[1] = flags;
        header[2..4].copy_from_slice(&MARK);
        header[4..8].copy_from_slice(&(bytes as u32).to_le_bytes());
        header[8..12].copy_from_slice(&immediate.to_le_bytes());
        header[12..16].copy_from_slice(&block.to_le_bytes());
        header
    }

    pub(crate) fn decode(header: &[u8; HEADER_BYTES]) -> Result<Self, WireError> {
        let [kind, flags, mark @ ..] = [header[0], header[1], header[2], header[3]];
        let number = |at: usize| {
            u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]])
        };
        let (bytes, immediate, block) = (number(4), number(8), number(12));
        if mark != MARK || !(1..=13).contains(&kind) {
            return Err(WireError::NotAFrame([kind, flags, mark[0], mark[1]]));
        }
        let has_immediate = matches!(kind, 1 | 5 | 9);
        let has_number = has_immediate || matches!(kind, 7 | 10 | 11);
        let allowed_flags = match kind {
            1 | 12 => FLAG_LAST,
            5 => FLAG_UNREPORTED,
            _ => 0,
        };
        let is_unreported = flags & FLAG_UNREPORTED != 0;
        if flags & !allowed_flags != 0
            || (!has_immediate && immediate != 0)
            || (!has_number && block != 0)
            || (is_unreported && immediate != 0)
        {
            return Err(WireError::StrayValue);
        }
        let length = bytes as usize;
        match kind {
            1 => {
                let last = flags & FLAG_LAST != 0;
                // Empty segments that are not the last would let a peer send for ever without
                // progress.
                if length > SEGMENT_BYTES_MAX || (length == 0 && !last) {
                    return Err(WireError::SegmentLength(bytes));
                }
                Ok(Header::Data { bytes: length, last, immediate, block })
            }
            5 if length <= SEGMENT_BYTES_MAX => {
                let immediate = (!is_unreported).then_some(immediate);
                Ok(Header::Write { bytes: length, immediate, key: block })
            }
            5 => Err(WireError::SegmentLength(bytes)),
            2 if (1..=CONTROL_BYTES_MAX).contains(&length) => Ok(Header::Control { bytes: length }),
            12 if (1..=CONTROL_BYTES_MAX).contains(&length) => {
                Ok(Header::Message { bytes: length, last: flags & FLAG_LAST != 0 })
            }
            2 | 12 => Err(WireError::ControlLength(bytes)),
            13 if length == PROOF_BYTES => Ok(Header::Challenge),
            6 if length == ADDRESS_BYTES => Ok(Header::Proof),
            6 | 13 => Err(WireError::ProofLength(bytes)),
            9 if bytes > 0 => Ok(Header::Reference { bytes, immediate, block }),
            9 => Err(WireError::EmptyReference),
            _ if bytes != 0 => Err(WireError::StrayValue),
            3 => Ok(Header::Heartbeat),
            4 => Ok(Header::Bye),
            7 => Ok(Header::Introduction { pid: block }),
            8 => Ok(Header::Readable),
            11 => Ok(Header::Channel { number: block }),
            _ => Ok(Header::Copied { block }),
        }
    }

    /// Returns the length of what follows the header and is parsed as a whole, which the payload of blocks and
    /// writes is not.
    pub(crate) fn whole_body_bytes(self) -> usize {
        match self {
            Header::Control { bytes } | Header::Message { bytes, .. } => bytes,
            Header::Write { .. } => PLACE_BYTES,
            Header::Challenge => PROOF_BYTES,
            Header::Proof | Header::Reference { .. } => ADDRESS_BYTES,
            _ => 0,
        }
    }
}

/// The destination of the body of a write frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// Offset from the start of the exposed memory.
    pub(crate) offset: u64,
    /// Bytes of the write from here on, this body included.
    pub(crate) rest_bytes: u64,
}

impl Place {
    pub(crate) fn encode(self) -> [u8; PLACE_BYTES] {
        let mut place = [0; PLACE_BYTES];
        place[..8].copy_from_slice(&self.offset.to_le_bytes());
        place[8..].copy_from_slice(&self.rest_bytes.to_le_bytes());
        place
    }

    /// Decodes the place of a body of `body_bytes` bytes.
    pub(crate) fn decode(place: &[u8; PLACE_BYTES], body_bytes: usize) -> Result<Self, WireError> {
        let number = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&place[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        let place = Self { offset: number(0), rest_bytes: number(8) };
        // Empty bodies that are not the last would let a peer send for ever without progress.
        if place.rest_bytes < body_bytes as u64 || (body_bytes == 0 && place.rest_bytes > 0) {
            return Err(WireError::SegmentLength(body_bytes as u32));
        }
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn data(bytes: usize, last: bool) -> Header {
        Header::Data { bytes, last, immediate: 7, block: 9 }
    }

    #[test]
    fn the_layout_is_fixed() {
        let header = Header::Data { bytes: 0x1234, last: true, immediate: 0xA1B2_C3D4, block: 5 };
        assert_eq!(
            header.encode(),
            [1, 1, b'R', b'D', 0x34, 0x12, 0, 0, 0xD4, 0xC3, 0xB2, 0xA1, 5, 0, 0, 0]
        );
    }

    #[test]
    fn both_sides_of_each_limit() {
        let decode = |header: Header| Header::decode(&header.encode());
        assert!(decode(data(SEGMENT_BYTES_MAX, false)).is_ok());
        let mut header = data(1, true).encode();
        header[4..8].copy_from_slice(&(SEGMENT_BYTES_MAX as u32 + 1).to_le_bytes());
        assert!(matches!(Header::decode(&header), Err(WireError::SegmentLength(_))));
        assert!(decode(data(0, true)).is_ok());
        assert_eq!(decode(data(0, false)), Err(WireError::SegmentLength(0)));
        for (bytes, good) in [(0, false), (1, true), (64, true), (65, false)] {
            assert_eq!(decode(Header::Control { bytes }).is_ok(), good, "{bytes}");
        }
        for (bytes, good) in [(0, false), (1, true), (u32::MAX, true)] {
            let reference = Header::Reference { bytes, immediate: 1, block: 2 };
            assert_eq!(decode(reference).is_ok(), good, "{bytes}");
        }
        for (header, length) in [(Header::Challenge, 16), (Header::Proof, 8)] {
            for (bytes, good) in [(length - 1, false), (length, true), (length + 1, false)] {
                let mut header = header.encode();
                header[4..8].copy_from_slice(&u32::to_le_bytes(bytes));
                assert_eq!(Header::decode(&header).is_ok(), good, "{bytes}");
            }
        }
    }

    #[test]
    fn stray_values_are_refused() {
        for (base, at) in [
            (Header::Heartbeat, 1),
            (Header::Heartbeat, 4),
            (Header::Bye, 8),
            (Header::Control { bytes: 3 }, 12),
            (Header::Introduction { pid: 1 }, 4),
            (Header::Introduction { pid: 1 }, 8),
            (Header::Challenge, 12),
            (Header::Proof, 12),
            (Header::Readable, 12),
            (Header::Copied { block: 1 }, 8),
            (Header::Copied { block: 1 }, 4),
        ] {
            let mut header = base.encode();
            header[at] = 1;
            assert_eq!(Header::decode(&header), Err(WireError::StrayValue), "{base:?} {at}");
        }
        let mut header = data(1, true).encode();
        header[1] = 2;
        assert_eq!(Header::decode(&header), Err(WireError::StrayValue));
        let write = |immediate| Header::Write { bytes: 1, immediate, key: 3 };
        for (at, value) in [(1, 1), (8, 1)] {
            let mut header = write(None).encode();
            header[at] ^= value;
            assert_eq!(Header::decode(&header), Err(WireError::StrayValue), "{at}");
        }
    }

    #[test]
    fn a_place_leaves_room_for_its_body() {
        let decode =
            |rest_bytes, body| Place::decode(&Place { offset: 9, rest_bytes }.encode(), body);
        assert_eq!(decode(5, 5), Ok(Place { offset: 9, rest_bytes: 5 }));
        assert!(decode(4, 5).is_err() && decode(6, 5).is_ok());
        assert!(decode(0, 0).is_ok() && decode(1, 0).is_err());
    }

    fn any_header() -> impl Strategy<Value = Header> {
        prop_oneof![
            (0..=SEGMENT_BYTES_MAX, any::<bool>(), any::<u32>(), any::<u32>()).prop_map(
                |(bytes, last, immediate, block)| Header::Data {
                    bytes,
                    last: last || bytes == 0,
                    immediate,
                    block
                }
            ),
            (1..=CONTROL_BYTES_MAX).prop_map(|bytes| Header::Control { bytes }),
            (0..=SEGMENT_BYTES_MAX, any::<Option<u32>>(), any::<u32>())
                .prop_map(|(bytes, immediate, key)| Header::Write { bytes, immediate, key }),
            Just(Header::Heartbeat),
            Just(Header::Bye),
            any::<u32>().prop_map(|pid| Header::Introduction { pid }),
            Just(Header::Challenge),
            Just(Header::Proof),
            Just(Header::Readable),
            (1..=u32::MAX, any::<u32>(), any::<u32>()).prop_map(|(bytes, immediate, block)| {
                Header::Reference { bytes, immediate, block }
            }),
            any::<u32>().prop_map(|block| Header::Copied { block }),
            any::<u32>().prop_map(|number| Header::Channel { number }),
            (1..=CONTROL_BYTES_MAX, any::<bool>())
                .prop_map(|(bytes, last)| Header::Message { bytes, last }),
        ]
    }

    proptest! {
        #[test]
        fn a_header_survives_the_wire(header in any_header()) {
            prop_assert_eq!(Header::decode(&header.encode()), Ok(header));
        }

        #[test]
        fn what_is_accepted_is_canonical(mut bytes: [u8; 16], plausible: bool, kind in 0_u8..17) {
            if plausible {
                (bytes[0], bytes[1]) = (kind, bytes[1] & 3);
                bytes[2..4].copy_from_slice(b"RD");
                bytes[6..8].fill(0);
            }
            if let Ok(header) = Header::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }
}
