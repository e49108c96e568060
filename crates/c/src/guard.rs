//! The guard of every C function: it stops panics, and writes errors to the caller's `rdmc_error`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::error::{Code, Error, Outcome, Problem};

/// Runs the body of a function, and returns its code.
///
/// # Safety
/// `error` is null or points to an error that no other thread uses during the call.
pub(crate) unsafe fn guarded(error: *mut Error, body: impl FnOnce() -> Outcome<()>) -> i32 {
    // No state that a panic leaves is used again: handles are only read, and outputs are written last.
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let text = panic
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned())
            .or_else(|| panic.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "a panic without a text".into());
        Err(Problem::new(Code::Panicked, format!("a bug in rdmc: {text}")))
    });
    match outcome {
        Ok(()) => Code::Ok as i32,
        // SAFETY: `error` is null or an error that no other call uses.
        Err(problem) => problem.report(unsafe { error.as_mut() }),
    }
}

/// As [`guarded`], for functions with neither result nor error. A panic ends the body.
pub(crate) fn silent(body: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(body));
}

/// Frees a handle; does nothing for null.
///
/// # Safety
/// `handle` is null or was made by [`Box::into_raw`], and is no longer used.
pub(crate) unsafe fn free<T>(handle: *mut T) {
    if !handle.is_null() {
        // SAFETY: `handle` was made by [`Box::into_raw`], and is no longer used.
        let handle = unsafe { Box::from_raw(handle) };
        silent(|| drop(handle));
    }
}

/// A handle that belongs to a process.
pub(crate) trait Handle {
    fn process(&self) -> Process;
}

/// Takes a handle from the application, to free it. Returns `None` for null, and in a child of fork(2), where the handle is
/// leaked: its connections belong to the parent.
///
/// # Safety
/// As for [`free`].
pub(crate) unsafe fn take<T: Handle>(handle: *mut T) -> Option<Box<T>> {
    if handle.is_null() {
        return None;
    }
    // SAFETY: `handle` was made by [`Box::into_raw`], and is no longer used.
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
/// `into` is null or writable. Errors: `into` is null.
pub(crate) unsafe fn put<T>(into: *mut T, name: &str, value: T) -> Outcome<()> {
    if into.is_null() {
        return Err(missing(name));
    }
    // SAFETY: `into` is not null, so it is writable.
    unsafe { into.write(value) };
    Ok(())
}

/// Returns the object behind a pointer.
///
/// # Safety
/// `pointer` is null, or valid for `'a`. Errors: `pointer` is null.
pub(crate) unsafe fn object<'a, T>(pointer: *const T, name: &str) -> Outcome<&'a T> {
    // SAFETY: `pointer` is null or valid for `'a`.
    unsafe { pointer.as_ref() }.ok_or_else(|| missing(name))
}

/// As [`object`], for an object that only this call uses.
///
/// # Safety
/// As for [`object`], and no other call uses the object.
pub(crate) unsafe fn object_mut<'a, T>(pointer: *mut T, name: &str) -> Outcome<&'a mut T> {
    // SAFETY: `pointer` is null or valid for `'a`, and no other call uses the object.
    unsafe { pointer.as_mut() }.ok_or_else(|| missing(name))
}

pub(crate) fn missing(name: &str) -> Problem {
    Problem::invalid(format!("{name} is NULL"))
}

/// The process that created an object. In a child of fork(2) the object's threads do not exist, and its connections belong to
/// the parent.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Process(u32);

impl Process {
    pub(crate) fn this() -> Self {
        Self(std::process::id())
    }

    fn is_this(self) -> bool {
        self.0 == std::process::id()
    }

    /// Errors: the current process is a different one.
    pub(crate) fn check(self) -> Outcome<()> {
        if self.is_this() {
            return Ok(());
        }
        let text = "this process is a fork of the one that created the object; create and use a context in the child";
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
