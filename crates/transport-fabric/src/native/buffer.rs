//! Memory of the transport itself that the network reads and writes.

use std::{ops::Range, sync::Arc};

use crate::native::sys::{self, Access, Errno, Object, Registration, Span};

/// Zeroed bytes at a fixed address, registered for this host and, if requested, for a peer's
/// writes. No references to the bytes are given; they are copied in and out.
pub struct Buffer {
    // Declared before the memory: dropped before it.
    local: Option<Registration>,
    remote: Option<Registration>,
    memory: Box<[u8]>,
    start: *mut u8,
}

// SAFETY: the memory is accessed by copies through `start`, by the owner of the buffer.
unsafe impl Send for Buffer {}

impl Buffer {
    /// Errors: the memory cannot be registered.
    pub fn new(
        bytes: usize,
        domain: &Arc<Object>,
        needs_local_registration: bool,
        peer_key: Option<u64>,
    ) -> Result<Self, Errno> {
        let mut memory = vec![0; bytes].into_boxed_slice();
        let start = memory.as_mut_ptr();
        // SAFETY: the box keeps its memory in place, and is dropped after the registrations.
        let register = |access| unsafe { sys::register(domain, start, bytes, access) };
        let local = needs_local_registration
            .then(|| register(Access::Local { writable: true }))
            .transpose()?;
        let remote = peer_key.map(|key| register(Access::Peers { key })).transpose()?;
        Ok(Self { local, remote, memory, start })
    }

    /// Returns a part of it, for a post.
    pub fn span(&self, range: Range<usize>) -> Span<'_> {
        assert!(range.start <= range.end && range.end <= self.memory.len(), "inside the buffer");
        Span {
            start: self.start.wrapping_add(range.start),
            bytes: range.len(),
            registration: self.local.as_ref(),
        }
    }

    /// Returns the key by which a peer may write it, and its start address for the peer.
    pub fn for_peer(&self, virtual_addresses: bool) -> (u64, u64) {
        let key = self.remote.as_ref().map_or(0, |registration| registration.key);
        (key, if virtual_addresses { self.start as u64 } else { 0 })
    }

    pub fn copy_out<const N: usize>(&self, at: usize) -> [u8; N] {
        assert!(at + N <= self.memory.len(), "inside the buffer");
        let mut bytes = [0; N];
        // SAFETY: in range as just checked. The network writes the same bytes only if the peer
        // breaks the protocol; the copy, which its reader checks, is then invalid.
        unsafe { std::ptr::copy_nonoverlapping(self.start.add(at), bytes.as_mut_ptr(), N) };
        bytes
    }

    pub fn copy_in(&mut self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.memory.len(), "inside the buffer");
        // SAFETY: in range as just checked; the callers ensure that the network no longer reads
        // this place, or that its contents do not matter (`ring`).
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.add(at), bytes.len());
        }
    }
}
