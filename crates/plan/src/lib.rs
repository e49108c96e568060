//! How to replicate a message fastest, and who holds a group up.
//!
//! - [`choice`]: which algorithm and which block size are fastest, by a cost model.
//! - [`size`]: sizes and rates as people write and read them.
//! - [`slowness`]: which member holds a group up, from what all members waited for.
//!
//! Above the library, which does as it is told. Pure functions, but for a look at how many processors
//! there are.

#![forbid(unsafe_code)]

pub mod choice;
pub mod size;
pub mod slowness;
