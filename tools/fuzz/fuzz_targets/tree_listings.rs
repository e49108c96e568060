//! Listings of directories.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    tree::fuzzing::listings(bytes);
});
