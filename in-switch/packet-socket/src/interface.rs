//! A network interface, by a packet socket.

use std::{
    io::{self, IoSlice},
    os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{SendAncillaryBuffer, SendFlags, netdevice},
};

use crate::{Batch, Offload, Outgoing, outgoing, query};

/// Why an interface cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("interface {name}: cannot {step}: {source}")]
pub struct InterfaceError {
    /// Its name.
    pub name: String,
    /// What was to be done.
    pub step: &'static str,
    /// Why not.
    pub source: io::Error,
}

/// Receives all frames of an interface, and sends frames.
///
/// One thread may receive while others send.
#[derive(Debug)]
pub struct Interface {
    socket: OwnedFd,
    index: u32,
    mac: [u8; 6],
}

impl Interface {
    /// Opens an interface by its name. Outgoing frames are not received; frames for other hosts are if
    /// `promiscuous`.
    pub fn open(name: &str, promiscuous: bool) -> Result<Self, InterfaceError> {
        let failed =
            |step| move |source: io::Error| InterfaceError { name: name.to_owned(), step, source };
        let protocol = (libc::ETH_P_ALL as u16).to_be();
        // SAFETY: no pointers are passed; a result that is not negative is a new descriptor of ours.
        let socket = unsafe {
            let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            // Protocol 0: nothing is received before it is bound to the interface.
            let socket = libc::socket(libc::AF_PACKET, kind, 0);
            if socket < 0 {
                return Err(failed("open a packet socket")(io::Error::last_os_error()));
            }
            OwnedFd::from_raw_fd(socket)
        };
        let index = netdevice::name_to_index(&socket, name)
            .map_err(|error| failed("find it")(error.into()))?;
        let mut interface = Self { socket, index, mac: [0; 6] };
        for option in [libc::PACKET_IGNORE_OUTGOING, libc::PACKET_AUXDATA, libc::PACKET_VNET_HDR] {
            interface.set(option, 1_i32).map_err(failed("set it up"))?;
        }
        if promiscuous {
            interface.join_all().map_err(failed("listen to all frames"))?;
        }
        interface.bind(protocol).map_err(failed("listen"))?;
        interface.mac =
            query::mac(&interface.socket, name).map_err(failed("read its Ethernet address"))?;
        Ok(interface)
    }

    /// The interface's index.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// The interface's Ethernet address.
    #[must_use]
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Sets the receive buffer's size, or the largest that this process may have. Returns the size, in which the
    /// kernel counts its bookkeeping of each frame, too.
    ///
    /// Errors: the system refuses.
    pub fn reserve(&self, bytes: usize) -> io::Result<usize> {
        use rustix::net::sockopt::{
            set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, socket_recv_buffer_size,
        };
        // Beyond net.core.rmem_max this needs CAP_NET_ADMIN.
        if set_socket_recv_buffer_size_force(&self.socket, bytes).is_err() {
            set_socket_recv_buffer_size(&self.socket, bytes)?;
        }
        Ok(socket_recv_buffer_size(&self.socket)?)
    }

    /// The interface's MTU.
    ///
    /// Errors: the interface is gone.
    pub fn mtu_bytes(&self) -> io::Result<u32> {
        let name = netdevice::index_to_name_inlined(&self.socket, self.index)?;
        query::mtu_bytes(&self.socket, name.as_str())
    }

    fn set<T: Copy>(&self, option: i32, value: T) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        // SAFETY: the descriptor is open, and the pointer is to a `T` of the length that is given.
        let result = unsafe {
            libc::setsockopt(
                self.socket.as_raw_fd(),
                libc::SOL_PACKET,
                option,
                (&raw const value).cast(),
                size_of::<T>() as libc::socklen_t,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn join_all(&self) -> io::Result<()> {
        self.set(
            libc::PACKET_ADD_MEMBERSHIP,
            libc::packet_mreq {
                mr_ifindex: self.index as i32,
                mr_type: libc::PACKET_MR_PROMISC as u16,
                mr_alen: 0,
                mr_address: [0; 8],
            },
        )
    }

    fn bind(&self, protocol: u16) -> io::Result<()> {
        use std::os::fd::AsRawFd;
        let address = link_address(protocol, self.index as i32);
        // SAFETY: the descriptor is open, and the pointer is to an address of the length that is
        // given.
        let result = unsafe {
            libc::bind(
                self.socket.as_raw_fd(),
                (&raw const address).cast(),
                size_of_val(&address) as libc::socklen_t,
            )
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Sends a frame, from its Ethernet header on, with its offloads. Does not block.
    ///
    /// Errors: the interface is down or gone, the frame is too long, or the buffer is full
    /// ([`io::ErrorKind::WouldBlock`], ENOBUFS).
    pub fn send(&self, offload: Offload, frame: &[u8]) -> io::Result<()> {
        let parts = [IoSlice::new(offload.as_bytes()), IoSlice::new(frame)];
        let (mut control, flags) = (SendAncillaryBuffer::default(), SendFlags::DONTWAIT);
        rustix::net::sendmsg(&self.socket, &parts, &mut control, flags)?;
        Ok(())
    }

    /// Sends frames in order, by as few system calls as possible. Does not block. `refused` gets the place of each that the
    /// socket did not take, for the reasons of [`Interface::send`].
    pub fn send_many(&self, frames: &[Outgoing<'_>], refused: impl FnMut(usize)) {
        outgoing::send_many(&self.socket, frames, refused);
    }

    /// As [`Interface::send_many`], but nothing is sent behind a frame that the socket refuses. Returns how many it took.
    pub fn send_some(&self, frames: &[Outgoing<'_>]) -> usize {
        outgoing::send_some(&self.socket, frames)
    }

    /// Receives frames into `batch`, and returns their number. Waits up to `timeout` if there are none.
    ///
    /// Errors: the interface is down or gone.
    pub fn receive(&self, batch: &mut Batch, timeout: Duration) -> io::Result<usize> {
        if batch.receive(&self.socket)? > 0 || timeout.is_zero() {
            return Ok(batch.len());
        }
        let deadline = timeout.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&deadline)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => batch.receive(&self.socket),
            Err(error) => Err(error.into()),
        }
    }
}

/// The address of all frames of a protocol, in network byte order, at an interface.
const fn link_address(protocol: u16, index: i32) -> libc::sockaddr_ll {
    libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: protocol,
        sll_ifindex: index,
        sll_hatype: 0,
        sll_pkttype: 0,
        sll_halen: 0,
        sll_addr: [0; 8],
    }
}

impl AsFd for Interface {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
