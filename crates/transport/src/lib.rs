//! The interface between rdmc's engine and a network.
//!
//! A [`Transport`] is one member's view of a network: it owns every endpoint of a context and one
//! completion queue (DSN 2018 section 4.2, "a single completion queue and thread"). It moves
//! blocks between [`Region`]s and small control words between peers; groups, schedules and messages
//! are the engine's. The vocabulary is that of RDMA verbs: post, complete, immediate.
//!
//! The contract of every transport is at [`Transport`], and checked by the tests of the crate
//! `transport-contract`.

#![forbid(unsafe_code)]

mod completion;
mod cut_through;
mod endpoint;
mod forward;
mod one_sided;
mod token_bucket;
mod transport;
mod triggered;
mod visibility;
mod watched;

pub use completion::{Cause, Completion, PostError};
pub use cut_through::CutThroughSends;
pub use endpoint::{CONTROL_BYTES_MAX, EndpointId, Token};
pub use memory::{
    Arriving, ArrivingRead, Attachment, Copied, FileAccess, FutureRead, LeaseError, Memory,
    Neighbour, PROOF_BYTES, PeerMemory, Process, ProcessRange, Proof, ReadLease, Region,
    RegionError, RegionPool, Reservation, Storage, StoredRead, StoredWrite, WriteLease,
    check_unprivileged, copy_from_process, lend, peer_credentials,
};
pub use one_sided::OneSidedWrites;
pub use token_bucket::TokenBucket;
pub use transport::{Transport, Waker};
pub use triggered::TriggeredSends;
pub use visibility::Visibility;
pub use watched::Watched;
