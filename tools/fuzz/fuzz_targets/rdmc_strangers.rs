//! What somebody without the secret says to a listener.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    session::fuzzing::strangers(bytes);
});
