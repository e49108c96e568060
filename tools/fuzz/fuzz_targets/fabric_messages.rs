//! Offers, lifelines and rings of libfabric's links.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    transport_fabric::fuzzing::messages(bytes);
});
