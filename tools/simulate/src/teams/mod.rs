//! Whole teams in virtual time: operations of [`team::Team`] over a simulated network, with faults.
//!
//! [`values`] is the plain model of what operations compute; [`member`] is a team's member with its application, [`facts`] what
//! they record and [`checks`] what is judged by that alone; [`world`] advances time and injects faults.

mod calls;
mod canary;
mod checks;
mod counts;
mod draw;
mod facts;
mod fault;
mod member;
mod planted;
mod scenario;
mod shrink;
mod values;
mod world;

use std::ops::RangeInclusive;

use team::Failure;

pub use canary::TeamCanary;
pub use counts::TeamCounts;
pub use scenario::TeamScenario;

use crate::{
    counts::End,
    subject::{Limits, Options, OutcomeOf, Smaller, Subject},
};

impl Subject for TeamScenario {
    const OPTION: &'static str = " --teams";
    const OF: &'static str = " of teams";
    /// One member more than are linked completely, rarely.
    const MEMBERS: Option<RangeInclusive<u32>> = Some(1..=collective::ALL_PAIRS_MAX + 1);

    type Canary = TeamCanary;
    type Counts = TeamCounts;
    type End = End<Failure>;

    fn draw(seed: u64, limits: &Limits) -> Self {
        draw::draw(seed, limits)
    }

    fn check(&self) -> Result<(), String> {
        self.check()
    }

    fn run(&self, options: Options<TeamCanary>) -> OutcomeOf<Self> {
        world::run(self, options)
    }

    fn reduce(&self, to: &mut Smaller<'_, Self>) {
        shrink::reduce(self, to);
    }
}
