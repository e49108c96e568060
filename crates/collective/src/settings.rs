//! The settings of a team's operations.

use crate::{Call, Kind, Partners, Way, header::HEADER_BYTES, links};

/// The settings of operations at one member; all but the rank have to be the same at all members.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// Number of members.
    pub members: u32,
    /// This member's rank.
    pub rank: u32,
    /// Slots of each ring; at least 1.
    pub slots: u32,
    /// Length in bytes of a slot, the header included; more than [`Settings::SLOT_BYTES_MIN`].
    pub slot_bytes: u32,
    /// The degree of reductions of contributions of at most so many bytes, in ascending order of bytes; longer ones have
    /// degree 1.
    pub degrees: Vec<(u64, u32)>,
    /// All-reduces and barriers of at most so many bytes go by exchange where the number of members is a power of two; of two
    /// members all that are not long.
    pub exchange_bytes: u64,
    /// Messages of at least so many bytes are long: they go from memory to memory, in blocks.
    pub long_bytes: u64,
    /// Length in bytes of the blocks of long messages; at least 1.
    pub block_bytes: u32,
}

/// Room in the shortest slot.
const PIECE_BYTES_MIN: u32 = 16;

/// Of a long reduction each member folds a part of at least so many bytes: below, the number of steps counts.
const CHUNK_BYTES_MIN: u64 = 4096;

impl Settings {
    /// The least length in bytes of a slot.
    pub const SLOT_BYTES_MIN: u32 = HEADER_BYTES as u32 + PIECE_BYTES_MIN;

    /// Returns the degree of a reduction.
    pub fn degree(&self, bytes: u64) -> u32 {
        let degree =
            self.degrees.iter().find_map(|&(most, degree)| (bytes <= most).then_some(degree));
        degree.unwrap_or(1)
    }

    /// Returns whether a call goes from memory to memory, in blocks, and not through slots.
    pub fn is_long(&self, call: &Call) -> bool {
        let members = u64::from(self.members);
        let bytes = match call.kind {
            Kind::Barrier | Kind::Close => return false,
            Kind::AllGather => call.bytes.saturating_mul(members),
            _ => call.bytes,
        };
        let has_chunks =
            call.kind != Kind::AllReduce || bytes / members >= CHUNK_BYTES_MIN.min(self.long_bytes);
        members > 1 && bytes > 0 && bytes >= self.long_bytes && has_chunks
    }

    /// Returns the exchange by which a short call goes; `None` where it goes along trees.
    fn exchange(&self, call: &Call) -> Option<Way> {
        let has_result_everywhere = call.kind == Kind::AllReduce || call.kind.is_barrier();
        let is_short = self.members == 2 || call.bytes <= self.exchange_bytes;
        let is_taken = has_result_everywhere && self.members > 1 && is_short;
        Partners::new(self.members).filter(|_| is_taken).map(Way::Exchange)
    }

    /// Returns the way that a call goes.
    pub fn way(&self, call: &Call) -> Way {
        if self.is_long(call) {
            return match call.kind {
                Kind::Broadcast => Way::Circulant,
                _ if call.is_commutative() => Way::Ring,
                _ => Way::Chain,
            };
        }
        let degree = call.kind.goes_up().then(|| self.degree(call.bytes));
        self.exchange(call).unwrap_or(Way::Trees { degree })
    }

    /// Returns the length in bytes of the blocks of a long call: no element is cut, and their number fits 32 bits.
    pub fn block_bytes(&self, call: &Call) -> u64 {
        let unit = u64::from(call.unit_bytes());
        let least = call.bytes.div_ceil(u64::from(u32::MAX)).max(self.block_bytes.into());
        (least / unit).max(1) * unit
    }

    /// Returns the members to which this one is linked, in ascending order: [`links`] with all degrees.
    pub fn links(&self) -> Vec<u32> {
        let degrees: Vec<u32> = self.degrees.iter().map(|&(_, degree)| degree).chain([1]).collect();
        links(self.members, self.rank, &degrees)
    }

    /// Returns the most bytes of contents that a slot has room for.
    pub fn slot_room_bytes(&self) -> u32 {
        self.slot_bytes - HEADER_BYTES as u32
    }

    /// Returns the length in bytes of the pieces of a call: as much as a slot has room for, and no element is cut.
    pub(crate) fn piece_bytes(&self, call: &Call) -> u64 {
        let unit = call.unit_bytes().clamp(1, self.slot_room_bytes());
        u64::from(self.slot_room_bytes() / unit * unit)
    }

    /// Returns the number of pieces of so many bytes of a call; at least 1.
    pub(crate) fn pieces(&self, call: &Call, bytes: u64) -> u64 {
        bytes.div_ceil(self.piece_bytes(call)).max(1)
    }
}
