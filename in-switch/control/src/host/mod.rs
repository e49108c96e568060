//! Groups that applications of a host send to and receive from, through the daemon of that host.
//!
//! [`client`] is the client of the daemon; [`terms`] has the messages about groups, with validation.

pub mod client;
pub mod terms;

pub use terms::{
    APPLICATION_DATA_BYTES_MAX, Acceptance, Extent, Invited, NAME_BYTES_MAX, NewGroup, Terms,
};
