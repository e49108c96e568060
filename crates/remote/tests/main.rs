//! All tests of this crate that use it from outside, in one program.

mod hub;
mod web;
