//! Whole pushes in virtual time: the decisions of both ends ([`files::machines`]) on top of real
//! engines, with control connections and disks that are made up.
//!
//! A seed makes a [`PushScenario`]; [`run_push`] carries it out, and after it the same command again,
//! when all faults are over. [`world`] has everything that a run consists of; [`live`] moves time, and [`root`],
//! [`receiver`], [`groups`] and [`inject`] carry out what happens.

mod canary;
mod checks;
mod disk;
mod draw;
mod facts;
mod groups;
mod inject;
mod line;
mod live;
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
mod tally;
mod world;

pub use canary::PushCanary;
pub use draw::draw as draw_push;
pub use facts::{Done as InjectedPushFault, PushEnd};
pub use outcome::PushOutcome;
pub use run::run_push;
pub use scenario::{Fault, HostScenario, HostTrouble, PlannedFault, PushScenario, SourceTrouble};
pub use shrink::smaller_pushes;
pub use tally::PushTally;
