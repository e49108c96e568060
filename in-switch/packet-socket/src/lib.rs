//! Ethernet frames to and from a network interface, through packet sockets (Linux, `packet(7)`).
//!
//! What the kernel would do with the frames it still does: a packet socket sees copies of what comes
//! in, before the kernel's own network stack. Needs CAP_NET_RAW.

mod receive;

use std::{
    io::{self, IoSlice},
    ops::Range,
    os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd},
    time::Duration,
};

use receive::{Control, receive_many};
use rustix::{
    event::{PollFd, PollFlags, poll},
    net::{SendAncillaryBuffer, SendFlags},
};

/// Frames that can be received in one go.
pub const BATCH: usize = 32;
/// The longest frame, if it is still to be cut into packets.
const FRAME_BYTES_MAX: usize = 65_536 + 256;
const OFFLOAD_BYTES: usize = 10;
const ADDRESSES_BYTES: usize = 12;
const TAG_BYTES: usize = 4;
/// Room for a tag that is put back, for the offload header, and for the frame.
const PLACE_BYTES: usize = TAG_BYTES + OFFLOAD_BYTES + FRAME_BYTES_MAX;

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

/// All frames that come in at an interface, and frames that leave by it.
///
/// One thread may receive while others send.
#[derive(Debug)]
pub struct Interface {
    socket: OwnedFd,
    index: u32,
    mac: [u8; 6],
}

/// What a frame's sender left to the network card: a checksum, or to cut it into packets.
///
/// Between interfaces of one machine frames travel with such work undone; it has to go on with them.
/// The kernel's `virtio_net_hdr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Offload([u8; OFFLOAD_BYTES]);

impl Offload {
    /// Everything in the frame is as it has to be.
    pub const NONE: Self = Self([0; OFFLOAD_BYTES]);
    const NEEDS_CHECKSUM: u8 = 1;

    /// The frame has become longer before what is to be done.
    fn moved(mut self, bytes: u16) -> Self {
        if self.0[0] & Self::NEEDS_CHECKSUM != 0 {
            let start = u16::from_ne_bytes([self.0[6], self.0[7]]) + bytes;
            self.0[6..8].copy_from_slice(&start.to_ne_bytes());
        }
        self
    }
}

/// What has been received, in memory that is used again.
pub struct Batch {
    room: Vec<u8>,
    frames: Vec<(Offload, Range<usize>)>,
}

impl Default for Batch {
    fn default() -> Self {
        Self::new()
    }
}

impl Batch {
    /// Without frames, and without memory until some are received.
    #[must_use]
    pub const fn new() -> Self {
        Self { room: Vec::new(), frames: Vec::new() }
    }

    /// Frames from their Ethernet header on, in the order in which they came.
    pub fn frames(&self) -> impl Iterator<Item = (Offload, &[u8])> {
        self.frames.iter().map(|(offload, range)| (*offload, &self.room[range.clone()]))
    }

    /// What was received at a place: puts back the VLAN tag that the kernel took out.
    fn keep(&mut self, place: usize, bytes: usize, tag: Option<[u8; TAG_BYTES]>) {
        let begin = place * PLACE_BYTES + TAG_BYTES;
        let Some(frame_bytes) = bytes.checked_sub(OFFLOAD_BYTES) else { return };
        let mut offload = Offload::NONE;
        offload.0.copy_from_slice(&self.room[begin..begin + OFFLOAD_BYTES]);
        let mut range = begin + OFFLOAD_BYTES..begin + OFFLOAD_BYTES + frame_bytes;
        if let Some(tag) = tag.filter(|_| frame_bytes > ADDRESSES_BYTES) {
            let addresses = range.start..range.start + ADDRESSES_BYTES;
            range.start -= TAG_BYTES;
            self.room.copy_within(addresses, range.start);
            let tag_at = range.start + ADDRESSES_BYTES;
            self.room[tag_at..tag_at + TAG_BYTES].copy_from_slice(&tag);
            offload = offload.moved(TAG_BYTES as u16);
        }
        self.frames.push((offload, range));
    }
}

impl Interface {
    /// Opens an interface by its name. Frames that leave by it are not seen; those for others are,
    /// if `promiscuous`.
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
        let index = rustix::net::netdevice::name_to_index(&socket, name)
            .map_err(|error| failed("find it")(error.into()))?;
        let mut interface = Self { socket, index, mac: [0; 6] };
        for option in [libc::PACKET_IGNORE_OUTGOING, libc::PACKET_AUXDATA, libc::PACKET_VNET_HDR] {
            interface.set(option, 1_i32).map_err(failed("set it up"))?;
        }
        if promiscuous {
            interface.join_all().map_err(failed("listen to all frames"))?;
        }
        interface.bind(protocol).map_err(failed("listen"))?;
        interface.mac = interface.read_mac().map_err(failed("read its Ethernet address"))?;
        Ok(interface)
    }

    /// The interface's number.
    #[must_use]
    pub const fn index(&self) -> u32 {
        self.index
    }

    /// The interface's Ethernet address.
    #[must_use]
    pub const fn mac(&self) -> [u8; 6] {
        self.mac
    }

    /// Makes room for frames that have not been read yet: for so many bytes, or as many as this process may
    /// have. Answers for how many; the kernel counts its own notes on each frame, too.
    ///
    /// Errors: the system refuses.
    pub fn reserve(&self, bytes: usize) -> io::Result<usize> {
        use rustix::net::sockopt::{
            set_socket_recv_buffer_size, set_socket_recv_buffer_size_force, socket_recv_buffer_size,
        };
        // More than everybody may have takes CAP_NET_ADMIN.
        if set_socket_recv_buffer_size_force(&self.socket, bytes).is_err() {
            set_socket_recv_buffer_size(&self.socket, bytes)?;
        }
        Ok(socket_recv_buffer_size(&self.socket)?)
    }

    /// The most bytes that a frame may have behind its Ethernet header.
    ///
    /// Errors: the interface is gone.
    pub fn mtu_bytes(&self) -> io::Result<u32> {
        use std::os::fd::AsRawFd;
        let name = rustix::net::netdevice::index_to_name_inlined(&self.socket, self.index)?;
        // SAFETY: all zeros are a request without a name.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (to, from) in request.ifr_name.iter_mut().zip(name.as_bytes()) {
            *to = *from as libc::c_char;
        }
        // SAFETY: the descriptor is open, and the pointer is to a request, whose name ends with a
        // zero since the kernel has given it.
        let result = unsafe {
            libc::ioctl(self.socket.as_raw_fd(), libc::SIOCGIFMTU as _, &raw mut request)
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the kernel has just written this member of the union.
        Ok(unsafe { request.ifr_ifru.ifru_mtu }.unsigned_abs())
    }

    fn read_mac(&self) -> io::Result<[u8; 6]> {
        use std::os::fd::AsRawFd;
        let mut address = link_address(0, 0);
        let mut bytes = size_of_val(&address) as libc::socklen_t;
        // SAFETY: the descriptor is open, and the pointers are to an address and its length.
        let result = unsafe {
            libc::getsockname(self.socket.as_raw_fd(), (&raw mut address).cast(), &raw mut bytes)
        };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        let mut mac = [0; 6];
        if usize::from(address.sll_halen) != mac.len() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it is no Ethernet interface"));
        }
        mac.copy_from_slice(&address.sll_addr[..6]);
        Ok(mac)
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

    /// Sends a frame, from its Ethernet header on, with what is still to be done to it. Waits neither
    /// for room nor for anybody.
    ///
    /// Errors: the interface is down or gone, the frame is too long, or there is no room now
    /// ([`io::ErrorKind::WouldBlock`], ENOBUFS).
    pub fn send(&self, offload: Offload, frame: &[u8]) -> io::Result<()> {
        let parts = [IoSlice::new(&offload.0), IoSlice::new(frame)];
        let (mut control, flags) = (SendAncillaryBuffer::default(), SendFlags::DONTWAIT);
        rustix::net::sendmsg(&self.socket, &parts, &mut control, flags)?;
        Ok(())
    }

    /// Receives what has come, in `batch`, and answers how many frames that is. Waits for so long
    /// if there is nothing.
    ///
    /// Errors: the interface is down or gone.
    pub fn receive(&self, batch: &mut Batch, patience: Duration) -> io::Result<usize> {
        if self.drain(batch)? > 0 || patience.is_zero() {
            return Ok(batch.frames.len());
        }
        let deadline = patience.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&deadline)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => self.drain(batch),
            Err(error) => Err(error.into()),
        }
    }

    fn drain(&self, batch: &mut Batch) -> io::Result<usize> {
        batch.frames.clear();
        // Filled with zeros only once.
        batch.room.resize(BATCH * PLACE_BYTES, 0);
        let mut control = [Control::EMPTY; BATCH];
        let mut lengths = [0; BATCH];
        let received = receive_many(&self.socket, &mut batch.room, &mut control, &mut lengths)?;
        for place in 0..received {
            batch.keep(place, lengths[place], control[place].tag());
        }
        Ok(batch.frames.len())
    }
}

/// All frames of a protocol, in the network's order, at an interface.
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
