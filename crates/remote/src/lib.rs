//! Objects that lie on web servers, in object stores and on model hubs: what there is ([`Remote::open`]), and ranges of it
//! ([`Remote::read`]). Knows no pushes.
//!
//! Each entry is pinned to the version that was listed: what another version has is an error that names it, and never mixed
//! with it. Every wait has a deadline, credentials go only to the host that they are for, and errors name URLs without what
//! may be secret in them.

#![forbid(unsafe_code)]

mod bucket;
mod checking;
mod entry;
mod environment;
mod error;
mod hub;
mod hub_location;
mod location;
mod pin;
mod profile;
mod remote;
mod retries;
mod web;

pub use checking::Checking;
pub use entry::{Checksum, Entry, Kind};
pub use environment::Environment;
pub use error::RemoteError;
pub use hub_location::{HubKind, HubLocation};
pub use location::Location;
pub use remote::{Remote, Settings};
