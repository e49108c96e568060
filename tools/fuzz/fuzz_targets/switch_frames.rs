//! Arbitrary frames at a switch with groups.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    mcrdma::fuzzing::frames(bytes);
});
