//! Properties of an interface, by `ioctl` (`netdevice(7)`), in the network namespace of the socket.

use std::{
    io,
    os::fd::{AsFd, AsRawFd},
};

use rustix::net::{AddressFamily, SocketFlags, SocketType, netdevice::name_to_index, socket_with};

/// Length of an Ethernet address.
const MAC_BYTES: usize = 6;

/// The Ethernet address of an interface of this thread's network namespace. Needs no privilege.
///
/// Errors: there is no such interface, or it is not an Ethernet interface; both name it.
pub fn ethernet_address(interface: &str) -> io::Result<[u8; MAC_BYTES]> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{interface}: {error}"));
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    name_to_index(&socket, interface).map_err(|error| named(error.into()))?;
    mac(&socket, interface).map_err(named)
}

/// The Ethernet address of an interface.
pub(crate) fn mac(socket: impl AsFd, name: &str) -> io::Result<[u8; MAC_BYTES]> {
    let answer = ask(socket, name, libc::SIOCGIFHWADDR)?;
    // SAFETY: the kernel has just written this member of the union.
    let address = unsafe { answer.ifr_ifru.ifru_hwaddr };
    if ![libc::ARPHRD_ETHER, libc::ARPHRD_LOOPBACK].contains(&address.sa_family) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "it is not an Ethernet interface"));
    }
    let mut mac = [0; MAC_BYTES];
    for (to, from) in mac.iter_mut().zip(address.sa_data) {
        *to = from as u8;
    }
    Ok(mac)
}

/// An interface's MTU.
pub(crate) fn mtu_bytes(socket: impl AsFd, name: &str) -> io::Result<u32> {
    let answer = ask(socket, name, libc::SIOCGIFMTU)?;
    // SAFETY: the kernel has just written this member of the union.
    Ok(unsafe { answer.ifr_ifru.ifru_mtu }.unsigned_abs())
}

/// The kernel's answer to a request for something of an interface.
fn ask(socket: impl AsFd, name: &str, what: libc::c_ulong) -> io::Result<libc::ifreq> {
    // SAFETY: all zeros are a request without a name.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    if name.len() > room {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
        *to = *from as libc::c_char;
    }
    // SAFETY: the descriptor is open, and the pointer is to a request, whose name ends with a zero
    // since it is shorter than its room.
    let result = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), what as _, &raw mut request) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(request) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_are_named_that_have_no_address() {
        assert_eq!(ethernet_address("lo").unwrap(), [0; MAC_BYTES]);
        for name in ["none-such", "a-name-that-no-interface-can-have"] {
            let why = ethernet_address(name).unwrap_err().to_string();
            assert!(why.starts_with(name), "{why}");
        }
    }
}
