//! The agent at a switch: its groups, by its own routes.
//!
//! Asked for a group, it forks the members by its own routes, as late as possible (the MC-RDMA paper's
//! Algorithm 1), asks the agents behind its branches for their parts, and then tells its own data plane.
//! What it does when routes change, and when nobody wants a group any more, is in
//! `docs/decisions/in-switch.md`.
//!
//! [`prepare`] and [`serve`] run it; it starts no threads of its own, but tasks of the tokio runtime that
//! they are called in.

#![forbid(unsafe_code)]

mod admission;
mod held;
mod next;
mod paths;
mod registry;
mod serve;
mod service;
mod settings;
mod sight;
mod split;
mod upkeep;

pub use next::{At, Next, NoNext};
pub use serve::{Prepared, listen, prepare, serve};
pub use settings::{AgentSettings, GROUPS_PER_HOST_MAX, Plane, STALE_AFTER};
