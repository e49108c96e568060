//! Control words of groups, and the messages of bootstrap.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    rdmc::fuzzing::messages(bytes);
});
