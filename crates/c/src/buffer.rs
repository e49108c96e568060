//! Memory that goes from the application to the library and back.

use std::ffi::c_void;

use rdmc::Region;

use crate::{
    context::Context,
    error::{Error, Outcome, Problem},
    guard::{free, guarded, missing, object, put},
};

/// Memory that is given to the library: bytes, and how to give them back.
///
/// The library calls `release` once, on any thread, when it no longer uses the memory, also if the call that took
/// the buffer fails. Until then the memory exists; of a message that is sent it does not change, and where a message is received only
/// the library writes and reads it. `release` may not call the library.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Buffer {
    /// The first byte; may be null if `length` is 0.
    pub data: *mut c_void,
    /// Length in bytes.
    pub length: u64,
    /// Gives the memory back, with `private_data`; null for memory that exists until the context is closed.
    pub release: Option<unsafe extern "C" fn(private_data: *mut c_void)>,
    /// For `release`.
    pub private_data: *mut c_void,
}

/// Memory that stays registered with the network: see `rdmc_region_create`.
#[derive(Debug)]
pub struct MemoryRegion {
    region: Region,
}

/// What gives memory back.
type Release = unsafe extern "C" fn(private_data: *mut c_void);

/// Of buffers that [`Buffer::lend`] makes.
const RELEASE_REGION: Release = release_region;

/// What a region keeps of a [`Buffer`].
struct Released {
    release: Option<Release>,
    private_data: *mut c_void,
}

// SAFETY: the pointer is only handed to `release`, which may be called on any thread (rdmc.h).
unsafe impl Send for Released {}
// SAFETY: as above; nothing is done through a shared reference.
unsafe impl Sync for Released {}

impl Drop for Released {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: the application has given both for this one call.
            unsafe { release(self.private_data) };
        }
    }
}

impl Buffer {
    /// The memory as a region, writable or not; releases it when the region is gone.
    ///
    /// # Safety
    /// The buffer is as documented, and was given to nobody else. Errors: it has no memory.
    pub(crate) unsafe fn into_region(self, writable: bool) -> Outcome<Region> {
        let is_own = |release| std::ptr::fn_addr_eq(release, RELEASE_REGION);
        if self.release.is_some_and(is_own) {
            // SAFETY: only `lend` makes buffers with this function, of a box of its own.
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
        // SAFETY: the application keeps the memory as documented until `release`, which dropping the owner calls. The
        // owner is no pointer into the memory.
        Ok(unsafe { Region::from_raw(start, length, writable, Box::new(owner)) })
    }

    /// A region, as a buffer that holds on to it.
    fn lend(region: Region) -> Self {
        let data = {
            let (memory, part) = region.memory();
            // SAFETY: a part lies within its memory.
            unsafe { memory.start().add(part.start) }.cast()
        };
        let length = region.len() as u64;
        let private_data = Box::into_raw(Box::new(region)).cast();
        Self { data, length, release: Some(RELEASE_REGION), private_data }
    }
}

/// Drops a region that [`Buffer::lend`] has lent.
unsafe extern "C" fn release_region(private_data: *mut c_void) {
    // SAFETY: `lend` made it, and who calls this does not use it again.
    unsafe { free(private_data.cast::<Region>()) };
}

/// Allocates memory, all zeros, in huge pages where the system has them. Call `release` of the buffer, or give it
/// to a function that takes one.
///
/// # Safety
/// `buffer` may be written; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_allocate(length: u64, buffer: *mut Buffer, error: *mut Error) -> i32 {
    let allocate = || {
        let region = Region::allocate(length).map_err(rdmc::Error::from)?;
        // SAFETY: `buffer` is null or may be written.
        unsafe { put(buffer, "buffer", Buffer::lend(region)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, allocate) }
}

/// Registers memory with the network of a context, until the region and all buffers of it are freed: transfers then do not wait
/// for that. Blocks while the system pins the memory, some 100 ms for each GB. Over TCP nothing is registered.
///
/// # Safety
/// `context` and `region` are valid; the buffer is as documented, writable, and taken; `error` may be null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_region_create(
    context: *const Context,
    buffer: Buffer,
    region: *mut *mut MemoryRegion,
    error: *mut Error,
) -> i32 {
    let create = || {
        // SAFETY: the buffer is as documented and was given to this call alone.
        let made = unsafe { buffer.into_region(true) }?;
        // SAFETY: `context` is null or a handle that is not freed during this call.
        unsafe { object(context, "context") }?.inner()?.register(&made)?;
        let made = Box::into_raw(Box::new(MemoryRegion { region: made }));
        // SAFETY: `region` is null or may be written; what was made is freed if it cannot be returned.
        unsafe { put(region, "region", made).inspect_err(|_| free(made)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, create) }
}

/// A part of a region as a buffer, to be sent or received into; it keeps the region's memory, also after
/// `rdmc_region_free`. Parts that overlap may be sent at the same time, but not received into.
///
/// # Safety
/// `region` is valid, `buffer` may be written; `error` may be null.
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
            Problem::invalid(format!("{length} bytes at {offset} are not in a region of {bytes}"))
        };
        let part = range.and_then(|range| region.slice(range).ok()).ok_or_else(outside)?;
        // SAFETY: `buffer` is null or may be written.
        unsafe { put(buffer, "buffer", Buffer::lend(part)) }
    };
    // SAFETY: `error` is null or an error that no other call uses.
    unsafe { guarded(error, part) }
}

/// Frees a region; its memory is released when no buffer of it is used any more. Does nothing for null.
///
/// # Safety
/// `region` is null, or valid and not used again.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rdmc_region_free(region: *mut MemoryRegion) {
    // SAFETY: `region` is null or a handle that is not used after this call.
    unsafe { free(region) };
}
