//! The integration tests of this crate in one program, so that it is linked once.

mod all_or_none;
mod canaries;
mod command;
mod many;
mod pushes;
mod replay;
mod seeds;
