//! The settings of a team's operations.

use crate::{Call, Choice, WaySelection, header::HEADER_BYTES, links, model::Team};

/// The settings of operations at one member; all but the rank have to be the same at all members.
#[derive(Clone, PartialEq, Debug)]
pub struct Settings {
    /// Number of members.
    pub members: u32,
    /// This member's rank.
    pub rank: u32,
    /// Slots of each ring; at least 1.
    pub slots: u32,
    /// Length in bytes of a slot, the header included; more than [`Settings::SLOT_BYTES_MIN`].
    pub slot_bytes: u32,
    /// How ways are chosen.
    pub ways: WaySelection,
}

/// Room in the shortest slot.
const PIECE_BYTES_MIN: u32 = 16;

impl Settings {
    /// The least length in bytes of a slot.
    pub const SLOT_BYTES_MIN: u32 = HEADER_BYTES as u32 + PIECE_BYTES_MIN;

    /// Returns how a call goes.
    pub fn choice(&self, call: &Call) -> Choice {
        match &self.ways {
            WaySelection::ByCosts(costs) => {
                let slot_room_bytes = self.slot_room_bytes();
                Team { members: self.members, slot_room_bytes, costs }.choose(call)
            }
            WaySelection::ByThresholds(thresholds) => {
                thresholds.choose(call, self.members, self.slot_room_bytes())
            }
        }
    }

    /// Returns the members to which this one is linked, in ascending order: [`links`] with all degrees.
    pub fn links(&self) -> Vec<u32> {
        let degrees = match &self.ways {
            WaySelection::ByCosts(_) => crate::model::LINKED_DEGREES.to_vec(),
            WaySelection::ByThresholds(thresholds) => vec![thresholds.degree],
        };
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

    /// Returns the number of pieces of this many bytes of a call; at least 1.
    pub(crate) fn pieces(&self, call: &Call, bytes: u64) -> u64 {
        bytes.div_ceil(self.piece_bytes(call)).max(1)
    }
}
