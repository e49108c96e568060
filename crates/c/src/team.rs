//! Teams: members that call operations together.

use std::ffi::{c_char, c_void};

use rdmc::{Op, Type};

use crate::{
    context::Context,
    error::{Error, Outcome, Problem},
    guard::{Handle, Process, free, guarded, missing, object, put, silent, take},
    settings::{TeamOptions, read},
    text::{milliseconds, optional},
};

/// A fixed list of members that call operations together, all in the same order. Concurrent calls are
/// serialized.
#[derive(Debug)]
pub struct Team {
    inner: rdmc::Team,
    process: Process,
}

/// Counters of a team at one member.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct OperationCounters {
    /// Operations completed at this member.
    pub operations: u64,
    /// Bytes passed to the network for other members.
    pub bytes_sent: u64,
    /// Bytes received from other members.
    pub bytes_received: u64,
    /// Zero.
    pub reserved: u64,
}

impl Handle for Team {
    fn process(&self) -> Process {
        self.process
    }
}

/// The type of elements.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ElementType {
    /// `uint8_t`
    U8 = 0,
    /// `uint16_t`
    U16 = 1,
    /// `uint32_t`
    U32 = 2,
    /// `uint64_t`
    U64 = 3,
    /// `int8_t`
    I8 = 4,
    /// `int16_t`
    I16 = 5,
    /// `int32_t`
    I32 = 6,
    /// `int64_t`
    I64 = 7,
    /// IEEE 754 binary16
    F16 = 8,
    /// The upper half of a `float`
    Bf16 = 9,
    /// `float`
    F32 = 10,
    /// `double`
    F64 = 11,
}

/// How elements are combined.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operator {
    /// The sum.
    Sum = 0,
    /// The product.
    Prod = 1,
    /// The minimum.
    Min = 2,
    /// The maximum.
    Max = 3,
    /// Bitwise and; integers only.
    Band = 4,
    /// Bitwise or; integers only.
    Bor = 5,
    /// Bitwise exclusive or; integers only.
    Bxor = 6,
}

/// Returns the bytes at `data`.
///
/// # Safety
/// `data` is null, or has `count` elements of `element_bytes` for `'a`, which only this call uses. Errors: `data` is null;
/// too many elements.
unsafe fn bytes<'a>(data: *mut c_void, count: u64, element_bytes: usize) -> Outcome<&'a mut [u8]> {
    let length = usize::try_from(count).ok().and_then(|count| count.checked_mul(element_bytes));
    let length = length.filter(|&length| isize::try_from(length).is_ok());
    let length =
        length.ok_or_else(|| Problem::invalid(format!("{count} elements are too many")))?;
    if length == 0 {
        return Ok(&mut []);
    }
    if data.is_null() {
        return Err(missing("data"));
    }
    // SAFETY: `data` is not null, so `length` bytes of it are readable and writable, by this call alone.
    Ok(unsafe { std::slice::from_raw_parts_mut(data.cast::<u8>(), length) })
}

pub(crate) fn element_type(code: i32) -> Outcome<Type> {
    let unknown = || Problem::invalid(format!("{code} is not an element type; see rdmc_type"));
    usize::try_from(code).ok().and_then(|code| Type::ALL.get(code).copied()).ok_or_else(unknown)
}

pub(crate) fn operator(code: i32) -> Outcome<Op> {
    let unknown = || Problem::invalid(format!("{code} is not an operator; see rdmc_op"));
    usize::try_from(code).ok().and_then(|code| Op::ALL.get(code).copied()).ok_or_else(unknown)
}

/// # Safety
/// `team` is null or valid for `'a`. Errors: `team` is null; the process is a fork.
pub(crate) unsafe fn inner<'a>(team: *const Team) -> Outcome<&'a rdmc::Team> {
    // SAFETY: `team` is null or a handle that is not freed during this call.
    let team = unsafe { object(team, "team") }?;
    team.process.check().map(|()| &team.inner)
}

/// Creates a team, together with all its other members, which must make the same call with equal settings. Blocks for at most
/// `connect_timeout_ms`. A team may outlive its context.
///
/// # Safety
/// `context` is valid; `settings` is as documented; `team` is writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_create(
    context: *const Context,
    settings: *const TeamOptions,
    team: *mut *mut Team,
    error: *mut Error,
) -> i32 {
    let create = || {
        // SAFETY: `context` and `settings` are null or valid during this call.
        let (context, settings) =
            unsafe { (object(context, "context")?.inner()?, read(settings)?.settings()?) };
        let made = Team { inner: context.create_team(settings)?, process: Process::this() };
        let made = Box::into_raw(Box::new(made));
        // SAFETY: `team` is null or writable; the new handle is freed if it cannot be returned.
        unsafe { put(team, "team", made).inspect_err(|_| free(made)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, create) }
}

/// Waits until all members have called this.
///
/// # Safety
/// `team` is valid; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_barrier(
    team: *const Team,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    // SAFETY: `team` is null or a handle that is not freed during this call.
    let barrier = || Ok(unsafe { inner(team) }?.barrier(milliseconds(timeout_ms))?);
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, barrier) }
}

/// Replaces `length` bytes at all members by those of the root.
///
/// # Safety
/// `team` is valid; `data` has `length` bytes that only this call uses; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_broadcast(
    team: *const Team,
    root: u32,
    data: *mut c_void,
    length: u64,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let broadcast = || {
        // SAFETY: `team` is null or a handle that is not freed during this call; `data` is null or this call's alone.
        let (team, data) = unsafe { (inner(team)?, bytes(data, length, 1)?) };
        Ok(team.broadcast(root, data, milliseconds(timeout_ms))?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, broadcast) }
}

/// Replaces each of `count` elements of type `element` (an `rdmc_type`) at all members by its combination over all members with
/// `op` (an `rdmc_op`). The result has the same bits at all members.
///
/// # Safety
/// `team` is valid; `values` has `count` elements that only this call uses; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_all_reduce(
    team: *const Team,
    values: *mut c_void,
    count: u64,
    element: i32,
    op: i32,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let reduce = || {
        let (element, op) = (element_type(element)?, operator(op)?);
        // SAFETY: `team` is null or a handle that is not freed during this call; `values` is null or this call's alone.
        let (team, values) = unsafe { (inner(team)?, bytes(values, count, element.bytes())?) };
        Ok(team.all_reduce_bytes(values, element, op, milliseconds(timeout_ms))?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, reduce) }
}

/// As `rdmc_team_all_reduce`, with the result at the root only; at other members the values do not change.
///
/// # Safety
/// As for `rdmc_team_all_reduce`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_reduce(
    team: *const Team,
    root: u32,
    values: *mut c_void,
    count: u64,
    element: i32,
    op: i32,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let reduce = || {
        let (element, op) = (element_type(element)?, operator(op)?);
        // SAFETY: `team` is null or a handle that is not freed during this call; `values` is null or this call's alone.
        let (team, values) = unsafe { (inner(team)?, bytes(values, count, element.bytes())?) };
        Ok(team.reduce_bytes(root, values, element, op, milliseconds(timeout_ms))?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, reduce) }
}

/// Collects the parts of all members at each member, in rank order, `length` bytes in total. All parts have the same length.
/// This member's part is in its place in `data` before the call.
///
/// # Safety
/// `team` is valid; `data` has `length` bytes that only this call uses; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_all_gather(
    team: *const Team,
    data: *mut c_void,
    length: u64,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let gather = || {
        // SAFETY: `team` is null or a handle that is not freed during this call; `data` is null or this call's alone.
        let (team, data) = unsafe { (inner(team)?, bytes(data, length, 1)?) };
        Ok(team.all_gather(data, milliseconds(timeout_ms))?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, gather) }
}

/// As `rdmc_team_all_reduce`, but each member gets only its part of the result, in about half of the time where there are many
/// elements. `values` has one part of equal length for each member, in rank order, `count` elements in total. Afterwards the part
/// of this member's rank is that of the result, and the others are undefined.
///
/// # Safety
/// As for `rdmc_team_all_reduce`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_reduce_scatter(
    team: *const Team,
    values: *mut c_void,
    count: u64,
    element: i32,
    op: i32,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let reduce = || {
        let (element, op) = (element_type(element)?, operator(op)?);
        // SAFETY: `team` is null or a handle that is not freed during this call; `values` is null or this call's alone.
        let (team, values) = unsafe { (inner(team)?, bytes(values, count, element.bytes())?) };
        Ok(team.reduce_scatter_bytes(values, element, op, milliseconds(timeout_ms))?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, reduce) }
}

/// Sends each member its part of the root's bytes. At the root `data` has one part of equal length for each member, in rank order,
/// and does not change; at other members it is one part, which is replaced by the member's own. `length` is that of `data`.
///
/// # Safety
/// `team` is valid; `data` has `length` bytes that only this call uses; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_scatter(
    team: *const Team,
    root: u32,
    data: *mut c_void,
    length: u64,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let scatter = || {
        // SAFETY: `team` is null or a handle that is not freed during this call; `data` is null or this call's alone.
        let (team, data) = unsafe { (inner(team)?, bytes(data, length, 1)?) };
        Ok(team.scatter(root, data, milliseconds(timeout_ms))?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, scatter) }
}

/// Collects the parts of all members at the root: `rdmc_team_scatter` backwards. At the root `data` has one part of equal length for
/// each member, in rank order, its own in its place before the call; at other members it is the member's part, and does not change.
///
/// # Safety
/// As for `rdmc_team_scatter`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_gather(
    team: *const Team,
    root: u32,
    data: *mut c_void,
    length: u64,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let gather = || {
        // SAFETY: `team` is null or a handle that is not freed during this call; `data` is null or this call's alone.
        let (team, data) = unsafe { (inner(team)?, bytes(data, length, 1)?) };
        Ok(team.gather(root, data, milliseconds(timeout_ms))?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, gather) }
}

/// Creates a team of those members of `team` that give the same color, ordered by key, and by rank where keys are equal. All members
/// of `team` make this call, in the same order as operations. A negative color: no team, and `*part` becomes `NULL`. The new team has
/// connections of its own; either team may end first. `context` is that of `team`.
///
/// # Safety
/// `context` and `team` are valid; `part` is writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_split(
    context: *const Context,
    team: *const Team,
    color: i64,
    key: i64,
    timeout_ms: u64,
    part: *mut *mut Team,
    error: *mut Error,
) -> i32 {
    let split = || {
        // SAFETY: `context` and `team` are null or handles that are not freed during this call.
        let (context, team) = unsafe { (object(context, "context")?.inner()?, inner(team)?) };
        let invalid = || Problem::invalid(format!("color is {color}; use at most {}", u32::MAX));
        let color = if color < 0 { None } else { Some(color.try_into().map_err(|_| invalid())?) };
        let made = context.split_team(team, color, key, milliseconds(timeout_ms))?;
        let made = made.map_or(std::ptr::null_mut(), |inner| {
            Box::into_raw(Box::new(Team { inner, process: Process::this() }))
        });
        // SAFETY: `part` is null or writable; the new handle is freed if it cannot be returned.
        unsafe { put(part, "part", made).inspect_err(|_| free(made)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, split) }
}

/// Writes the counters of a team at this member. Does not block.
///
/// # Safety
/// `team` is valid; `counters` is writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_counters(
    team: *const Team,
    counters: *mut OperationCounters,
    error: *mut Error,
) -> i32 {
    let count = || {
        // SAFETY: `team` is null or a handle that is not freed during this call.
        let now = unsafe { inner(team) }?.counters();
        let now = OperationCounters {
            operations: now.operations,
            bytes_sent: now.bytes_sent,
            bytes_received: now.bytes_received,
            reserved: 0,
        };
        // SAFETY: `counters` is null or writable.
        unsafe { put(counters, "counters", now) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, count) }
}

/// Fails the team at all members, for this reason (`NULL`: a default text).
///
/// # Safety
/// `team` is valid; `reason` is null or NUL-terminated; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_abort(
    team: *const Team,
    reason: *const c_char,
    error: *mut Error,
) -> i32 {
    let abort = || {
        // SAFETY: `reason` is null or NUL-terminated, and valid during this call.
        let reason = unsafe { optional(reason, "reason") }?.unwrap_or("its application aborted it");
        // SAFETY: `team` is null or a handle that is not freed during this call.
        unsafe { inner(team) }?.abort(reason);
        Ok(())
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, abort) }
}

/// Closes a team once all members have called this, and frees it, whatever the result. Does nothing for null.
///
/// # Safety
/// `team` is null, or valid and not used again; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_close(
    team: *mut Team,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let close = || {
        // SAFETY: `team` is null or a handle that is not used after this call.
        let Some(team) = (unsafe { take(team) }) else { return Ok(()) };
        Ok(team.inner.close(milliseconds(timeout_ms))?)
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, close) }
}

/// Frees a team without closing it; the team fails at all other members. Does nothing for null.
///
/// # Safety
/// `team` is null, or valid and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_free(team: *mut Team) {
    // SAFETY: `team` is null or a handle that is not used after this call.
    let team = unsafe { take(team) };
    silent(|| drop(team));
}
