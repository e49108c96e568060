//! Groups and teams that are created, in virtual time: the state machine of contexts ([`rdmc::creation`]) over connections
//! that are lost, with members that begin late, give up, try again, differ, die and start again.
//!
//! A [`CreationScenario`] is drawn from a seed. [`run_creations`] runs it. [`connections`] has the shared connections, [`dials`] those that are being made, [`links`] what is reserved on
//! them, [`seat`] what a member's application does, [`agenda`] what happens when, [`verdict`] which errors are right, and [`world`] advances time, injects faults, and judges.

mod agenda;
mod canary;
mod connections;
mod dials;
mod draw;
mod links;
mod node;
mod outcome;
mod scenario;
mod seat;
mod seats;
mod shrink;
mod verdict;
mod world;

pub use canary::CreationCanary;
pub use draw::draw as draw_creations;
pub use outcome::{CreationOutcome, CreationTally};
pub use scenario::{ContextPlan, CreationScenario, DeathPlan, GroupPlan, Linking, SeatPlan};
pub use shrink::smaller_creations;
pub use world::run as run_creations;
