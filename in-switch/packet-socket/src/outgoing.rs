//! Many frames sent by one system call, each from parts of memory that frames may share.

use std::{
    io,
    os::fd::{AsRawFd, OwnedFd},
};

use crate::{Offload, batch::BATCH};

/// Parts of a frame besides its offload header.
pub const PARTS: usize = 3;

/// A frame to send, from its Ethernet header on: its parts, one behind another. Parts may be empty.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Offloads pending.
    pub offload: Offload,
    /// What is sent.
    pub parts: [&'a [u8]; PARTS],
}

impl<'a> Outgoing<'a> {
    /// A frame in one part.
    #[must_use]
    pub const fn whole(offload: Offload, frame: &'a [u8]) -> Self {
        Self { offload, parts: [frame, &[], &[]] }
    }
}

/// Sends what the socket takes, without waiting, in order. A frame that it refuses does not keep the later ones.
pub(crate) fn send_many(socket: &OwnedFd, frames: &[Outgoing<'_>], mut refused: impl FnMut(usize)) {
    let mut at = send_some(socket, frames);
    while at < frames.len() {
        refused(at);
        at += 1 + send_some(socket, &frames[at + 1..]);
    }
}

/// Sends frames up to the first that the socket refuses, without waiting. Returns how many it took.
pub(crate) fn send_some(socket: &OwnedFd, frames: &[Outgoing<'_>]) -> usize {
    let mut at = 0;
    while at < frames.len()
        && let Ok(sent @ 1..) = send_chunk(socket, &frames[at..frames.len().min(at + BATCH)])
    {
        at += sent;
    }
    at
}

/// At most [`BATCH`] frames by one system call: how many the socket took before one that it refused.
fn send_chunk(socket: &OwnedFd, frames: &[Outgoing<'_>]) -> io::Result<usize> {
    const EMPTY: libc::iovec = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
    let mut parts = [[EMPTY; PARTS + 1]; BATCH];
    // SAFETY: all zeros are message headers without anything.
    let mut messages: [libc::mmsghdr; BATCH] = unsafe { std::mem::zeroed() };
    for ((frame, parts), message) in frames.iter().zip(&mut parts).zip(&mut messages) {
        let all = [frame.offload.as_bytes(), frame.parts[0], frame.parts[1], frame.parts[2]];
        for (part, bytes) in parts.iter_mut().zip(all) {
            // Read only, as `sendmmsg` does not write to what it sends.
            *part =
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
        }
        message.msg_hdr.msg_iov = parts.as_mut_ptr();
        message.msg_hdr.msg_iovlen = (PARTS + 1) as _;
    }
    let count = frames.len().min(BATCH) as libc::c_uint;
    // SAFETY: the descriptor is open. The first `count` messages have the parts that were set above, which point into
    // `frames` with their lengths; `frames`, `parts` and `messages` are borrowed or owned until this returns. There are no names
    // and no control messages.
    let sent = unsafe {
        libc::sendmmsg(socket.as_raw_fd(), messages.as_mut_ptr(), count, libc::MSG_DONTWAIT as _)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}
