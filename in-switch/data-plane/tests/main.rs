//! All tests of this crate that use it from outside, in one program: it is linked once.

mod group_counters;
mod groups;
mod kernel_switch;
mod links;
mod traces;
mod two_processors;
mod unmodified_endpoints;
mod updates;
mod userspace_switch;
