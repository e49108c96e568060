//! A member of a team whose linked members write and send anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    team::fuzzing::neighbours(bytes);
});
