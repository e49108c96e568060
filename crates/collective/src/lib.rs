//! Collective operations of a team: broadcast, reduction and what is made of them, for messages where steps count and
//! not bandwidth. Pure: no I/O, no clock, no thread.
//!
//! Who writes to whom: [`BroadcastTree`], [`ReductionTree`], on the [`links`] of a member. [`Member`] is one member: calls,
//! writes of others and freed slots go in, [`Effect`]s come out, which a caller with memory and a network carries out.
//!
//! # Sources
//!
//! "The paper" in the comments is *Efficient Collective Communication Using RDMA* over VIA: static buffers that are
//! written in turn, the end of a write recognized by its receiver, and reduction along a tree of degree k. What it leaves
//! open, and where this differs, is in docs/decisions/collectives.md.

mod broadcast_tree;
mod call;
mod distances;
mod effect;
mod fault;
mod header;
mod links;
mod member;
mod operation;
mod reduction_tree;
mod ring;
mod settings;

pub use broadcast_tree::BroadcastTree;
pub use call::{Call, Difference, Kind};
pub use effect::{Contents, Effect, Ring};
pub use fault::Fault;
pub use header::{HEADER_BYTES, Header, InvalidHeader};
pub use links::{ALL_PAIRS_MAX, links};
pub use member::Member;
pub use reduction_tree::ReductionTree;
pub use settings::Settings;

/// The most members of a team.
pub const MEMBERS_MAX: u32 = 1 << 16;
