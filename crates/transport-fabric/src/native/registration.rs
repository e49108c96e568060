//! Memory that a provider requires to be registered before use: registered on demand, kept with its
//! region, and released with it.
//!
//! Registration pins pages, which takes longer than sending a block, so large pieces are registered
//! and kept. It never accesses the memory, except where the kernel cannot pin it: Linux 6.1 a
//! mapping of a file that is open for reading, Linux from 6.5 on one that is open for writing.
//! Blocks then pass through a copy of the piece.

use std::{ffi::c_void, ops::Range, ptr, slice, sync::Arc};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::write,
    mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap},
    process::{Resource, getrlimit},
};
use transport::{Attachment, Memory, ReadLease, Region};

use crate::{
    native::sys::{self, Access, Errno, Object, Registration, Span},
    settings::Copies,
};

/// Regions are registered in pieces of this length, or of a block's if that is longer: a mapped
/// file may be larger than what can be pinned at once.
const PIECE_BYTES: usize = 256 << 20;
/// Pieces of one region that stay registered although nothing uses them.
const IDLE_PIECES_MAX: usize = 4;

const NO_MEMORY: Errno = Errno(12);
const BAD_ADDRESS: Errno = Errno(14);
const NOT_PERMITTED: Errno = Errno(1);
const NOT_SUPPORTED: Errno = Errno(95);
const NO_SPACE: Errno = Errno(28);

/// One registered piece, attached to its region.
struct Piece {
    /// The device's domain that it is registered with.
    domain: usize,
    range: Range<usize>,
    pinned: Arc<Pinned>,
    /// Stays registered until the memory is freed, used or not.
    is_kept: bool,
}

impl Piece {
    fn is_idle(&self) -> bool {
        !self.is_kept && Arc::strong_count(&self.pinned) == 1
    }
}

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
    /// Returns whether blocks of the piece have to be copied into and out of the copy.
    pub fn is_by_way(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| !copy.is_filled)
    }

    /// Prepares for the device to read these bytes.
    ///
    /// # Safety
    /// They are inside the piece, and are not written meanwhile.
    unsafe fn before_reading(&self, start: *const u8, bytes: usize) {
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

/// Registers memory with one device.
pub struct Registrar {
    domain: Arc<Object>,
    is_needed: bool,
    copies: Copies,
}

impl Registrar {
    pub fn new(domain: Arc<Object>, is_needed: bool, copies: Copies) -> Self {
        Self { domain, is_needed: is_needed || copies == Copies::Always, copies }
    }

    /// Returns the registration that covers `bytes` bytes from `start`, which are inside `memory`;
    /// none if the provider does not require it.
    ///
    /// Errors: as text, with the remedy.
    pub fn cover(
        &self,
        memory: &Memory<'_>,
        start: *const u8,
        bytes: usize,
    ) -> Result<Option<Arc<Pinned>>, String> {
        if !self.is_needed || bytes == 0 {
            return Ok(None);
        }
        let first = start as usize - memory.start() as usize;
        self.piece(memory, &(first..first + bytes), false).map(Some)
    }

    /// Registers all of a region, until its memory is freed.
    ///
    /// Errors: as text, with the remedy.
    pub fn register(&self, region: &Region) -> Result<(), String> {
        if !self.is_needed || region.is_stored() {
            return Ok(());
        }
        let (memory, part) = region.memory();
        let mut at = part.start;
        while at < part.end {
            let end = (at / PIECE_BYTES + 1).saturating_mul(PIECE_BYTES).min(part.end);
            self.piece(&memory, &(at..end), true)?;
            at = end;
        }
        Ok(())
    }

    /// Returns a registered piece that contains the range `wanted` of `memory`; a new one if there
    /// is none.
    fn piece(
        &self,
        memory: &Memory<'_>,
        wanted: &Range<usize>,
        keep: bool,
    ) -> Result<Arc<Pinned>, String> {
        let domain = self.domain.address();
        let mut attachments = memory.attachments();
        let covers = |piece: &&mut Piece| {
            piece.domain == domain
                && piece.range.start <= wanted.start
                && wanted.end <= piece.range.end
        };
        let mut pieces = attachments.iter_mut().filter_map(|attached| attached.downcast_mut());
        if let Some(piece) = pieces.find(covers) {
            piece.is_kept |= keep;
            return Ok(Arc::clone(&piece.pinned));
        }
        let idle = |attached: &Attachment| attached.downcast_ref().is_some_and(Piece::is_idle);
        if attachments.iter().filter(|attached| idle(attached)).count() >= IDLE_PIECES_MAX {
            attachments.retain(|attached| !idle(attached));
        }
        let range = piece_around(wanted, memory.bytes());
        let start = memory.start().wrapping_add(range.start);
        // SAFETY: the range is inside the region, which drops its attachments, and with them the
        // registration, before its memory. Other holders of the registration hold a lease of the
        // region as well.
        let pinned = unsafe { self.pin(start, range.len(), memory.is_writable()) }
            .map(Arc::new)
            .map_err(|error| explain(error, range.len()))?;
        let piece = Piece { domain, range, pinned: Arc::clone(&pinned), is_kept: keep };
        attachments.push(Box::new(piece));
        Ok(pinned)
    }

    /// As [`Registrar::cover`], for bytes that the device may read from now on.
    pub fn cover_to_read(&self, from: &ReadLease) -> Result<Option<Arc<Pinned>>, String> {
        let pinned = self.cover(&from.memory(), from.as_ptr(), from.bytes())?;
        if let Some(pinned) = &pinned {
            // SAFETY: the piece covers what is leased, and the lease is for reading.
            unsafe { pinned.before_reading(from.as_ptr(), from.bytes()) }
        }
        Ok(pinned)
    }

    /// Registers memory, or a copy of it if that fails.
    ///
    /// # Safety
    /// The memory stays valid until the result is dropped.
    unsafe fn pin(&self, start: *const u8, bytes: usize, writable: bool) -> Result<Pinned, Errno> {
        if self.copies == Copies::WhereNeeded {
            // SAFETY: ensured by the caller.
            match unsafe { sys::register(&self.domain, start, bytes, Access::Local { writable }) } {
                Ok(registration) => return Ok(Pinned { registration, copy: None }),
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
        let registration = unsafe { sys::register(&self.domain, copy.start, bytes, access) }?;
        Ok(Pinned { registration, copy: Some(copy) })
    }
}

/// Returns the whole pieces of a region of `bytes` bytes that contain this range.
fn piece_around(wanted: &Range<usize>, bytes: usize) -> Range<usize> {
    let start = wanted.start / PIECE_BYTES * PIECE_BYTES;
    let end = wanted.end.div_ceil(PIECE_BYTES).saturating_mul(PIECE_BYTES);
    start..end.min(bytes)
}

/// Explains why memory was not registered, with the remedy.
pub fn explain(error: Errno, bytes: usize) -> String {
    let help = match error {
        NO_MEMORY | NOT_PERMITTED => format!(
            "the limit on locked memory is {}: raise it by `ulimit -l unlimited`, or by a line \
             `* - memlock unlimited` in /etc/security/limits.conf; or there are too many regions \
             for the device",
            locked_memory_limit()
        ),
        NO_SPACE => "the device cannot register more regions: use larger ones".into(),
        BAD_ADDRESS | NOT_SUPPORTED => "its file system cannot give pages to a network device: \
                                        copy the file to tmpfs or another file system"
            .into(),
        _ => "the device refuses".into(),
    };
    format!("registering {bytes} bytes: {}; {help}", error.text())
}

fn locked_memory_limit() -> String {
    match getrlimit(Resource::Memlock).current {
        Some(bytes) => format!("{} KiB", bytes / 1024),
        None => "not set".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_whole_and_stay_inside() {
        assert_eq!(piece_around(&(0..10), 100), 0..100);
        let large = 3 * PIECE_BYTES + 5;
        assert_eq!(piece_around(&(0..1), large), 0..PIECE_BYTES);
        assert_eq!(piece_around(&(PIECE_BYTES - 1..PIECE_BYTES + 1), large), 0..2 * PIECE_BYTES);
        assert_eq!(piece_around(&(large - 1..large), large), 3 * PIECE_BYTES..large);
    }
}
