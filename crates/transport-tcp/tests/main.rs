//! All tests of this crate that use it from outside, in one program: it is linked once.

mod channel_frames;
mod common;
mod contract;
mod cut_through;
mod direct;
mod hostile;
mod limits;
mod link_local;
mod memory;
mod processes;
mod protected;
mod rate;
mod segments;
mod shared;
mod transfer;
mod watched;
