//! The system calls by which a receiver changes files.
//!
//! They are in one place so that tests can end a session before any of them, or let one fail.

use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    num::NonZeroU64,
    ops::Range,
    os::{
        fd::{AsFd, AsRawFd, OwnedFd},
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    sync::Arc,
};

#[cfg(not(test))]
use rustix::io::{ReadWriteFlags, preadv2};
use rustix::{
    buffer::spare_capacity,
    fs::{
        Access, Advice, AtFlags, CWD, Dir, FallocateFlags, FileType, FlockOperation, Gid, Mode,
        OFlags, RenameFlags, Stat, StatVfs, StatxAttributes, StatxFlags, Timespec, Timestamps,
        UTIME_OMIT, Uid, XattrFlags, accessat, chmodat, chownat, fadvise, fallocate, fchmod,
        fchown, fgetxattr, flistxattr, flock, fremovexattr, fsetxattr, fstat, fstatfs, fstatvfs,
        fsync, ftruncate, futimens, getxattr, linkat, listxattr, mkdirat, openat, readlinkat,
        removexattr, renameat, renameat_with, setxattr, statat, statx, symlinkat, syncfs, unlinkat,
        utimensat,
    },
    io::{Errno, Result},
};

#[cfg(any(test, feature = "simulation"))]
use crate::faults::Faults;
#[cfg(not(any(test, feature = "simulation")))]
use crate::no_faults::Faults;
use crate::ranges::ByteRange;

/// The most that Linux has: names of extended attributes of a file together, and one value.
const EXTENDED_BYTES_MAX: usize = 64 << 10;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW);

/// Calls on what is open; clones share injected faults.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disk {
    /// What tests inject.
    pub(crate) faults: Faults,
}

impl Disk {
    fn call(&self) -> Result<()> {
        self.faults.call()
    }

    /// Writes a file or a directory to disk, including mode and times.
    pub(crate) fn sync(&self, file: impl AsFd) -> Result<()> {
        self.call()?;
        fsync(file)
    }

    /// Writes the whole file system to disk on which this is.
    pub(crate) fn sync_file_system(&self, file: impl AsFd) -> Result<()> {
        self.call()?;
        syncfs(file)
    }

    /// Locks a file until this descriptor is closed. Errors: [`Errno::WOULDBLOCK`] if it is locked.
    pub(crate) fn lock(&self, file: &File) -> Result<()> {
        self.call()?;
        flock(file, FlockOperation::NonBlockingLockExclusive)
    }

    /// Sets the mode of what is open, also with `O_PATH`.
    pub(crate) fn set_mode(&self, file: impl AsFd, mode: u32) -> Result<()> {
        self.call()?;
        let mode = Mode::from_raw_mode(mode);
        if let Some(path) = self.faults.path_of(&file) {
            return chmodat(CWD, path, mode, AtFlags::empty());
        }
        match fchmod(&file, mode) {
            Err(Errno::BADF) => chmodat(CWD, by_descriptor(file), mode, AtFlags::empty()),
            set => set,
        }
    }

    /// The attributes of what is open.
    pub(crate) fn stat(&self, file: impl AsFd) -> Result<Stat> {
        Ok(self.faults.seen(fstat(file)?))
    }

    /// Sets the modification time of what is open, also with `O_PATH`: nanoseconds since 1970.
    pub(crate) fn set_modified_ns(&self, file: impl AsFd, modified_ns: i64) -> Result<()> {
        self.call()?;
        let times = times(modified_ns);
        match futimens(&file, &times) {
            Err(Errno::BADF) => utimensat(CWD, by_descriptor(file), &times, AtFlags::empty()),
            set => set,
        }
    }

    /// Sets the group of what is open, also with `O_PATH`.
    pub(crate) fn set_group(&self, file: impl AsFd, group: u32) -> Result<()> {
        self.call()?;
        let group = Some(Gid::from_raw(group));
        match fchown(&file, None, group) {
            Err(Errno::BADF) => chownat(CWD, by_descriptor(file), None, group, AtFlags::empty()),
            set => set,
        }
    }

    /// Sets owner or group of what is open, also with `O_PATH`, and also of links.
    pub(crate) fn set_owner(
        &self,
        file: impl AsFd,
        owner: Option<u32>,
        group: Option<u32>,
    ) -> Result<()> {
        self.call()?;
        let (owner, group) = (owner.map(Uid::from_raw), group.map(Gid::from_raw));
        chownat(file, "", owner, group, AtFlags::EMPTY_PATH)
    }

    /// The names of the extended attributes of what is open, also with `O_PATH`; none where the file system has none.
    pub(crate) fn extended_names(file: impl AsFd) -> Result<Vec<Vec<u8>>> {
        let mut names = Vec::with_capacity(EXTENDED_BYTES_MAX);
        let found = match flistxattr(&file, spare_capacity(&mut names)) {
            Err(Errno::BADF) => listxattr(by_descriptor(&file), spare_capacity(&mut names)),
            found => found,
        };
        match found {
            Ok(_) => {
                let names = names.split(|&byte| byte == 0).filter(|name| !name.is_empty());
                Ok(names.map(<[u8]>::to_vec).collect())
            }
            Err(Errno::NOTSUP | Errno::NOSYS) => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// The value of an extended attribute of what is open, also with `O_PATH`.
    pub(crate) fn extended(file: impl AsFd, name: &[u8]) -> Result<Vec<u8>> {
        let mut value = Vec::with_capacity(EXTENDED_BYTES_MAX);
        match fgetxattr(&file, name, spare_capacity(&mut value)) {
            Err(Errno::BADF) => getxattr(by_descriptor(&file), name, spare_capacity(&mut value)),
            found => found,
        }?;
        Ok(value)
    }

    /// Sets an extended attribute of what is open, also with `O_PATH`.
    pub(crate) fn set_extended(&self, file: impl AsFd, name: &[u8], value: &[u8]) -> Result<()> {
        self.call()?;
        match fsetxattr(&file, name, value, XattrFlags::empty()) {
            Err(Errno::BADF) => setxattr(by_descriptor(&file), name, value, XattrFlags::empty()),
            set => set,
        }
    }

    /// Removes an extended attribute of what is open, also with `O_PATH`.
    pub(crate) fn remove_extended(&self, file: impl AsFd, name: &[u8]) -> Result<()> {
        self.call()?;
        match fremovexattr(&file, name) {
            Err(Errno::BADF) => removexattr(by_descriptor(&file), name),
            removed => removed,
        }
    }

    pub(crate) fn set_len(&self, file: &File, bytes: u64) -> Result<()> {
        self.call()?;
        ftruncate(file, bytes)
    }

    /// Reserves space for a range of a file; extends it if it is shorter.
    pub(crate) fn reserve(&self, file: &File, range: Range<u64>) -> Result<()> {
        self.call()?;
        fallocate(file, FallocateFlags::empty(), range.start, range.end - range.start)
    }

    pub(crate) fn write(&self, file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.call()?;
        file.write_all_at(bytes, offset)
    }

    /// Copies a range of one file to the same offset of another, by sharing extents where the file system can.
    /// Errors: the first file is too short.
    pub(crate) fn copy(&self, from: &File, to: &File, (start, end): ByteRange) -> io::Result<()> {
        self.call()?;
        let (mut from, mut to) = (from, to);
        from.seek(SeekFrom::Start(start))?;
        to.seek(SeekFrom::Start(start))?;
        let copied = io::copy(&mut from.take(end - start), &mut to)?;
        if copied == end - start { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

/// The path of what a descriptor with `O_PATH` stands for, whatever has its name now.
fn by_descriptor(file: impl AsFd) -> String {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd())
}

fn times(modified_ns: i64) -> Timestamps {
    let second = 1_000_000_000;
    Timestamps {
        last_access: Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        last_modification: Timespec {
            tv_sec: modified_ns.div_euclid(second),
            tv_nsec: modified_ns.rem_euclid(second),
        },
    }
}

/// A directory that is held open; clones share it. All names are names in it; symbolic links are not followed unless
/// documented.
#[derive(Clone, Debug)]
pub(crate) struct Directory {
    opened: Arc<OwnedFd>,
    disk: Disk,
}

impl Directory {
    pub(crate) fn new(opened: OwnedFd) -> Self {
        Self { opened: Arc::new(opened), disk: Disk::default() }
    }

    /// Another directory, with the same injected faults.
    pub(crate) fn beside(&self, opened: OwnedFd) -> Self {
        Self { opened: Arc::new(opened), disk: self.disk.clone() }
    }

    pub(crate) fn disk(&self) -> &Disk {
        &self.disk
    }

    pub(crate) fn as_fd(&self) -> &OwnedFd {
        &self.opened
    }

    /// A name by which something has to be found or made, before a call that changes something or opens it.
    fn named<'n>(&self, name: &'n OsStr) -> Result<Cow<'n, OsStr>> {
        self.disk.faults.call_on(name)?;
        Ok(self.name(name))
    }

    fn name<'n>(&self, name: &'n OsStr) -> Cow<'n, OsStr> {
        self.disk.faults.name(&self.opened, name)
    }

    /// Its own attributes.
    pub(crate) fn own_stat(&self) -> Result<Stat> {
        fstat(&*self.opened)
    }

    /// Does not block on a FIFO.
    pub(crate) fn open(&self, name: &OsStr, flags: OFlags) -> Result<File> {
        let name = &*self.named(name)?;
        let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(openat(&*self.opened, name, flags, Mode::empty())?.into())
    }

    /// Opens a directory in it.
    ///
    /// Errors: [`Errno::LOOP`] or [`Errno::NOTDIR`] for a symbolic link.
    pub(crate) fn open_directory(&self, name: &OsStr) -> Result<Self> {
        let name = &*self.named(name)?;
        let opened = openat(&*self.opened, name, DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        Ok(self.beside(opened))
    }

    /// Creates a file for reading and writing. Errors: [`Errno::EXIST`] if the name exists.
    pub(crate) fn create(&self, name: &OsStr, mode: u32) -> Result<File> {
        let name = &*self.named(name)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let flags = self.disk.faults.creating(flags);
        Ok(openat(&*self.opened, name, flags, Mode::from_raw_mode(mode))?.into())
    }

    /// Makes a directory; the mode is limited by the umask.
    pub(crate) fn make_directory(&self, name: &OsStr, mode: u32) -> Result<()> {
        let name = &*self.named(name)?;
        mkdirat(&*self.opened, name, Mode::from_raw_mode(mode))
    }

    /// Makes a symbolic link.
    pub(crate) fn make_link(&self, name: &OsStr, target: &OsStr) -> Result<()> {
        let name = &*self.named(name)?;
        symlinkat(target, &*self.opened, name)
    }

    /// Gives a file a further name, in this directory or another one.
    pub(crate) fn link(&self, name: &OsStr, to: &Self, new: &OsStr) -> Result<()> {
        let new = &*to.named(new)?;
        let name = &*self.name(name);
        linkat(&*self.opened, name, &*to.opened, new, AtFlags::empty())
    }

    pub(crate) fn unlink(&self, name: &OsStr) -> Result<()> {
        let name = &*self.named(name)?;
        unlinkat(&*self.opened, name, AtFlags::empty())
    }

    /// Removes an empty directory.
    pub(crate) fn remove_directory(&self, name: &OsStr) -> Result<()> {
        let name = &*self.named(name)?;
        unlinkat(&*self.opened, name, AtFlags::REMOVEDIR)
    }

    /// Replaces what has the new name, atomically.
    pub(crate) fn rename(&self, old: &OsStr, to: &Self, new: &OsStr) -> Result<()> {
        let new = &*to.named(new)?;
        let old = &*self.name(old);
        renameat(&*self.opened, old, &*to.opened, new)
    }

    /// With [`RenameFlags`]. Errors: [`Errno::INVAL`] where the file system does not know them.
    pub(crate) fn rename_with(
        &self,
        old: &OsStr,
        to: &Self,
        new: &OsStr,
        flags: RenameFlags,
    ) -> Result<()> {
        let new = &*to.named(new)?;
        let old = &*self.name(old);
        let flags = self.disk.faults.renaming(flags);
        match renameat_with(&*self.opened, old, &*to.opened, new, flags) {
            Err(Errno::EXIST) if self.disk.faults.links_early() => {
                unlinkat(&*self.opened, old, AtFlags::empty())
            }
            renamed => renamed,
        }
    }

    /// Sets the modification time of a symbolic link itself.
    pub(crate) fn set_link_modified_ns(&self, name: &OsStr, modified_ns: i64) -> Result<()> {
        let name = &*self.named(name)?;
        utimensat(&*self.opened, name, &times(modified_ns), AtFlags::SYMLINK_NOFOLLOW)
    }

    /// Opens a file or directory only to change or examine its attributes, whatever its mode.
    pub(crate) fn open_path(&self, name: &OsStr) -> Result<OwnedFd> {
        let name = &*self.named(name)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        openat(&*self.opened, name, flags, Mode::empty())
    }

    /// All names in it but `.` and `..`.
    pub(crate) fn names(&self) -> Result<Vec<OsString>> {
        // A descriptor of its own: reading moves its position.
        let reader = openat(&*self.opened, ".", DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let mut names = Vec::new();
        for entry in Dir::new(reader)? {
            let entry = entry?;
            let name = entry.file_name().to_bytes();
            if name != b"." && name != b".." {
                names.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(names)
    }

    /// The attributes of the file of this name, of a link its own.
    pub(crate) fn stat(&self, name: &OsStr) -> Result<Stat> {
        let name = &*self.name(name);
        let stat = statat(&*self.opened, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(self.disk.faults.seen(stat))
    }

    /// Where the symbolic link of this name leads.
    pub(crate) fn read_link(&self, name: &OsStr) -> Result<Vec<u8>> {
        let name = &*self.name(name);
        readlinkat(&*self.opened, name, Vec::new()).map(std::ffi::CString::into_bytes)
    }

    /// The type of the file of this name; follows links.
    pub(crate) fn kind(&self, name: &OsStr) -> Option<FileType> {
        let name = &*self.name(name);
        let stat = statat(&*self.opened, name, AtFlags::empty()).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    /// Whether the entry of this name is immutable or append-only (chattr(1)). Neither it nor, if it is a directory, its entries can
    /// then be renamed, replaced or removed, by root either.
    pub(crate) fn is_immutable(&self, name: &OsStr) -> bool {
        let fixed = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
        self.attributes(name).is_some_and(|attributes| attributes.intersects(fixed))
    }

    /// The same of this directory itself.
    pub(crate) fn is_itself_immutable(&self) -> bool {
        self.is_immutable(OsStr::new("."))
    }

    /// Errors: this user may not make or remove names in it.
    pub(crate) fn check_writable(&self) -> Result<()> {
        accessat(&*self.opened, ".", Access::WRITE_OK | Access::EXEC_OK, AtFlags::EACCESS)
    }

    /// Whether something is mounted on the directory of this name; false before Linux 5.8.
    pub(crate) fn is_mount(&self, name: &OsStr) -> bool {
        self.attributes(name).is_some_and(|it| it.contains(StatxAttributes::MOUNT_ROOT))
    }

    fn attributes(&self, name: &OsStr) -> Option<StatxAttributes> {
        let name = &*self.name(name);
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let found = statx(&*self.opened, name, flags, StatxFlags::TYPE).ok()?;
        Some(found.stx_attributes)
    }

    /// Whether the name still is that of this file.
    pub(crate) fn is_named(&self, file: &File, name: &OsStr) -> bool {
        let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
        let named = self.stat(name).map(identity);
        named.is_ok() && named == fstat(file).map(identity)
    }

    /// Whether the name is that of a directory that is open. Errors: the system's.
    pub(crate) fn is_named_directory(&self, directory: &Self, name: &OsStr) -> Result<bool> {
        let identity = |stat: Stat| (stat.st_dev, stat.st_ino);
        let is_same = identity(self.stat(name)?) == identity(directory.own_stat()?);
        Ok(self.disk.faults.compared(is_same))
    }

    /// Writes the directory to disk.
    pub(crate) fn sync(&self) -> Result<()> {
        self.disk.sync(&*self.opened)
    }

    /// Whether files are in memory. Reserving space there writes zeros to all of it, which takes some 0.5 s for each GiB.
    pub(crate) fn is_memory(&self) -> bool {
        /// tmpfs and ramfs.
        const IN_MEMORY: [u64; 2] = [0x0102_1994, 0x8584_58f6];
        IN_MEMORY.into_iter().any(|kind| self.is_of_type(kind))
    }

    /// Whether its file system has this magic number (statfs(2)).
    pub(crate) fn is_of_type(&self, magic: u64) -> bool {
        fstatfs(&*self.opened).is_ok_and(|found| found.f_type as u64 == magic)
    }

    /// Statistics of the file system.
    pub(crate) fn free(&self) -> Result<StatVfs> {
        fstatvfs(&*self.opened)
    }
}

/// Starts to write a range of a file to disk. The bytes stay in memory, and errors are those of a later [`Disk::sync`].
/// May wait for the disk's queue, but not until the bytes are written. Without effect where it is not supported.
///
/// `POSIX_FADV_DONTNEED` starts writeback of dirty pages, and drops only clean ones; `sync_file_range` would need `unsafe`.
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

/// The system's error; [`Errno::IO`] for others.
#[expect(clippy::needless_pass_by_value, reason = "for map_err")]
pub(crate) fn errno(error: io::Error) -> Errno {
    Errno::from_io_error(&error).unwrap_or(Errno::IO)
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
