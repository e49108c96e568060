//! All tests of this crate that use it from outside, in one program: it is linked once.

mod causes;
mod flags;
mod simulated;
mod sockets;
