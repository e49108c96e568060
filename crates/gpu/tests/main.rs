//! The integration tests of this crate in one program.

mod common;
mod driver;
mod groups;
mod memory;
mod real;
mod teams;
