//! Many frames in one system call, with what the kernel says of each.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use crate::{BATCH, PLACE_BYTES, TAG_BYTES};

/// Room for a control message with a `tpacket_auxdata`, aligned as the kernel wants it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
pub(crate) struct Control([u8; 64]);

/// Length and kind of a control message (`cmsghdr`), before its data.
const CONTROL_HEAD_BYTES: usize = size_of::<libc::cmsghdr>();

impl Control {
    pub(crate) const EMPTY: Self = Self([0; 64]);

    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// The VLAN tag that the kernel took out of the frame, as it was on the wire.
    pub(crate) fn tag(&self) -> Option<[u8; TAG_BYTES]> {
        // A size_t, the level and the type.
        let level_at = size_of::<usize>();
        let is_ours = self.word(level_at) == libc::SOL_PACKET as u32
            && self.word(level_at + 4) == libc::PACKET_AUXDATA as u32;
        // tpacket_auxdata: status, length, captured length, two offsets, and the tag in two parts.
        let at = CONTROL_HEAD_BYTES;
        let status = self.word(at);
        if !is_ours || status & libc::TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        let half = |at: usize| u16::from_ne_bytes([self.0[at], self.0[at + 1]]);
        let (control, mut kind) = (half(at + 16), half(at + 18));
        if status & libc::TP_STATUS_VLAN_TPID_VALID == 0 {
            kind = libc::ETH_P_8021Q as u16;
        }
        let ([a, b], [c, d]) = (kind.to_be_bytes(), control.to_be_bytes());
        Some([a, b, c, d])
    }
}

/// Receives what there is without waiting: each into its place in `room`, behind the room for a tag.
/// Answers how many.
pub(crate) fn receive_many(
    socket: &OwnedFd,
    room: &mut [u8],
    control: &mut [Control; BATCH],
    lengths: &mut [usize; BATCH],
) -> io::Result<usize> {
    let mut places = room.chunks_exact_mut(PLACE_BYTES);
    let mut parts: [libc::iovec; BATCH] = std::array::from_fn(|_| {
        let place = places.next().map_or(&mut [][..], |place| &mut place[TAG_BYTES..]);
        libc::iovec { iov_base: place.as_mut_ptr().cast(), iov_len: place.len() }
    });
    let mut messages: [libc::mmsghdr; BATCH] = std::array::from_fn(|index| {
        // SAFETY: all zeros are a message header without anything.
        let mut message: libc::mmsghdr = unsafe { std::mem::zeroed() };
        message.msg_hdr.msg_iov = &raw mut parts[index];
        message.msg_hdr.msg_iovlen = 1;
        message.msg_hdr.msg_control = (&raw mut control[index]).cast();
        message.msg_hdr.msg_controllen = size_of::<Control>() as _;
        message
    });
    // SAFETY: the descriptor is open. Each message has one part, which lies in `room`, apart from all
    // others since they are different chunks of it, and a control buffer of its own in `control`;
    // both are borrowed until this returns, and the lengths are theirs.
    let received = unsafe {
        libc::recvmmsg(
            socket.as_raw_fd(),
            messages.as_mut_ptr(),
            BATCH as libc::c_uint,
            libc::MSG_DONTWAIT as _,
            std::ptr::null_mut(),
        )
    };
    if received < 0 {
        let error = io::Error::last_os_error();
        return if error.kind() == io::ErrorKind::WouldBlock { Ok(0) } else { Err(error) };
    }
    for (length, message) in lengths.iter_mut().zip(&messages) {
        *length = message.msg_len as usize;
    }
    Ok(received as usize)
}
