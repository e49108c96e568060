//! Pages of this process: private ones, which a file in memory can take the place of and the other way
//! round, and those of a file of another process.

use std::{
    io,
    os::fd::{AsFd, OwnedFd},
    ptr,
};

use rustix::{
    fs::{
        MemfdFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, fstatfs, ftruncate,
        memfd_create,
    },
    mm::{
        Advice, MapFlags, MremapFlags, ProtFlags, madvise, mmap, mmap_anonymous, mremap_fixed,
        munmap,
    },
};

const PRIVATE_PROTECTION: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);
/// Without them its owner could truncate a file, and an access beyond its end would end a process that has mapped it by SIGBUS.
const SIZE_SEALS: SealFlags = SealFlags::SHRINK.union(SealFlags::GROW);
/// Of files of `memfd_create`, but for those of huge pages, whose pages may be missing when they are touched.
const TMPFS_MAGIC: u64 = 0x0102_1994;
/// From this length on, huge pages are asked for.
const HUGE_BYTES_MIN: usize = 2 << 20;

/// What may be done with a file of memory by those who get it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FileAccess {
    /// It may be mapped for reading alone.
    Read,
    /// It may be mapped for reading and writing.
    Write,
}

/// A mapping of at least one byte, unmapped when this is dropped.
pub(crate) struct Pages {
    start: *mut u8,
    bytes: usize,
}

impl Pages {
    /// Maps zeros, which take no memory before they are written. Errors: the system has no memory, or no mappings left.
    pub(crate) fn zeroed(bytes: usize) -> io::Result<Self> {
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let start = unsafe {
            mmap_anonymous(ptr::null_mut(), bytes, PRIVATE_PROTECTION, MapFlags::PRIVATE)
        }?;
        if bytes >= HUGE_BYTES_MIN {
            // SAFETY: advice changes neither contents nor protection. An error changes nothing either.
            let _ = unsafe { madvise(start, bytes, Advice::LinuxHugepage) };
        }
        Ok(Self { start: start.cast(), bytes })
    }

    /// Maps a file that another process has made. Errors: it is not one of this length made by `memfd_create`, it can be
    /// truncated, or it does not allow the access.
    pub(crate) fn of_file(file: &OwnedFd, bytes: usize, access: FileAccess) -> io::Result<Self> {
        let refuse = |why| Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        if fstatfs(file)?.f_type as u64 != TMPFS_MAGIC {
            return refuse("it is not a memory file");
        }
        if !fcntl_get_seals(file)?.contains(SIZE_SEALS) {
            return refuse("its length may change");
        }
        if bytes == 0 || usize::try_from(fstat(file)?.st_size) != Ok(bytes) {
            return refuse("its length is not the one that was said");
        }
        let protection = match access {
            FileAccess::Read => ProtFlags::READ,
            FileAccess::Write => PRIVATE_PROTECTION,
        };
        // SAFETY: the kernel chooses an address where nothing is mapped.
        let start = unsafe { mmap(ptr::null_mut(), bytes, protection, MapFlags::SHARED, file, 0) }?;
        Ok(Self { start: start.cast(), bytes })
    }

    /// Makes a file of these zeros or, where `fill` writes, of other bytes, and maps it where these pages are. The length
    /// of the file never changes.
    ///
    /// Invariant of the caller: no thread of this process writes the pages meanwhile.
    pub(crate) fn make_file(
        &self,
        access: FileAccess,
        fill: impl FnOnce(&OwnedFd) -> io::Result<()>,
    ) -> io::Result<OwnedFd> {
        let file = memfd_create("rdmc", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        ftruncate(&file, self.bytes as u64)?;
        fcntl_add_seals(&file, SIZE_SEALS)?;
        fill(&file)?;
        let (at, flags) = (self.start.cast(), MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the kernel replaces exactly these pages, which are this object's, at once for all threads. They stay
        // readable and writable, and hold initialized bytes; the file's length cannot change below them.
        unsafe { mmap(at, self.bytes, PRIVATE_PROTECTION, flags, file.as_fd(), 0) }?;
        let for_peers = match access {
            // What is mapped already stays writable.
            FileAccess::Read => SealFlags::FUTURE_WRITE,
            FileAccess::Write => SealFlags::empty(),
        };
        fcntl_add_seals(&file, SealFlags::SEAL | for_peers)?;
        Ok(file)
    }

    /// Puts private pages in the place of those of a file, after `fill` was called with their address to write their
    /// contents.
    ///
    /// Invariant of the caller: no thread of this process writes the pages meanwhile.
    pub(crate) fn leave_file(&self, fill: impl FnOnce(&Pages)) -> io::Result<()> {
        let new = Self::zeroed(self.bytes)?;
        fill(&new);
        let (from, to) = (new.start.cast(), self.start.cast());
        // SAFETY: the kernel moves the new pages, to which nothing else refers, over exactly this object's, at once for all
        // threads.
        unsafe { mremap_fixed(from, self.bytes, self.bytes, MremapFlags::MAYMOVE, to) }?;
        // They are at the other address now.
        std::mem::forget(new);
        Ok(())
    }

    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: these pages are this object's, and its owner gives no reference that outlives it.
        let _ = unsafe { munmap(self.start.cast(), self.bytes) };
    }
}
