//! How to replicate a message fastest, and which member delays a group.
//!
//! - [`choice`]: the fastest algorithm and block size, by a cost model.
//! - [`size`]: sizes and rates in text.
//! - [`slowness`]: the member that delays a group, from the waits of all members.
//!
//! Pure functions, except that [`choice`] reads the number of processors.

#![forbid(unsafe_code)]

pub mod choice;
mod crossing;
pub mod size;
pub mod slowness;
