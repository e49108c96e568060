//! All tests of this crate that use it from outside, in one program: it is linked once.

mod all_or_none;
mod faults;
mod gathering;
mod holes;
mod host_tokens;
#[cfg(feature = "switch")]
mod in_switch;
mod second_writers;
mod serving;
mod session;
mod streams;
mod target;
mod trees;
