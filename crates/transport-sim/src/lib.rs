//! A simulated network in virtual time, which keeps the contract of [`transport::Transport`].
//!
//! A [`SimNet`] holds any number of members in one thread. It uses no real clock: time
//! passes from event to event, so an hour of transfers takes as long as its events take to
//! compute. The same seed and the same calls give the same run, event by event; a failing test
//! prints [`SimNet::trace`], which begins with the seed.
//!
//! # The model
//! Each member has one transmit port and one receive port (full-duplex one-port, the model of the
//! papers' step counts). A block occupies both ports for its bytes divided by the lowest of three
//! rates (the two ports' and the link's), plus [`SimConfig::block_overhead_ns`] and
//! [`SimConfig::block_jitter`]. Then the ports are free, the send has completed, and the block
//! arrives a latency later. Control words take a latency and never occupy ports. One-sided writes
//! leave one after another at the rate of the transmit port, those of one connection or all of a
//! member ([`SimConfig::write_overhead_ns`]), and do not occupy it either; their bytes appear all at once, or in parts before they are reported ([`SimConfig::write_placement`]).
//!
//! **Arbitration.** A source prefers the send that was posted first, among those whose target's
//! port is free. A target prefers the receive that was posted first, among those whose block has
//! been posted by a source whose port is free. A transfer starts when both ends prefer it; if
//! preferences form a circle, the transfer in it whose send was posted first starts. So a port is
//! never idle while a transfer could use it and its other end, and no transfer waits behind one
//! whose other end is busy. Ports are assigned after all other events of an instant, so that blocks
//! that end together, and the posts that members make because of that, are all taken into account.
//! With no latency, no jitter and equal rates, a schedule whose steps are synchronous therefore
//! takes exactly its number of steps, whatever was posted ahead.
//!
//! **Shared ports** ([`Ports::Shared`]). Instead, each part of a block occupies its source's port, then its
//! target's, and ports serve the connections in turn. A block is sent once its last part has left.
//!
//! **Cut-through** ([`SimConfig::cut_through_bytes`]). A block whose first part has arrived may be sent
//! on at once. It occupies its ports for its own time; if the rest of it has not come by then, it leaves
//! them, and ends a part's time after the rest came.
//!
//! **Simplifications.** Latency delays a block as a whole; the receive port is occupied at the same
//! time as the transmit port. A slow link occupies both its ports for its own, longer time. The
//! network card is independent of the program: it continues while a member does not poll, and
//! starts offloaded sends by itself as soon as their receives hold their blocks. Blocks without
//! credit break the endpoint when they are posted, a latency earlier than at a real receiver.
//!
//! # Driving
//! A test calls [`SimNet::step`], which returns the member whose transport has something to report,
//! and polls that one without a wait; or polls all in turn with a wait, as with any other
//! transport: [`SimTransport`]'s `poll` computes events until its wait is over.
//!
//! # Cost
//! Two to four events per block and one per control word, each O(log events), plus a scan of the
//! transfers that wait at two ports. Memory: the posts and about 150 bytes per connection end.

#![forbid(unsafe_code)]

mod config;
mod connection;
mod event;
mod fault;
mod member;
mod names;
mod net;
mod port;
mod post;
mod state;
mod trace;
mod transfer;
mod trigger;
mod write;

pub use config::{Jitter, LinkConfig, Placement, Ports, SimConfig};
pub use fault::Fault;
pub use member::{SimLink, SimTransport};
pub use net::SimNet;
pub use state::{MemberTotals, SimTotals};
