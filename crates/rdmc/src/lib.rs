//! Replicates large objects from one machine to many.
//!
//! One member of a group, the root, sends messages of any length; every other member receives
//! them, and relays each block while it receives the next, along a deterministic schedule. All have
//! the object in about the time that one copy takes (DSN 2018).
//!
//! - [`Context`] is one member's place in the network. Start one with [`ContextSettings`].
//! - [`Context::create_group`] joins a group, together with its other members; an [`Application`]
//!   gets the callbacks.
//! - [`Group::send`] queues a message at the root; [`Group::close`] returns success only if every
//!   message has reached every member.
//!
//! [`Engine`] is the same without threads and sockets, over any [`transport::Transport`].
//!
//! # Promises
//! Messages arrive whole, once, and in order, at all members if none fails. If one fails, the group
//! ends at all survivors with one event that names the cause. Other groups go on.

#![forbid(unsafe_code)]

mod application;
pub mod bootstrap;
mod context;
pub mod discovery;
mod engine;
mod fabric;
mod failure;
mod group;
mod network;
mod secret;
mod settings;
pub mod size;
mod worker;

pub use application::{Application, Memory};
pub use context::{Context, ContextSettings, Progress};
pub use engine::{Counters, Engine, Event, Offload};
pub use fabric::Fabric;
pub use failure::{Error, Failure, FailureKind};
pub use group::{Group, SendHandle};
pub use relay::{RelayError, Window};
pub use schedule::{Algorithm, Schedule, ScheduleError};
pub use secret::Secret;
pub use settings::{BLOCK_BYTES_DEFAULT, BLOCK_BYTES_MAX, GroupSettings, SmallMessages};
pub use transport::{Region, RegionError, RegionPool};
pub use transport_tcp::TcpConfig;
pub use worker::CompletionMode;
