//! Options that are constant at a site, from variables `RDMC_*` and a file, for `rdmc push`, `rdmc bench` and `rdmc doctor --to`.
//!
//! They are added to the command line, before the other options, unless it has the same option or one that excludes it.
//! Variables take precedence over the file in the same way. Receivers read neither: a listening receiver is configured by its
//! command line, a launched one by the root's invitation.

mod additions;
mod configured;
mod keys;
mod sources;

pub use additions::Additions;
pub use keys::help;
pub use sources::path;
