//! Groups: sending, receiving without callbacks, the end.

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

/// One group at one member. Calls are allowed on any thread.
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

/// Joins a group, together with all its other members, which must do the same with equal settings; messages are received by
/// `rdmc_receive`. Blocks for `connect_timeout_ms` at most.
///
/// Errors: `RDMC_INVALID` names the setting, also a number that is in use; `RDMC_UNREACHABLE` names the member that was not reached, has
/// refused, or has other settings, and which; `RDMC_TIMEOUT` names those that did not appear in time.
///
/// # Safety
/// `context` is valid, `settings` as documented; `group` may be written; `error` may be null.
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
        // SAFETY: `group` is null or may be written; what was made is freed if it cannot be returned.
        unsafe { put(group, "group", made).inspect_err(|_| free(made)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, create) }
}

/// As `rdmc_group_create`, but messages are received through callbacks. If it fails, none is called but `destroy`.
///
/// # Safety
/// As of `rdmc_group_create`; `callbacks` is as documented, and its functions may be called on another thread.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_group_create_with_callbacks(
    context: *const Context,
    settings: *const GroupOptions,
    callbacks: *const CallbackFunctions,
    group: *mut *mut Group,
    error: *mut Error,
) -> i32 {
    let create = || {
        // SAFETY: `callbacks` is null or begins with its size and has that many bytes.
        let callbacks = Callbacks::new(unsafe { read(callbacks) }?)?;
        // SAFETY: `context` and `settings` are null or valid during this call.
        let (context, settings) =
            unsafe { (object(context, "context")?.inner()?, read(settings)?.settings()?) };
        let made = Group::new(context.create_group_with(settings, callbacks)?);
        // SAFETY: `group` is null or may be written; what was made is freed if it cannot be returned.
        unsafe { put(group, "group", made).inspect_err(|_| free(made)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, create) }
}

/// Queues a message for all members; at the root only. Waits for at most `timeout_ms` while `send_queue_max` messages are
/// queued; with 0 it does not wait. The buffer is taken, and released when this member is done with the message, or at
/// once if the call fails. `*message`, if not null, is the message's number: how many were sent before.
///
/// Errors: `RDMC_QUEUE_FULL` in the end; `RDMC_STATE`: this member is not the root; `RDMC_CLOSED`, or why the group has failed.
///
/// # Safety
/// `group` is valid; the buffer is as documented; `message` may be null or written; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_send(
    group: *const Group,
    buffer: Buffer,
    timeout_ms: u64,
    message: *mut u64,
    error: *mut Error,
) -> i32 {
    let send = || {
        // SAFETY: the buffer is as documented and was given to this call alone. The library only reads what is sent.
        let region = unsafe { buffer.into_region(false) }?;
        // SAFETY: `group` is null or a handle that is not freed during this call.
        let group = unsafe { object(group, "group") }?.inner()?;
        let sent: SendHandle = match timeout_ms {
            0 => group.try_send(region)?,
            timeout_ms => group.send(region, milliseconds(timeout_ms))?,
        };
        if !message.is_null() {
            // SAFETY: `message` is not null, so it may be written.
            unsafe { message.write(sent.message()) };
        }
        Ok(())
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, send) }
}

/// Waits until this member is done with so many messages of the group: their buffers are released, or will be in a moment.
/// Other members may still be receiving them; only a successful close means that all have them.
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

/// At the root: waits until every member has so many messages, counted from the first: they are in place there, and stay so if
/// members fail later. Messages may still be sent meanwhile.
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

/// How many messages, counted from the first, every member has, as far as the root knows: it learns that with
/// `report_delivered`, or while `rdmc_wait_delivered` waits. Never too high; 0 at other members, until the group has ended.
///
/// # Safety
/// `group` is valid, or null: then it is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_delivered(group: *const Group) -> u64 {
    // SAFETY: `group` is null or a handle that is not freed during this call.
    let group = unsafe { object(group, "group") }.and_then(Group::inner);
    group.map_or(0, rdmc::Group::delivered)
}

/// Waits for the next message, which is returned once it is announced: its bytes may still be arriving. `*message` is null
/// when the group is closed and all messages were received. Messages that were whole before the group has
/// failed are returned before the failure. The root receives nothing: there it is `RDMC_STATE` at once, and only reports the end of a group
/// that was closed, or has failed.
///
/// Errors: `RDMC_TIMEOUT`; why the group has failed; `RDMC_NO_MEMORY`: the posted buffer is too small, or memory cannot be allocated, and the
/// message remains the next one; `RDMC_STATE` also in a group with callbacks.
///
/// # Safety
/// `group` is valid; `message` may be written; `error` may be null.
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
        // SAFETY: `message` is null or may be written; what was received is freed if it cannot be returned.
        unsafe { put(message, "message", received).inspect_err(|_| free(received)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, receive) }
}

/// Errors: it is the root, and the group is neither closed nor has failed, so that the wait would be in vain.
fn check_receives(group: &rdmc::Group) -> Outcome<()> {
    let settings = group.settings();
    if settings.rank != settings.root || group.is_closing() {
        return Ok(());
    }
    let (rank, number) = (settings.rank, settings.number);
    let text = format!(
        "member {rank} is the root of group {number} and receives nothing; send, and close the group"
    );
    Err(Problem::new(Code::State, text))
}

/// Gives memory before a message arrives (`post_receive_buffer` in the paper's figure 1). Messages that have no memory take
/// posted buffers in order, one each, whatever their lengths; one that is too small is an error of `rdmc_receive`, and the
/// message takes the next. The buffer is taken, and released when the message is freed and this member is done with it; one that no
/// message took is released with the group. Messages that were announced before have memory of the library's.
///
/// # Safety
/// `group` is valid; the buffer is as documented, writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_post_receive_buffer(
    group: *const Group,
    buffer: Buffer,
    error: *mut Error,
) -> i32 {
    let post = || {
        // SAFETY: the buffer is as documented and was given to this call alone.
        let region = unsafe { buffer.into_region(true) }?;
        // SAFETY: `group` is null or a handle that is not freed during this call.
        Ok(unsafe { object(group, "group") }?.inner()?.post_receive_buffer(region)?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, post) }
}

/// Gives memory for a message for which the callback `incoming` has answered `RDMC_LATER`. The buffer is taken; if it is too
/// small or read-only the call fails, and another may be given.
///
/// # Safety
/// As of `rdmc_post_receive_buffer`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_accept(
    group: *const Group,
    message: u64,
    buffer: Buffer,
    error: *mut Error,
) -> i32 {
    let accept = || {
        // SAFETY: the buffer is as documented and was given to this call alone.
        let region = unsafe { buffer.into_region(true) }?;
        // SAFETY: `group` is null or a handle that is not freed during this call.
        Ok(unsafe { object(group, "group") }?.inner()?.accept(message, region)?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, accept) }
}

/// Closes the group and waits until it has ended: success means that every message has reached every member. At members other
/// than the root it waits until the root closes; receive all messages first. The group is not freed. If the time runs out, the group
/// fails at all members. Not allowed in callbacks: `rdmc_group_start_close`.
///
/// Errors: why the group has failed; `RDMC_TIMEOUT`; `RDMC_CLOSED` if it was closed before; `RDMC_STATE` in a callback.
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

/// Starts to close the group without waiting. A callback, or `rdmc_receive`, reports the outcome, also at the root.
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

/// Makes the group fail at all members, for this reason (`NULL`: none in words).
///
/// # Safety
/// `group` is valid; `reason` ends with a zero; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_group_abort(
    group: *const Group,
    reason: *const c_char,
    error: *mut Error,
) -> i32 {
    let abort = || {
        // SAFETY: `reason` is null or ends with a zero, and lives during this call.
        let reason = unsafe { optional(reason, "reason") }?.unwrap_or("its application aborted it");
        // SAFETY: `group` is null or a handle that is not freed during this call.
        unsafe { object(group, "group") }?.inner()?.abort(reason);
        Ok(())
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, abort) }
}

/// Returns why the group has failed, and `RDMC_OK` if it has not.
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

/// Writes the name of the group's algorithm, the same at all members, as in binomial-pipeline. 64 bytes are enough.
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
        // SAFETY: `text` is null or has `length` bytes that may be written.
        unsafe { write_text(name, text, length) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, algorithm) }
}

/// Length in bytes of every block of the group but the last of a message, the same at all members.
///
/// # Safety
/// `group` is valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_group_block_bytes(group: *const Group) -> u64 {
    // SAFETY: `group` is null or a handle that is not freed during this call.
    unsafe { object(group, "group") }.map_or(0, |group| group.inner.block_bytes())
}

/// Frees a group; one that is not closed fails at all members. Does nothing for null.
///
/// # Safety
/// `group` is null, or valid and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_group_free(group: *mut Group) {
    // SAFETY: `group` is null or a handle that is not used after this call.
    let group = unsafe { take(group) };
    silent(|| drop(group));
}
