//! RoCEv2 networks with multicast in the switch, packet by packet in virtual time.
//!
//! Switches decide by [`mcrdma::Tables`], groups are planned by [`mcrdma::plan`], and hosts run
//! [`roce::rc`] with DCQCN: the same logic as in real switches and endpoints, on headers
//! without payload. What is modelled besides is what lies between them: links with rate and delay,
//! output queues with marks of congestion (ECN), pauses (PFC), shared buffers, network cards that
//! share a link among queue pairs, and the processor time of posts and completions.
//!
//! - [`Network`]: one simulation; whoever drives it calls [`Network::next`] for what has happened.
//! - [`Replicator`]: a message to several hosts, in the switch, by fan-out or along a chain.
//! - [`experiments`]: the figures of the MC-RDMA paper's section VII.
//!
//! What is left out: pause frames take no time of the links that they travel on, switches forward
//! without a delay of their own, and hosts are never too slow to receive. Times are picoseconds
//! inside, so that a packet's time on a link of 100 Gbit/s is exact. The same configuration gives the
//! same result, to the packet. Nothing here blocks.

mod config;
mod cpu;
mod error;
mod event;
pub mod experiments;
mod fabric;
mod hosts;
mod network;
mod packet;
mod port;
mod random;
mod replicate;
mod slab;
mod units;
mod workload;

pub use config::{Config, Costs, Ecn, LinkConfig, Pfc};
pub use error::NoGroup;
pub use fabric::Drops;
pub use hosts::{Pair, PairCounts};
pub use network::{Network, Notice};
pub use port::PortCounts;
pub use replicate::{Pattern, Replicator};
pub use units::{PS_PER_NS, PS_PER_S};
pub use workload::{Distribution, Poisson};
