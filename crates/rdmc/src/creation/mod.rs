//! Creating a group together with its other members (docs/decisions/creation.md).
//!
//! A pure state machine, with events in and effects out:
//! - `choice`: what the root has chosen, and who is asked for it by members that leave it open; `decision`: what those answer.
//! - `terms`: the settings that must be the same at all members.
//! - `messages`: what contexts say to each other.
//! - `joining`: what is to be created at one member.
//! - `attempt`: one creation, with its links so far; only neighbours are linked (docs/decisions/neighbours-only.md).
//! - `parked`: requests for groups that are not created here yet; `busiest`: whose make way if they are too many.
//! - `contexts`: the other contexts, and the connections with them that groups share (docs/decisions/shared-connections.md).
//! - `creations`: all creations of a context. `effects`: what they ask for.
//!
//! What runs it:
//! - `steps`: the worker's commands; `creating`: passes them to the state machine, and carries out its effects.
//! - `dialing`: the threads that connect, and `listening`: those that answer; `assembling`: connections of which streams are missing;
//!   `refusals`: peers that did not authenticate.
//! - `links`: what comes out.
//! - `in_switch`: creates groups whose blocks switches copy, once their links are connected
//!   (feature `switch`).

mod assembling;
mod attempt;
mod busiest;
pub mod choice;
mod contexts;
pub(crate) mod creating;
pub mod creations;
mod decision;
pub(crate) mod dialing;
pub mod effects;
#[cfg(feature = "switch")]
pub(crate) mod in_switch;
pub mod joining;
pub(crate) mod links;
pub(crate) mod listening;
pub mod messages;
mod parked;
mod refusals;
pub(crate) mod steps;
pub mod terms;
