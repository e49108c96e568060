//! Texts that come from C, and go there.

use std::{
    ffi::{CStr, c_char},
    net::SocketAddr,
    time::Duration,
};

use crate::{
    error::{Outcome, Problem},
    guard::missing,
};

/// A text; `None` for null.
///
/// # Safety
/// `text` is null, or ends with a zero and lives for `'a`. Errors: it is not UTF-8.
pub(crate) unsafe fn optional<'a>(text: *const c_char, name: &str) -> Outcome<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: `text` is not null, so it ends with a zero and lives for `'a`.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Problem::invalid(format!("{name} is not UTF-8")))
}

/// As [`optional`], of what has to be there.
///
/// # Safety
/// As of [`optional`].
pub(crate) unsafe fn required<'a>(text: *const c_char, name: &str) -> Outcome<&'a str> {
    // SAFETY: `text` is null or ends with a zero, and lives during this call.
    unsafe { optional(text, name) }?.ok_or_else(|| missing(name))
}

pub(crate) fn address(text: &str, name: &str) -> Outcome<SocketAddr> {
    text.parse().map_err(|_| {
        let allowed = "an IP address and a port, as in 10.0.0.1:7000 or [fd00::1]:7000";
        Problem::invalid(format!("{name} is {text:?}; use {allowed}"))
    })
}

/// The addresses of members.
///
/// # Safety
/// `texts` is null, or `count` texts as of [`optional`]. Errors: one is missing, or no address.
pub(crate) unsafe fn addresses(
    texts: *const *const c_char,
    count: u32,
) -> Outcome<Vec<SocketAddr>> {
    if texts.is_null() {
        return Err(missing("members"));
    }
    let one = |rank: usize| {
        let name = format!("members[{rank}]");
        // SAFETY: rank < count, so there is such a text, which is null or ends with a zero.
        address(unsafe { required(*texts.add(rank), &name) }?, &name)
    };
    (0..count as usize).map(one).collect()
}

/// A time; the greatest value means no limit.
pub(crate) fn milliseconds(value: u64) -> Duration {
    if value == u64::MAX { Duration::MAX } else { Duration::from_millis(value) }
}

/// # Safety
/// `into` is null or has `length` bytes. Errors: it is null, or too short.
pub(crate) unsafe fn write_text(text: &str, into: *mut c_char, length: usize) -> Outcome<()> {
    if into.is_null() {
        return Err(missing("the memory for the text"));
    }
    if length <= text.len() {
        let needed = text.len() + 1;
        return Err(Problem::invalid(format!("the text has {length} bytes; {needed} are needed")));
    }
    // SAFETY: `into` is not null and has `length` bytes, so there is room for the text and the zero.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), into, text.len());
        into.add(text.len()).write(0);
    }
    Ok(())
}
