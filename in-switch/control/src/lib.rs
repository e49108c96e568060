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
/// Messages and stubs, generated from `proto/`.
#[allow(missing_docs, clippy::all, reason = "generated")]
pub mod proto;
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

#[cfg(test)]
mod tests {
    /// `proto.rs` is older than `proto/`: `./dev generate`.
    #[test]
    fn the_generated_code_is_up_to_date() {
        let mut files: Vec<_> = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/proto"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        let mut hasher = blake3::Hasher::new();
        files.iter().for_each(|file| _ = hasher.update(&std::fs::read(file).unwrap()));
        let first = include_str!("proto.rs").lines().next().unwrap();
        assert!(first.contains(hasher.finalize().to_hex().as_str()), "./dev generate: {first}");
    }
}
