//! A peer that sends anything over TCP.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    transport_tcp::fuzzing::frames(bytes);
});
