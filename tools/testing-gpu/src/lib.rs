//! A stand-in for NVIDIA's driver, for tests on machines without a GPU: `libtesting_gpu.so` has the calls of `libcuda.so.1`
//! that `rdmc-gpu` makes, with their order and their errors, on memory of the host.
//!
//! There are two devices. Copies run later, on a thread for each stream, so that a missing wait shows as wrong data. Misuse
//! is an error of the call, or is counted if it shows only when a copy runs: memory that was freed, handles that were
//! destroyed, a context that is not current. Tests make calls fail, hold streams back and count what is left, by the functions
//! in [`control`].
//!
//! Its state belongs to the library: a test that needs its own opens a copy of the file.

pub mod control;
mod driver;
mod queue;
mod state;
