//! Ethernet frames to and from a network interface, through packet sockets (Linux, `packet(7)`).
//!
//! A packet socket gets a copy of each received frame; the kernel's network stack still handles the original.
//! Needs CAP_NET_RAW. Also what else of sockets the kernel has to be asked for: [`Heard`].

mod batch;
mod heard;
mod interface;
mod offload;
mod outgoing;
mod query;

pub use batch::{BATCH, Batch};
pub use heard::Heard;
pub use interface::{Interface, InterfaceError};
pub use offload::Offload;
pub use outgoing::{Outgoing, PARTS};
pub use query::ethernet_address;
