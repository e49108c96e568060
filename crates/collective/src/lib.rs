//! Collective operations of a team: broadcast, reduction and what is made of them, for messages where steps count and
//! not bandwidth. Pure: no I/O, no clock, no thread.
//!
//! Who writes to whom: [`BroadcastTree`], [`ReductionTree`], on the [`links`] of a member. What it costs: [`model`].
//!
//! # Sources
//!
//! "The paper" in the comments is *Efficient Collective Communication Using RDMA* over VIA: static buffers that are
//! written in turn, the end of a write recognized by its receiver, and reduction along a tree of degree k. What it leaves
//! open, and where this differs, is in docs/decisions/collectives.md.

mod broadcast_tree;
mod distances;
mod links;
pub mod model;
mod reduction_tree;

pub use broadcast_tree::BroadcastTree;
pub use links::{ALL_PAIRS_MAX, links};
pub use reduction_tree::ReductionTree;

/// The most members of a team.
pub const MEMBERS_MAX: u32 = 1 << 16;
