//! Multicast in the switch as pure logic: no I/O, no clock, no thread.
//!
//! A sender's queue pair of a reliable connection talks to what it takes for one peer. Switches copy
//! its packets where the members' paths part, give each copy what its member's queue pair expects,
//! and make one peer's answers of those of all members. Neither end knows (the MC-RDMA paper,
//! sections III and IV; where the rules differ from it, and why: `docs/decisions/in-switch.md`).
//!
//! - [`plan`]: where the paths part, given the routes (section IV-B);
//! - [`Tables`]: what a switch knows, and what that says of a packet; [`Switch`] applies it to frames;
//! - [`Merger`]: one group's answers at the sender's first switch (section IV-C, IV-D).
//!
//! Times are nanoseconds since any beginning, told by whoever calls. Nothing here blocks.

mod counter;
mod error;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod group;
mod key;
mod limits;
mod merge;
pub mod plan;
mod resolve;
mod switch;
mod switches;
mod tables;

pub use counter::{Counter, Counters};
pub use error::Refused;
/// Of members and routers, as [`Branch`] names them.
pub use roce::Mac;

pub use group::{Branch, Merging, Region, Replication, Rewriting, Source};
pub use key::{GroupKey, Port};
pub use limits::{GROUPS_MAX, MEMBERS_MAX, PLACES_MAX, PORTS_MAX, REGIONS_MAX};
pub use merge::{HOLD_NS, Merged, Merger, WINDOW_NS};
pub use switch::{Switch, Verdict};
pub use switches::{InsertError, Inserted, Switches};
pub use tables::{Decision, Tables};
