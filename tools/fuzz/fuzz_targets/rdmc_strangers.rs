//! What somebody without the secret says to a listener.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    rdmc::fuzzing::strangers(bytes);
});
