//! Control words of groups, and the messages of sessions and of group creation.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    engine::fuzzing::messages(bytes);
    rdmc::fuzzing::messages(bytes);
    session::fuzzing::messages(bytes);
});
