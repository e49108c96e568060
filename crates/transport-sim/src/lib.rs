//! A simulated network in virtual time.
//!
//! [`SimNetwork`] holds any number of members in one thread; [`SimNetwork::member`] gives each its
//! [`transport::Transport`]. Everything that happens follows from the calls, the [`SimConfig`] and
//! one seed, so a failure is replayed by its seed.
//!
//! # The model
//! Each member has one port that sends one block and receives one block at a time (full duplex,
//! the one-port model of the schedules). A block occupies its source's sending side and its
//! target's receiving side for `bytes / rate`, plus a random delay if so configured, and arrives
//! whole after the link's latency. Control words take the latency and no port.
//!
//! At each instant everything that arrives is handed out, and answered, before the ports choose
//! their next blocks. A sending port prefers the send that was posted first, a receiving port the
//! receive that was posted first; a block starts when both of its ports prefer it. So a schedule
//! that nothing disturbs takes exactly as many block times as it has steps.
//!
//! # Driving
//! A test calls [`SimNetwork::step`], which lets the next thing happen and names the member that has
//! something to poll, polls that member with no wait, and so on until nothing is left. Code that
//! knows nothing of simulations can wait in `poll` instead: that lets virtual time pass.

#![forbid(unsafe_code)]

mod events;
mod member;
mod network;
mod ports;

pub use member::{SimLink, SimTransport};
pub use network::{SimConfig, SimNetwork};
