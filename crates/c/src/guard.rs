//! What every function at the border does: no panic crosses it, and errors go where the caller wants them.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Code, Error, Outcome, Problem};

/// Runs the body of a function, and returns its code.
///
/// # Safety
/// `error` is null or points to an error that nobody else uses during the call.
pub(crate) unsafe fn guarded(error: *mut Error, body: impl FnOnce() -> Outcome<()>) -> i32 {
    // What a panic leaves is not used again: handles are only read, and outputs are written last.
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "a panic without words".into());
        Err(Problem::new(Code::Panicked, format!("a bug of rdmc: {text}")))
    });
    match outcome {
        Ok(()) => Code::Ok as i32,
        // SAFETY: `error` is null or an error that no other call uses.
        Err(problem) => problem.report(unsafe { error.as_mut() }),
    }
}

/// As [`guarded`], for what has neither result nor error. A panic ends it.
pub(crate) fn silent(body: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(body));
}

/// Frees a handle; nothing happens for null.
///
/// # Safety
/// `handle` is null or was made by [`Box::into_raw`], and is not used any more.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: `handle` was made by [`Box::into_raw`], and is not used any more.
        let handle = unsafe { Box::from_raw(handle) };
        silent(|| drop(handle));
    }
}

/// A handle that belongs to a process.
pub(crate) trait Handle {
    fn process(&self) -> Process;
}

/// Takes a handle from the application, to free it. `None` for null, and in a fork, where it is left as it is: its connections are the
/// parent's.
///
/// # Safety
/// As of [`free`].
pub(crate) unsafe fn take<T: Handle>(handle: *mut T) -> Option<Box<T>> {
    if handle.is_null() {
        return None;
    }
    // SAFETY: `handle` was made by [`Box::into_raw`], and is not used any more.
    let handle = unsafe { Box::from_raw(handle) };
    if handle.process().is_this() {
        return Some(handle);
    }
    std::mem::forget(handle);
    None
}

/// Writes a result.
///
/// # Safety
/// `into` is null or may be written. Errors: it is null.
pub(crate) unsafe fn put<T>(into: *mut T, name: &str, value: T) -> Outcome<()> {
    if into.is_null() {
        return Err(missing(name));
    }
    // SAFETY: `into` is not null, so it may be written.
    unsafe { into.write(value) };
    Ok(())
}

/// The object behind a pointer.
///
/// # Safety
/// `pointer` is null, or valid for `'a`. Errors: it is null.
pub(crate) unsafe fn object<'a, T>(pointer: *const T, name: &str) -> Outcome<&'a T> {
    // SAFETY: `pointer` is null or valid for `'a`.
    unsafe { pointer.as_ref() }.ok_or_else(|| missing(name))
}

/// As [`object`], of what only this call uses.
///
/// # Safety
/// As of [`object`], and no other call uses it.
pub(crate) unsafe fn object_mut<'a, T>(pointer: *mut T, name: &str) -> Outcome<&'a mut T> {
    // SAFETY: `pointer` is null or valid for `'a`, and no other call uses it.
    unsafe { pointer.as_mut() }.ok_or_else(|| missing(name))
}

pub(crate) fn missing(name: &str) -> Problem {
    Problem::invalid(format!("{name} is NULL"))
}

/// The process that an object belongs to. In a child that fork(2) made, its threads do not exist, and its connections are
/// the parent's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn this() -> Self {
        Self(std::process::id())
    }

    fn is_this(self) -> bool {
        self.0 == std::process::id()
    }

    /// Errors: this process is another.
    pub(crate) fn check(self) -> Outcome<()> {
        if self.is_this() {
            return Ok(());
        }
        let text = "this process is a fork of the one that created the object; create a context in the child, and use that";
        Err(Problem::new(Code::Forked, text))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_becomes_a_code() {
        // SAFETY: null is allowed.
        let code = |body: fn() -> Outcome<()>| unsafe { guarded(std::ptr::null_mut(), body) };
        assert_eq!(code(|| Ok(())), Code::Ok as i32);
        assert_eq!(code(|| Err(missing("x"))), Code::Invalid as i32);
        assert_eq!(code(|| panic!("on purpose")), Code::Panicked as i32);
    }
}
