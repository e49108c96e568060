//! The settings of a team at one member.

use std::time::Duration;

use collective::{
    Call, HEADER_BYTES, MEMBERS_MAX, Reduction, Settings, WaySelection, model::WriteCosts,
};
use engine::check_range;

use crate::{Error, PlantedBug, WriteEnds};

/// The settings of a team at one member; all but the rank, how ends show and the timeout have to be the same at all members.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct TeamSettings {
    /// Identifies the team in errors.
    pub number: u64,
    /// Those of its operations: 1 to 65,536 members, 1 to 4,096 slots of 64 bytes to 1 MiB.
    pub core: Settings,
    /// Members other than rank 0 wait for the costs of rank 0, by which all choose ways, instead of their own.
    pub takes_costs: bool,
    /// At rank 0, with [`TeamSettings::takes_costs`]: the member to whom it measures the time of a write before it tells its costs;
    /// one of [`TeamSettings::links`].
    pub probed: Option<u32>,
    /// How this member learns that its slots were written; others may have another setting.
    pub ends: WriteEnds,
    /// After this time without progress of an operation, a member tells others what it waits for.
    pub ask_after: Duration,
    /// For tests.
    #[doc(hidden)]
    pub planted: Option<PlantedBug>,
}

impl TeamSettings {
    /// Returns the settings of member `rank` with defaults for everything else: 16 slots for 32 KiB, and ways by the costs of
    /// TCP between hosts.
    pub fn new(number: u64, members: u32, rank: u32) -> Self {
        let core = Settings {
            members,
            rank,
            slots: 16,
            slot_bytes: (32 << 10) + HEADER_BYTES as u32,
            ways: WaySelection::ByCosts(WriteCosts::TCP),
        };
        Self {
            number,
            core,
            takes_costs: false,
            probed: None,
            ends: WriteEnds::default(),
            ask_after: Duration::from_millis(100),
            planted: None,
        }
    }

    /// Checks the ranges of all settings.
    ///
    /// Errors: [`Error::OutOfRange`].
    pub fn check(&self) -> Result<(), Error> {
        let core = &self.core;
        check_range("members", core.members, 1..=MEMBERS_MAX)?;
        check_range("rank", core.rank, 0..=core.members - 1)?;
        check_range("slots", core.slots, 1..=4096)?;
        check_range("slot_bytes", core.slot_bytes, Settings::SLOT_BYTES_MIN..=1 << 20)?;
        match &core.ways {
            WaySelection::ByThresholds(thresholds) => {
                check_range("block_bytes", thresholds.block_bytes, 1..=1 << 30)?;
                check_range("degree", thresholds.degree, 1..=MEMBERS_MAX)?;
                Ok(())
            }
            WaySelection::ByCosts(costs) if costs.are_valid() => Ok(()),
            WaySelection::ByCosts(costs) => Err(Error::Costs(*costs)),
        }
    }

    /// Returns the members to which this one has to be linked, in ascending order.
    pub fn links(&self) -> Vec<u32> {
        self.core.links()
    }

    /// Checks a call.
    ///
    /// Errors: see [`crate::Team::start`].
    pub(crate) fn check_call(&self, call: &Call, by: Option<&Reduction>) -> Result<(), Error> {
        check_range("root", call.root, 0..=self.core.members - 1)?;
        let folds = call.kind.folds();
        match by {
            Some(by) if folds => {
                let element = by.element_bytes() as u64;
                let element_bytes_max = self.core.slot_room_bytes().min(u16::MAX.into());
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
}
