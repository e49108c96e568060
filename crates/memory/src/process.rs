//! Memory of another process of this machine, read by one copy, and which process is at the other end of a Unix socket.

use std::{
    io::{self, IoSliceMut},
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

/// A range of the memory of a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ProcessRange {
    /// Its first address; nothing is assumed of it.
    pub address: u64,
    /// Its length in bytes.
    pub bytes: usize,
}

/// The most ranges of one call.
const PROCESS_RANGES_MAX: usize = 4;

/// Copies ranges of the memory of process `pid`, one after another in this order, into `into`, by one
/// system call (`process_vm_readv`): all of them from the same address space. Returns the number of bytes
/// that were copied, which is less than was asked for if a range or a part of `into` cannot be accessed.
///
/// Does not wait for that process, but for its memory: a page of a file on a file system that hangs
/// blocks the caller. The bytes are whatever is there at that time.
///
/// Errors: the process is gone (`ESRCH`), the first byte cannot be accessed (`EFAULT`), this process may
/// not read its memory (`EPERM`), this kernel has no such call (`ENOSYS`); more than 4 ranges.
pub fn copy_from_process(
    pid: u32,
    from: &[ProcessRange],
    into: &mut [IoSliceMut<'_>],
) -> io::Result<usize> {
    let pid = libc::pid_t::try_from(pid).map_err(|_| io::Error::from_raw_os_error(libc::ESRCH))?;
    if from.len() > PROCESS_RANGES_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut remote =
        [libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; PROCESS_RANGES_MAX];
    for (vector, range) in remote.iter_mut().zip(from) {
        let Ok(address) = usize::try_from(range.address) else {
            return Err(io::Error::from_raw_os_error(libc::EFAULT));
        };
        vector.iov_base = std::ptr::without_provenance_mut(address);
        vector.iov_len = range.bytes;
    }
    // SAFETY: the kernel writes to `into` only, whose slices are valid and exclusively borrowed, and which
    // has the layout of an array of `iovec` (documented at `IoSliceMut`). It reads `remote`, which is
    // valid for as many elements, and only looks up the addresses in it, in the other process.
    let copied = unsafe {
        libc::process_vm_readv(
            pid,
            into.as_mut_ptr().cast::<libc::iovec>(),
            into.len() as libc::c_ulong,
            remote.as_ptr(),
            from.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(copied).map_err(|_| io::Error::last_os_error())
}

/// What the kernel has noted of a process when that connected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerCredentials {
    /// Its number in the caller's namespace of processes; 0 if it is not visible there.
    pub pid: i32,
    /// Its effective user, in the caller's user namespace.
    pub uid: u32,
    /// Its effective group, in the caller's user namespace.
    pub gid: u32,
}

/// Returns which process has made a connection that was accepted from a listening Unix socket (`SO_PEERCRED`).
///
/// Errors: those of `getsockopt`.
pub fn peer_credentials(socket: BorrowedFd<'_>) -> io::Result<PeerCredentials> {
    // Not by rustix, whose type has no value for the number 0.
    let mut found = libc::ucred { pid: 0, uid: 0, gid: 0 };
    // SAFETY: it has nothing but integers.
    unsafe { socket_option(socket, libc::SO_PEERCRED, &mut found) }?;
    Ok(PeerCredentials { pid: found.pid, uid: found.uid, gid: found.gid })
}

/// Returns a handle (pidfd) of the process that has made a connection, or begun to listen, at whose other end this Unix socket
/// is (`SO_PEERPIDFD`): of that process, whatever has its number now.
///
/// Errors: those of `getsockopt`; `ENOPROTOOPT` before Linux 6.5.
pub(crate) fn peer_handle(socket: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    let mut handle: libc::c_int = -1;
    // SAFETY: it is an integer.
    unsafe { socket_option(socket, libc::SO_PEERPIDFD, &mut handle) }?;
    // SAFETY: the kernel has opened this descriptor for the caller, who is its only owner.
    Ok(unsafe { OwnedFd::from_raw_fd(handle) })
}

/// Reads an option of a socket. Errors: those of `getsockopt`.
///
/// # Safety
/// All bytes make a `T`.
unsafe fn socket_option<T>(socket: BorrowedFd<'_>, option: i32, found: &mut T) -> io::Result<()> {
    let mut bytes = size_of::<T>() as libc::socklen_t;
    // SAFETY: the kernel writes up to `bytes` bytes to `found`, which is as long, exclusively borrowed and of a type for
    // which any bytes will do, and writes to `bytes`; the descriptor is open.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            option,
            std::ptr::from_mut(found).cast(),
            &raw mut bytes,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(bytes: &[u8]) -> ProcessRange {
        ProcessRange { address: bytes.as_ptr().addr() as u64, bytes: bytes.len() }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no other process")]
    fn ranges_are_copied_in_order() {
        let (one, other) = (vec![1_u8; 5000], [2_u8; 3]);
        let (mut first, mut second) = (vec![0; 4999], [0; 4]);
        let into = &mut [IoSliceMut::new(&mut first), IoSliceMut::new(&mut second)];
        let copied = copy_from_process(std::process::id(), &[range(&one), range(&other)], into);
        if copied.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::ENOSYS)) {
            eprintln!("SKIPPED: this kernel has no process_vm_readv");
            return;
        }
        assert_eq!(copied.unwrap(), 5003);
        assert!(first.iter().all(|&byte| byte == 1));
        assert_eq!(second, [1, 2, 2, 2]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no other process")]
    fn what_cannot_be_read_is_an_error() {
        let mut into = [0; 8];
        let mut copy = |pid, address| {
            let from = [ProcessRange { address, bytes: 8 }];
            copy_from_process(pid, &from, &mut [IoSliceMut::new(&mut into)])
        };
        for address in [0, 1, u64::MAX, u64::MAX - 8, 1 << 63] {
            assert!(copy(std::process::id(), address).is_err(), "{address}");
        }
        // Processes have lower numbers.
        assert!(copy(i32::MAX as u32, 4096).is_err() && copy(u32::MAX, 4096).is_err());
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no such socket option")]
    fn the_kernel_names_the_peer() {
        use std::os::{fd::AsFd, unix::fs::MetadataExt};
        let (one, _other) = std::os::unix::net::UnixStream::pair().unwrap();
        let found = peer_credentials(one.as_fd()).unwrap();
        let own = std::fs::metadata("/proc/self").unwrap();
        let expected = (std::process::id() as i32, own.uid(), own.gid());
        assert_eq!((found.pid, found.uid, found.gid), expected);
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(peer_credentials(file.as_fd()).is_err());
    }
}
