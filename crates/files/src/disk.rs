//! The system calls by which a receiver changes files in one directory.
//!
//! They are in one place so that tests can end a session before any of them, or let one fail.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, Permissions},
    io::{self, Read, Seek, SeekFrom},
    num::NonZeroU64,
    os::fd::OwnedFd,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, PermissionsExt},
    },
    sync::Arc,
    time::SystemTime,
};

#[cfg(not(test))]
use rustix::io::{ReadWriteFlags, preadv2};
use rustix::{
    fs::{
        Advice, AtFlags, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat,
        StatVfs, fadvise, fallocate, flock, fstat, fstatfs, fstatvfs, fsync, mkdirat, openat,
        renameat, statat, unlinkat,
    },
    io::{Errno, Result},
};

use crate::ranges::ByteRange;

/// A directory that is held open; clones share it. All names are names in it; symbolic links are not followed unless
/// documented.
#[derive(Clone, Debug)]
pub(crate) struct Disk {
    directory: Arc<OwnedFd>,
    #[cfg(test)]
    pub(crate) faults: faults::Faults,
}

impl Disk {
    pub(crate) fn new(directory: OwnedFd) -> Self {
        Self {
            directory: Arc::new(directory),
            #[cfg(test)]
            faults: faults::Faults::default(),
        }
    }

    #[cfg(not(test))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "tests let calls fail")]
    fn call(&self) -> Result<()> {
        Ok(())
    }

    #[cfg(test)]
    pub(crate) fn call(&self) -> Result<()> {
        self.faults.call()
    }

    /// The directory, for what has more than one level.
    pub(crate) fn shared(&self) -> Arc<OwnedFd> {
        Arc::clone(&self.directory)
    }

    #[cfg(any(test, fuzzing))]
    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Does not block on a FIFO.
    pub(crate) fn open(&self, name: &OsStr, flags: OFlags) -> Result<File> {
        self.call()?;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(openat(&*self.directory, name, flags, Mode::empty())?.into())
    }

    /// Creates a file for reading and writing. Errors: [`Errno::EXIST`] if the name exists.
    pub(crate) fn create(&self, name: &OsStr, mode: u32) -> Result<File> {
        self.call()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(openat(&*self.directory, name, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Makes a directory with the usual mode.
    pub(crate) fn make_directory(&self, name: &OsStr) -> Result<()> {
        self.call()?;
        mkdirat(&*self.directory, name, Mode::from_raw_mode(0o777))
    }

    pub(crate) fn unlink(&self, name: &OsStr) -> Result<()> {
        self.call()?;
        unlinkat(&*self.directory, name, AtFlags::empty())
    }

    /// Replaces what has the new name, atomically.
    pub(crate) fn rename(&self, old: &OsStr, new: &OsStr) -> Result<()> {
        self.call()?;
        renameat(&*self.directory, old, &*self.directory, new)
    }

    /// All names that can be read.
    pub(crate) fn names(&self) -> Vec<OsString> {
        let Ok(entries) = Dir::read_from(&*self.directory) else { return Vec::new() };
        let name = |entry: rustix::fs::DirEntry| {
            OsStr::from_bytes(entry.file_name().to_bytes()).to_owned()
        };
        entries.flatten().map(name).collect()
    }

    /// The type of the file of this name; follows links.
    pub(crate) fn kind(&self, name: &OsStr) -> Option<FileType> {
        let stat = statat(&*self.directory, name, AtFlags::empty()).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    /// Whether the name still is that of this file.
    pub(crate) fn is_named(&self, file: &File, name: &OsStr) -> bool {
        let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
        let named = statat(&*self.directory, name, AtFlags::SYMLINK_NOFOLLOW).map(identity);
        named.is_ok() && named == fstat(file).map(identity)
    }

    /// Writes the directory to disk.
    pub(crate) fn sync_names(&self) -> Result<()> {
        self.call()?;
        fsync(&*self.directory)
    }

    /// Writes a file to disk, including its mode and times.
    pub(crate) fn sync(&self, file: &File) -> Result<()> {
        self.call()?;
        fsync(file)
    }

    /// Locks a file until this descriptor is closed. Errors: [`Errno::WOULDBLOCK`] if it is locked.
    pub(crate) fn lock(&self, file: &File) -> Result<()> {
        self.call()?;
        flock(file, FlockOperation::NonBlockingLockExclusive)
    }

    pub(crate) fn set_mode(&self, file: &File, mode: u32) -> Result<()> {
        self.call()?;
        file.set_permissions(Permissions::from_mode(mode)).map_err(errno)
    }

    pub(crate) fn set_modified(&self, file: &File, time: SystemTime) -> Result<()> {
        self.call()?;
        file.set_modified(time).map_err(errno)
    }

    pub(crate) fn set_len(&self, file: &File, bytes: u64) -> Result<()> {
        self.call()?;
        file.set_len(bytes).map_err(errno)
    }

    /// Reserves space for the first bytes of a file; extends it if it is shorter.
    pub(crate) fn reserve(&self, file: &File, bytes: u64) -> Result<()> {
        self.call()?;
        fallocate(file, FallocateFlags::empty(), 0, bytes)
    }

    pub(crate) fn write(&self, file: &File, bytes: &[u8], offset: u64) -> Result<()> {
        self.call()?;
        file.write_all_at(bytes, offset).map_err(errno)
    }

    /// Copies a range of one file to the same offset of another, by sharing extents where the file system can.
    /// Errors: the first file is too short.
    pub(crate) fn copy(&self, from: &File, to: &File, (start, end): ByteRange) -> Result<()> {
        self.call()?;
        let (mut from, mut to) = (from, to);
        from.seek(SeekFrom::Start(start)).map_err(errno)?;
        to.seek(SeekFrom::Start(start)).map_err(errno)?;
        let copied = io::copy(&mut from.take(end - start), &mut to).map_err(errno)?;
        if copied == end - start { Ok(()) } else { Err(Errno::IO) }
    }

    /// Whether files are in memory. Reserving space there writes zeros to all of it, which takes some 0.5 s for each GiB.
    pub(crate) fn is_memory(&self) -> bool {
        /// tmpfs and ramfs (statfs(2)).
        const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
        fstatfs(&*self.directory).is_ok_and(|found| IN_MEMORY.contains(&(found.f_type as u64)))
    }

    /// Statistics of the file system.
    pub(crate) fn free(&self) -> Result<StatVfs> {
        fstatvfs(&*self.directory)
    }
}

/// Starts to write a range of a file to disk. The bytes stay in memory, and errors are those of a later [`Disk::sync`].
/// May wait for the disk's queue, but not until the bytes are written. Without effect where it is not supported.
pub(crate) fn start_writeback(file: &File, range: ByteRange) {
    #[cfg(test)]
    advice::note(advice::Advised::Writeback(range));
    // Starts to write dirty pages, then drops clean ones from memory. Those that are being written are not clean.
    advise(file, range, Advice::DontNeed);
}

/// Reads what of a range is in memory, from `offset` on, without waiting for the disk; the number of bytes.
///
/// Errors: nothing of it is in memory; not supported.
#[cfg(not(test))]
pub(crate) fn read_from_memory(file: &File, into: &mut [u8], offset: u64) -> Result<usize> {
    preadv2(file, &mut [io::IoSliceMut::new(into)], offset, ReadWriteFlags::NOWAIT)
}

#[cfg(test)]
pub(crate) fn read_from_memory(file: &File, into: &mut [u8], offset: u64) -> Result<usize> {
    if advice::is_disk_needed() {
        Err(Errno::AGAIN)
    } else {
        file.read_at(into, offset).map_err(errno)
    }
}

/// Starts to read a range of a file into memory. May wait for the disk's queue. Without effect where it is not
/// supported.
pub(crate) fn read_ahead(file: &File, range: ByteRange) {
    #[cfg(test)]
    advice::note(advice::Advised::ReadAhead(range));
    advise(file, range, Advice::WillNeed);
}

fn advise(file: &File, (start, end): ByteRange, advice: Advice) {
    // Without a length it would be the rest of the file.
    let Some(length) = NonZeroU64::new(end.saturating_sub(start)) else { return };
    let _ = fadvise(file, start, Some(length), advice);
}

/// The advice that this thread has given, and whether files seem to it to be in memory, for tests.
#[cfg(test)]
pub(crate) mod advice {
    use std::cell::{Cell, RefCell};

    use crate::ranges::ByteRange;

    #[derive(Clone, Copy, PartialEq, Eq, Debug)]
    pub(crate) enum Advised {
        Writeback(ByteRange),
        ReadAhead(ByteRange),
    }

    thread_local! {
        static GIVEN: RefCell<Vec<Advised>> = const { RefCell::new(Vec::new()) };
        static IS_DISK_NEEDED: Cell<bool> = const { Cell::new(false) };
    }

    /// Lets files seem to be in memory, as at the start, or not.
    pub(crate) fn need_disk(is_needed: bool) {
        IS_DISK_NEEDED.set(is_needed);
    }

    pub(super) fn is_disk_needed() -> bool {
        IS_DISK_NEEDED.get()
    }

    pub(super) fn note(advised: Advised) {
        GIVEN.with_borrow_mut(|given| given.push(advised));
    }

    /// Since the last call.
    pub(crate) fn take() -> Vec<Advised> {
        GIVEN.take()
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// Fault injection for tests.
#[cfg(test)]
pub(crate) mod faults {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::{Errno, Result};

    /// Which call fails, counted from 0.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) enum Fault {
        #[default]
        None,
        /// This call and all after it have no effect, as after a kill.
        Crash(u64),
        /// Only this call fails.
        Error(u64, Errno),
    }

    /// Counts calls; clones share the count.
    #[derive(Clone, Debug, Default)]
    pub(crate) struct Faults(Arc<Mutex<(u64, Fault)>>);

    impl Faults {
        pub(crate) fn set(&self, fault: Fault) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (0, fault);
        }

        /// How many calls were made.
        pub(crate) fn calls(&self) -> u64 {
            self.0.lock().unwrap_or_else(PoisonError::into_inner).0
        }

        pub(super) fn call(&self) -> Result<()> {
            let (calls, fault) = &mut *self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let this = *calls;
            *calls += 1;
            match *fault {
                Fault::Crash(from) if this >= from => Err(Errno::CANCELED),
                Fault::Error(at, errno) if this == at => Err(errno),
                _ => Ok(()),
            }
        }
    }
}
