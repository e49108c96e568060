//! Teams: members that call operations together.

use std::ffi::{c_char, c_void};

use rdmc::{Element, Op, Type, bf16, f16};

use crate::{
    context::Context,
    error::{Error, Outcome, Problem},
    guard::{Process, free, guarded, missing, object, put, silent},
    settings::{TeamOptions, read},
    text::{milliseconds, optional},
};

/// A fixed list of members that call operations together, all in the same order. Calls of several threads are made
/// one after another.
#[derive(Debug)]
pub struct Team {
    inner: rdmc::Team,
    process: Process,
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
    /// The least.
    Min = 2,
    /// The greatest.
    Max = 3,
    /// Bitwise and, of integers.
    Band = 4,
    /// Bitwise or, of integers.
    Bor = 5,
    /// Bitwise exclusive or, of integers.
    Bxor = 6,
}

/// An operation on elements of a type that is known when it is called.
trait OnElements {
    fn run<E: Element>(self, values: &mut [E]) -> Result<(), rdmc::Error>;
}

/// Calls an operation on `count` elements of this type.
///
/// # Safety
/// `values` has them, and only this call uses them. Errors: no such type; not aligned for the type.
unsafe fn on_elements(
    operation: impl OnElements,
    values: *mut c_void,
    count: u64,
    element: i32,
) -> Outcome<()> {
    let unknown = || Problem::invalid(format!("{element} is no element type; see rdmc_type"));
    let known = usize::try_from(element).ok().and_then(|code| Type::ALL.get(code).copied());
    let known = known.ok_or_else(unknown)?;
    macro_rules! dispatch {
        ($($name:ident => $type:ty),*) => {
            match known {
                $(
                    // SAFETY: of this function.
                    Type::$name => operation.run(unsafe { elements::<$type>(values, count) }?)?,
                )*
                _ => return Err(unknown()),
            }
        };
    }
    dispatch!(U8 => u8, U16 => u16, U32 => u32, U64 => u64, I8 => i8, I16 => i16, I32 => i32, I64 => i64,
        F16 => f16, Bf16 => bf16, F32 => f32, F64 => f64);
    Ok(())
}

/// # Safety
/// `values` has `count` elements for `'a`, which nobody else uses. Errors: it is null, or not aligned.
unsafe fn elements<'a, E>(values: *mut c_void, count: u64) -> Outcome<&'a mut [E]> {
    let count = usize::try_from(count)
        .map_err(|_| Problem::invalid(format!("{count} elements are too many")))?;
    let values = values.cast::<E>();
    if count == 0 {
        return Ok(&mut []);
    }
    if values.is_null() {
        return Err(missing("values"));
    }
    if !values.is_aligned() {
        let text = format!("values are at {values:p}, which is no multiple of {}", align_of::<E>());
        return Err(Problem::invalid(text));
    }
    // SAFETY: of this function; all bit patterns of these types are values.
    Ok(unsafe { std::slice::from_raw_parts_mut(values, count) })
}

fn operator(code: i32) -> Outcome<Op> {
    let unknown = || Problem::invalid(format!("{code} is no operator; see rdmc_op"));
    usize::try_from(code).ok().and_then(|code| Op::ALL.get(code).copied()).ok_or_else(unknown)
}

/// # Safety
/// `team` is null or valid for `'a`. Errors: it is null; the process is a fork.
unsafe fn inner<'a>(team: *const Team) -> Outcome<&'a rdmc::Team> {
    // SAFETY: of this function.
    let team = unsafe { object(team, "team") }?;
    team.process.check().map(|()| &team.inner)
}

/// Joins a team, together with all its other members, which must do the same with equal settings. Blocks for `connect_timeout_ms` of the
/// context at most. A team outlives its context.
///
/// # Safety
/// `context` is valid, `settings` as documented; `team` may be written; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_create(
    context: *const Context,
    settings: *const TeamOptions,
    team: *mut *mut Team,
    error: *mut Error,
) -> i32 {
    let create = || {
        // SAFETY: of this function.
        let (context, settings) =
            unsafe { (object(context, "context")?.inner()?, read(settings)?.settings()?) };
        let made = Team { inner: context.create_team(settings)?, process: Process::this() };
        let made = Box::into_raw(Box::new(made));
        // SAFETY: of this function; what was made is freed if it cannot be returned.
        unsafe { put(team, "team", made).inspect_err(|_| free(made)) }
    };
    // SAFETY: of this function.
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
    // SAFETY: of this function.
    let barrier = || Ok(unsafe { inner(team) }?.barrier(milliseconds(timeout_ms))?);
    // SAFETY: of this function.
    unsafe { guarded(error, barrier) }
}

/// Replaces `length` bytes at all members by those of the root.
///
/// # Safety
/// `team` is valid; `data` has `length` bytes that nobody else uses meanwhile; `error` may be null.
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
        // SAFETY: of this function.
        let (team, bytes) = unsafe { (inner(team)?, elements::<u8>(data, length)?) };
        Ok(team.broadcast(root, bytes, milliseconds(timeout_ms))?)
    };
    // SAFETY: of this function.
    unsafe { guarded(error, broadcast) }
}

struct AllReduce<'a>(&'a rdmc::Team, Op, u64);

impl OnElements for AllReduce<'_> {
    fn run<E: Element>(self, values: &mut [E]) -> Result<(), rdmc::Error> {
        self.0.all_reduce(values, self.1, milliseconds(self.2))
    }
}

/// Replaces each of `count` elements of an `rdmc_type` at all members by its combination over all members, by an `rdmc_op`. All
/// have the same bits afterwards.
///
/// # Safety
/// `team` is valid; `values` has `count` elements that nobody else uses meanwhile; `error` may be null.
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
        // SAFETY: of this function.
        let all_reduce = AllReduce(unsafe { inner(team) }?, operator(op)?, timeout_ms);
        // SAFETY: of this function.
        unsafe { on_elements(all_reduce, values, count, element) }
    };
    // SAFETY: of this function.
    unsafe { guarded(error, reduce) }
}

struct Reduce<'a>(AllReduce<'a>, u32);

impl OnElements for Reduce<'_> {
    fn run<E: Element>(self, values: &mut [E]) -> Result<(), rdmc::Error> {
        let AllReduce(team, op, timeout_ms) = self.0;
        team.reduce(self.1, values, op, milliseconds(timeout_ms))
    }
}

/// As `rdmc_team_all_reduce`, with the result at the root only; elsewhere the values do not change.
///
/// # Safety
/// As of `rdmc_team_all_reduce`.
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
        // SAFETY: of this function.
        let reduce = Reduce(AllReduce(unsafe { inner(team) }?, operator(op)?, timeout_ms), root);
        // SAFETY: of this function.
        unsafe { on_elements(reduce, values, count, element) }
    };
    // SAFETY: of this function.
    unsafe { guarded(error, reduce) }
}

/// Collects the bytes of all members, one member's after another's by rank, `length` bytes in all. Those of this
/// member are at their place before the call; all have the same length.
///
/// # Safety
/// `team` is valid; `data` has `length` bytes that nobody else uses meanwhile; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_all_gather(
    team: *const Team,
    data: *mut c_void,
    length: u64,
    timeout_ms: u64,
    error: *mut Error,
) -> i32 {
    let gather = || {
        // SAFETY: of this function.
        let (team, bytes) = unsafe { (inner(team)?, elements::<u8>(data, length)?) };
        Ok(team.all_gather(bytes, milliseconds(timeout_ms))?)
    };
    // SAFETY: of this function.
    unsafe { guarded(error, gather) }
}

/// Makes the team fail at all members, for this reason (`NULL`: none in words).
///
/// # Safety
/// `team` is valid; `reason` ends with a zero; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_abort(
    team: *const Team,
    reason: *const c_char,
    error: *mut Error,
) -> i32 {
    let abort = || {
        // SAFETY: of this function.
        let reason = unsafe { optional(reason, "reason") }?.unwrap_or("its application aborted it");
        // SAFETY: of this function.
        unsafe { inner(team) }?.abort(reason);
        Ok(())
    };
    // SAFETY: of this function.
    unsafe { guarded(error, abort) }
}

/// Ends a team when all members have called this, and frees it, whatever is returned. Does nothing for null.
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
        if team.is_null() {
            return Ok(());
        }
        // SAFETY: of this function.
        let team = unsafe { Box::from_raw(team) };
        if !team.process.is_this() {
            std::mem::forget(team);
            return Ok(());
        }
        Ok(team.inner.close(milliseconds(timeout_ms))?)
    };
    // SAFETY: of this function.
    unsafe { guarded(error, close) }
}

/// Frees a team that was not closed; it fails at all other members. Does nothing for null.
///
/// # Safety
/// `team` is null, or valid and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_team_free(team: *mut Team) {
    if team.is_null() {
        return;
    }
    // SAFETY: of this function.
    let team = unsafe { Box::from_raw(team) };
    silent(|| if team.process.is_this() { drop(team) } else { std::mem::forget(team) });
}
