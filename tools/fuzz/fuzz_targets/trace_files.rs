//! Trace files, and parts of them from other hosts.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    trace::fuzzing::files(bytes);
});
