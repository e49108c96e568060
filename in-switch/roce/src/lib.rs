//! RoCEv2: packets, parsed, built and rewritten, and the protocol of reliable connections.
//!
//! A packet is an IPv4 or IPv6 packet with a UDP datagram to port 4791, in which follow a base
//! transport header (BTH), the extended headers that its opcode asks for, the payload, up to three
//! bytes of padding, and the invariant CRC (InfiniBand Architecture Specification 1.2.1, annex A17).
//! Supports what reliable connections need for SEND and WRITE; everything else is [`Malformed::Foreign`].
//!
//! ```
//! use roce::{Bth, Headers, IpHeader, Opcode, Packet, Serial};
//!
//! let ip = IpHeader::new([10, 0, 0, 1].into(), [10, 0, 0, 2].into())?;
//! let bth = Bth::new(Opcode::SendOnly, 17, Serial::new(5));
//! let mut bytes = [0; 128];
//! let length = Headers::new(ip, bth).write(b"block", &mut bytes)?;
//! let packet = Packet::parse(&bytes[..length])?;
//! assert_eq!((packet.headers.bth.psn, packet.payload), (Serial::new(5), &b"block"[..]));
//! assert!(packet.is_intact());
//! # Ok::<(), roce::Malformed>(())
//! ```
//!
//! - [`ethernet`]: Ethernet frames;
//! - [`rc`]: requester and responder of a reliable connection, and their rate control.
//!
//! Nothing blocks or reads a clock. Packets are parsed and written without allocation and without state,
//! except [`ShiftTables`], which are made once; [`rc`] keeps a connection's state.
// Tests read fuzzers' corpora from files.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod error;
pub mod ethernet;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod headers;
mod icrc;
mod ip;
mod opcode;
mod packet;
mod patch;
pub mod rc;
mod serial;

pub use error::Malformed;
pub use ethernet::{ETHERNET_BYTES, InvalidMac, Mac};
pub use headers::{Aeth, BTH_BYTES, Bth, NakCode, Reth, Syndrome};
pub use icrc::{ICRC_BYTES, ShiftTables, icrc};
pub use ip::{IpHeader, ROCE_PORT, UDP_BYTES, icmpv6_checksum, internet_checksum};
pub use opcode::Opcode;
pub use packet::{HEAD_BYTES_MAX, Headers, Packet, TAIL_BYTES_MAX};
pub use patch::{Patch, Patched};
pub use serial::Serial;
