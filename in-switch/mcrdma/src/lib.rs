//! Multicast in the switch as pure logic: no I/O, no clock, no thread.
//!
//! A sender's reliable connection has one virtual peer. Switches copy its packets where the members'
//! paths diverge, rewrite each copy for its member's queue pair, and merge all members' answers into
//! those of one peer. Both ends are unmodified (the MC-RDMA paper, sections III and IV; where the
//! rules differ from it, and why: `docs/decisions/in-switch.md`).
//!
//! - [`plan`]: where paths diverge, given the routes (section IV-B);
//! - [`Tables`]: a switch's match-action tables; [`Switch`] applies them to frames;
//! - [`Merger`]: one group's answers at the sender's first switch (section IV-C, IV-D).
//!
//! Times are nanoseconds since any epoch, passed by the caller. Nothing here blocks.

mod counter;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod group;
mod group_counters;
mod key;
mod limits;
mod merge;
pub mod plan;
mod resolve;
mod switch;
mod switches;
mod tables;
mod trace;

pub use counter::{Counter, Counters};
pub use error::Refused;
pub use roce::Mac;

pub use group::{Branch, Merging, Region, Replication, Rewriting, Source};
pub use group_counters::{AnswerCounters, AnswerKind, GroupCounters};
pub use key::{GroupKey, Port};
pub use limits::{GROUPS_MAX, MEMBERS_MAX, PLACES_MAX, PORTS_MAX, REGIONS_MAX, REGIONS_TOTAL_MAX};
pub use merge::{AHEAD_MAX, HOLD_NS, LAG_MAX, Merged, Merger, PACE_NS, PACED, SILENCE_NS};
pub use switch::{Switch, Verdict};
pub use switches::{Delegates, InsertError, Inserted, Suspicion, Switches};
pub use tables::{Decision, Tables, answer_frame};
pub use trace::{TRACE_KEPT_MAX, Traced, TracedPacket};
