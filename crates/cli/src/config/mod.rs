//! Options that never change at a site: from variables `RDMC_*` and a file, for `rdmc push`, `rdmc bench` and `rdmc doctor --to`.
//!
//! They are put before the other options as if they stood on the command line, unless that has them, or an option that
//! excludes them. Variables go before the file in the same way. Receivers read neither: the command line of a listening
//! one, and the root's invitation of a launched one, say what they do.

mod additions;
mod configured;
mod keys;
mod sources;

pub use additions::Additions;
pub use keys::help;
pub use sources::path;
