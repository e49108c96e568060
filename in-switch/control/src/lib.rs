//! How groups in switches are asked for, by gRPC over TLS with certificates at both ends: the messages
//! (`proto/`), their conversion, and the clients of agents and daemons.
//!
//! - [`Agent`] is the agent at a switch, as its callers see it; [`AgentSwitches`] is the same for the library,
//!   and [`keeper`] keeps a group in the switches.
//! - [`host`] is the daemon of a host, as its applications see it.
//! - [`proto`], [`convert`], [`delegation`] and [`tls`] are what agents, daemons and clients share.
//!
//! The processes themselves are the crates `agent` and `host`. What agents do when routes change, and when
//! nobody wants a group any more, is in `docs/decisions/in-switch.md`.

#![forbid(unsafe_code)]

mod agent;
pub mod convert;
pub mod delegation;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod host;
pub mod keeper;
/// What travels, made of `proto/`.
#[allow(missing_docs, clippy::all, reason = "made by a generator")]
pub mod proto;
mod switches;
pub mod tls;

pub use agent::{Agent, Claim, HOPS_MAX, Kept};
pub use error::{ControlError, ErrorKind};
pub use switches::AgentSwitches;

#[cfg(test)]
mod tests {
    /// Otherwise what travels is not what the files say: `./dev generate`.
    #[test]
    fn the_code_is_made_of_the_files() {
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
