//! The plan of one message.

use schedule::{Algorithm, Schedule};

use super::args::Args;
use crate::failure::Failure;

/// The maximum number of transfers: the table then has about a gigabyte.
pub const MAX_TRANSFERS: u64 = 50_000_000;

/// A schedule and a number of blocks.
pub struct Plan {
    pub schedule: Schedule,
    pub blocks: u32,
}

impl Plan {
    pub fn new(args: &Args) -> Result<Self, Failure> {
        let members = args.members()?;
        let algorithm = args.algorithm.unwrap_or(Algorithm::BinomialPipeline);
        let blocks = args.blocks.unwrap_or(0);
        let transfers = u64::from(members - 1) * u64::from(blocks);
        if transfers > MAX_TRANSFERS {
            return Err(Failure::Usage(format!(
                "this plan has {transfers} transfers, and rdmc plan shows at most {MAX_TRANSFERS}; \
                 use fewer --blocks or --members"
            )));
        }
        let schedule = match &args.racks {
            Some(sizes) => {
                Schedule::with_racks(algorithm, &rack_of_each(sizes, members)?, args.root)
            }
            None if algorithm.needs_racks() => {
                return Err(Failure::Usage(format!(
                    "{algorithm} needs racks; add for example --racks {},{}",
                    members.div_ceil(2),
                    members / 2
                )));
            }
            None => Schedule::new(algorithm, members, args.root),
        };
        let schedule = schedule.map_err(|error| Failure::Usage(error.to_string()))?;
        Ok(Self { schedule, blocks })
    }

    pub fn steps(&self) -> u64 {
        self.schedule.steps(self.blocks)
    }

    /// For in-switch: the number of blocks on the root's link if switches copy; steps count each copy.
    pub fn block_times_with_copies(&self) -> Option<u64> {
        let is_in_switch = self.schedule.algorithm() == Algorithm::InSwitch;
        (is_in_switch && self.schedule.members() > 1).then_some(self.blocks.into())
    }
}

/// The rack of each rank, from the racks' sizes in rank order.
pub fn rack_of_each(sizes: &[u32], members: u32) -> Result<Vec<u32>, Failure> {
    let total: u64 = sizes.iter().copied().map(u64::from).sum();
    if total != u64::from(members) {
        return Err(Failure::Usage(format!(
            "--racks has {total} members and the group {members}; the sizes must add up to --members"
        )));
    }
    Ok((0..)
        .zip(sizes)
        .flat_map(|(rack, &size)| std::iter::repeat_n(rack, size as usize))
        .collect())
}
