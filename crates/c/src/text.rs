//! Conversion of texts from and to C.

use std::{
    ffi::{CStr, c_char},
    net::SocketAddr,
    time::Duration,
};

use crate::{
    error::{Outcome, Problem},
    guard::missing,
};

/// Returns a text; `None` for null.
///
/// # Safety
/// `text` is null, or NUL-terminated and valid for `'a`. Errors: `text` is not UTF-8.
pub(crate) unsafe fn optional<'a>(text: *const c_char, name: &str) -> Outcome<Option<&'a str>> {
    if text.is_null() {
        return Ok(None);
    }
    // SAFETY: `text` is not null, so it is NUL-terminated and valid for `'a`.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map(Some).map_err(|_| Problem::invalid(format!("{name} is not UTF-8")))
}

/// As [`optional`], for a required text.
///
/// # Safety
/// As for [`optional`].
pub(crate) unsafe fn required<'a>(text: *const c_char, name: &str) -> Outcome<&'a str> {
    // SAFETY: `text` is null or NUL-terminated, and valid during this call.
    unsafe { optional(text, name) }?.ok_or_else(|| missing(name))
}

pub(crate) fn address(text: &str, name: &str) -> Outcome<SocketAddr> {
    text.parse().map_err(|_| {
        let allowed = "an IP address and a port, as in 10.0.0.1:7000 or [fd00::1]:7000";
        Problem::invalid(format!("{name} is {text:?}; use {allowed}"))
    })
}

/// Returns the addresses of members.
///
/// # Safety
/// `texts` is null, or has `count` texts as for [`optional`]. Errors: a text is missing or not an address.
pub(crate) unsafe fn addresses(
    texts: *const *const c_char,
    count: u32,
) -> Outcome<Vec<SocketAddr>> {
    if texts.is_null() {
        return Err(missing("members"));
    }
    let one = |rank: usize| {
        let name = format!("members[{rank}]");
        // SAFETY: rank < count, so `texts` has this text, which is null or NUL-terminated.
        address(unsafe { required(*texts.add(rank), &name) }?, &name)
    };
    (0..count as usize).map(one).collect()
}

/// Converts a timeout; the greatest value means no limit.
pub(crate) fn milliseconds(value: u64) -> Duration {
    if value == u64::MAX { Duration::MAX } else { Duration::from_millis(value) }
}

/// # Safety
/// `into` is null or has `length` bytes. Errors: `into` is null or too short.
pub(crate) unsafe fn write_text(text: &str, into: *mut c_char, length: usize) -> Outcome<()> {
    if into.is_null() {
        return Err(missing("the memory for the text"));
    }
    if length <= text.len() {
        let needed = text.len() + 1;
        return Err(Problem::invalid(format!("the text has {length} bytes; {needed} are needed")));
    }
    // SAFETY: `into` is not null and has `length` bytes, enough for the text and the NUL.
    unsafe {
        std::ptr::copy_nonoverlapping(text.as_ptr().cast::<c_char>(), into, text.len());
        into.add(text.len()).write(0);
    }
    Ok(())
}
