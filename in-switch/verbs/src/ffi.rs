//! The shim: `shim/shim.h`.

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

/// The shim's functions, in the order of `struct rv_functions`.
#[repr(C)]
pub(crate) struct Functions {
    pub(crate) load: unsafe extern "C" fn(why: *mut c_char, why_bytes: usize) -> c_int,
    pub(crate) open: unsafe extern "C" fn(
        name: *const c_char,
        gid: *const u8,
        interface: u32,
        depth: u32,
        device: *mut *mut RawDevice,
    ) -> c_int,
    pub(crate) close: unsafe extern "C" fn(device: *mut RawDevice),
    pub(crate) name: unsafe extern "C" fn(device: *const RawDevice) -> *const c_char,
    pub(crate) mtu_bytes: unsafe extern "C" fn(device: *const RawDevice) -> u32,
    pub(crate) fd: unsafe extern "C" fn(device: *const RawDevice) -> c_int,
    pub(crate) arm: unsafe extern "C" fn(device: *mut RawDevice) -> c_int,
    pub(crate) poll: unsafe extern "C" fn(
        device: *mut RawDevice,
        completions: *mut RawCompletion,
        most: u32,
    ) -> c_int,
    pub(crate) register_memory: unsafe extern "C" fn(
        device: *mut RawDevice,
        begin: *mut c_void,
        bytes: usize,
        may_write: u32,
        for_peers: u32,
        memory: *mut *mut RawMemory,
    ) -> c_int,
    pub(crate) deregister_memory: unsafe extern "C" fn(memory: *mut RawMemory),
    pub(crate) local_key: unsafe extern "C" fn(memory: *const RawMemory) -> u32,
    pub(crate) remote_key: unsafe extern "C" fn(memory: *const RawMemory) -> u32,
    pub(crate) create: unsafe extern "C" fn(
        device: *mut RawDevice,
        depth: u32,
        queue_pair: *mut *mut RawQueuePair,
    ) -> c_int,
    pub(crate) destroy: unsafe extern "C" fn(queue_pair: *mut RawQueuePair),
    pub(crate) qpn: unsafe extern "C" fn(queue_pair: *const RawQueuePair) -> u32,
    pub(crate) connect: unsafe extern "C" fn(
        queue_pair: *mut RawQueuePair,
        connection: *const RawConnection,
    ) -> c_int,
    pub(crate) send:
        unsafe extern "C" fn(queue_pair: *mut RawQueuePair, work: *const RawWork) -> c_int,
    pub(crate) receive: unsafe extern "C" fn(
        queue_pair: *mut RawQueuePair,
        id: u64,
        address: u64,
        bytes: u32,
        local_key: u32,
    ) -> c_int,
}

#[cfg(libibverbs)]
unsafe extern "C" {
    static rv_functions: Functions;
}

/// `None` in a build without libibverbs' headers: nothing was compiled then.
pub(crate) const fn functions() -> Option<&'static Functions> {
    #[cfg(libibverbs)]
    // SAFETY: it is never written, and laid out as it is here.
    return Some(unsafe { &rv_functions });
    #[cfg(not(libibverbs))]
    None
}
