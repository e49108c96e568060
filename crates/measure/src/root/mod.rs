//! The root's side of a measurement.

mod bench;
mod groups;
mod measurement;
mod reach;
mod session;
mod team;

pub use bench::{Bench, BenchReport};
pub use measurement::{BenchEvent, BenchPlan, Measurement, Subject};
pub use reach::{ReachCheck, ReachReport, Unreachable};
