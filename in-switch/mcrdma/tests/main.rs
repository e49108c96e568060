//! All tests of this crate that use it from outside, in one program: it is linked once.

mod groups;
mod merge;
mod plan;
mod tables;
mod world;
