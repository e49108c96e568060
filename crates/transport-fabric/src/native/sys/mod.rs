//! The shim's functions, and owners of libfabric's objects that close them in order.
//!
//! An owner holds the owners of the objects that its own was made of. So, in any order of drops,
//! endpoints are closed before queues, queues before domains, and domains before fabrics; also when
//! opening failed half-way.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_long, c_void},
    fmt,
    os::fd::{BorrowedFd, RawFd},
    ptr,
    sync::{Arc, Mutex, PoisonError},
};

mod counter;
mod events;
mod info;
mod memory;
mod object;

pub use counter::Counter;
pub use events::{Event, next_event, read_completions};
pub use info::{Immediates, Info, infos};
pub use memory::{
    Access, Injection, Registration, Report, Span, Way, bind, inject, post_receive, post_send,
    post_write, register,
};
pub use object::*;

pub type Handle = *mut c_void;

#[repr(C)]
struct RawInfo {
    provider: *const c_char,
    domain: *const c_char,
    fabric: *const c_char,
    max_message_bytes: u64,
    receives_max: u64,
    sends_max: u64,
    inject_bytes_max: u64,
    link_bits_per_second: u64,
    is_message_endpoint: c_int,
    needs_local_registration: c_int,
    writes_consume_receives: c_int,
    virtual_addresses: c_int,
    binds_registrations: c_int,
    has_triggers: c_int,
    has_writes: c_int,
    orders_sends: c_int,
    orders_writes: c_int,
    orders_sends_behind_writes: c_int,
    data_bytes: u64,
    link_is_up: c_int,
}

/// One entry of a completion queue.
#[repr(C)]
#[derive(Clone, Copy, Default, Debug)]
pub struct RawCompletion {
    pub context: u64,
    pub bytes: u64,
    pub data: u64,
    pub kind: i32,
    pub error: i32,
    pub provider_error: i32,
    pub has_data: i32,
}

/// [`RawCompletion::kind`] of a write by the peer.
pub const WRITTEN: i32 = 1;

#[repr(C)]
struct RawEvent {
    endpoint: Handle,
    info: Handle,
    kind: i32,
    error: i32,
    parameter_bytes: u32,
    parameter: [u8; 64],
}

unsafe extern "C" {
    fn rdmc_fabric_load(why: *mut c_char, why_bytes: usize) -> c_int;
    fn rdmc_fabric_version() -> u32;
    fn rdmc_fabric_strerror(error: c_int) -> *const c_char;
    fn rdmc_fabric_getinfo(
        provider: *const c_char,
        message_endpoints: c_int,
        source: *const c_char,
        first: *mut Handle,
    ) -> c_int;
    fn rdmc_fabric_info_next(info: Handle) -> Handle;
    fn rdmc_fabric_info_read(info: Handle, out: *mut RawInfo);
    fn rdmc_fabric_info_copy(info: Handle) -> Handle;
    fn rdmc_fabric_info_toward(info: Handle, address: *const u8, bytes: usize) -> Handle;
    fn rdmc_fabric_info_free(info: Handle);
    fn rdmc_fabric_open(info: Handle, fabric: *mut Handle) -> c_int;
    fn rdmc_fabric_domain_open(fabric: Handle, info: Handle, domain: *mut Handle) -> c_int;
    fn rdmc_fabric_eq_open(fabric: Handle, eq: *mut Handle) -> c_int;
    fn rdmc_fabric_cq_open(
        domain: Handle,
        entries: usize,
        with_wait: c_int,
        cq: *mut Handle,
    ) -> c_int;
    fn rdmc_fabric_wait_fd(object: Handle, fd: *mut c_int) -> c_int;
    fn rdmc_fabric_try_wait(fabric: Handle, objects: *mut Handle, count: c_int) -> c_int;
    fn rdmc_fabric_av_open(domain: Handle, av: *mut Handle) -> c_int;
    fn rdmc_fabric_av_insert(av: Handle, address: *const u8, peer: *mut u64) -> c_int;
    fn rdmc_fabric_passive_open(
        fabric: Handle,
        info: Handle,
        eq: Handle,
        out: *mut Handle,
    ) -> c_int;
    fn rdmc_fabric_endpoint_open(
        domain: Handle,
        info: Handle,
        cq: Handle,
        eq: Handle,
        av: Handle,
        out: *mut Handle,
    ) -> c_int;
    fn rdmc_fabric_name(object: Handle, address: *mut u8, bytes: *mut usize) -> c_int;
    fn rdmc_fabric_connect(
        endpoint: Handle,
        address: *const u8,
        parameter: *const u8,
        bytes: usize,
    ) -> c_int;
    fn rdmc_fabric_accept(endpoint: Handle) -> c_int;
    fn rdmc_fabric_reject(passive: Handle, info: Handle) -> c_int;
    fn rdmc_fabric_shutdown(endpoint: Handle) -> c_int;
    fn rdmc_fabric_close(object: Handle) -> c_int;
    fn rdmc_fabric_register(
        domain: Handle,
        start: *const u8,
        bytes: usize,
        for_peers: c_int,
        writable: c_int,
        wanted_key: u64,
        registration: *mut Handle,
        description: *mut Handle,
        key: *mut u64,
    ) -> c_int;
    fn rdmc_fabric_receive(
        ep: Handle,
        start: *mut u8,
        bytes: usize,
        desc: Handle,
        context: u64,
    ) -> c_long;
    fn rdmc_fabric_send(
        endpoint: Handle,
        start: *const u8,
        bytes: usize,
        description: Handle,
        data: u64,
        context: u64,
    ) -> c_long;
    fn rdmc_fabric_tagged_receive(
        endpoint: Handle,
        start: *mut u8,
        bytes: usize,
        description: Handle,
        peer: u64,
        tag: u64,
        context: u64,
    ) -> c_long;
    fn rdmc_fabric_tagged_send(
        endpoint: Handle,
        start: *const u8,
        bytes: usize,
        description: Handle,
        data: u64,
        peer: u64,
        tag: u64,
        context: u64,
    ) -> c_long;
    fn rdmc_fabric_write(
        endpoint: Handle,
        start: *const u8,
        bytes: usize,
        description: Handle,
        data: *const u64,
        delivered: c_int,
        peer: u64,
        address: u64,
        key: u64,
        context: u64,
    ) -> c_long;
    fn rdmc_fabric_inject_write(
        endpoint: Handle,
        start: *const u8,
        bytes: usize,
        data: u64,
        peer: u64,
        address: u64,
        key: u64,
    ) -> c_long;
    fn rdmc_fabric_inject_tagged_send(
        endpoint: Handle,
        start: *const u8,
        bytes: usize,
        data: u64,
        peer: u64,
        tag: u64,
    ) -> c_long;
    fn rdmc_fabric_bind_registration(registration: Handle, endpoint: Handle) -> c_int;
    fn rdmc_fabric_cq_read(cq: Handle, out: *mut RawCompletion, count: usize) -> c_long;
    fn rdmc_fabric_eq_read(eq: Handle, out: *mut RawEvent) -> c_int;
}

/// An error number of libfabric, made positive.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Errno(pub i32);

impl Errno {
    /// A queue is full; retry later.
    pub const AGAIN: Self = Self(11);
    /// The posted memory is too short.
    pub const TRUNCATED: Self = Self(265);

    /// Returns libfabric's text for the error.
    pub fn text(self) -> String {
        // SAFETY: the library is loaded (no `Errno` exists before), and it returns a static string
        // for any number.
        let text = unsafe { CStr::from_ptr(rdmc_fabric_strerror(self.0)) };
        text.to_string_lossy().into_owned()
    }
}

fn check(result: c_int) -> Result<(), Errno> {
    if result < 0 { Err(Errno(-result)) } else { Ok(()) }
}

fn posted(result: c_long) -> Result<(), Errno> {
    if result < 0 { Err(Errno(-result as i32)) } else { Ok(()) }
}

/// Opens the library, once for the process. Errors: it is not installed; the system's text.
pub fn load() -> Result<(), String> {
    static LOADING: Mutex<()> = Mutex::new(());
    let _one_at_a_time = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    let mut why = [0_u8; 512];
    // SAFETY: the shim writes a terminated string of at most this length, and loads only once,
    // since the lock is held.
    if unsafe { rdmc_fabric_load(why.as_mut_ptr().cast(), why.len()) } == 0 {
        return Ok(());
    }
    let text = CStr::from_bytes_until_nul(&why).unwrap_or(c"unknown error");
    Err(text.to_string_lossy().into_owned())
}

/// Returns the major and minor version of the loaded library.
pub fn version() -> (u32, u32) {
    // SAFETY: the library is loaded; the function has no argument.
    let version = unsafe { rdmc_fabric_version() };
    (version >> 16, version & 0xffff)
}
