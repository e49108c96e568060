//! What integration tests of switches that copy share. Everything here panics when something is not as it
//! should be.
//!
//! [`hosts`] has hosts behind one switch, for tests of groups and pushes; [`flow`] messages between
//! endpoints, for tests of the switches themselves; [`recording`] a data plane, for tests of agents.

#![forbid(unsafe_code)]

pub mod flow;
pub mod hosts;
pub mod recording;
