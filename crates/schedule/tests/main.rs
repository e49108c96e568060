//! All tests of this crate that use it from outside, in one program: it is linked once.

mod arguments;
mod chains;
mod properties;
mod rack_reference;
mod reference;
