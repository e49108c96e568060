//! Groups: sending, receiving without callbacks, closing.

use std::ffi::c_char;

use rdmc::SendHandle;

use crate::{
    buffer::Buffer,
    callbacks::{CallbackFunctions, Callbacks},
    context::Context,
    error::{Code, Error, Outcome, Problem},
    guard::{Handle, Process, free, guarded, object, put, silent, take},
    message::Message,
    settings::{GroupOptions, read},
    text::{milliseconds, optional, write_text},
};

/// A group at one member. Calls are allowed on any thread.
#[derive(Debug)]
pub struct Group {
    inner: rdmc::Group,
    process: Process,
}

impl Handle for Group {
    fn process(&self) -> Process {
        self.process
    }
}

impl Group {
    fn new(inner: rdmc::Group) -> *mut Self {
        Box::into_raw(Box::new(Self { inner, process: Process::this() }))
    }

    /// Errors: the process is a fork.
    fn inner(&self) -> Outcome<&rdmc::Group> {
        self.process.check().map(|()| &self.inner)
    }
}

/// Creates a group, together with all its other members, which must make the same call with equal settings. Messages are
/// received by `rdmc_receive`. Blocks for at most `connect_timeout_ms`.
///
/// Errors: `RDMC_INVALID` names the setting, including a number in use; `RDMC_UNREACHABLE` names the member that is unreachable,
/// refuses, or has different settings, and these settings; `RDMC_TIMEOUT` names the members that did not appear in time.
///
/// # Safety
/// `context` is valid; `settings` is as documented; `group` is writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_group_create(
    context: *const Context,
    settings: *const GroupOptions,
    group: *mut *mut Group,
    error: *mut Error,
) -> i32 {
    let create = || {
        // SAFETY: `context` and `settings` are null or valid during this call.
        let (context, settings) =
            unsafe { (object(context, "context")?.inner()?, read(settings)?.settings()?) };
        let made = Group::new(context.create_group(settings)?);
        // SAFETY: `group` is null or writable; the new handle is freed if it cannot be returned.
        unsafe { put(group, "group", made).inspect_err(|_| free(made)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, create) }
}

/// As `rdmc_group_create`, but messages are received through callbacks. If the call fails, `destroy` is the only one called.
///
/// # Safety
/// As for `rdmc_group_create`; `callbacks` is as documented, and its functions may be called on another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_group_create_with_callbacks(
    context: *const Context,
    settings: *const GroupOptions,
    callbacks: *const CallbackFunctions,
    group: *mut *mut Group,
    error: *mut Error,
) -> i32 {
    let create = || {
        // SAFETY: `callbacks` is null, or begins with its size and has that many bytes.
        let callbacks = Callbacks::new(unsafe { read(callbacks) }?)?;
        // SAFETY: `context` and `settings` are null or valid during this call.
        let (context, settings) =
            unsafe { (object(context, "context")?.inner()?, read(settings)?.settings()?) };
        let made = Group::new(context.create_group_with(settings, callbacks)?);
        // SAFETY: `group` is null or writable; the new handle is freed if it cannot be returned.
        unsafe { put(group, "group", made).inspect_err(|_| free(made)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, create) }
}

/// Queues a message to all members; at the root only. Waits for at most `timeout_ms` while `send_queue_max` messages are
/// queued; does not wait if it is 0. The buffer is taken, and is released when this member is done with the message, or at
/// once if the call fails. `*message`, unless `message` is null, is the message's number: how many were sent before it.
///
/// Errors: `RDMC_QUEUE_FULL` at the timeout; `RDMC_STATE` if this member is not the root; `RDMC_CLOSED`; the group's failure.
///
/// # Safety
/// `group` is valid; the buffer is as documented; `message` is null or writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_send(
    group: *const Group,
    buffer: Buffer,
    timeout_ms: u64,
    message: *mut u64,
    error: *mut Error,
) -> i32 {
    let send = || {
        // SAFETY: the buffer is as documented, and no other call takes it. The library only reads memory that is sent.
        let region = unsafe { buffer.into_region(false) }?;
        // SAFETY: `group` is null or a handle that is not freed during this call.
        let group = unsafe { object(group, "group") }?.inner()?;
        let sent: SendHandle = match timeout_ms {
            0 => group.try_send(region)?,
            timeout_ms => group.send(region, milliseconds(timeout_ms))?,
        };
        if !message.is_null() {
            // SAFETY: `message` is not null, so it is writable.
            unsafe { message.write(sent.message()) };
        }
        Ok(())
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, send) }
}

/// Waits until this member is done with the group's first `messages` messages: their buffers are released, or are about to be.
/// Other members may still be receiving them; only a successful close or `rdmc_wait_delivered` means that all have them.
///
/// # Safety
/// `group` is valid; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_wait_complete(
    group: *const Group,
    messages: u64,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let wait = || {
        // SAFETY: `group` is null or a handle that is not freed during this call.
        let group = unsafe { object(group, "group") }?.inner()?;
        Ok(group.wait_complete(messages, milliseconds(timeout_ms))?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, wait) }
}

/// At the root: waits until the first `messages` messages are in place at every member; they remain so if members fail later.
/// Messages may be sent meanwhile.
///
/// # Safety
/// `group` is valid; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_wait_delivered(
    group: *const Group,
    messages: u64,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let wait = || {
        // SAFETY: `group` is null or a handle that is not freed during this call.
        let group = unsafe { object(group, "group") }?.inner()?;
        Ok(group.wait_delivered(messages, milliseconds(timeout_ms))?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, wait) }
}

/// Returns the number of messages, counted from the first, that the root knows every member to have. The root learns this with
/// `report_delivered`, or while `rdmc_wait_delivered` waits. Never too high; 0 at other members until the group has ended.
///
/// # Safety
/// `group` is valid, or null, which returns 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_delivered(group: *const Group) -> u64 {
    // SAFETY: `group` is null or a handle that is not freed during this call.
    let group = unsafe { object(group, "group") }.and_then(Group::inner);
    group.map_or(0, rdmc::Group::delivered)
}

/// Waits for the next message, which is returned once it is announced; its bytes may still be arriving. `*message` is null
/// once the group is closed and all messages were received. Messages that were whole before the group failed are returned
/// before the failure. The root receives no messages: the call returns `RDMC_STATE` at once, unless the group is closing, closed
/// or failed; then it reports the end of the group.
///
/// Errors: `RDMC_TIMEOUT`; the group's failure; `RDMC_NO_MEMORY` if the posted buffer is too small or memory cannot be allocated
/// (the message remains the next one); `RDMC_STATE` also in a group with callbacks.
///
/// # Safety
/// `group` is valid; `message` is writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_receive(
    group: *const Group,
    timeout_ms: u64,
    message: *mut *mut Message,
    error: *mut Error,
) -> i32 {
    let receive = || {
        // SAFETY: `group` is null or a handle that is not freed during this call.
        let group = unsafe { object(group, "group") }?.inner()?;
        check_receives(group)?;
        let received = group.receive(milliseconds(timeout_ms))?;
        let received = received.map_or(std::ptr::null_mut(), Message::boxed);
        // SAFETY: `message` is null or writable; the message is freed if it cannot be returned.
        unsafe { put(message, "message", received).inspect_err(|_| free(received)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, receive) }
}

/// Errors: this member is the root, and the group is not ending, so that the call would wait in vain.
fn check_receives(group: &rdmc::Group) -> Outcome<()> {
    let settings = group.settings();
    if settings.rank != settings.root || group.is_closing() {
        return Ok(());
    }
    let (rank, number) = (settings.rank, settings.number);
    let text = format!(
        "member {rank} is the root of group {number} and receives no messages; send, and close the group"
    );
    Err(Problem::new(Code::State, text))
}

/// Provides memory before a message arrives (`post_receive_buffer` in figure 1 of the paper). Messages without memory take
/// the posted buffers in order, one each, whatever their lengths. If a buffer is too small, `rdmc_receive` fails, and the
/// message takes the next buffer. The buffer is taken. It is released when the message is freed and this member is done with
/// the message; a buffer that no message took is released with the group. Messages announced before the call use memory
/// allocated by the library.
///
/// # Safety
/// `group` is valid; the buffer is as documented and writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_post_receive_buffer(
    group: *const Group,
    buffer: Buffer,
    error: *mut Error,
) -> i32 {
    let post = || {
        // SAFETY: the buffer is as documented, and no other call takes it.
        let region = unsafe { buffer.into_region(true) }?;
        // SAFETY: `group` is null or a handle that is not freed during this call.
        Ok(unsafe { object(group, "group") }?.inner()?.post_receive_buffer(region)?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, post) }
}

/// Provides memory for a message for which the callback `incoming` returned `RDMC_LATER`. The buffer is taken. If it is too
/// small or read-only, the call fails, and another buffer may be passed.
///
/// # Safety
/// As for `rdmc_post_receive_buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_accept(
    group: *const Group,
    message: u64,
    buffer: Buffer,
    error: *mut Error,
) -> i32 {
    let accept = || {
        // SAFETY: the buffer is as documented, and no other call takes it.
        let region = unsafe { buffer.into_region(true) }?;
        // SAFETY: `group` is null or a handle that is not freed during this call.
        Ok(unsafe { object(group, "group") }?.inner()?.accept(message, region)?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, accept) }
}

/// Closes the group and waits until it has ended. Success means that every message has reached every member. Members other
/// than the root wait until the root closes; receive all messages first. The group is not freed. At the timeout the group
/// fails at all members. Not allowed in callbacks; use `rdmc_group_start_close` there.
///
/// Errors: the group's failure; `RDMC_TIMEOUT`; `RDMC_CLOSED` if the group was closed before; `RDMC_STATE` in a callback.
///
/// # Safety
/// `group` is valid; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_group_close(
    group: *const Group,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    // SAFETY: `group` is null or a handle that is not freed during this call.
    let close =
        || Ok(unsafe { object(group, "group") }?.inner()?.close(milliseconds(timeout_ms))?);
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, close) }
}

/// Starts closing the group, without waiting. A callback or `rdmc_receive` reports the outcome, at the root as well.
///
/// # Safety
/// `group` is valid; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_group_start_close(group: *const Group, error: *mut Error) -> i32 {
    // SAFETY: `group` is null or a handle that is not freed during this call.
    let close = || Ok(unsafe { object(group, "group") }?.inner()?.start_close()?);
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, close) }
}

/// Fails the group at all members, for this reason (`NULL`: a default text).
///
/// # Safety
/// `group` is valid; `reason` is null or NUL-terminated; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_group_abort(
    group: *const Group,
    reason: *const c_char,
    error: *mut Error,
) -> i32 {
    let abort = || {
        // SAFETY: `reason` is null or NUL-terminated, and valid during this call.
        let reason = unsafe { optional(reason, "reason") }?.unwrap_or("its application aborted it");
        // SAFETY: `group` is null or a handle that is not freed during this call.
        unsafe { object(group, "group") }?.inner()?.abort(reason);
        Ok(())
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, abort) }
}

/// Returns the failure of the group, or `RDMC_OK` if the group has not failed.
///
/// # Safety
/// `group` is valid; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_group_failure(group: *const Group, error: *mut Error) -> i32 {
    // SAFETY: `group` is null or a handle that is not freed during this call.
    let failure = || match unsafe { object(group, "group") }?.inner()?.failure() {
        Some(failure) => Err(failure.into()),
        None => Ok(()),
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, failure) }
}

/// Writes the name of the group's algorithm, for example binomial-pipeline; the same at all members. 64 bytes are enough.
///
/// # Safety
/// `group` is valid; `text` has `length` bytes; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_group_algorithm(
    group: *const Group,
    text: *mut c_char,
    length: usize,
    error: *mut Error,
) -> i32 {
    let algorithm = || {
        // SAFETY: `group` is null or a handle that is not freed during this call.
        let name = unsafe { object(group, "group") }?.inner()?.schedule().algorithm().name();
        // SAFETY: `text` is null or has `length` bytes that are writable.
        unsafe { write_text(name, text, length) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, algorithm) }
}

/// Returns the length in bytes of every block of a message but the last; the same at all members.
///
/// # Safety
/// `group` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_group_block_bytes(group: *const Group) -> u64 {
    // SAFETY: `group` is null or a handle that is not freed during this call.
    unsafe { object(group, "group") }.map_or(0, |group| group.inner.block_bytes())
}

/// Frees a group. A group that is not closed fails at all members. Does nothing for null.
///
/// # Safety
/// `group` is null, or valid and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_group_free(group: *mut Group) {
    // SAFETY: `group` is null or a handle that is not used after this call.
    let group = unsafe { take(group) };
    silent(|| drop(group));
}
