//! Where a root may make a confined receiver write.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    files::fuzzing::places(bytes);
});
