//! Groups that switches copy: who asks for them, and who puts them into the switches.
//!
//! An agent runs at each switch that copies ([`agent::serve`]). Asked for a group ([`Agent::insert`]), it
//! forks the members by its own routes, as late as possible (the MC-RDMA paper's Algorithm 1), asks the
//! agents behind its branches for their parts, and then tells its own data plane. What it does when
//! routes change, and when nobody wants a group any more, is in `docs/decisions/in-switch.md`.
//!
//! They talk by gRPC (`proto/switch.proto`) over TLS, with certificates at both ends.

pub mod agent;
mod client;
mod convert;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub mod host;
mod keeper;
mod lent;
/// What travels, made of `proto/`.
#[allow(missing_docs, clippy::all, reason = "made by a generator")]
pub mod proto;
mod switches;
mod tls;

pub use client::{Agent, Claim, Kept};
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
