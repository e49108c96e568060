//! An end's own segment. It is made together with the link's socket, before two ends agree to use them: an end that has no
//! memory or file descriptors left for it then refuses the link, and the ends use TCP.

use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use transport::{FileAccess, PeerMemory};

use crate::{
    error::ShmError,
    ring::{USUAL_RING_BYTES, check_ring, segment_bytes},
    socket::{self, Message},
};

/// Memory with this end's ring, and the file by which the peer maps it.
pub(crate) struct Segment {
    memory: PeerMemory,
    ring_bytes: usize,
    file: OwnedFd,
}

impl Segment {
    /// Makes the segment that almost every link has.
    ///
    /// Errors: the system has no memory or file descriptors left.
    pub(crate) fn usual() -> Result<Self, ShmError> {
        Self::make(USUAL_RING_BYTES)
    }

    fn make(ring_bytes: usize) -> Result<Self, ShmError> {
        let memory = PeerMemory::zeroed(segment_bytes(ring_bytes));
        let file = memory.share(FileAccess::Read).map_err(ShmError::at("making shared memory"))?;
        Ok(Self { memory, ring_bytes, file })
    }

    /// Passes the memory, with a ring of this length, to the peer. Does not wait.
    ///
    /// Errors: the length; too many files are in flight; for another ring than the usual one, those of [`Segment::usual`].
    pub(crate) fn pass(self, socket: &OwnedFd, ring_bytes: usize) -> Result<PeerMemory, ShmError> {
        check_ring(ring_bytes).map_err(ShmError::Setting)?;
        let own = if ring_bytes == self.ring_bytes { self } else { Self::make(ring_bytes)? };
        let hello = Message::Hello { ring_bytes: ring_bytes as u64 };
        match socket::send(socket, hello, Some(own.file.as_fd())) {
            // A peer that has ended already is noticed as one that ends later.
            Ok(()) | Err(Errno::PIPE | Errno::CONNRESET) => Ok(own.memory),
            Err(error) => Err(ShmError::at("passing shared memory")(error)),
        }
    }
}
