//! What anybody with a certificate may ask the agent at a switch for.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    control::fuzzing::requests(bytes);
});
