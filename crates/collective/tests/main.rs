//! All tests of this crate that use it from outside, in one program: it is linked once.

mod choices;
mod disagreements;
mod folds;
mod model;
mod operations;
mod reductions;
mod trees;
mod ways;
mod world;
