//! Measures messages from memory to memory, and collective operations, between this machine and others; and checks whether they
//! can connect to each other.
//!
//! The root's side is [`Bench`], or [`ReachCheck`]; a receiver takes part by [`take_part`], which it passes to
//! [`files::receiver::serve_with`]. Both are an application of [`files::Gathering`]: hosts are reached, authenticated and
//! given up as in a push, and the same networks, algorithms and block sizes are chosen. Nothing here prints, exits or
//! keeps global state.

#![forbid(unsafe_code)]

mod collective;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod messages;
mod reach;
mod receiver;
mod root;

pub use collective::{
    COLLECTIVE_BYTES_MAX, COLLECTIVE_REPEATS_MAX, Collective, CollectiveMeasurement, CollectivePlan,
};
pub use messages::MEASURED_BYTES_MAX;
pub use reach::REACHED_HOSTS_MAX;
pub use receiver::take_part;
pub use root::{
    Bench, BenchEvent, BenchPlan, BenchReport, Measurement, ReachCheck, ReachReport, Subject,
    Unreachable,
};
