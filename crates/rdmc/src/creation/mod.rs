//! Creating a group together with its other members.
//!
//! - `terms`: the settings that must be the same at all members.
//! - `links`: connects a group's neighbours, and only those (docs/decisions/neighbours-only.md).
//! - `in_switch`: creates groups whose blocks switches copy, once their links are connected
//!   (feature `switch`).

#[cfg(feature = "switch")]
pub(crate) mod in_switch;
pub(crate) mod links;
pub(crate) mod terms;
