//! The shim's functions: `shim/shim.h`.

use std::ffi::{c_char, c_int, c_void};

#[repr(C)]
pub(crate) struct RawDevice {
    _private: [u8; 0],
}
#[repr(C)]
pub(crate) struct RawQueuePair {
    _private: [u8; 0],
}
#[repr(C)]
pub(crate) struct RawMemory {
    _private: [u8; 0],
}

#[repr(C)]
pub(crate) struct RawConnection {
    pub(crate) peer: [u8; 16],
    pub(crate) peer_qpn: u32,
    pub(crate) send_psn: u32,
    pub(crate) receive_psn: u32,
    pub(crate) mtu_bytes: u32,
    pub(crate) timeout: u8,
    pub(crate) retries: u8,
    pub(crate) not_ready_retries: u8,
    pub(crate) not_ready_timer: u8,
}

#[repr(C)]
#[derive(Default)]
pub(crate) struct RawWork {
    pub(crate) id: u64,
    pub(crate) address: u64,
    pub(crate) bytes: u32,
    pub(crate) local_key: u32,
    pub(crate) is_write: u32,
    pub(crate) has_immediate: u32,
    pub(crate) immediate: u32,
    pub(crate) remote_key: u32,
    pub(crate) remote_address: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct RawCompletion {
    pub(crate) id: u64,
    pub(crate) status: u32,
    pub(crate) kind: u32,
    pub(crate) bytes: u32,
    pub(crate) has_immediate: u32,
    pub(crate) immediate: u32,
    pub(crate) qpn: u32,
}

unsafe extern "C" {
    pub(crate) fn rv_load(why: *mut c_char, why_bytes: usize) -> c_int;
    pub(crate) fn rv_open(
        name: *const c_char,
        gid: *const u8,
        interface: u32,
        depth: u32,
        device: *mut *mut RawDevice,
    ) -> c_int;
    pub(crate) fn rv_close(device: *mut RawDevice);
    pub(crate) fn rv_name(device: *const RawDevice) -> *const c_char;
    pub(crate) fn rv_mtu_bytes(device: *const RawDevice) -> u32;
    pub(crate) fn rv_fd(device: *const RawDevice) -> c_int;
    pub(crate) fn rv_arm(device: *mut RawDevice) -> c_int;
    pub(crate) fn rv_poll(
        device: *mut RawDevice,
        completions: *mut RawCompletion,
        most: u32,
    ) -> c_int;
    pub(crate) fn rv_register(
        device: *mut RawDevice,
        begin: *mut c_void,
        bytes: usize,
        for_peers: u32,
        memory: *mut *mut RawMemory,
    ) -> c_int;
    pub(crate) fn rv_deregister(memory: *mut RawMemory);
    pub(crate) fn rv_local_key(memory: *const RawMemory) -> u32;
    pub(crate) fn rv_remote_key(memory: *const RawMemory) -> u32;
    pub(crate) fn rv_create(
        device: *mut RawDevice,
        depth: u32,
        queue_pair: *mut *mut RawQueuePair,
    ) -> c_int;
    pub(crate) fn rv_destroy(queue_pair: *mut RawQueuePair);
    pub(crate) fn rv_qpn(queue_pair: *const RawQueuePair) -> u32;
    pub(crate) fn rv_connect(
        queue_pair: *mut RawQueuePair,
        connection: *const RawConnection,
    ) -> c_int;
    pub(crate) fn rv_send(queue_pair: *mut RawQueuePair, work: *const RawWork) -> c_int;
    pub(crate) fn rv_receive(
        queue_pair: *mut RawQueuePair,
        id: u64,
        address: u64,
        bytes: u32,
        local_key: u32,
    ) -> c_int;
}
