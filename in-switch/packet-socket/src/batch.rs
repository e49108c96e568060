//! Many frames in one system call, with their metadata.

use std::{
    io,
    ops::Range,
    os::fd::{AsRawFd, OwnedFd},
};

use crate::offload::{OFFLOAD_BYTES, Offload};

/// Frames received by one system call.
pub const BATCH: usize = 32;
/// The longest frame, before segmentation.
const FRAME_BYTES_MAX: usize = 65_536 + 256;
const ADDRESSES_BYTES: usize = 12;
const TAG_BYTES: usize = 4;
/// Room for a tag that is put back, for the offload header, and for the frame.
const PLACE_BYTES: usize = TAG_BYTES + OFFLOAD_BYTES + FRAME_BYTES_MAX;

/// Received frames, in memory that is reused.
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

    /// How many frames there are.
    pub(crate) const fn len(&self) -> usize {
        self.frames.len()
    }

    /// Receives what there is without waiting. Returns the number of frames.
    pub(crate) fn receive(&mut self, socket: &OwnedFd) -> io::Result<usize> {
        self.frames.clear();
        // Filled with zeros only once.
        self.room.resize(BATCH * PLACE_BYTES, 0);
        let mut control = [Control::EMPTY; BATCH];
        let mut lengths = [0; BATCH];
        let received = receive_many(socket, &mut self.room, &mut control, &mut lengths)?;
        for place in 0..received {
            self.keep(place, lengths[place], control[place].tag());
        }
        Ok(self.frames.len())
    }

    /// Keeps the frame at a place, with the VLAN tag that the kernel has removed.
    fn keep(&mut self, place: usize, bytes: usize, tag: Option<[u8; TAG_BYTES]>) {
        let begin = place * PLACE_BYTES + TAG_BYTES;
        let Some(frame_bytes) = bytes.checked_sub(OFFLOAD_BYTES) else { return };
        let mut header = [0; OFFLOAD_BYTES];
        header.copy_from_slice(&self.room[begin..begin + OFFLOAD_BYTES]);
        let mut offload = Offload::of(header);
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

/// Room for a control message with a `tpacket_auxdata`, aligned as the kernel wants it.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Length and kind of a control message (`cmsghdr`), before its data.
const CONTROL_HEAD_BYTES: usize = size_of::<libc::cmsghdr>();

impl Control {
    const EMPTY: Self = Self([0; 64]);

    fn word(&self, at: usize) -> u32 {
        u32::from_ne_bytes([self.0[at], self.0[at + 1], self.0[at + 2], self.0[at + 3]])
    }

    /// The VLAN tag that the kernel has removed from the frame, as it was on the wire.
    fn tag(&self) -> Option<[u8; TAG_BYTES]> {
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

/// Receives what there is without waiting: each frame at its place in `room`, behind space for a tag.
/// Returns the number of frames.
fn receive_many(
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
