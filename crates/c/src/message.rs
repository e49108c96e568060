//! Messages of groups without callbacks.

use std::{ffi::c_void, io::Read};

use rdmc::ReadLease;

use crate::{
    error::{Code, Error, Outcome, Problem},
    guard::{Handle, Process, guarded, missing, object, object_mut, put, silent, take},
    text::milliseconds,
};

/// A received message; its bytes may still be arriving. Only one thread may use it at a time.
#[derive(Debug)]
pub struct Message {
    inner: rdmc::Message,
    process: Process,
    /// The block that `rdmc_message_next_block` returned last.
    block: Option<Held>,
    /// The bytes that `rdmc_message_data` returned.
    whole: Option<Held>,
}

/// Bytes that the application may read.
struct Held(ReadLease);

impl std::fmt::Debug for Held {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} bytes", self.0.bytes())
    }
}

impl Handle for Message {
    fn process(&self) -> Process {
        self.process
    }
}

impl Message {
    pub(crate) fn boxed(inner: rdmc::Message) -> *mut Self {
        Box::into_raw(Box::new(Self { inner, process: Process::this(), block: None, whole: None }))
    }

    fn hold(&self, range: std::ops::Range<usize>) -> Outcome<Held> {
        let lease = self.inner.region().read(range);
        lease.map(Held).map_err(|error| Problem::new(Code::NoMemory, error.to_string()))
    }
}

/// Returns how many messages of the group precede this one.
///
/// # Safety
/// `message` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_message_number(message: *const Message) -> u64 {
    // SAFETY: `message` is null or a handle that is not freed during this call.
    unsafe { object(message, "message") }.map_or(0, |message| message.inner.number())
}

/// Returns the length of the message in bytes.
///
/// # Safety
/// `message` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_message_length(message: *const Message) -> u64 {
    // SAFETY: `message` is null or a handle that is not freed during this call.
    unsafe { object(message, "message") }.map_or(0, |message| message.inner.len())
}

/// Copies the next bytes of the message, in order. Waits until some have arrived, for at most the group's `stall_timeout_ms`.
/// `*count` is the number of bytes copied; 0 at the end of the message.
///
/// # Safety
/// `message` is valid; `into` has `length` bytes; `count` is writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_message_read(
    message: *mut Message,
    into: *mut c_void,
    length: usize,
    count: *mut usize,
    error: *mut Error,
) -> i32 {
    let read = || {
        // SAFETY: `message` is null or a handle that no other call uses.
        let message = unsafe { object_mut(message, "message") }?;
        message.process.check()?;
        if into.is_null() {
            return Err(missing("into"));
        }
        // The library writes these bytes before it reads them.
        // SAFETY: `into` is not null, so `length` bytes of it are writable.
        let into = unsafe { std::slice::from_raw_parts_mut(into.cast::<u8>(), length) };
        let read = message.inner.read(into).map_err(problem)?;
        // SAFETY: `count` is null or writable.
        unsafe { put(count, "count", read) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, read) }
}

/// Waits for the next range of bytes in the order of arrival; each byte is returned once. The range has `*length` bytes from
/// `*offset` of the message on, readable at `*data` until the next such call or until the message is freed. `*length` is 0
/// once all bytes were returned. Independent of `rdmc_message_read`.
///
/// # Safety
/// `message` is valid; `offset`, `data` and `length` are writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_message_next_block(
    message: *mut Message,
    timeout_ms: u64,
    offset: *mut u64,
    data: *mut *const c_void,
    length: *mut u64,
    error: *mut Error,
) -> i32 {
    let next = || {
        // SAFETY: `message` is null or a handle that no other call uses.
        let message = unsafe { object_mut(message, "message") }?;
        message.process.check()?;
        message.block = None;
        let found = message.inner.next_block(milliseconds(timeout_ms))?;
        let (start, bytes, pointer) = match found {
            None => (message.inner.len(), 0, std::ptr::null()),
            Some(range) => {
                let held = message.hold(range.start as usize..range.end as usize)?;
                let pointer = held.0.as_ptr().cast::<c_void>();
                message.block = Some(held);
                (range.start, range.end - range.start, pointer)
            }
        };
        // SAFETY: `offset`, `data` and `length` are null or writable.
        unsafe {
            put(offset, "offset", start)?;
            put(data, "data", pointer)?;
            put(length, "length", bytes)
        }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, next) }
}

/// Waits until all bytes have arrived. They are readable at `*data` until the message is freed.
///
/// # Safety
/// `message` is valid; `data` is writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_message_data(
    message: *mut Message,
    timeout_ms: u64,
    data: *mut *const c_void,
    error: *mut Error,
) -> i32 {
    let wait = || {
        // SAFETY: `message` is null or a handle that no other call uses.
        let message = unsafe { object_mut(message, "message") }?;
        message.process.check()?;
        message.inner.wait(milliseconds(timeout_ms))?;
        if message.whole.is_none() {
            message.whole = Some(message.hold(0..message.inner.len() as usize)?);
        }
        let start = message.whole.as_ref().map_or(std::ptr::null(), |held| held.0.as_ptr().cast());
        // SAFETY: `data` is null or writable.
        unsafe { put(data, "data", start) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, wait) }
}

/// Waits until this member is done with the message (all bytes received, nothing left to relay), and frees it, whatever the
/// result. A buffer that was posted for the message is released then or shortly after. Does nothing for null.
///
/// # Safety
/// `message` is null, or valid and not used again; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_message_finish(
    message: *mut Message,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let finish = || {
        // SAFETY: `message` is null or a handle that is not used after this call.
        let Some(message) = (unsafe { take(message) }) else { return Ok(()) };
        let Message { inner, block, whole, .. } = *message;
        drop((block, whole));
        drop(inner.into_region(milliseconds(timeout_ms))?);
        Ok(())
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, finish) }
}

/// Frees a message, received or not; other members still receive it. Its memory is released when this member is done
/// with the message. Does nothing for null.
///
/// # Safety
/// `message` is null, or valid and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_message_free(message: *mut Message) {
    // SAFETY: `message` is null or a handle that is not used after this call.
    let message = unsafe { take(message) };
    silent(|| drop(message));
}

/// Converts an error of reading; the library's error may be inside it.
fn problem(error: std::io::Error) -> Problem {
    match error.downcast::<rdmc::Error>() {
        Ok(error) => error.into(),
        Err(error) => Problem::new(Code::System, error.to_string()),
    }
}
