//! Messages between root and receivers of a measurement.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    measure::fuzzing::messages(bytes);
});
