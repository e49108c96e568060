//! A directory as a list of entries ([`Listing`]), and as one object that holds the contents of all its files
//! ([`Layout`]): pure, without I/O (docs/decisions/trees.md).
//!
//! Paths are bytes, relative to the top of the tree, with `/` between names. Listings come from peers: whatever
//! [`Listing::decode`] returns names nothing outside the tree and nothing twice; links lead out only if [`Listing::links`] says so.

#![forbid(unsafe_code)]

mod attributes;
mod entry;
mod error;
mod extents;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
mod glob;
mod layout;
mod listing;
mod packed;
mod path;
mod selection;

pub use attributes::{Attributes, AttributesFault, Holder, is_access};
pub use entry::{Entry, Kind};
pub use error::ListingError;
pub use layout::{Layout, Piece};
pub use listing::{ENTRIES_MAX, Links, Listing, PATHS_BYTES_MAX};
pub use packed::{LISTING_BYTES_MAX, Read, Reader};
pub use path::{NAME_BYTES_MAX, PATH_BYTES_MAX, PathFault, check_link, check_path, compare};
pub use selection::{PatternError, Rule, Selection};
