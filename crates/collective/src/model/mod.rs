//! What operations cost: the paper's analytical models (sections 5 and 6), and others of the same costs for the ways that
//! the paper does not have. [`Team`] is the time of a call by any way, and which of them is the fastest.
//!
//! All times are in microseconds and come from [`WriteCosts`] alone, so that every member that has the same costs
//! computes the same times and chooses the same degree.
//!
//! # What is printed, and what is inferred
//!
//! The broadcast is as printed, for one hop ([`broadcast_hop_us`]). Of the reduction the paper prints one equation: the best
//! case of very long messages. It counts the adapter's work once a step, however many members write, so that for 4 B and
//! 16 members it would choose degree 15, while section 6.2 has degree 3. The equations for short messages and the worst
//! case are in theses that the paper cites. [`reduce_us`] infers them from section 5.2: writes to one member pass stages
//! (wire, DMA start and adapter, fold) that overlap, so each write after the first adds the time of the longest stage. For
//! long messages that stage is the wire, which gives the printed equation. In the worst case DMA start and adapter do not
//! overlap each other, and folds begin when everything has arrived.
//!
//! With the paper's costs this gives what section 6.2 reports of the model. In the worst case degree 3 is best for short
//! messages and degree 1 beyond 894 B (about 1 KB), for any number of members; in the best case, too, but for degree 7 being
//! ahead for the shortest where the members are an odd power of 2: slightly with 8, as the paper has it, and by at most 3 %
//! with 512. The gains over two-sided messages are 40 % (best) and 35 % (worst) with 512 members and 41 % with 1,024, all
//! from one time of two members. `crates/collective/tests/model.rs` has these.
//!
//! # Ways that the paper does not have
//!
//! [`exchange_us`], [`halving_allreduce_us`], [`circulant_us`], [`ring_allreduce_us`], [`line_reduce_us`], [`chain_allreduce_us`], [`scatter_us`]
//! and [`direct_us`] are derived beside each. What they leave out: the library's own work on each block (two-sided blocks are matched with posted receives),
//! grants after the first, registration of the caller's memory, headers of slots, and members that start late. `tools/bench/src/collectives/simulated` compares them
//! with the library's own messages in virtual time.

mod block_times;
mod bounds;
mod broadcast;
mod degree;
mod exchange;
mod halving;
mod pipeline;
mod reduce;
mod ring;
mod scatter;
mod team;
mod work;
mod write_costs;

pub use bounds::Bounds;
pub use broadcast::{PAPER_BLOCK_BYTES, broadcast_hop_us, broadcast_us, two_sided_us};
pub use degree::{best_degree, best_degree_of, degrees};
pub use exchange::exchange_us;
pub use halving::{halving_allgather_us, halving_allreduce_us, halving_reduce_scatter_us};
pub use pipeline::{chain_allreduce_us, circulant_us, line_reduce_us};
pub use reduce::{allreduce_us, gather_us, reduce_us};
pub use ring::{ring_allgather_us, ring_allreduce_us, ring_reduce_scatter_us};
pub use scatter::{direct_us, scatter_us};
pub use team::{LINKED_DEGREES, Team};
pub use write_costs::{InvalidWriteCosts, WriteCosts};
