//! Memory that the application passes to the library.

use std::ffi::c_void;

use rdmc::Region;

use crate::{
    context::Context,
    error::{Error, Outcome, Problem},
    guard::{free, guarded, missing, object, put},
};

/// Memory passed to the library, with the function that releases it.
///
/// The library calls `release` once, on any thread, when it no longer uses the memory, even if the call that took
/// the buffer fails. Until then the memory must remain valid. Memory that is sent must not change; memory that is
/// received into may be read and written only by the library. `release` must not call the library.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// The first byte; may be null if `length` is 0.
    pub data: *mut c_void,
    /// Length in bytes.
    pub length: u64,
    /// Releases the memory; null for memory that remains valid until the context is closed.
    pub release: Option<unsafe extern "C" fn(private_data: *mut c_void)>,
    /// The argument of `release`.
    pub private_data: *mut c_void,
}

/// Memory that remains registered with the network; see `rdmc_region_create`.
#[derive(Debug)]
pub struct MemoryRegion {
    region: Region,
}

/// A function that releases memory.
type Release = unsafe extern "C" fn(private_data: *mut c_void);

/// The `release` of buffers that [`Buffer::lend`] makes.
const RELEASE_REGION: Release = release_region;

/// The owner of a region's memory: releases a [`Buffer`] when dropped.
struct Released {
    release: Option<Release>,
    private_data: *mut c_void,
}

// SAFETY: the pointer is only passed to `release`, which may be called on any thread (rdmc.h).
unsafe impl Send for Released {}
// SAFETY: as above; nothing is done through a shared reference.
unsafe impl Sync for Released {}

impl Drop for Released {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the application provided both for this one call.
            unsafe { release(self.private_data) };
        }
    }
}

impl Buffer {
    /// Converts the buffer to a region, writable or not, which releases the memory when dropped.
    ///
    /// # Safety
    /// The buffer is as documented, and no other call has taken it. Errors: `data` is null, or `length` too great.
    pub(crate) unsafe fn into_region(self, writable: bool) -> Outcome<Region> {
        let is_own = |release| std::ptr::fn_addr_eq(release, RELEASE_REGION);
        if self.release.is_some_and(is_own) {
            // SAFETY: only `lend` makes buffers with this function, each with its own box.
            return Ok(*unsafe { Box::from_raw(self.private_data.cast::<Region>()) });
        }
        let owner = Released { release: self.release, private_data: self.private_data };
        let length = usize::try_from(self.length).map_err(|_| {
            Problem::invalid(format!("a buffer of {} bytes is too long", self.length))
        })?;
        let start = match self.data.cast::<u8>() {
            start if !start.is_null() => start,
            _ if length == 0 => std::ptr::NonNull::dangling().as_ptr(),
            _ => return Err(missing("data of the buffer")),
        };
        // SAFETY: the application keeps the memory valid as documented until `release`, which dropping the owner calls.
        // The owner does not point into the memory.
        Ok(unsafe { Region::from_raw(start, length, writable, Box::new(owner)) })
    }

    /// Makes a buffer that owns the region.
    fn lend(region: Region) -> Self {
        let data = {
            let (memory, part) = region.memory();
            // SAFETY: the part lies within its memory.
            unsafe { memory.start().add(part.start) }.cast()
        };
        let length = region.len() as u64;
        let private_data = Box::into_raw(Box::new(region)).cast();
        Self { data, length, release: Some(RELEASE_REGION), private_data }
    }
}

/// Drops the region of a buffer that [`Buffer::lend`] made.
unsafe extern "C" fn release_region(private_data: *mut c_void) {
    // SAFETY: `lend` made the pointer, and the caller does not use it again.
    unsafe { free(private_data.cast::<Region>()) };
}

/// Allocates zeroed memory, in huge pages where the system has them. Pass the buffer to a function that takes it, or
/// call its `release`.
///
/// # Safety
/// `buffer` is writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_allocate(length: u64, buffer: *mut Buffer, error: *mut Error) -> i32 {
    let allocate = || {
        let region = Region::allocate(length).map_err(rdmc::Error::from)?;
        // SAFETY: `buffer` is null or writable.
        unsafe { put(buffer, "buffer", Buffer::lend(region)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, allocate) }
}

/// Registers memory with the network of a context, until the region and all its buffers are freed, so that transfers do not
/// wait for the registration. Blocks while the system pins the memory, about 100 ms per GB. Over TCP nothing is registered.
///
/// # Safety
/// `context` and `region` are valid; the buffer is as documented and writable, and is taken; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_region_create(
    context: *const Context,
    buffer: Buffer,
    region: *mut *mut MemoryRegion,
    error: *mut Error,
) -> i32 {
    let create = || {
        // SAFETY: the buffer is as documented, and no other call takes it.
        let made = unsafe { buffer.into_region(true) }?;
        // SAFETY: `context` is null or a handle that is not freed during this call.
        unsafe { object(context, "context") }?.inner()?.register(&made)?;
        let made = Box::into_raw(Box::new(MemoryRegion { region: made }));
        // SAFETY: `region` is null or writable; the new handle is freed if it cannot be returned.
        unsafe { put(region, "region", made).inspect_err(|_| free(made)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, create) }
}

/// Makes a buffer of a part of a region, to send or to receive into. It keeps the region's memory alive, even after
/// `rdmc_region_free`. Overlapping parts may be sent at the same time, but not received into.
///
/// # Safety
/// `region` is valid, `buffer` is writable; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_region_buffer(
    region: *const MemoryRegion,
    offset: u64,
    length: u64,
    buffer: *mut Buffer,
    error: *mut Error,
) -> i32 {
    let part = || {
        // SAFETY: `region` is null or a handle that is not freed during this call.
        let region = &unsafe { object(region, "region") }?.region;
        let range = usize::try_from(offset)
            .ok()
            .zip(offset.checked_add(length))
            .and_then(|(start, end)| Some(start..usize::try_from(end).ok()?));
        let outside = || {
            let bytes = region.len();
            Problem::invalid(format!("{length} bytes at {offset} exceed a region of {bytes} bytes"))
        };
        let part = range.and_then(|range| region.slice(range).ok()).ok_or_else(outside)?;
        // SAFETY: `buffer` is null or writable.
        unsafe { put(buffer, "buffer", Buffer::lend(part)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, part) }
}

/// Frees a region; its memory is released when none of its buffers is in use. Does nothing for null.
///
/// # Safety
/// `region` is null, or valid and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_region_free(region: *mut MemoryRegion) {
    // SAFETY: `region` is null or a handle that is not used after this call.
    unsafe { free(region) };
}
