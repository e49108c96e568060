//! What tests set and read; C functions, found by name in a copy of the library.

use std::{
    ffi::{CStr, c_char},
    time::Duration,
};

use crate::state::{CURRENT, Kind, state};

/// # Safety
/// `text` is a C string.
unsafe fn name(text: *const c_char) -> String {
    // SAFETY: as promised.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Makes the `nth` of the following calls of this name fail with this code, once; 1 is the next call.
///
/// # Safety
/// `call` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stand_in_fail(call: *const c_char, nth: u64, code: i32) {
    // SAFETY: as promised.
    let call = unsafe { name(call) };
    state().failures.insert(call, (nth, code));
}

/// Returns how often this call was made.
///
/// # Safety
/// `call` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stand_in_calls(call: *const c_char) -> u64 {
    // SAFETY: as promised.
    let call = unsafe { name(call) };
    state().calls.get(&call).copied().unwrap_or(0)
}

/// Returns how many objects were made and neither freed nor destroyed: memory, streams, events, retained contexts.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_live() -> u64 {
    state().live()
}

/// Returns how often calls were misused, and writes the first case, with an end, to `text`.
///
/// # Safety
/// `text` has room for `bytes` bytes, at least one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn stand_in_misuse(text: *mut u8, bytes: usize) -> u64 {
    let state = state();
    let first = state.misuse.first().map_or("", String::as_str);
    let length = first.len().min(bytes - 1);
    // SAFETY: there is room for this many bytes and the end.
    unsafe {
        std::ptr::copy_nonoverlapping(first.as_ptr(), text, length);
        text.add(length).write(0);
    }
    state.misuse.len() as u64
}

/// Returns how many copies were made to or from memory that is not pinned.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_pageable_copies() -> u64 {
    state().pageable_copies
}

/// Makes every copy of streams take at least this long.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_set_delay(us: u64) {
    state().delay = Duration::from_micros(us);
}

/// Holds the copies of a stream back, or lets them go on. Returns 0 if there is no such stream.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_hold(stream: usize, is_held: bool) -> i32 {
    let queue = state().streams.get(&stream).cloned();
    queue.map_or(0, |queue| {
        queue.gate.close(is_held);
        1
    })
}

/// Holds the copies of all streams back, or lets them go on.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_hold_all(is_held: bool) {
    let mut state = state();
    state.holds_new_streams = is_held;
    state.streams.values().for_each(|queue| queue.gate.close(is_held));
}

/// Returns how many contexts are on this thread's stack.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_contexts() -> usize {
    CURRENT.with_borrow(Vec::len)
}

/// Makes allocated device memory look like another kind: 1 managed, 2 made of mapped parts (as by expandable segments), 3 of a
/// pool. Returns 0 if none begins there.
#[unsafe(no_mangle)]
pub extern "C" fn stand_in_set_kind(address: u64, kind: i32) -> i32 {
    let mut state = state();
    let Some(memory) = state.device_memory.get_mut(&address) else { return 0 };
    memory.kind = match kind {
        1 => Kind::Managed,
        2 => Kind::Virtual,
        3 => Kind::Pool,
        _ => Kind::Device,
    };
    1
}
