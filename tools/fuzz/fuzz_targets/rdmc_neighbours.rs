//! A member whose neighbours send anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    engine::fuzzing::neighbours(bytes);
});
