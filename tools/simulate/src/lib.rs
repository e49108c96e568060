//! Whole groups of real engines, pushes, teams, creations, copies and the TCP wire in virtual time, with everything that can go
//! wrong.
//!
//! Each is a [`Subject`]: a scenario of it is drawn from a seed, plain data of what there is and of the faults that are
//! injected. Equal scenarios give equal runs. [`Campaign`] runs many seeds, and [`shrink`] makes a scenario that fails smaller.
//! A planted bug ([`Subject::Canary`]) shows that the checks can fail.

#![forbid(unsafe_code)]

mod agenda;
mod campaign;
mod clock;
mod copies;
mod counts;
mod creations;
mod dice;
mod driver;
mod faults;
mod groups;
mod member_fault;
mod network;
mod node;
mod panics;
mod push;
mod queue;
mod shrink;
mod subject;
mod teams;
mod trace;
mod wires;

pub use campaign::Campaign;
pub use copies::{CopyCounts, CopyScenario};
pub use counts::{Kinds, Tally};
pub use creations::{CreationCounts, CreationScenario};
pub use groups::{Canary, GroupCounts, Scenario};
pub use network::NetworkPlan;
pub use panics::caught;
pub use push::{
    HostScenario, ManyHosts, ManyReport, PushCanary, PushCounts, PushEnd, PushScenario,
};
pub use shrink::shrink;
pub use subject::{Limits, Options, OutcomeOf, Subject, canary, name_of};
pub use teams::{TeamCanary, TeamCounts, TeamScenario};
pub use wires::{WireCanary, WireCounts, WireScenario};
