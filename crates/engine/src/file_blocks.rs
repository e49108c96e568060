//! Blocks of messages in files while they are in memory.
//!
//! Memory: as many blocks as there are sends and receives in the window. Recently received or sent
//! blocks are kept as long as there is room, so that relaying does not read them back.

use std::collections::{BTreeMap, BTreeSet};

use relay::{ReceiveId, RelayError};
use transport::{LeaseError, ReadLease, Region, StoredWrite, WriteLease};

use crate::{
    job_list::{Place, Request, Then},
    jobs::{What, Work},
    memory::range,
};

/// The blocks between files and the network.
pub(crate) struct FileBlocks {
    /// Posted receives whose blocks belong to a file.
    landings: BTreeMap<ReceiveId, Landing>,
    /// Receives whose blocks are in memory, and being written to a file.
    landed: BTreeSet<ReceiveId>,
    /// Blocks in memory, or being read into it.
    blocks: BTreeMap<Place, Block>,
    /// Unused memory of one block each.
    spare: Vec<Region>,
    pub(crate) made: usize,
    made_max: usize,
    block_bytes: usize,
    uses: u64,
}

/// The destination of a receive's block.
struct Landing {
    memory: Region,
    into: StoredWrite,
    what: What,
    place: Place,
}

struct Block {
    memory: Region,
    is_loading: bool,
    /// Sends that wait to be posted.
    users: usize,
    /// When it was last used, as a number of uses.
    used: u64,
}

impl FileBlocks {
    /// Makes an empty set of at most `made_max` blocks.
    pub(crate) fn new(block_bytes: u64, made_max: usize) -> Self {
        Self {
            landings: BTreeMap::new(),
            landed: BTreeSet::new(),
            blocks: BTreeMap::new(),
            spare: Vec::new(),
            made: 0,
            made_max,
            block_bytes: block_bytes as usize,
            uses: 0,
        }
    }

    /// Returns whether the block of this receive is in memory but not reported to the relay.
    pub(crate) fn has_landed(&self, id: ReceiveId) -> bool {
        self.landed.contains(&id)
    }

    /// Drops everything that no job uses; called once the group has failed.
    pub(crate) fn clear(&mut self) {
        self.landings.clear();
        self.blocks.clear();
    }

    /// Drops the blocks of a message that is complete.
    pub(crate) fn forget(&mut self, message: u64) {
        let places = (message, 0)..=(message, u64::MAX);
        let done: Vec<Place> = self.blocks.range(places).map(|(&place, _)| place).collect();
        let done = done.into_iter().filter_map(|place| self.blocks.remove(&place));
        self.spare.extend(done.map(|block| block.memory));
    }

    /// Returns memory for one block: spare, new, or of the least recently used block. There is
    /// always one of these, since no more blocks are in use than the windows allow.
    fn memory(&mut self) -> Region {
        let whole = 0..self.block_bytes;
        let is_free = |memory: &Region| memory.write(whole.clone()).is_ok();
        if let Some(index) = self.spare.iter().position(is_free) {
            return self.spare.swap_remove(index);
        }
        if self.made >= self.made_max {
            let idle =
                |block: &Block| !block.is_loading && block.users == 0 && is_free(&block.memory);
            let idle = self.blocks.iter().filter(|(_, block)| idle(block));
            let oldest = idle.min_by_key(|(_, block)| block.used).map(|(&place, _)| place);
            if let Some(block) = oldest.and_then(|place| self.blocks.remove(&place)) {
                return block.memory;
            }
        }
        self.made += 1;
        Region::zeroed(self.block_bytes)
    }

    fn next_use(&mut self) -> u64 {
        self.uses += 1;
        self.uses
    }

    /// Ensures that a block is in memory or being read, for one more send. Returns the job that reads
    /// it, if one is needed.
    pub(crate) fn load(
        &mut self,
        place: Place,
        file: &Region,
        bytes: u64,
    ) -> Result<Option<Request>, LeaseError> {
        let used = self.next_use();
        if let Some(block) = self.blocks.get_mut(&place) {
            block.users += 1;
            block.used = used;
            return Ok(None);
        }
        let from = file.read_stored(range(place.1, bytes))?;
        let memory = self.memory();
        let into = memory.write(0..bytes as usize)?;
        self.blocks.insert(place, Block { memory, is_loading: true, users: 1, used });
        let (what, work) = (What::new("read", file, bytes), Work::Read { from, into });
        Ok(Some(Request { what, message: place.0, work, then: Then::Loaded { place } }))
    }

    /// Notes that a block was read.
    pub(crate) fn loaded(&mut self, place: Place) {
        if let Some(block) = self.blocks.get_mut(&place) {
            block.is_loading = false;
        }
    }

    pub(crate) fn is_loaded(&self, place: Place) -> bool {
        self.blocks.get(&place).is_some_and(|block| !block.is_loading)
    }

    /// Returns the bytes of a block that was loaded, for one of the sends that it was loaded for.
    pub(crate) fn take(
        &mut self,
        place: Place,
        bytes: u64,
    ) -> Option<Result<ReadLease, LeaseError>> {
        let block = self.blocks.get_mut(&place)?;
        block.users -= 1;
        Some(block.memory.read(0..bytes as usize))
    }

    /// Returns memory into which a block of a message in a file is received before it is written
    /// there: of `shadow`, if that is given.
    pub(crate) fn land(
        &mut self,
        id: ReceiveId,
        file: Region,
        place: Place,
        bytes: u64,
        shadow: Option<Region>,
    ) -> Result<WriteLease, LeaseError> {
        let range = range(place.1, bytes);
        let into = file.write_stored(range.clone())?;
        let memory = match shadow {
            Some(shadow) => shadow.slice(range)?,
            None => self.memory(),
        };
        let lease = memory.write(0..bytes as usize)?;
        let what = What::new("write", &file, bytes);
        self.landings.insert(id, Landing { memory, into, what, place });
        Ok(lease)
    }

    /// Processes the block of a receive. Returns the job that writes it to its file, if it has one;
    /// after that it is reported to the relay.
    pub(crate) fn landed(
        &mut self,
        id: ReceiveId,
        bytes: u64,
        immediate: u32,
    ) -> Result<Option<Request>, RelayError> {
        let is_whole = |landing: &Landing| landing.what.bytes == bytes;
        let Some(landing) = self.landings.remove(&id).filter(is_whole) else { return Ok(None) };
        let Landing { memory, into, what, place } = landing;
        // The only other leases of that memory are for the network to read it.
        let Ok(from) = memory.read(0..bytes as usize) else {
            return Err(RelayError::Unknown { what: "receive", number: id.0 });
        };
        self.landed.insert(id);
        let then = Then::Received { id, bytes, immediate, memory, place };
        Ok(Some(Request { what, message: place.0, work: Work::Write { from, into }, then }))
    }

    /// Notes that the block of a receive is in its file. `keep`: its memory, to send it from.
    pub(crate) fn written(&mut self, id: ReceiveId, place: Place, keep: Option<Region>) {
        self.landed.remove(&id);
        if let Some(memory) = keep {
            let used = self.next_use();
            self.blocks.insert(place, Block { memory, is_loading: false, users: 0, used });
        }
    }

    /// Notes that a receive was not executed.
    pub(crate) fn missed(&mut self, id: ReceiveId) {
        self.landings.remove(&id);
    }
}
