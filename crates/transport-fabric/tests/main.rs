//! All tests of this crate that use it from outside, in one program: it is linked once.
#![cfg(libfabric)]

mod common;
mod contract;
mod hostile;
mod posting;
mod processes;
mod registration;
mod segments;
