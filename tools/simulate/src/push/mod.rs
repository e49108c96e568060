//! Whole pushes in virtual time: the state machines of both ends ([`files::machines`]) on top of
//! real engines, with simulated control connections and disks.
//!
//! A run is a push, and then the same command again without faults. [`world`] contains the state of a run; [`live`] advances
//! time, and [`root`], [`receiver`], [`groups`] and [`inject`] execute what happens.

mod canary;
mod checks;
mod counts;
mod disk;
mod draw;
mod facts;
mod groups;
mod inject;
mod line;
mod link_end;
mod links;
mod live;
mod many;
mod planted;
mod process;
mod reading;
mod receiver;
mod root;
mod run;
mod scenario;
mod seats;
mod settings;
mod shrink;
mod storage;
mod stream;
mod stream_end;
mod traffic;
mod url_reader;
mod world;

pub use canary::PushCanary;
pub use counts::PushCounts;
pub use facts::PushEnd;
pub use many::{ManyHosts, ManyReport};
pub use scenario::{HostScenario, PushScenario};

use crate::subject::{Limits, Options, OutcomeOf, Smaller, Subject};

impl Subject for PushScenario {
    const OPTION: &'static str = " --pushes";
    const OF: &'static str = " of pushes";

    type Canary = PushCanary;
    type Counts = PushCounts;
    type End = PushEnd;

    fn draw(seed: u64, limits: &Limits) -> Self {
        draw::draw(seed, limits)
    }

    fn check(&self) -> Result<(), String> {
        self.check()
    }

    fn run(&self, options: Options<PushCanary>) -> OutcomeOf<Self> {
        run::run(self, options)
    }

    fn reduce(&self, to: &mut Smaller<'_, Self>) {
        shrink::reduce(self, to);
    }
}
