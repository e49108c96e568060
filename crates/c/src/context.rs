//! A member's endpoint in the network.

use std::{
    ffi::{c_char, c_int},
    os::fd::AsRawFd,
    time::Duration,
};

use rdmc::Secret;

use crate::{
    error::{Error, Outcome, Problem},
    guard::{Handle, Process, guarded, object, put, take},
    settings::{ContextOptions, read},
    text::{milliseconds, write_text},
};

/// A member's endpoint in the network. It has a progress thread, unless `caller_makes_progress` is set. Calls are allowed on
/// any thread.
pub struct Context {
    inner: rdmc::Context,
    process: Process,
}

/// Counters of a context.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Counters {
    /// Bytes received as blocks.
    pub bytes_received: u64,
    /// Bytes sent as blocks.
    pub bytes_sent: u64,
    /// Bytes copied in user space.
    pub bytes_copied: u64,
    /// Blocks received.
    pub blocks_received: u64,
    /// Blocks sent.
    pub blocks_sent: u64,
    /// Small messages received directly from the root.
    pub small_received: u64,
    /// Small messages written directly to all receivers, at the root.
    pub small_sent: u64,
    /// Zero.
    pub reserved: u64,
}

impl Handle for Context {
    fn process(&self) -> Process {
        self.process
    }
}

impl Context {
    /// Errors: the process is a fork.
    pub(crate) fn inner(&self) -> Outcome<&rdmc::Context> {
        self.process.check().map(|()| &self.inner)
    }
}

/// Starts a context: its listener and its threads. Does not wait for other members.
///
/// Errors: `RDMC_INVALID` names the setting; `RDMC_UNSUPPORTED` if this host or this library does not have the fabric;
/// `RDMC_SYSTEM` if the context cannot listen on the address, or the process has no descriptors or threads left.
///
/// # Safety
/// `settings` is as documented; `context` is writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_context_start(
    settings: *const ContextOptions,
    context: *mut *mut Context,
    error: *mut Error,
) -> i32 {
    let start = || {
        // SAFETY: `settings` is null, or begins with its size and has that many bytes.
        let settings = unsafe { read(settings)?.settings() }?;
        let made = Context { inner: rdmc::Context::start(settings)?, process: Process::this() };
        let made = Box::into_raw(Box::new(made));
        // SAFETY: `context` is null or writable; the new handle is freed if it cannot be returned.
        unsafe { put(context, "context", made).inspect_err(|_| rdmc_context_free(made)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, start) }
}

/// Writes the address to which other members connect, with the selected port, for example 10.0.0.1:7000.
/// 64 bytes are enough.
///
/// # Safety
/// `context` is valid; `text` has `length` bytes; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_context_address(
    context: *const Context,
    text: *mut c_char,
    length: usize,
    error: *mut Error,
) -> i32 {
    let address = || {
        // SAFETY: `context` is null or a handle that is not freed during this call.
        let address = unsafe { object(context, "context") }?.inner()?.address().to_string();
        // SAFETY: `text` is null or has `length` bytes that are writable.
        unsafe { write_text(&address, text, length) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, address) }
}

/// Writes a new secret: 64 hexadecimal digits and a NUL. Pass it to members over a protected channel, not in arguments or
/// environment variables.
///
/// # Safety
/// `text` has `length` bytes, 65 or more; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_secret_random(
    text: *mut c_char,
    length: usize,
    error: *mut Error,
) -> i32 {
    let random = || {
        let failed =
            |error: std::io::Error| Problem::new(crate::error::Code::System, error.to_string());
        let secret = Secret::random().map_err(failed)?.to_hex();
        // SAFETY: `text` is null or has `length` bytes that are writable.
        unsafe { write_text(&secret, text, length) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, random) }
}

/// Makes progress and runs callbacks, in a context with `caller_makes_progress` only. Waits for at most `wait_ms` if there is
/// nothing to do, or while another thread makes progress. `*ran`, unless `ran` is null: 1 if this thread ran a callback, else 0.
///
/// Errors: `RDMC_STATE` if the context has a progress thread, and in a callback; `RDMC_CLOSED`; `RDMC_PANICKED` after a bug.
///
/// # Safety
/// `context` is valid; `ran` is null or writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_progress(
    context: *const Context,
    wait_ms: u64,
    ran: *mut i32,
    error: *mut Error,
) -> i32 {
    let progress = || {
        // SAFETY: `context` is null or a handle that is not freed during this call.
        let has_run =
            unsafe { object(context, "context") }?.inner()?.progress(milliseconds(wait_ms))?;
        if !ran.is_null() {
            // SAFETY: `ran` is not null, so it is writable.
            unsafe { ran.write(i32::from(has_run)) };
        }
        Ok(())
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, progress) }
}

/// Writes a descriptor that is readable when `rdmc_progress` has something to do, timers included. For programs with an event
/// loop (poll(2), select(2), epoll(7)), in a context with `caller_makes_progress` and the fabric tcp.
///
/// Each time the descriptor is readable, call `rdmc_progress` with `wait_ms` 0, and then, for each group without callbacks,
/// `rdmc_receive` with `timeout_ms` 0 until it returns `RDMC_TIMEOUT`. Other calls, on any thread, make the descriptor
/// readable if they leave something to do. The descriptor does not cover teams, whose operations block.
///
/// The descriptor belongs to the context, and each call writes the same one. Only wait for it, level-triggered; do not read or
/// close it. Remove it from an epoll descriptor before the context is closed or freed. The first call blocks while the context
/// is busy, for at most 10 seconds; later calls do not block.
///
/// Errors: `RDMC_STATE` if the context has a progress thread; `RDMC_UNSUPPORTED` over other fabrics, where a thread has to wait
/// in `rdmc_progress`; `RDMC_SYSTEM` if the process has no descriptors left.
///
/// # Safety
/// `context` is valid; `fd` is writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_context_fd(
    context: *const Context,
    fd: *mut c_int,
    error: *mut Error,
) -> i32 {
    let descriptor = || {
        // SAFETY: `context` is null or a handle that is not freed during this call.
        let descriptor = unsafe { object(context, "context") }?.inner()?.descriptor()?;
        // SAFETY: `fd` is null or writable.
        unsafe { put(fd, "fd", descriptor.as_raw_fd()) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, descriptor) }
}

/// Writes the counters of the context. Blocks while the context is busy, for at most 10 seconds.
///
/// # Safety
/// `context` is valid; `counters` is writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_context_counters(
    context: *const Context,
    counters: *mut Counters,
    error: *mut Error,
) -> i32 {
    let count = || {
        // SAFETY: `context` is null or a handle that is not freed during this call.
        let now = unsafe { object(context, "context") }?.inner()?.counters()?;
        let now = Counters {
            bytes_received: now.bytes_received,
            bytes_sent: now.bytes_sent,
            bytes_copied: now.bytes_copied,
            blocks_received: now.blocks_received,
            blocks_sent: now.blocks_sent,
            small_received: now.small_received,
            small_sent: now.small_sent,
            reserved: 0,
        };
        // SAFETY: `counters` is null or writable.
        unsafe { put(counters, "counters", now) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, count) }
}

/// Closes a context and frees it, whatever the result. Groups that are still open fail at all their members; to end without a
/// failure, close them first. Blocks for at most `timeout_ms`; not allowed in callbacks. Does nothing for null.
///
/// # Safety
/// `context` is null, or valid and not used again; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_context_close(
    context: *mut Context,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let close = || {
        // SAFETY: `context` is null or a handle that is not used after this call.
        let Some(context) = (unsafe { take(context) }) else { return Ok(()) };
        Ok(context.inner.close(milliseconds(timeout_ms))?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, close) }
}

/// As `rdmc_context_close`, with a timeout of 5 seconds and without a result. Does nothing in a child of fork(2).
///
/// # Safety
/// `context` is null, or valid and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_context_free(context: *mut Context) {
    let timeout = Duration::from_secs(5).as_millis() as u64;
    // SAFETY: `context` is null or a handle that is not used after this call; no error is wanted.
    unsafe { rdmc_context_close(context, timeout, std::ptr::null_mut()) };
}
