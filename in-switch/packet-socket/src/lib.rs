//! Ethernet frames to and from a network interface, through packet sockets (Linux, `packet(7)`).
//!
//! What the kernel would do with the frames it still does: a packet socket sees copies of what comes
//! in, before the kernel's own network stack. Needs CAP_NET_RAW.

mod batch;
mod interface;
mod offload;
mod query;

pub use batch::{BATCH, Batch};
pub use interface::{Interface, InterfaceError};
pub use offload::Offload;
pub use query::ethernet_address;
