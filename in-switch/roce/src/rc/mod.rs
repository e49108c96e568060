//! Reliable connections (RC): both ends as state machines, for hosts without an RDMA device and for simulations.
//!
//! [`Requester`] sends SEND and WRITE, [`Responder`] receives them; [`Rate`] is DCQCN's reaction point.
//! They know lengths and offsets, not bytes: the caller moves payloads, and passes the time as
//! nanoseconds since any instant. Numbers, opcodes and answers follow the InfiniBand Architecture
//! Specification 1.2.1, section 9. Queues are allocated (`alloc`); nothing else is.

mod rate;
mod requester;
mod responder;

pub use rate::{Rate, RateConfig};
pub use requester::{
    Completion, Kind, Request, Requester, RequesterConfig, Status, Work, WorkRefused,
};
pub use responder::{Arrival, MemoryRegion, Place, Reaction, Responder};
