//! All tests of this crate that use it from outside, in one program: it is linked once.

mod axes;
mod collectives;
mod command;
mod gpu;
mod groups;
mod in_switch;
mod nightly;
mod scale;
mod switch;
