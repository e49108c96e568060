//! All tests of this crate that use it from outside, in one program: it is linked once.

mod common;
mod contract;
mod descriptors;
mod direct_copies;
mod killed;
mod other_network;
mod other_user;
mod processes;
mod sleep;
mod writes;
