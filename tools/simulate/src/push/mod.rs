//! Whole pushes in virtual time: the state machines of both ends ([`files::machines`]) on top of
//! real engines, with simulated control connections and disks.
//!
//! A [`PushScenario`] is drawn from a seed. [`run_push`] runs it, and then the same command again
//! without faults. [`world`] contains the state of a run; [`live`] advances time, and [`root`],
//! [`receiver`], [`groups`] and [`inject`] execute what happens.

mod canary;
mod checks;
mod disk;
mod draw;
mod facts;
mod groups;
mod inject;
mod line;
mod live;
mod many;
mod outcome;
mod planted;
mod process;
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
mod tally;
mod traffic;
mod world;

pub use canary::PushCanary;
pub use draw::draw as draw_push;
pub use facts::{Done as InjectedPushFault, PushEnd};
pub use many::{ManyHosts, ManyReport};
pub use outcome::PushOutcome;
pub use run::run_push;
pub use scenario::{
    Fault, HostFaults, HostScenario, PlannedFault, PushScenario, SourceFaults, StreamPlan,
};
pub use shrink::smaller_pushes;
pub use tally::PushTally;
pub use traffic::Traffic;
