//! Collective operations of a team: broadcast, reduction and what is made of them, for messages where steps count and
//! not bandwidth. Pure: no I/O, no clock, no thread.
//!
//! Who writes to whom: [`BroadcastTree`], [`ReductionTree`], [`PartTree`], [`Partners`], [`Halving`], [`RingRounds`], on the [`links`] of a member; which of
//! these an operation takes: [`Settings::choice`], by what it costs: [`model`].
//! What a reduction computes: [`fold`](fold()) with an [`Op`] on elements of a [`Type`], or a [`Function`] of the user's.
//! [`Member`] is one member: calls, writes of others and freed slots go in, [`Effect`]s come out, which a caller with memory
//! and a network carries out.
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
mod element;
mod exchange;
mod fault;
mod fold;
mod function;
mod grants;
mod half_precision;
mod halving;
mod header;
mod links;
mod member;
pub mod model;
mod op;
mod operation;
mod pairwise;
mod part_tree;
mod partners;
mod parts;
mod pieces;
mod place;
mod reduction;
mod reduction_tree;
mod ring;
mod ring_rounds;
mod routes;
mod settings;
mod thresholds;
mod transfers;
mod types;
mod way;
mod way_selection;

pub use broadcast_tree::BroadcastTree;
pub use call::{Call, Difference, Folding, Kind};
pub use effect::{Contents, Effect, Ring};
pub use element::{Element, bytes_of, bytes_of_mut, elements_of, elements_of_mut};
pub use fault::Fault;
pub use fold::{FoldError, fold};
pub use function::{FUNCTION_NAME_BYTES_MAX, Function, InvalidFunction};
pub use half::{bf16, f16};
pub use halving::{Chunks, Halving};
pub use header::{HEADER_BYTES, Header, InvalidHeader};
pub use links::{ALL_PAIRS_MAX, links};
pub use member::Member;
pub use op::{Op, UnknownOp, Unsupported};
pub use part_tree::{Branch, PartTree};
pub use partners::{Meeting, Partners};
pub use reduction::Reduction;
pub use reduction_tree::ReductionTree;
pub use ring_rounds::RingRounds;
pub use settings::Settings;
pub use thresholds::{InvalidThresholds, Thresholds};
pub use types::{Type, UnknownType};
pub use way::{Choice, Way};
pub use way_selection::{InvalidWaySelection, WaySelection};

/// The most members of a team.
pub const MEMBERS_MAX: u32 = 1 << 16;
