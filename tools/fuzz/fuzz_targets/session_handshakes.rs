//! What an unauthenticated peer sends to a listener.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    session::fuzzing::handshake(bytes);
});
