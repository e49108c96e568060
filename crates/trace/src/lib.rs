//! Traces of what members do when, in the JSON format that ui.perfetto.dev and chrome://tracing
//! open.
//!
//! The library `rdmc` gives events to `tracing` (target `rdmc::timeline`, described in its own
//! documentation). Here they become a file:
//!
//! - [`Moment`] is one such event, and [`layer`] takes them out of `tracing`.
//! - [`Writer`] writes the events of one process as they come, on a thread of its own, into a part
//!   of a trace, which is itself a whole trace.
//! - [`Trace`] joins the parts of several processes to one file.
//! - [`read`] gives its slices to programs.
//!
//! Times in a file are microseconds since its origin, read from the real-time clock of each host
//! when its part starts and counted monotonically from there. So processes of one host agree to
//! about a microsecond, and hosts as well as their clocks do.
//!
//! # What a trace shows
//! One process for each member, with tracks for its messages (from the first word of it to the
//! end), for sends (a slice from post to completion), for receives (from the grant of a credit to
//! the block's arrival), for what keeps it from sending (a slice for each wait, named by the member
//! that it waits for), for copies of first blocks, for the application's time to give memory, and
//! for credits and announcements (points in time). Arrows lead from a block's send to its receive.

#![forbid(unsafe_code)]

mod event;
mod file;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod moment;
mod read;
mod tracks;
mod writer;

pub use file::{Part, Process, Trace};
pub use moment::{Moment, What, layer};
pub use read::{Lasting, Reason, Shown, Slice, read};
pub use writer::{Summary, Writer};
