//! Creating a group together with its other members.
//!
//! - `terms`: what both ends of a link must have been told alike.
//! - `links`: connects a group's neighbours, and only those (docs/decisions/neighbours-only.md).
//! - `in_switch`: makes groups that switches copy, once their links are connected (feature `switch`).

#[cfg(feature = "switch")]
pub(crate) mod in_switch;
pub(crate) mod links;
pub(crate) mod terms;
