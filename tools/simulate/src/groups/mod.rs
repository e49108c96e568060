//! Groups of real engines over a simulated network ([`transport_sim`]), one step after another.
//!
//! A [`Scenario`] is plain data of the network, the members, the groups and their applications, and of the faults that are
//! injected at each step. Applications record events ([`book`]) and check memory when it is returned; [`checks`] judges the
//! recorded facts alone. [`world`] advances time and injects faults.

mod application;
mod beside;
mod book;
mod canary;
mod checks;
mod counts;
mod draw;
mod memory;
mod scenario;
mod shrink;
mod world;

use engine::Failure;

pub use canary::Canary;
pub use counts::GroupCounts;
pub use scenario::Scenario;

use crate::{
    counts::End,
    subject::{Limits, Options, OutcomeOf, Smaller, Subject},
};

impl Subject for Scenario {
    const OPTION: &'static str = "";
    const OF: &'static str = "";

    type Canary = Canary;
    type Counts = GroupCounts;
    type End = End<Failure>;

    fn draw(seed: u64, limits: &Limits) -> Self {
        draw::draw(seed, limits)
    }

    fn check(&self) -> Result<(), String> {
        self.check()
    }

    fn run(&self, options: Options<Canary>) -> OutcomeOf<Self> {
        world::run(self, options)
    }

    fn reduce(&self, to: &mut Smaller<'_, Self>) {
        shrink::reduce(self, to);
    }
}
