//! Replicates files and directories from one host to many.
//!
//! A *session* replicates one file, or the contents of all files of a tree as one object, to all its receivers. The root's side is [`Push`], a receiver's is
//! [`receiver::serve`]. They exchange messages over an authenticated control connection ([`session::Channel`]); the
//! file's bytes move in groups that the root and the receivers join.
//!
//! A receiver stages what it receives, hidden ([`Target`]), verifies it against the root's digest, and then gives it
//! attributes and name. So a file under its name is always complete. A directory that is there is updated entry by entry.
//!
//! Applications above this crate have sessions of their own with the same hosts and settings: [`Gathering`].
//!
//! The order of a session: [`Source`] -> offer -> [`Target`] -> group -> digest -> verify -> publish. Nothing here
//! prints, exits, installs signal handlers or keeps global state.

#![forbid(unsafe_code)]

#[cfg(test)]
mod alterations;
mod changes;
mod claim;
mod connect;
#[doc(hidden)]
mod control;
mod copy;
#[cfg(test)]
mod crashes;
#[doc(hidden)]
mod digests;
mod disk;
#[cfg(any(test, feature = "simulation"))]
mod faults;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod group_terms;
mod hash;
mod holes;
#[doc(hidden)]
mod link;
#[doc(hidden)]
pub mod machines;
mod manifest;
#[doc(hidden)]
mod messages;
#[cfg(not(any(test, feature = "simulation")))]
mod no_faults;
mod open_files;
mod owners;
mod pieces;
mod place;
mod ports;
mod push;
#[doc(hidden)]
mod ranges;
mod read_ahead;
mod reason;
pub mod receiver;
mod removal;
mod resident;
#[doc(hidden)]
mod resume;
mod sending;
mod server_status;
#[cfg(any(test, feature = "simulation"))]
#[doc(hidden)]
pub mod simulation;
mod source;
#[doc(hidden)]
mod stream_message;
#[doc(hidden)]
mod subtrees;
mod switch_control;
mod system;
mod watched;
mod whole_files;
mod writeback;

/// Patterns that choose what of a tree is sent.
pub use ::tree::{PatternError, Rule, Selection};
pub use changes::{Change, ChangeCounts, Changes, OthersDirectories};
pub use control::check_failure_deadline;
pub use copy::{Target, TargetError, Verified};
pub use group_terms::GroupTerms;
pub use hash::digest_of;
pub use manifest::Manifest;
pub use messages::{join_predicate, predicate};
pub use ports::PortRange;
pub use push::{
    Admission, Gathering, GatheringRoot, GatheringWaker, HostPlan, HostReport, HostState,
    HostTokens, Push, PushError, PushEvent, PushHandle, PushReport, PushSettings, Reach, Server,
    ServerEvent, ServerSettings, Stream, StreamHost, StreamReport, StreamSettings,
};
pub use reason::{shortened, shows_nothing};
pub use resident::peak_resident_bytes;
pub use server_status::{FetchState, FetchStatus, ObjectStatus, ServerStatus};
pub use source::{
    EntryNames, KeptAttributes, ListOptions, RemoteChecksum, RemoteContents, RemoteEntry,
    RemoteKind, RemoteShape, Source, SourceError,
};
pub use switch_control::SwitchControl;
