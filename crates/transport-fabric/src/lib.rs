//! [`Transport`](transport::Transport) over libfabric: RDMA where there is RDMA.
//!
//! Works with the providers `verbs`, `tcp` and `sockets` by connected message endpoints and with
//! `shm`, `efa` and `cxi` by reliable datagrams; docs/guide/fabrics.md in the repository lists which of
//! them were run, on what, and what each cannot. `shm` joins processes: a link with both ends in one
//! is refused. libfabric is opened when a fabric is started, not linked: without it
//! (or where its headers were missing at build time) starting fails with [`FabricError`], and TCP
//! still works.
//!
//! # How a link works
//! Both ends exchange [`Offer`]s over the authenticated connection that bootstrap has made, and
//! keep that connection as the *lifeline*: a TCP endpoint that reports within seconds when a peer
//! is dead or silent, which queue pairs that retry for ever do not, and over which a close is
//! agreed.
//!
//! - Blocks are two-sided sends with 32 bits of immediate data, spread over the *rails* (one
//!   endpoint for each device of this host) in a fixed order.
//!   Over `tcp` a block longer than 64 KiB comes as up to eight messages, each into a part of the posted
//!   memory, so that it can be sent on while it arrives ([`Transport::cut_through`](transport::Transport::cut_through));
//!   other providers carry it whole and have no such sends.
//! - Control words are one-sided writes with immediate data into a *ring* of slots in the peer's
//!   memory, on an endpoint of their own; datagram providers get them as tagged messages. Each slot
//!   carries the lengths of the receives that its writer has posted, so that a block is sent only
//!   into a receive that is there and long enough: no receiver-not-ready retry can happen
//!   (DSN 2018, section 4.2).
//! - One completion queue for each device serves all links of a transport.
//! - Memory is registered when it is first used, in pieces, and stays registered for as long as its
//!   [`Memory`](transport::Memory) exists. If the kernel cannot pin it, its blocks pass through a
//!   copy of the piece ([`Copies`]).
//! - Offloaded blocks are deferred work of the provider, with a counter for each operation, on the
//!   first rail; `sockets` and `cxi` have that.
//! - A link over whose fabric nothing completes for [`FabricSettings::answer_timeout`] breaks, even if
//!   its lifeline is up.
//!
//! # Threads
//! The transport has no thread of its own (some providers have); all work is done in `poll`, by the
//! thread that calls it. [`Offers`] may be used from any thread.
//!
//! # Trust
//! A link number and a cookie of 128 random bits assign a connection to its link; others are
//! refused. What peers write is stored in slots and in memory that was exposed to them, and is
//! checked before it is used. RDMA itself has neither encryption nor authentication: any host that
//! can send packets with a queue pair's number on the network can disturb it.

mod discovery;
mod error;
// The only place that depends on whether libfabric's headers were found at build time.
#[cfg_attr(not(libfabric), path = "absent.rs")]
mod native;
mod role;
mod settings;

pub use discovery::{Device, Discovery, may_have_hardware};
pub use error::FabricError;
#[cfg(all(libfabric, any(test, fuzzing)))]
pub use native::fuzzing;
pub use native::{FabricLink, FabricTransport, Offer, Offers, discover};
pub use role::Role;
pub use settings::{Copies, FabricSettings};
