//! Schedules: which member sends which block to which other at which step.
//!
//! A message of `k` blocks starts at the root of a group of `n` members and has to reach every other member.
//! For any member at any step, a [`Schedule`] returns which block the member sends and which it receives.
//! A schedule is a pure function of (algorithm, members, root, racks): every member computes its own part,
//! without communication, and no table of the whole schedule exists.
//!
//! # Examples
//! ```
//! use schedule::{Algorithm, Schedule};
//!
//! let plan = Schedule::new(Algorithm::BinomialPipeline, 8, 0)?;
//! assert_eq!(plan.steps(3), 5);
//! let first = plan.send_at(0, 0, 3).unwrap();
//! assert_eq!((first.source, first.target, first.block), (0, 1, 0));
//! assert_eq!(plan.receive_at(1, 0, 3), Some(first));
//! # Ok::<(), schedule::ScheduleError>(())
//! ```
//!
//! # The model
//!
//! Time is divided into steps. During one step a member may send one block and receive one block
//! (full-duplex, one port). A block received at one step can be sent at any later step. Steps are an
//! order, not a clock: late members do not change which block is sent to whom.
//!
//! # Cost
//!
//! Queries neither allocate nor panic. They take constant time, except for [`Algorithm::Circulant`], whose
//! queries take O(log n) and whose [`Schedule::next_send`] and [`Schedule::next_receive`] take O(log² n).
//! The rack algorithms keep a table of 12 bytes per member, built once by [`Schedule::with_racks`]. Queries of those based on
//! circulants, [`Algorithm::RacksChain`] and [`Algorithm::RacksPipeline`], cost as much as with a circulant, and more at the
//! start and end of a message ([`Schedule::next_send`]).
//!
//! [`Algorithm::InSwitch`] is for networks in which switches copy what the root sends: its steps order the copies,
//! and all copies of one block are one transmission on the root's link.
//!
//! # Sources
//!
//! "DSN" in the comments is Behrens, Jha, Birman, Tremel, *RDMC: A Reliable RDMA Multicast for Large Objects*,
//! DSN 2018. The circulant schedule is that of Träff, *Optimal Broadcast Schedules in Logarithmic Time with
//! Applications to Broadcast, All-Broadcast, Reduction and All-Reduction*. The racks' chain and pipeline (`rack_flow`)
//! are original to this crate.
#![no_std]

extern crate alloc;

mod algorithm;
mod chain;
mod chains;
mod circulant;
mod error;
mod fanout;
mod flow;
mod limits;
mod pipeline;
mod plan;
mod rack_flow;
mod rack_slots;
mod rack_table;
mod racks;
mod sequential;
mod tree;

pub use algorithm::{Algorithm, UnknownAlgorithm};
pub use chains::{Attached, ChainMember, attach};
pub use error::ScheduleError;
pub use limits::{MAX_MEMBERS, lower_bound_steps};
pub use plan::{Schedule, Transfer};
