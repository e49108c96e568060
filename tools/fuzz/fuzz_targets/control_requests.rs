//! Requests of authenticated clients to the agent at a switch.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    control::fuzzing::requests(bytes);
});
