//! RoCEv2 networks with multicast in the switch, packet by packet in virtual time.
//!
//! Switches decide by [`mcrdma::Tables`], groups are planned by [`mcrdma::plan`], and hosts run
//! [`roce::rc`] with DCQCN: the logic of real switches and endpoints, on headers without payload. The
//! network between them is modelled: links with rate and delay, output queues with ECN marking, PFC, shared
//! buffers, network cards that schedule queue pairs, and the processor time of posts and completions.
//!
//! - [`Network`]: one simulation; [`Network::next`] returns what has happened.
//! - [`Replicator`]: a message to several hosts, in the switch, by fan-out or along a chain.
//! - [`experiments`]: the figures of the MC-RDMA paper's section VII.
//! - [`Dcqcn`]: variants of congestion control; by default that of [`roce::rc`].
//!
//! Not modelled: pause frames take no bandwidth, switches have no forwarding delay, and hosts always receive
//! at line rate. Times are in picoseconds, so that a packet's time on a link of 100 Gbit/s is exact. Results
//! are deterministic for a configuration. Nothing here blocks.

mod config;
mod cpu;
mod dcqcn;
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
pub use dcqcn::Dcqcn;
pub use error::NoGroup;
pub use fabric::Drops;
pub use hosts::{Pair, PairCounts};
pub use network::{Network, Notice};
pub use port::PortCounts;
pub use replicate::{Pattern, Replicator};
pub use units::{PS_PER_NS, PS_PER_S};
pub use workload::{Distribution, Poisson};
