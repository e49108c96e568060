//! Both ends of a reliable connection as state machines: what network cards do, for places without one.
//!
//! [`Requester`] sends SEND and WRITE, [`Responder`] takes them; [`Rate`] is DCQCN. They know lengths
//! and places only: whoever drives them moves the bytes, and calls with the time. Numbers, opcodes
//! and answers follow the InfiniBand Architecture Specification 1.2.1, section 9.

mod rate;
mod requester;
mod responder;

pub use rate::{Rate, RateConfig};
pub use requester::{
    Completion, Kind, Request, Requester, RequesterConfig, Status, Work, WorkRefused,
};
pub use responder::{Arrival, Memory, Place, Reaction, Responder};
