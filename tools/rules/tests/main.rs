//! All tests of this crate that use it from outside, in one program: it is linked once.

mod cycles;
mod documents;
mod parameters;
mod rules;
mod variables;
