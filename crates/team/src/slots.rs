//! The memory that a linked member writes: a ring of slots for each of its directions.

use collective::{Contents, HEADER_BYTES, Header, InvalidHeader, Ring};
use transport::{EndpointId, LeaseError, PeerMemory, PostError, Transport};

use crate::words::Word;

/// Both rings that one member writes.
pub(crate) struct Slots {
    rings: [PeerMemory; 2],
    slot_bytes: usize,
}

/// Returns the key under which a ring is exposed.
pub(crate) fn key(ring: Ring) -> u32 {
    ring as u32
}

/// Returns the immediate of a write to a slot.
pub(crate) fn immediate(ring: Ring, slot: u32) -> u32 {
    slot << 1 | ring as u32
}

/// Returns the ring and the slot of an immediate.
pub(crate) fn place(immediate: u32) -> (Ring, u32) {
    let ring = if immediate & 1 == Ring::Up as u32 { Ring::Up } else { Ring::Down };
    (ring, immediate >> 1)
}

impl Slots {
    pub(crate) fn new(slots: u32, slot_bytes: u32) -> Self {
        let bytes = slots as usize * slot_bytes as usize;
        let rings = Ring::ALL.map(|_| PeerMemory::zeroed(bytes));
        Self { rings, slot_bytes: slot_bytes as usize }
    }

    /// Exposes both rings to a member, and tells it so.
    ///
    /// Errors: the network has no one-sided writes, or the endpoint has ended.
    pub(crate) fn expose<T: Transport>(
        &self,
        transport: &mut T,
        endpoint: EndpointId,
    ) -> Result<(), PostError> {
        for ring in Ring::ALL {
            let writes = transport.one_sided().ok_or(PostError::Unsupported("one-sided writes"))?;
            writes.expose(endpoint, key(ring), self.memory(ring).clone())?;
        }
        transport.write_control(endpoint, &Word::Exposed.encode())
    }

    pub(crate) fn memory(&self, ring: Ring) -> &PeerMemory {
        &self.rings[ring as usize]
    }

    /// Returns the header of a slot that was written. It is copied once: the peer may change it at any time.
    pub(crate) fn header(&self, ring: Ring, slot: u32) -> Result<Header, InvalidHeader> {
        let mut encoded = [0; HEADER_BYTES];
        let end = (slot as usize + 1) * self.slot_bytes;
        let copied = self.memory(ring).copy_out(end - HEADER_BYTES, &mut encoded);
        copied.map_err(|_| InvalidHeader)?;
        Header::decode(&encoded)
    }

    /// Copies contents out of a slot.
    pub(crate) fn copy_out(&self, contents: &Contents, into: &mut [u8]) -> Result<(), LeaseError> {
        let end = (contents.slot as usize + 1) * self.slot_bytes - HEADER_BYTES;
        self.memory(contents.ring).copy_out(end - into.len(), into)
    }
}
