//! Replicates large objects from one machine to many.
//!
//! One member of a group, the root, sends messages of any length. Every other member receives them
//! and relays each block while it receives the next, along a deterministic schedule. All members
//! have the object in about the time that one copy takes (DSN 2018).
//!
//! # Examples
//! A receiver that writes each message to `output` while the message arrives:
//!
//! ```no_run
//! use std::{error::Error, io::Write, net::SocketAddr, time::Duration};
//! use rdmc::{Context, ContextSettings, GroupSettings, Secret};
//!
//! fn receive(
//!     members: Vec<SocketAddr>,
//!     rank: u32,
//!     secret: Secret,
//!     output: &mut impl Write,
//! ) -> Result<(), Box<dyn Error>> {
//!     let timeout = Duration::from_secs(600);
//!     let context = Context::start(ContextSettings::new(members[rank as usize], secret))?;
//!     let group = context.create_group(GroupSettings::new(1, members, rank))?;
//!     while let Some(mut message) = group.receive(timeout)? {
//!         std::io::copy(&mut message, output)?;
//!     }
//!     context.close(timeout)?;
//!     Ok(())
//! }
//! ```
//!
//! The root, rank 0, makes these calls in place of the loop:
//!
//! ```no_run
//! # use std::time::Duration;
//! # fn send(group: rdmc::Group, object: Vec<u8>, timeout: Duration) -> Result<(), rdmc::Error> {
//! group.send(rdmc::Region::from_vec(object), timeout)?;
//! group.close(timeout)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Overview
//! - [`Context`] is one member's endpoint in the network, started with [`ContextSettings`].
//! - [`Context::create_group`] joins a group, together with its other members. [`Group::receive`]
//!   returns its messages; alternatively an [`Application`] receives them through callbacks
//!   ([`Context::create_group_with`]).
//! - [`Group::send`] queues a message at the root; [`Group::close`] returns success only if every
//!   message has reached every member.
//! - Unless [`GroupSettings::schedule`] and [`GroupSettings::block_bytes`] set them, the root chooses the algorithm and the
//!   block size that its cost model predicts to be fastest for [`GroupSettings::message_bytes`]; the other members learn them.
//! - [`Region`] is memory that the network may use; [`Group::post_receive_buffer`] provides it
//!   before a message arrives.
//! - [`Context::create_team`] joins a [`Team`], whose members call operations together: broadcast,
//!   all-reduce, barrier and others, for short messages.
//!
//! With [`Algorithm::InSwitch`] receivers relay nothing: the root sends each block once, and
//! switches, configured by `Switches` (feature `switch`), copy it.
//!
//! # Features
//! All are off by default.
//! - `async`: the blocking calls as futures (`Group::receive_async` ...), for any executor.
//! - `fabric`: networks that libfabric supports; the build requires libfabric's headers.
//! - `switch`: groups whose blocks switches copy.
//!
//! # Guarantees
//! If no member fails, every message arrives whole, once and in order at all members. If a member fails,
//! the group ends at every surviving member with one event that names the cause. Other groups are
//! not affected.
//!
//! On each link, [`Protection`] defines which changes to a message's bytes are detected. With
//! [`GroupSettings::verify`] every member also compares its copy, in memory or in a file, with the root's,
//! end to end, and reports no message as received whose copy differs. Without `verify`, a member whose
//! memory or disk alters a byte relays the altered copy, and the group still closes successfully. In either
//! case, the application cannot write to a message through its [`Region`] before the message is complete
//! ([`LeaseError::InUse`]).
//!
//! # Timeline
//! Events are emitted through [`tracing`], with the target `rdmc::timeline` at level TRACE, on the
//! thread that makes progress. Their fields are computed only if a subscriber enables them. The
//! crate `rdmc-trace` writes the events to a file that ui.perfetto.dev opens. Fields, where they apply:
//! `what` (text); `group`, `member` (this one), `peer`, `message`, `step` and `block` (numbers);
//! `bytes` (length of the block or message); `post` (the same at the start and the end of a send or receive).
//!
//! | `what` | |
//! |---|---|
//! | `message` | the root's application has queued a message |
//! | `announce` | a message is announced to `peer` |
//! | `incoming`, `accepted` | the application is asked for memory, and has provided it |
//! | `grant`, `received` | a receive is posted and credit sent to `peer`; its block has arrived |
//! | `granted` | `peer` has posted receives for blocks from this member |
//! | `send`, `sent` | a send is posted, and has completed |
//! | `copy`, `copied` | the first block is copied into the message's memory; `post` is that of its receive, whose event has no `message` if the block arrived before the announcement |
//! | `waits_for_block`, `waits_for_credit`, `waits_for_memory` | nothing is being sent, because the next block of the schedule has not arrived from `peer`, `peer` has granted no credit for it, or the application has provided no memory |
//! | `waits_no_more` | sending has resumed, or nothing is left to send |
//! | `whole`, `complete` | all of the message is in place at this member; this member is done with it |
//! | `failed` | the group fails; `peer` is the member that caused it, if any |
//!
//! With offload the network starts the sends, and members emit no `grant`, `send` or `waits_` events.

#![forbid(unsafe_code)]

mod application;
mod asking;
pub mod bootstrap;
mod caller;
mod commands;
mod completion;
mod context;
mod context_settings;
#[cfg(not(feature = "simulation"))]
mod creation;
#[cfg(feature = "simulation")]
pub mod creation;
mod descriptor;
pub mod discovery;
mod disks;
mod dispatcher;
mod error;
mod fabric;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod group;
mod group_settings;
mod inbox;
mod link_rate;
mod machine_speed;
mod message;
mod network;
mod numbers;
mod outbox;
mod outlet;
mod own_link;
mod panics;
mod protection;
mod receiving;
mod scheduling;
mod send_handle;
mod shared;
mod team_driver;
mod team_handle;
mod team_prepared;
mod team_settings;
mod worker;

pub use application::{Application, Incoming};
pub use collective::{
    Element, FoldError, Function, InvalidFunction, Op, Thresholds, Type, Unsupported, WaySelection,
    bf16, f16, fold, model::WriteCosts,
};
pub use completion::CompletionMode;
pub use context::Context;
pub use context_settings::{ContextSettings, Progress};
pub use engine::{BLOCK_BYTES_MAX, Counters, Failure, FailureKind, Offload, SmallMessages, Waited};
pub use error::Error;
pub use fabric::Fabric;
pub use group::Group;
pub use group_settings::GroupSettings;
pub use message::Message;
pub use plan::choice::Choice;
pub use protection::Protection;
pub use relay::{RelayError, Window};
pub use schedule::{Algorithm, Schedule, ScheduleError, Transfer, UnknownAlgorithm};
pub use scheduling::Scheduling;
pub use send_handle::SendHandle;
pub use session::Secret;
pub use team::{Counters as TeamCounters, Failure as TeamFailure, WriteEnds};
pub use team_handle::{Pending, Team};
pub use team_prepared::Prepared;
pub use team_settings::TeamSettings;
pub use transport::{
    FutureRead, LeaseError, ReadLease, Region, RegionError, RegionPool, Storage, StoredRead,
    StoredWrite, WriteLease,
};
#[cfg(feature = "switch")]
pub use transport_switch::{Delegates, InsertError, Inserted, Suspicion, Switches};
pub use transport_tcp::{RATE_MAX_LEAST, TcpSettings, check_direct_copies};
