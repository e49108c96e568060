//! The system calls by which a receiver makes, changes and names files in one directory.
//!
//! They are all here, so that tests can end a session before any one of them, as a kill does, or let one fail.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, Permissions},
    io::{self, Read, Seek, SeekFrom},
    os::fd::OwnedFd,
    os::unix::{
        ffi::OsStrExt,
        fs::{FileExt, PermissionsExt},
    },
    sync::Arc,
    time::SystemTime,
};

use rustix::{
    fs::{
        AtFlags, Dir, FallocateFlags, FileType, FlockOperation, Mode, OFlags, Stat, StatVfs,
        fallocate, flock, fstat, fstatvfs, fsync, openat, renameat, statat, unlinkat,
    },
    io::{Errno, Result},
};

use crate::ranges::ByteRange;

/// A directory that is held open; clones share it. Names are of files in it, and no call follows a
/// symbolic link of such a name unless it says so.
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

    #[cfg(any(test, fuzzing))]
    pub(crate) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Never waits for the other end of a pipe.
    pub(crate) fn open(&self, name: &OsStr, flags: OFlags) -> Result<File> {
        self.call()?;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(openat(&*self.directory, name, flags, Mode::empty())?.into())
    }

    /// Makes a file for reading and writing. Errors: [`Errno::EXIST`] if the name is taken.
    pub(crate) fn create(&self, name: &OsStr, mode: u32) -> Result<File> {
        self.call()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        Ok(openat(&*self.directory, name, flags, Mode::from_raw_mode(mode))?.into())
    }

    pub(crate) fn unlink(&self, name: &OsStr) -> Result<()> {
        self.call()?;
        unlinkat(&*self.directory, name, AtFlags::empty())
    }

    /// Whatever has the new name is replaced in one step.
    pub(crate) fn rename(&self, old: &OsStr, new: &OsStr) -> Result<()> {
        self.call()?;
        renameat(&*self.directory, old, &*self.directory, new)
    }

    /// All names, as far as they can be read.
    pub(crate) fn names(&self) -> Vec<OsString> {
        let Ok(entries) = Dir::read_from(&*self.directory) else { return Vec::new() };
        let name = |entry: rustix::fs::DirEntry| {
            OsStr::from_bytes(entry.file_name().to_bytes()).to_owned()
        };
        entries.flatten().map(name).collect()
    }

    /// What has the name, or what a link of that name leads to.
    pub(crate) fn kind(&self, name: &OsStr) -> Option<FileType> {
        let stat = statat(&*self.directory, name, AtFlags::empty()).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    /// Whether the name leads to this file, and not to another that has it now.
    pub(crate) fn is_named(&self, file: &File, name: &OsStr) -> bool {
        let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
        let named = statat(&*self.directory, name, AtFlags::SYMLINK_NOFOLLOW).map(identity);
        named.is_ok() && named == fstat(file).map(identity)
    }

    /// Writes to disk which names there are.
    pub(crate) fn sync_names(&self) -> Result<()> {
        self.call()?;
        fsync(&*self.directory)
    }

    /// Writes a file to disk, with its mode and times.
    pub(crate) fn sync(&self, file: &File) -> Result<()> {
        self.call()?;
        fsync(file)
    }

    /// Locks a file against all other descriptors, until this one is closed. Errors:
    /// [`Errno::WOULDBLOCK`] if it is locked.
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

    /// Reserves the first bytes of a file, and makes it that long if it is shorter.
    pub(crate) fn reserve(&self, file: &File, bytes: u64) -> Result<()> {
        self.call()?;
        fallocate(file, FallocateFlags::empty(), 0, bytes)
    }

    pub(crate) fn write(&self, file: &File, bytes: &[u8], offset: u64) -> Result<()> {
        self.call()?;
        file.write_all_at(bytes, offset).map_err(errno)
    }

    /// Copies a range of one file to the same place in another; shared instead, where the file system can.
    /// Errors: the first file is shorter.
    pub(crate) fn copy(&self, from: &File, to: &File, (start, end): ByteRange) -> Result<()> {
        self.call()?;
        let (mut from, mut to) = (from, to);
        from.seek(SeekFrom::Start(start)).map_err(errno)?;
        to.seek(SeekFrom::Start(start)).map_err(errno)?;
        let copied = io::copy(&mut from.take(end - start), &mut to).map_err(errno)?;
        if copied == end - start { Ok(()) } else { Err(Errno::IO) }
    }

    /// What the file system has free.
    pub(crate) fn free(&self) -> Result<StatVfs> {
        fstatvfs(&*self.directory)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
}

/// What tests do to a disk.
#[cfg(test)]
pub(crate) mod faults {
    use std::sync::{Arc, Mutex, PoisonError};

    use super::{Errno, Result};

    /// Which call fails, counted from 0.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    pub(crate) enum Fault {
        #[default]
        None,
        /// This call and all after it do nothing: the process is dead.
        Crash(u64),
        /// This one fails; those after it do not.
        Error(u64, Errno),
    }

    /// Clones share what they count.
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
