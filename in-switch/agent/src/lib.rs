//! The agent at a switch: installs groups by the switch's own routes.
//!
//! It splits a group's members by their next hops, as late as possible (the MC-RDMA paper's Algorithm 1),
//! asks downstream agents for their parts, and then writes its own data plane. What happens when routes
//! change and when leases expire is in `docs/decisions/in-switch-control.md`.
//!
//! [`prepare`] and [`serve`] run it; it starts no threads of its own, but tasks of the tokio runtime that
//! they are called in.

#![forbid(unsafe_code)]

mod admission;
mod clock;
mod downstream;
mod forwarding;
mod liveness;
mod maintenance;
mod paths;
mod persisting;
mod ports;
mod registry;
mod serve;
mod service;
mod settings;
mod split;
mod state;
mod suspicion;
mod trace;

pub use clock::{Clock, ManualClock};
pub use downstream::{InvalidNextAgent, Location, NextAgent};
pub use serve::{Prepared, listen, prepare, serve};
pub use settings::{AgentSettings, GROUPS_PER_HOST_MAX, Liveness, Plane, STALE_AFTER};
