//! A peer that writes anything to its ring of shared memory, or its socket.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    transport_shm::fuzzing::records(bytes);
});
