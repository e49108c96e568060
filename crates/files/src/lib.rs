//! Replicates files from one host to many.
//!
//! A *session* is one file's way to all its receivers. The root's side is [`Push`], a receiver's is
//! [`receiver::serve`]; they talk over an authenticated control connection
//! ([`rdmc::bootstrap::Channel`]), and the file's bytes travel in a group that all of them join.
//!
//! What a receiver sees under the file's name is always whole: bytes arrive in a temporary file
//! beside it ([`Target`]), are checked against the digest that the root computed while it sent, and
//! only then take the name, together with mode and modification time.
//!
//! The path of a session, in order: [`Source`] -> offer -> [`Target`] -> group -> digest -> verify ->
//! publish. Nothing here prints, exits, installs signal handlers or keeps global state.

#![forbid(unsafe_code)]

mod claim;
mod connect;
#[doc(hidden)]
mod control;
#[cfg(test)]
mod crashes;
mod disk;
mod existing;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod hash;
#[doc(hidden)]
mod leftover;
#[doc(hidden)]
pub mod machines;
mod manifest;
#[doc(hidden)]
mod messages;
mod place;
mod push;
#[doc(hidden)]
mod ranges;
pub mod receiver;
mod resident;
mod sending;
mod source;
mod system;
mod target;
mod temporary;

pub use control::check_failure_deadline;
pub use hash::digest_of;
pub use manifest::Manifest;
pub use push::{
    Admission, Bench, BenchEvent, BenchPlan, BenchReport, HostPlan, HostReport, HostState,
    MEASURED_BYTES_MAX, Measurement, Push, PushError, PushEvent, PushHandle, PushReport,
    PushSettings, Reach, Subject, SwitchControl,
};
pub use resident::peak_resident_bytes;
pub use source::{Source, SourceError};
pub use target::{Target, TargetError, Verified};
