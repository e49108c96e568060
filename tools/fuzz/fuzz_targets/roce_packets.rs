//! RoCEv2 packets, as networks bring them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    roce::fuzzing::packets(bytes);
});
