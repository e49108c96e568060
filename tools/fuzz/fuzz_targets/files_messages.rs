//! What root and receivers say to each other.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    files::fuzzing::messages(bytes);
});
