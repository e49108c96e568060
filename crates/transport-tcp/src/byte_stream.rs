//! The bytes between two ends: all that connections need of a socket.

use std::{
    io::{IoSlice, IoSliceMut},
    os::fd::BorrowedFd,
};

use rustix::io::Errno;

/// One stream of bytes to a peer, in both directions, which never blocks.
pub trait ByteStream {
    /// Reads into these slices in order, and returns how many bytes; 0 if the peer has closed its direction and
    /// everything was read. Fewer than fit are all that there are.
    ///
    /// Errors: `AGAIN` if nothing is there, `INTR`; `FAULT` if memory failed; all others are final.
    fn read(&mut self, into: &mut [IoSliceMut<'_>]) -> Result<usize, Errno>;

    /// Writes these slices in order, as far as they are accepted now, and returns how many bytes; fewer than there are
    /// if no more are accepted.
    ///
    /// Errors: `AGAIN` or `NOBUFS` if nothing is accepted now, `INTR`; `FAULT` if memory failed; all others are final.
    fn write(&mut self, from: &[IoSlice<'_>]) -> Result<usize, Errno>;

    /// Returns the socket of this stream, by which the process at the other end can be found if it is one of this machine;
    /// `None` if there is none.
    fn socket(&self) -> Option<BorrowedFd<'_>>;

    /// Returns whether the owner knows of all bytes to read without trying to read them: so it is with memory that is looked at.
    fn is_watched(&self) -> bool {
        false
    }
}

/// What has changed for a stream.
#[derive(Clone, Copy, Default, Debug)]
pub struct Readiness {
    /// There may be bytes to read, or the end.
    pub can_read: bool,
    /// Bytes may be accepted.
    pub can_write: bool,
    /// The peer has closed its direction, or the stream is lost: nothing more will be reported for reading.
    pub is_read_closed: bool,
}
