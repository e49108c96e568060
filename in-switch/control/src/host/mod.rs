//! Groups that applications of a host send to and receive from, by the daemon of that host.
//!
//! [`client`] is the daemon as its applications see it; [`terms`] is what applications and daemons say of a
//! group, and is checked where it arrives.

pub mod client;
pub mod terms;

pub use terms::{Acceptance, Extent, Invited, NAME_BYTES_MAX, NewGroup, Terms, WORDS_BYTES_MAX};
