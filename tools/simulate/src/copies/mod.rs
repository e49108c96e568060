//! Copies at one host: what a receiver does with its disk ([`files::simulation`]), on a real file system.
//!
//! A [`CopyScenario`] is drawn from a seed. [`run_copies`] makes what the host has, and runs sessions one after another; before
//! calls it kills them, lets the call fail, or does what another process may do. [`checks`] compares what is there before and
//! after each of them.

mod canary;
mod checks;
mod draw;
mod host;
mod outcome;
mod record;
mod roles;
mod run;
mod scenario;
mod shrink;
mod snapshot;
mod tally;

pub use canary::CopyCanary;
pub use draw::draw as draw_copies;
pub use outcome::CopyOutcome;
pub use run::run_copies;
pub use scenario::{CopyFault, CopyScenario, CopySessionPlan, PlannedCopyFault, Thing, What};
pub use shrink::smaller_copies;
pub use tally::CopyTally;
