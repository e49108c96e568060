//! Messages between root and receivers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    files::fuzzing::messages(bytes);
});
