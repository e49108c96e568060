//! Copies at one host: what a receiver does with its disk ([`files::simulation`]), on a real file system.
//!
//! A run makes what the host has, and runs sessions one after another; before calls it kills them, lets the call fail, or does
//! what another process may do. [`checks`] compares what is there before and after each of them.

mod canary;
mod checks;
mod counts;
mod draw;
mod host;
mod record;
mod roles;
mod run;
mod scenario;
mod shrink;
mod snapshot;

use std::ops::RangeInclusive;

pub use counts::CopyCounts;
pub use scenario::CopyScenario;

use crate::subject::{Limits, Options, OutcomeOf, Smaller, Subject};

impl Subject for CopyScenario {
    const OPTION: &'static str = " --copies";
    const OF: &'static str = " of copies";
    /// One host.
    const MEMBERS: Option<RangeInclusive<u32>> = None;

    type Canary = canary::CopyCanary;
    type Counts = CopyCounts;
    type End = ();

    fn draw(seed: u64, _: &Limits) -> Self {
        draw::draw(seed)
    }

    fn check(&self) -> Result<(), String> {
        self.check()
    }

    fn run(&self, options: Options<canary::CopyCanary>) -> OutcomeOf<Self> {
        run::run(self, options)
    }

    fn reduce(&self, to: &mut Smaller<'_, Self>) {
        shrink::reduce(self, to);
    }
}
