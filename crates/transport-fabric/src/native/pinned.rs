//! Registered memory, and the copies that replace it where the kernel cannot pin the memory itself.

use std::{ffi::c_void, ptr, slice, sync::Arc};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::write,
    mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap},
};

use crate::{
    native::sys::{self, Access, Errno, Object, Registration, Span},
    settings::Copies,
};

pub const BAD_ADDRESS: Errno = Errno(14);
pub const NOT_SUPPORTED: Errno = Errno(95);

/// Memory that is registered with a device.
pub struct Pinned {
    // Declared before the copy that it covers: dropped before it.
    pub registration: Registration,
    copy: Option<PieceCopy>,
}

/// Returns the span for `bytes` bytes from `start`, which `pinned` covers.
pub fn span(start: *mut u8, bytes: usize, pinned: Option<&Pinned>) -> Span<'_> {
    let start = match pinned.and_then(|pinned| pinned.copy.as_ref()) {
        Some(copy) => copy.start.wrapping_add(start as usize - copy.of),
        None => start,
    };
    Span { start, bytes, registration: pinned.map(|pinned| &pinned.registration) }
}

impl Pinned {
    /// Registers memory, or a copy of it if that fails.
    ///
    /// # Safety
    /// The memory stays valid until the result is dropped.
    pub unsafe fn new(
        domain: &Arc<Object>,
        copies: Copies,
        start: *const u8,
        bytes: usize,
        writable: bool,
    ) -> Result<Self, Errno> {
        if copies == Copies::WhereNeeded {
            // SAFETY: ensured by the caller.
            match unsafe { sys::register(domain, start, bytes, Access::Local { writable }) } {
                Ok(registration) => return Ok(Self { registration, copy: None }),
                Err(BAD_ADDRESS | NOT_SUPPORTED) => {}
                Err(error) => return Err(error),
            }
            tracing::debug!(bytes, writable, "using a copy: the kernel cannot pin this memory");
        }
        let copy = if writable {
            PieceCopy::empty(start, bytes)
        } else {
            // SAFETY: valid memory is mapped.
            unsafe { PieceCopy::filled(start, bytes) }
        }?;
        let access = Access::Local { writable: true };
        // SAFETY: the copy is kept with the registration, and dropped after it.
        let registration = unsafe { sys::register(domain, copy.start, bytes, access) }?;
        Ok(Self { registration, copy: Some(copy) })
    }

    /// Returns whether blocks of the piece have to be copied into and out of the copy.
    pub fn is_by_way(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| !copy.is_filled)
    }

    /// Prepares for the device to read these bytes.
    ///
    /// # Safety
    /// They are inside the piece, and are not written meanwhile.
    pub unsafe fn before_reading(&self, start: *const u8, bytes: usize) {
        if self.is_by_way() {
            let to = span(start.cast_mut(), bytes, Some(self)).start;
            // SAFETY: the copy is as long as its piece. Other sends of these bytes write the same
            // values there, and no receive does meanwhile, since there is a read lease.
            unsafe { ptr::copy_nonoverlapping(start, to, bytes) }
        }
    }

    /// Finishes a write of the device to these bytes.
    ///
    /// # Safety
    /// They are inside the piece, and are not accessed otherwise meanwhile.
    pub unsafe fn after_writing(&self, start: *mut u8, bytes: usize) {
        if self.is_by_way() {
            let from = span(start, bytes, Some(self)).start;
            // SAFETY: the copy is as long as its piece, and the device is done with this part.
            unsafe { ptr::copy_nonoverlapping(from, start, bytes) }
        }
    }
}

/// A copy of a piece, in memory that can be pinned.
struct PieceCopy {
    start: *mut u8,
    bytes: usize,
    /// The start of the piece itself.
    of: usize,
    /// The copy holds the piece's bytes, which never change. Otherwise blocks pass through it.
    is_filled: bool,
}

// SAFETY: a separate mapping that only the device and the thread of its transport access.
unsafe impl Send for PieceCopy {}
// SAFETY: as above.
unsafe impl Sync for PieceCopy {}

impl PieceCopy {
    /// Allocates space for the blocks of a piece.
    fn empty(of: *const u8, bytes: usize) -> Result<Self, Errno> {
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let start = unsafe { mmap_anonymous(ptr::null_mut(), bytes, access, MapFlags::PRIVATE) };
        Self::at(start, of, bytes, false)
    }

    fn at(
        start: rustix::io::Result<*mut c_void>,
        of: *const u8,
        bytes: usize,
        is_filled: bool,
    ) -> Result<Self, Errno> {
        let start = start.map_err(|error| Errno(error.raw_os_error()))?.cast();
        Ok(Self { start, bytes, of: of as usize, is_filled })
    }

    /// Copies the piece. The kernel reads the bytes, so that a file that has shrunk causes an error
    /// instead of a signal.
    ///
    /// # Safety
    /// The bytes are mapped.
    unsafe fn filled(of: *const u8, bytes: usize) -> Result<Self, Errno> {
        let errno = |error: rustix::io::Errno| Errno(error.raw_os_error());
        let file = memfd_create("rdmc piece", MemfdFlags::CLOEXEC).map_err(errno)?;
        let mut done = 0;
        while done < bytes {
            // SAFETY: mapped, as the caller ensures, and only the kernel reads the bytes.
            let rest = unsafe { slice::from_raw_parts(of.add(done), bytes - done) };
            done += write(&file, rest).map_err(errno)?;
        }
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let start = unsafe { mmap(ptr::null_mut(), bytes, access, MapFlags::SHARED, &file, 0) };
        Self::at(start, of, bytes, true)
    }
}

impl Drop for PieceCopy {
    fn drop(&mut self) {
        // SAFETY: this object's own mapping, whose registration was dropped.
        let _ = unsafe { munmap(self.start.cast::<c_void>(), self.bytes) };
    }
}
