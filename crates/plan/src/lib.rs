//! How to replicate a message fastest, and which member delays a group.
//!
//! - [`choice`]: the fastest algorithm and block size, by a cost model.
//! - [`costs`]: what the model has to know of a network, and of a machine that all members share.
//! - [`fetch`]: hosts that come at any time, in steps.
//! - [`size`]: sizes and rates in text.
//! - [`slowness`]: the member that delays a group, from the waits of all members.
//!
//! Pure functions.

#![forbid(unsafe_code)]

pub mod choice;
pub mod costs;
mod crossing;
pub mod fetch;
pub mod size;
pub mod slowness;
