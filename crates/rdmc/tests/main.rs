//! The integration tests of this crate in one program, so that it is linked once.

mod choice;
mod common;
mod cut_through;
mod deadlines;
mod delivered;
mod examples;
mod failures;
#[cfg(feature = "async")]
mod futures;
mod group_processes;
mod groups;
mod hostile;
#[cfg(feature = "switch")]
mod in_switch;
mod in_use;
mod offload;
mod rate;
mod receive;
mod refusals;
mod sharing;
mod simulated;
mod small;
mod storage;
mod team_processes;
mod teams;
mod verified;
mod world;
