//! The control API of groups in switches: gRPC messages (`proto/`), their validation, and the clients of
//! agents and daemons, over TLS with certificates at both ends.
//!
//! - [`Agent`] is the client of the agent at a switch; [`AgentSwitches`] is that for the library, and
//!   [`keeper`] renews a group's lease.
//! - [`host`] has the client of a host's daemon.
//! - [`proto`], [`convert`], [`delegation`] and [`tls`] are shared by agents, daemons and clients.
//!
//! The processes are the crates `agent` and `host`; their design is in
//! `docs/decisions/in-switch-control.md`.

#![forbid(unsafe_code)]

mod agent;
mod call_limit;
pub mod convert;
mod counter;
pub mod delegation;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod host;
mod incoming;
pub mod keeper;
/// Messages and stubs, generated from `proto/` by the build script.
#[allow(missing_docs, clippy::all, reason = "generated")]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/rdmc.control.v1.rs"));
}
mod suspicions;
mod switches;
pub mod tls;
pub mod watcher;

pub use agent::{Agent, Claim, HOPS_MAX, Kept, TRACE_PACKETS_MAX, TRACE_TIME_MS_MAX};
pub use call_limit::{CallLimit, InProgress, Limited};
pub use counter::Most;
pub use delegation::Delegating;
pub use error::{ControlError, ErrorKind};
pub use incoming::{Caller, Connection, Incoming, Limits, serving_failed};
pub use switches::AgentSwitches;
