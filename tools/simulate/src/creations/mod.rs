//! Groups and teams that are created, in virtual time: the state machine of contexts ([`rdmc::creation`]) over connections
//! that are lost, with members that begin late, give up, try again, differ, die and start again.
//!
//! [`connections`] has the shared connections, [`dials`] those that are being made, [`links`] what is reserved on them, [`seat`]
//! what a member's application does, [`event`] what happens, [`verdict`] which errors are right, and [`world`] advances
//! time, injects faults, and judges.

mod canary;
mod connections;
mod counts;
mod dials;
mod draw;
mod event;
mod links;
mod node;
mod scenario;
mod seat;
mod seats;
mod shrink;
mod verdict;
mod world;

pub use counts::CreationCounts;
pub use scenario::CreationScenario;

use crate::subject::{Limits, Options, OutcomeOf, Smaller, Subject};

impl Subject for CreationScenario {
    const OPTION: &'static str = " --creations";
    const OF: &'static str = " of creations";

    type Canary = canary::CreationCanary;
    type Counts = CreationCounts;
    type End = ();

    fn draw(seed: u64, limits: &Limits) -> Self {
        draw::draw(seed, limits)
    }

    fn check(&self) -> Result<(), String> {
        self.check()
    }

    fn run(&self, options: Options<canary::CreationCanary>) -> OutcomeOf<Self> {
        world::run(self, options)
    }

    fn reduce(&self, to: &mut Smaller<'_, Self>) {
        shrink::reduce(self, to);
    }
}
