//! Memory that a provider requires to be registered before it is used: registered on demand, kept with its
//! region, and let go with it.
//!
//! Registering pins pages, which takes longer than sending a block, so it is done for large pieces
//! and kept. It never touches the memory, except where the kernel cannot pin it: Linux 6.1 a mapping
//! of a file that is open for reading, Linux from 6.5 on one that is open for writing. Then blocks
//! go by way of a copy of the piece.

use std::{ffi::c_void, ops::Range, ptr, slice, sync::Arc};

use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::write,
    mm::{MapFlags, ProtFlags, mmap, mmap_anonymous, munmap},
    process::{Resource, getrlimit},
};
use transport::{Memory, ReadLease};

use crate::{
    native::sys::{self, Access, Errno, Object, Registration, Span},
    settings::Copies,
};

/// Regions are registered in pieces of this length, or of a block if that is more: a mapped file
/// may be larger than what can be pinned at once.
const PIECE_BYTES: usize = 256 << 20;
/// Pieces of one region that stay registered though nothing uses them.
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
}

/// Memory that is registered with a device.
pub struct Pinned {
    // Goes before the memory that it is about.
    pub registration: Registration,
    copy: Option<PieceCopy>,
}

/// What a device gets for `bytes` bytes from `start` in a region, which this covers.
pub fn span(start: *mut u8, bytes: usize, pinned: Option<&Pinned>) -> Span<'_> {
    let start = match pinned.and_then(|pinned| pinned.copy.as_ref()) {
        Some(copy) => copy.start.wrapping_add(start as usize - copy.of),
        None => start,
    };
    Span { start, bytes, registration: pinned.map(|pinned| &pinned.registration) }
}

impl Pinned {
    /// Whether blocks of the piece have to be brought into the copy and out of it.
    pub fn is_by_way(&self) -> bool {
        self.copy.as_ref().is_some_and(|copy| !copy.is_filled)
    }

    /// Before the device reads these bytes.
    ///
    /// # Safety
    /// They lie in the piece, and are not written meanwhile.
    unsafe fn before_reading(&self, start: *const u8, bytes: usize) {
        if self.is_by_way() {
            let to = span(start.cast_mut(), bytes, Some(self)).start;
            // SAFETY: the copy is as long as its piece. Other sends of these bytes write the same
            // there, and no receive does meanwhile, since there is a lease for reading.
            unsafe { ptr::copy_nonoverlapping(start, to, bytes) }
        }
    }

    /// After the device has written these bytes.
    ///
    /// # Safety
    /// They lie in the piece, and are not accessed otherwise meanwhile.
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
    /// Where the piece itself starts.
    of: usize,
    /// It has the piece's bytes, which never change. Else blocks pass through it.
    is_filled: bool,
}

// SAFETY: a mapping of its own, which only the device and the thread of its transport touch.
unsafe impl Send for PieceCopy {}
// SAFETY: as above.
unsafe impl Sync for PieceCopy {}

impl PieceCopy {
    /// Room for the blocks of a piece.
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

    /// The piece as it is. The kernel copies, so that a file that has shrunk is an error instead of a signal.
    ///
    /// # Safety
    /// The bytes are mapped.
    unsafe fn filled(of: *const u8, bytes: usize) -> Result<Self, Errno> {
        let errno = |error: rustix::io::Errno| Errno(error.raw_os_error());
        let file = memfd_create("rdmc piece", MemfdFlags::CLOEXEC).map_err(errno)?;
        let mut done = 0;
        while done < bytes {
            // SAFETY: mapped as the caller promises, and only the kernel looks at them.
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
        // SAFETY: our own mapping, whose registration is gone.
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

    /// The registration that covers `bytes` bytes from `start`, which lie in `memory`; none where
    /// the provider does not ask for one.
    ///
    /// Errors: in words, with what helps.
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
        let wanted = first..first + bytes;
        let domain = self.domain.address();
        let mut attachments = memory.attachments();
        let pieces = attachments.iter().filter_map(|attached| attached.downcast_ref::<Piece>());
        let covers = |piece: &&Piece| {
            piece.domain == domain
                && piece.range.start <= wanted.start
                && wanted.end <= piece.range.end
        };
        if let Some(piece) = pieces.clone().find(covers) {
            return Ok(Some(Arc::clone(&piece.pinned)));
        }
        let is_idle = |piece: &Piece| Arc::strong_count(&piece.pinned) == 1;
        if pieces.filter(|piece| is_idle(piece)).count() >= IDLE_PIECES_MAX {
            attachments.retain(|attached| !attached.downcast_ref::<Piece>().is_some_and(is_idle));
        }
        let range = piece_around(&wanted, memory.bytes());
        let start = memory.start().wrapping_add(range.start);
        // SAFETY: the range lies in the region, which drops its attachments, and with them the
        // registration, before its memory goes. Other holders of the registration hold a lease of
        // the region as well.
        let pinned = unsafe { self.pin(start, range.len(), memory.is_writable()) }
            .map(Arc::new)
            .map_err(|error| explain(error, range.len()))?;
        attachments.push(Box::new(Piece { domain, range, pinned: Arc::clone(&pinned) }));
        Ok(Some(pinned))
    }

    /// [`Registrar::cover`] for bytes that the device may read from now on.
    pub fn cover_to_read(&self, from: &ReadLease) -> Result<Option<Arc<Pinned>>, String> {
        let pinned = self.cover(&from.memory(), from.as_ptr(), from.bytes())?;
        if let Some(pinned) = &pinned {
            // SAFETY: the piece covers what is leased, and the lease is for reading.
            unsafe { pinned.before_reading(from.as_ptr(), from.bytes()) }
        }
        Ok(pinned)
    }

    /// Registers memory, or else a copy of it.
    ///
    /// # Safety
    /// The memory stays valid until what is returned is dropped.
    unsafe fn pin(&self, start: *const u8, bytes: usize, writable: bool) -> Result<Pinned, Errno> {
        if self.copies == Copies::WhereNeeded {
            // SAFETY: the caller's promise.
            match unsafe { sys::register(&self.domain, start, bytes, Access::Local { writable }) } {
                Ok(registration) => return Ok(Pinned { registration, copy: None }),
                Err(BAD_ADDRESS | NOT_SUPPORTED) => {}
                Err(error) => return Err(error),
            }
            tracing::debug!(bytes, writable, "by way of a copy: the kernel cannot pin this memory");
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

/// Whole pieces of a region of `bytes` bytes that contain this range.
fn piece_around(wanted: &Range<usize>, bytes: usize) -> Range<usize> {
    let start = wanted.start / PIECE_BYTES * PIECE_BYTES;
    let end = wanted.end.div_ceil(PIECE_BYTES).saturating_mul(PIECE_BYTES);
    start..end.min(bytes)
}

/// Why memory was not registered, and what helps.
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
