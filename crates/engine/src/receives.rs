//! The memory of posted receives that is not simply the message's: spare memory for first blocks, and
//! what is followed while it arrives.

use std::collections::BTreeMap;

use relay::ReceiveId;
use transport::{Arriving, LeaseError, Region, RegionPool, Transport, WriteLease};

/// The memory of one group's posted receives.
pub(crate) struct Receives {
    /// Memory for first blocks of messages whose own memory is not known yet.
    spare: RegionPool,
    spare_used: BTreeMap<ReceiveId, Region>,
    /// Cut-through: the memory of posted receives whose blocks are not held yet.
    arriving: BTreeMap<ReceiveId, Arriving>,
}

impl Receives {
    pub(crate) fn new(spare_count: usize, block_bytes: u64) -> Self {
        let spare = RegionPool::new(spare_count, block_bytes as usize);
        Self { spare, spare_used: BTreeMap::new(), arriving: BTreeMap::new() }
    }

    /// Leases spare memory for a first block.
    pub(crate) fn lease_spare(&mut self, id: ReceiveId) -> Result<WriteLease, LeaseError> {
        let whole = 0..self.spare.region_bytes();
        // Memory whose last block is still being sent on is dropped after that.
        let spare = self.spare.take().filter(|region| region.write(whole.clone()).is_ok());
        let region = spare.unwrap_or_else(|| Region::zeroed(whole.len()));
        let lease = region.write(whole)?;
        self.spare_used.insert(id, region);
        Ok(lease)
    }

    /// Takes the spare memory of a first block that has arrived.
    pub(crate) fn take_spare(&mut self, id: ReceiveId) -> Option<Region> {
        self.spare_used.remove(&id)
    }

    /// Takes back spare memory.
    pub(crate) fn put_spare(&mut self, spare: Region) {
        self.spare.put(spare);
    }

    /// Follows what arrives in the memory of a receive, if the network can send it on meanwhile.
    pub(crate) fn follow<T: Transport>(
        &mut self,
        transport: &mut T,
        id: ReceiveId,
        lease: &mut WriteLease,
    ) {
        let bytes = lease.bytes() as u64;
        if transport.cut_through().is_some_and(|sends| bytes >= sends.block_bytes_min()) {
            self.arriving.insert(id, lease.arriving());
        }
    }

    /// Returns the memory in which a block is arriving, unless it is in its place.
    pub(crate) fn arriving(&self, id: ReceiveId) -> Option<Arriving> {
        self.arriving.get(&id).cloned()
    }

    /// Forgets a receive whose block is in its place, or that was not executed.
    pub(crate) fn forget(&mut self, id: ReceiveId) {
        self.arriving.remove(&id);
    }
}
