//! The settings of a team at one member.

use std::{ops::RangeInclusive, time::Duration};

use collective::{MEMBERS_MAX, Settings};

use crate::{Error, PlantedBug, WriteEnds};

/// The settings of a team at one member; all but the rank, how ends show and the timeout have to be the same at all members.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TeamSettings {
    /// Identifies the team in errors.
    pub number: u64,
    /// Number of members; 1 to 65,536.
    pub members: u32,
    /// This member's rank.
    pub rank: u32,
    /// Slots of each ring that a linked member writes; 1 to 4,096.
    pub slots: u32,
    /// Length in bytes of a slot; 64 to 1 MiB.
    pub slot_bytes: u32,
    /// The degrees of reductions: see [`Settings::degrees`].
    pub degrees: Vec<(u64, u32)>,
    /// How this member learns that its slots were written; others may have another setting.
    pub ends: WriteEnds,
    /// After so long without progress of an operation, a member tells others what it waits for.
    pub ask_after: Duration,
    /// For tests.
    #[doc(hidden)]
    pub planted: Option<PlantedBug>,
}

impl TeamSettings {
    /// Returns the settings of member `rank` with defaults for everything else: 16 slots of 4 KiB, degree 3 up to 1 KiB.
    pub fn new(number: u64, members: u32, rank: u32) -> Self {
        Self {
            number,
            members,
            rank,
            slots: 16,
            slot_bytes: 4096,
            degrees: vec![(1024, 3)],
            ends: WriteEnds::default(),
            ask_after: Duration::from_millis(100),
            planted: None,
        }
    }

    /// Checks the ranges of all settings.
    ///
    /// Errors: [`Error::OutOfRange`].
    pub fn check(&self) -> Result<(), Error> {
        let check = |setting, value: u32, range: RangeInclusive<u32>| {
            let (value, range) =
                (u64::from(value), u64::from(*range.start())..=u64::from(*range.end()));
            if range.contains(&value) {
                Ok(())
            } else {
                Err(Error::OutOfRange { setting, value, range })
            }
        };
        check("members", self.members, 1..=MEMBERS_MAX)?;
        check("rank", self.rank, 0..=self.members - 1)?;
        check("slots", self.slots, 1..=4096)?;
        check("slot_bytes", self.slot_bytes, Settings::SLOT_BYTES_MIN..=1 << 20)?;
        self.degrees.iter().try_for_each(|&(_, degree)| check("degrees", degree, 1..=MEMBERS_MAX))
    }

    /// Returns the members to which this one has to be linked, in ascending order.
    pub fn links(&self) -> Vec<u32> {
        self.core().links()
    }

    /// Returns the length of the longest element that can be folded.
    pub(crate) fn element_bytes_max(&self) -> u64 {
        u64::from(self.core().slot_room_bytes().min(u16::MAX.into()))
    }

    pub(crate) fn core(&self) -> Settings {
        Settings {
            members: self.members,
            rank: self.rank,
            slots: self.slots,
            slot_bytes: self.slot_bytes,
            degrees: self.degrees.clone(),
        }
    }
}
