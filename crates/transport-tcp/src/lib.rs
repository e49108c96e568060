//! The embedded default transport: blocks over TCP sockets, without any native library.
//!
//! [`TcpTransport`] implements the contract of [`transport::Transport`] with sockets and one event
//! queue. Bytes move while the caller is in `poll`, unless it asks for more threads ([`TcpSettings::threads`]). Without protection,
//! payload is copied directly between leased memory and the kernel. With protection
//! ([`StreamKeys`]) it is encrypted from there into records of TLS 1.3, which are decrypted to where it belongs; a record is verified
//! as a whole before any of it is used (`protected`, `record`).
//!
//! The path of a block through the files: [`transport::Transport::post_send`] (`tcp_transport`) -> the thread that serves it
//! (`spread`; `threads` if it is another one) -> `connections` -> a stream of its connection (`connection`) -> cut into segments and written (`posted_send`, `outgoing`, `wire`) -> read
//! into the posted memory, several segments by one call (`incoming`, `segment_read`, `wire`) -> completion (`reports`).
//!
//! Between processes of one machine bytes may pass through memory in place of a socket ([`TcpLink::through_memory`]).
//!
//! All but `tcp_transport`, `threads`, `arrivals`, `driver`, `event_queue`, `socket`, `settings` and `peer` is pure (`connections`,
//! `spread`): it reads and writes streams of
//! bytes (`byte_stream`), which the driver makes of sockets, and time is an argument. `./dev sim --wire` runs it over
//! simulated ones, which the feature `simulation` makes possible.
//!
//! # Cost
//! On the wire 16 bytes per segment ([`TcpSettings::segment_bytes`]) and 16 bytes per control word;
//! a heartbeat of 16 bytes per stream in each quarter of [`TcpSettings::silence_timeout`] in which
//! nothing else was written. Memory per stream: about 1 KiB, two short queues, and the kernel's
//! socket buffers. With protection 22 bytes more per record, which holds up to 16 KiB;
//! 98 KiB of memory once blocks are sent, and 128 KiB once they are received.

#![forbid(unsafe_code)]

mod arrivals;
mod byte_stream;
mod capabilities;
mod channel;
mod command;
mod connection;
mod connections;
mod counters;
mod direct_copies;
mod driver;
mod event_queue;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod inbound;
mod incoming;
mod limit;
mod link;
mod messages;
mod moved;
mod offered;
mod outbound;
mod outgoing;
mod peer;
mod posted_receive;
mod posted_send;
mod protected;
mod record;
mod references;
mod reports;
mod segment_read;
mod selected;
mod settings;
mod shared;
mod socket;
mod spread;
mod stream;
mod tcp_transport;
mod threads;

mod wire;

#[cfg(feature = "simulation")]
pub use byte_stream::{ByteStream, Readiness};
#[cfg(feature = "simulation")]
pub use command::{Command, Outbound};
#[cfg(feature = "simulation")]
pub use connections::{Connections, Streams};
pub use counters::TcpCounters;
pub use direct_copies::check_direct_copies;
pub use link::{ConnectionId, LinkError, STREAMS_MAX, StreamKeys, TcpLink};
pub use messages::MESSAGE_BYTES_MAX;
#[cfg(feature = "simulation")]
pub use reports::Report;
pub use settings::{OutOfRange, RATE_MAX_LEAST, SEGMENT_BYTES_MAX, TcpSettings};
pub use shared::{SharedConnections, SharedEvent};
#[cfg(feature = "simulation")]
pub use spread::Spread;
#[cfg(feature = "simulation")]
pub use stream::NewStream;
pub use tcp_transport::TcpTransport;
