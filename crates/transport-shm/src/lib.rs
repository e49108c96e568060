//! Transport between processes of one user on one machine: a one-sided write is a store into memory that both
//! have mapped (docs/decisions/shared-memory.md).
//!
//! [`ShmTransport`] implements the contract of [`transport::Transport`]. It starts no thread: bytes move while the
//! caller is in `poll` or posts.
//!
//! The path of a link through the files: two processes meet at a Unix socket (`offer`), over which they pass their
//! segments (`segment`) and exposed memory (`socket`); a segment has a ring that one end writes and the other reads (`ring`);
//! in it are records (`record`) of what an end has posted (`outgoing`), which the other end completes
//! (`incoming`); of long blocks the memory itself, which the other end copies (`direct`). `link` is one end of it, `driver` the transport. `beside` joins it with a transport to other machines. `pipe` is a stream of bytes alone,
//! for a transport that has its own frames.
//!
//! What the peer can write is hostile: its own segment, and memory that was exposed to it. Numbers in its segment are
//! copied once and checked before they are used; this end's own positions are not kept where the peer could write
//! them.
//!
//! # Cost
//! For a link one file descriptor and a segment at each end ([`ShmSettings::ring_bytes`]), whose pages take memory once
//! they were written. A write is one copy, within the call that posts it. A block is copied into the ring and
//! out of it; a long one once, by a system call, between processes of an ordinary user.

#![forbid(unsafe_code)]

mod beside;
mod direct;
mod driver;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
#[cfg(test)]
mod hostile;
mod incoming;
#[cfg(test)]
mod interleavings;
mod link;
mod offer;
mod outgoing;
mod pipe;
mod receive;
mod record;
mod ring;
mod segment;
mod settings;
mod sleep;
mod sleeper;
mod socket;
#[cfg(any(test, fuzzing))]
mod victim;

pub use beside::{Beside, BesideLink};
pub use driver::ShmTransport;
pub use error::ShmError;
pub use offer::{OFFER_BYTES, Offer, ShmLink};
pub use pipe::{PipeEnd, ShmPipe};
pub use ring::USUAL_RING_BYTES;
pub use settings::ShmSettings;
