//! The callbacks of a group, as C functions.

use std::ffi::{c_char, c_void};

use rdmc::{Application, Failure, Incoming, Region};

use crate::{
    buffer::Buffer,
    error::{Error, Outcome, Problem, TEXT_BYTES},
    guard::missing,
    settings::SizedSettings,
};

/// The result of the callback `incoming`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer {
    /// Receive the message into the buffer that the callback has filled in.
    Accept = 0,
    /// The application will call `rdmc_accept`. Until then, members to which this member relays wait.
    Later = 1,
    /// Refuse the message; the group fails.
    Refuse = 2,
}

/// The callbacks of a group (`incoming`, `completion` and `failure` in figure 1 of the paper). They run one at a time and in
/// order, on the group's thread rdmc-callbacks, or in `rdmc_progress`. They may call the library, except functions that wait
/// for callbacks. NULL callbacks are not called.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct CallbackFunctions {
    /// The size of this struct: `sizeof(rdmc_callbacks)`.
    pub size: usize,
    /// The first argument of each callback.
    pub user_data: *mut c_void,
    /// Required at receivers: chooses where to receive a message of `length` bytes. Returns an `rdmc_answer`; with
    /// `RDMC_ACCEPT` the callback has filled in `buffer`, which the library takes.
    pub incoming: Option<
        unsafe extern "C" fn(
            user_data: *mut c_void,
            message: u64,
            length: u64,
            buffer: *mut Buffer,
        ) -> i32,
    >,
    /// Required: this member is done with the message, which is at `data` until the callback returns; then its buffer is
    /// released. Other members may still be receiving the message.
    pub complete: Option<
        unsafe extern "C" fn(user_data: *mut c_void, message: u64, data: *mut c_void, length: u64),
    >,
    /// The whole message is in place at this member, which may still be relaying it. Called at receivers only.
    pub received: Option<unsafe extern "C" fn(user_data: *mut c_void, message: u64)>,
    /// These bytes of a message are in place. Called with `report_blocks` only.
    pub block: Option<
        unsafe extern "C" fn(user_data: *mut c_void, message: u64, offset: u64, length: u64),
    >,
    /// The group has failed. The buffers of incomplete messages are released after this callback.
    pub failed: Option<unsafe extern "C" fn(user_data: *mut c_void, failure: *const Error)>,
    /// The group is closed: every message has reached every member.
    pub closed: Option<unsafe extern "C" fn(user_data: *mut c_void)>,
    /// The last callback: `user_data` can be freed. Called once, even if the group was not created; not called if `size` or an
    /// unknown field is refused.
    pub destroy: Option<unsafe extern "C" fn(user_data: *mut c_void)>,
    /// Every member has the first `messages` messages. Called at the root only, with `report_delivered` or while
    /// `rdmc_wait_delivered` waits.
    pub delivered: Option<unsafe extern "C" fn(user_data: *mut c_void, messages: u64)>,
}

// SAFETY: a number, and pointers that may be null; the size comes first.
unsafe impl SizedSettings for CallbackFunctions {
    const NAME: &'static str = "callbacks";
}

/// Forwards the library's callbacks to the C functions.
pub(crate) struct Callbacks(CallbackFunctions);

// SAFETY: the pointer is only passed to the application's functions, which run on another thread (rdmc.h).
unsafe impl Send for Callbacks {}

impl Callbacks {
    /// Errors: a required callback is missing; `destroy` was called.
    pub(crate) fn new(functions: CallbackFunctions) -> Outcome<Self> {
        let callbacks = Self(functions);
        match functions.complete {
            Some(_) => Ok(callbacks),
            None => Err(missing("the callback complete")),
        }
    }
}

// All calls below: SAFETY: the application provided function and data for calls on any thread (rdmc.h).
impl Application for Callbacks {
    fn incoming(&mut self, message: u64, bytes: u64) -> Incoming {
        let Some(incoming) = self.0.incoming else {
            return Incoming::Refuse("its application has no callback `incoming`".into());
        };
        let mut buffer = Buffer {
            data: std::ptr::null_mut(),
            length: 0,
            release: None,
            private_data: std::ptr::null_mut(),
        };
        // SAFETY: as above; the buffer lives until the function returns.
        match unsafe { incoming(self.0.user_data, message, bytes, &raw mut buffer) } {
            // SAFETY: the application has filled in the buffer for the library.
            0 => match unsafe { buffer.into_region(true) } {
                Ok(region) => Incoming::Into(region),
                Err(problem) => Incoming::Refuse(format!("its application: {problem}")),
            },
            1 => Incoming::Later,
            _ => Incoming::Refuse("its application".into()),
        }
    }

    fn block(&mut self, message: u64, offset: u64, bytes: u64) {
        if let Some(block) = self.0.block {
            // SAFETY: as above.
            unsafe { block(self.0.user_data, message, offset, bytes) };
        }
    }

    fn received(&mut self, message: u64) {
        if let Some(received) = self.0.received {
            // SAFETY: as above.
            unsafe { received(self.0.user_data, message) };
        }
    }

    fn complete(&mut self, message: u64, region: Region) {
        let Some(complete) = self.0.complete else { return };
        let (memory, part) = region.memory();
        // SAFETY: as above; the part lies within its memory, which exists until the end of this function.
        unsafe {
            let data = memory.start().add(part.start).cast::<c_void>();
            complete(self.0.user_data, message, data, part.len() as u64);
        }
    }

    fn delivered(&mut self, count: u64) {
        if let Some(delivered) = self.0.delivered {
            // SAFETY: as above.
            unsafe { delivered(self.0.user_data, count) };
        }
    }

    fn failed(&mut self, failure: &Failure, regions: Vec<(u64, Region)>) {
        if let Some(failed) = self.0.failed {
            let text: [c_char; TEXT_BYTES] = [0; TEXT_BYTES];
            let mut error = Error { code: 0, reserved: 0, member: -1, delivered: 0, text };
            Problem::from(failure.clone()).report(Some(&mut error));
            // SAFETY: as above; the error lives until the function returns.
            unsafe { failed(self.0.user_data, &raw const error) };
        }
        drop(regions);
    }

    fn closed(&mut self) {
        if let Some(closed) = self.0.closed {
            // SAFETY: as above.
            unsafe { closed(self.0.user_data) };
        }
    }
}

impl Drop for Callbacks {
    fn drop(&mut self) {
        if let Some(destroy) = self.0.destroy {
            // SAFETY: as above; no function is called after it.
            unsafe { destroy(self.0.user_data) };
        }
    }
}
