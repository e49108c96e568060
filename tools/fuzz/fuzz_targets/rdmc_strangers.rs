//! An unauthenticated peer of a listener.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    session::fuzzing::strangers(bytes);
});
