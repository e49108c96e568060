//! The settings of a team at one member.

use std::time::Duration;

use collective::{Call, HEADER_BYTES, Kind, MEMBERS_MAX, Reduction, Settings};
use engine::check_range;

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
    /// All-reduces and barriers of at most so many bytes go by exchange where the number of members is a power of two: see
    /// [`Settings::exchange_bytes`].
    pub exchange_bytes: u64,
    /// Messages of at least so many bytes go from memory to memory in blocks, and not through slots.
    pub long_bytes: u64,
    /// Length in bytes of these blocks; 1 to 1 GiB.
    pub block_bytes: u32,
    /// How this member learns that its slots were written; others may have another setting.
    pub ends: WriteEnds,
    /// After so long without progress of an operation, a member tells others what it waits for.
    pub ask_after: Duration,
    /// For tests.
    #[doc(hidden)]
    pub planted: Option<PlantedBug>,
}

impl TeamSettings {
    /// Returns the settings of member `rank` with defaults for everything else: 16 slots for 32 KiB, degree 3 up to 1 KiB,
    /// exchange up to 16 KiB, and blocks of 128 KiB from 128 KiB on.
    pub fn new(number: u64, members: u32, rank: u32) -> Self {
        Self {
            number,
            members,
            rank,
            slots: 16,
            slot_bytes: (32 << 10) + HEADER_BYTES as u32,
            degrees: vec![(1024, 3)],
            exchange_bytes: 16 << 10,
            long_bytes: 128 << 10,
            block_bytes: 128 << 10,
            ends: WriteEnds::default(),
            ask_after: Duration::from_millis(100),
            planted: None,
        }
    }

    /// Checks the ranges of all settings.
    ///
    /// Errors: [`Error::OutOfRange`].
    pub fn check(&self) -> Result<(), Error> {
        check_range("members", self.members, 1..=MEMBERS_MAX)?;
        check_range("rank", self.rank, 0..=self.members - 1)?;
        check_range("slots", self.slots, 1..=4096)?;
        check_range("slot_bytes", self.slot_bytes, Settings::SLOT_BYTES_MIN..=1 << 20)?;
        check_range("block_bytes", self.block_bytes, 1..=1 << 30)?;
        let mut degrees = self.degrees.iter().map(|&(_, degree)| degree);
        Ok(degrees.try_for_each(|degree| check_range("degrees", degree, 1..=MEMBERS_MAX))?)
    }

    /// Returns the members to which this one has to be linked, in ascending order.
    pub fn links(&self) -> Vec<u32> {
        self.core().links()
    }

    /// Checks a call, and that the memory for it has the right length.
    ///
    /// Errors: see [`crate::Team::start`].
    pub(crate) fn check_call(
        &self,
        call: &Call,
        by: Option<&Reduction>,
        memory_bytes: u64,
    ) -> Result<(), Error> {
        let needed = match call.kind {
            Kind::AllGather => call.bytes.saturating_mul(u64::from(self.members)),
            _ => call.bytes,
        };
        if memory_bytes != needed {
            return Err(Error::WrongLength { bytes: memory_bytes, needed });
        }
        check_range("root", call.root, 0..=self.members - 1)?;
        let folds = matches!(call.kind, Kind::Reduce | Kind::AllReduce);
        match by {
            Some(by) if folds => {
                let element = by.element_bytes() as u64;
                let element_bytes_max = self.core().slot_room_bytes().min(u16::MAX.into());
                check_range("element_bytes", element, 1..=element_bytes_max.into())?;
                if call.bytes.is_multiple_of(element) {
                    Ok(())
                } else {
                    Err(Error::CutElement { bytes: call.bytes, element })
                }
            }
            None if folds => Err(Error::NoReduction(call.kind)),
            Some(_) => Err(Error::Reduction(call.kind)),
            None => Ok(()),
        }
    }

    pub(crate) fn core(&self) -> Settings {
        Settings {
            members: self.members,
            rank: self.rank,
            slots: self.slots,
            slot_bytes: self.slot_bytes,
            degrees: self.degrees.clone(),
            exchange_bytes: self.exchange_bytes,
            long_bytes: self.long_bytes,
            block_bytes: self.block_bytes,
        }
    }
}
