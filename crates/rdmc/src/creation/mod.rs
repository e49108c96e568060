//! Creating a group together with its other members.
//!
//! - `choice`, `decisions`: what the root has chosen, and how members that leave it open learn it before they connect.
//! - `terms`: the settings that must be the same at all members.
//! - `links`: connects a group's neighbours, and only those (docs/decisions/neighbours-only.md).
//! - `meeting`: where the threads that create links meet, and the worker.
//! - `expected`: a group that is being created, and the links that others have made for it.
//! - `shared`: links on connections that groups share (docs/decisions/shared-connections.md).
//! - `in_switch`: creates groups whose blocks switches copy, once their links are connected
//!   (feature `switch`).

pub(crate) mod choice;
mod decisions;
mod expected;
#[cfg(feature = "switch")]
pub(crate) mod in_switch;
pub(crate) mod joining;
pub(crate) mod links;
pub(crate) mod meeting;
pub(crate) mod messages;
mod shared;
pub(crate) mod terms;
