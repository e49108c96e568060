//! Groups over any [`transport::Transport`], without threads and sockets.
//!
//! [`Engine`] connects relays and a transport: it executes the relays' actions, passes completions
//! to them, and reports to the application by [`Event`]s. The same code runs on real and on
//! simulated networks. `rdmc` runs one engine for each context.

#![forbid(unsafe_code)]

mod close;
mod counters;
mod credits;
mod delivery;
mod engine;
mod error;
mod event;
mod failed;
mod failure;
mod fields;
mod file_blocks;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod group;
mod job_list;
pub mod jobs;
mod memory;
mod messages;
mod notice;
mod offload;
mod order;
mod outbox;
mod peers;
mod receives;
mod settings;
mod shadows;
mod slot;
mod small;
mod staging;
mod stalls;
mod timeline;
mod transfers;
mod verification;
mod wait_times;
mod waits;
mod watermark;
mod words;

pub use counters::Counters;
pub use engine::Engine;
pub use error::{Error, OutOfRange, check_range};
pub use event::Event;
pub use failure::{Failure, FailureKind};
pub use fields::Fields;
pub use notice::Notice;
pub use offload::Offload;
pub use relay::{BLOCK_BYTES_MAX, Waited};
pub use settings::{BLOCK_BYTES_DEFAULT, GroupSettings, SmallMessages, check_region};
pub use slot::Slot;
