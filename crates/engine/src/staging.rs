//! Messages whose bytes are in files: their blocks pass through memory of the group.
//!
//! A block that is sent is read from its file into memory first; a block that arrives is received
//! into memory, then written to its file, and only then reported to the relay. [`Disks`] reads and
//! writes, so the thread that makes progress never waits for a disk, and the network never accesses
//! a file (docs/decisions/storage.md). Recently received or sent blocks are kept in memory as long
//! as there is room, so that relaying does not read them back.
//!
//! Memory: as many blocks as there are sends and receives in the window; with offload the whole
//! message, since the network then needs all of it at once.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    ops::Range,
    sync::Arc,
    time::Duration,
};

use relay::{ReceiveId, RelayError, SendId};
use transport::{ArrivingRead, LeaseError, ReadLease, Region, StoredWrite, WriteLease};

use crate::jobs::{Disks, Job, Lane, What, Work};

/// A block of a message: the message's number in the group, and the offset of the first byte.
type Place = (u64, u64);

/// The blocks of one member of one group that are between files and the network.
pub(crate) struct Staging {
    disks: Arc<dyn Disks>,
    pub(crate) lane: Lane,
    jobs_made: u64,
    /// Submitted jobs that have not ended.
    jobs: BTreeMap<u64, Ended>,
    /// When a job ended last, or the first of the current jobs was submitted.
    moved: Duration,
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
    /// Sends in the order in which they are to be posted, by target.
    outbox: BTreeMap<u32, VecDeque<Waiting>>,
    is_offloaded: bool,
    /// Offload: whole messages, by number.
    shadows: BTreeMap<u64, Region>,
    /// Offload, at the root: messages that are being read, or wait for earlier ones that are, in
    /// order.
    unsent: VecDeque<Unsent>,
}

/// A job that was submitted, or has just ended.
pub(crate) struct Ended {
    pub(crate) what: What,
    message: u64,
    then: Then,
}

/// What the owner must do when a job has succeeded.
pub(crate) enum Next {
    /// Report to the relay that a block was received.
    Received { id: ReceiveId, bytes: u64, immediate: u32 },
    /// Report to the relay that a first block is in its place; the spare memory is free again.
    Placed { id: ReceiveId, spare: Region },
    /// Post sends to these targets, which may be ready.
    Post { targets: Vec<u32> },
    /// A small message is in its file.
    SmallTaken { message: u64, bytes: u64 },
    /// Relay messages of these lengths.
    Relay { messages_bytes: Vec<u64> },
}

/// What follows a job.
enum Then {
    /// Report to the relay that a block was received.
    Received { id: ReceiveId, bytes: u64, immediate: u32, memory: Region, place: Place },
    /// Report to the relay that a first block is in its place; its spare memory is free again.
    Placed { id: ReceiveId, spare: Region },
    /// Sends of a block can be posted.
    Loaded { place: Place },
    /// A small message is in its file.
    SmallTaken { bytes: u64 },
    /// A message can be relayed.
    Shadowed,
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
    /// When it was last used, as a number of jobs.
    used: u64,
}

/// A send that has not been posted.
struct Waiting {
    id: SendId,
    block: u32,
    from: From,
}

enum From {
    Ready(Contents),
    Block(Place, u64),
}

/// The bytes of a send that can be posted.
pub(crate) enum Contents {
    Whole(ReadLease),
    Arriving(ArrivingRead),
}

struct Unsent {
    bytes: u64,
    is_read: bool,
    number: u64,
}

impl Staging {
    pub(crate) fn new(
        disks: Arc<dyn Disks>,
        lane: Lane,
        block_bytes: u64,
        made_max: usize,
        is_offloaded: bool,
    ) -> Self {
        Self {
            disks,
            lane,
            jobs_made: 0,
            jobs: BTreeMap::new(),
            moved: Duration::ZERO,
            landings: BTreeMap::new(),
            landed: BTreeSet::new(),
            blocks: BTreeMap::new(),
            spare: Vec::new(),
            made: 0,
            made_max,
            block_bytes: block_bytes as usize,
            outbox: BTreeMap::new(),
            is_offloaded,
            shadows: BTreeMap::new(),
            unsent: VecDeque::new(),
        }
    }

    /// Returns whether jobs have not ended, so that memory that the application provided is in use.
    pub(crate) fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Returns whether a job of this message has not ended.
    pub(crate) fn uses(&self, message: u64) -> bool {
        self.jobs.values().any(|job| job.message == message)
    }

    /// Returns whether sends wait for their blocks to be read.
    pub(crate) fn holds_sends_back(&self) -> bool {
        self.outbox.values().any(|waiting| !waiting.is_empty())
    }

    /// Returns since when no job has ended, while there are any.
    pub(crate) fn stuck_since(&self) -> Option<Duration> {
        self.is_busy().then_some(self.moved)
    }

    /// Describes the job that is waited for.
    pub(crate) fn occupation(&self) -> Option<String> {
        self.jobs.values().next().map(|job| job.what.to_string())
    }

    /// Returns whether the block of this receive is in memory but not reported to the relay.
    pub(crate) fn has_landed(&self, id: ReceiveId) -> bool {
        self.landed.contains(&id)
    }

    /// Drops everything that no job uses; called once the group has failed.
    pub(crate) fn clear(&mut self) {
        self.landings.clear();
        self.blocks.clear();
        self.outbox.clear();
        self.shadows.clear();
        self.unsent.clear();
    }

    /// Drops the blocks of a message that is complete.
    pub(crate) fn forget(&mut self, message: u64) {
        self.shadows.remove(&message);
        let places = (message, 0)..=(message, u64::MAX);
        let done: Vec<Place> = self.blocks.range(places).map(|(&place, _)| place).collect();
        let done = done.into_iter().filter_map(|place| self.blocks.remove(&place));
        self.spare.extend(done.map(|block| block.memory));
    }

    fn submit(&mut self, what: What, message: u64, work: Work, then: Then, now: Duration) {
        if self.jobs.is_empty() {
            self.moved = now;
        }
        let number = self.jobs_made;
        self.jobs_made += 1;
        self.jobs.insert(number, Ended { what: what.clone(), message, then });
        self.disks.submit(Job { lane: self.lane, number, what, work });
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

    /// Ensures that a block is in memory or being read, for one more send.
    fn load(
        &mut self,
        place: Place,
        file: &Region,
        bytes: u64,
        now: Duration,
    ) -> Result<(), LeaseError> {
        let used = self.jobs_made;
        if let Some(block) = self.blocks.get_mut(&place) {
            block.users += 1;
            block.used = used;
            return Ok(());
        }
        let from = file.read_stored(range(place.1, bytes))?;
        let memory = self.memory();
        let into = memory.write(0..bytes as usize)?;
        self.blocks.insert(place, Block { memory, is_loading: true, users: 1, used });
        let what = What { file: file.clone(), is_write: false, bytes };
        self.submit(what, place.0, Work::Read { from, into }, Then::Loaded { place }, now);
        Ok(())
    }

    /// Returns the next send to `target`, if its bytes are in memory.
    pub(crate) fn take_ready(
        &mut self,
        target: u32,
    ) -> Option<Result<(SendId, u32, Contents), LeaseError>> {
        let waiting = self.outbox.get_mut(&target)?;
        if let From::Block(place, _) = &waiting.front()?.from
            && self.blocks.get(place).is_none_or(|block| block.is_loading)
        {
            return None;
        }
        let Waiting { id, block, from } = waiting.pop_front()?;
        let contents = match from {
            From::Ready(contents) => Ok(contents),
            From::Block(place, bytes) => {
                let block = self.blocks.get_mut(&place)?;
                block.users -= 1;
                block.memory.read(0..bytes as usize).map(Contents::Whole)
            }
        };
        Some(contents.map(|contents| (id, block, contents)))
    }

    /// Returns memory into which a block of a message in a file is received before it is written
    /// there.
    pub(crate) fn land(
        &mut self,
        id: ReceiveId,
        file: Region,
        place: Place,
        bytes: u64,
    ) -> Result<WriteLease, LeaseError> {
        let (number, offset) = place;
        let into = file.write_stored(range(offset, bytes))?;
        let memory = match self.is_offloaded {
            true => self.shadow(number, &file).slice(range(offset, bytes))?,
            false => self.memory(),
        };
        let lease = memory.write(0..bytes as usize)?;
        let what = What { file, is_write: true, bytes };
        self.landings.insert(id, Landing { memory, into, what, place });
        Ok(lease)
    }

    /// Returns memory for the whole message, for a network that relays by itself.
    pub(crate) fn shadow(&mut self, number: u64, file: &Region) -> Region {
        let shadow = self.shadows.entry(number);
        shadow.or_insert_with(|| Region::zeroed(file.len())).clone()
    }

    /// Processes the block of a receive. Returns `true` if the block is being written to a file,
    /// after which it is reported to the relay.
    pub(crate) fn landed(
        &mut self,
        id: ReceiveId,
        bytes: u64,
        immediate: u32,
        now: Duration,
    ) -> Result<bool, RelayError> {
        let is_whole = |landing: &Landing| landing.what.bytes == bytes;
        let Some(landing) = self.landings.remove(&id).filter(is_whole) else { return Ok(false) };
        let Landing { memory, into, what, place } = landing;
        // The only other leases of that memory are for the network to read it.
        let Ok(from) = memory.read(0..bytes as usize) else {
            return Err(RelayError::Unknown { what: "receive", number: id.0 });
        };
        self.landed.insert(id);
        let then = Then::Received { id, bytes, immediate, memory, place };
        self.submit(what, place.0, Work::Write { from, into }, then, now);
        Ok(true)
    }

    /// Notes that a receive was not executed.
    pub(crate) fn missed(&mut self, id: ReceiveId) {
        self.landings.remove(&id);
    }

    /// Queues a send behind those to the same target.
    pub(crate) fn queue_send(
        &mut self,
        target: u32,
        (id, block): (SendId, u32),
        region: &Region,
        place: Place,
        bytes: u64,
        now: Duration,
    ) -> Result<(), LeaseError> {
        let from = if region.is_stored() {
            self.load(place, region, bytes, now)?;
            From::Block(place, bytes)
        } else {
            From::Ready(Contents::Whole(region.read(range(place.1, bytes))?))
        };
        self.outbox.entry(target).or_default().push_back(Waiting { id, block, from });
        Ok(())
    }

    /// Queues a send of a block that is arriving behind those to the same target.
    pub(crate) fn queue_cut_through_send(
        &mut self,
        target: u32,
        (id, block): (SendId, u32),
        from: ArrivingRead,
    ) {
        let waiting = Waiting { id, block, from: From::Ready(Contents::Arriving(from)) };
        self.outbox.entry(target).or_default().push_back(waiting);
    }

    /// Writes a first block to its place in a file. `spare` is the memory into which it was
    /// received.
    pub(crate) fn store_first(
        &mut self,
        id: ReceiveId,
        (from, spare): (ReadLease, Region),
        file: Region,
        place: Place,
        now: Duration,
    ) -> Result<(), LeaseError> {
        let bytes = from.len() as u64;
        let into = file.write_stored(range(place.1, bytes))?;
        let what = What { file, is_write: true, bytes };
        let then = Then::Placed { id, spare };
        self.submit(what, place.0, Work::Write { from, into }, then, now);
        Ok(())
    }

    /// Writes a small message from a copy to the application's file.
    pub(crate) fn store_small(
        &mut self,
        message: u64,
        contents: Vec<u8>,
        file: &Region,
        now: Duration,
    ) -> Result<(), LeaseError> {
        let bytes = contents.len() as u64;
        let into = file.write_stored(0..contents.len())?;
        let from = Region::from_vec(contents).read(0..bytes as usize)?;
        let what = What { file: file.clone(), is_write: true, bytes };
        let then = Then::SmallTaken { bytes };
        self.submit(what, message, Work::Write { from, into }, then, now);
        Ok(())
    }

    /// Offload: returns whether messages wait to be read before they can be relayed.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Offload: queues a message, which is relayed after those before it, once it is read if it is in
    /// a file. Errors: the file is being written.
    pub(crate) fn queue_message(
        &mut self,
        number: u64,
        region: &Region,
        now: Duration,
    ) -> Result<(), LeaseError> {
        let bytes = region.len() as u64;
        self.unsent.push_back(Unsent { bytes, is_read: !region.is_stored(), number });
        if !region.is_stored() {
            return Ok(());
        }
        let from = region.read_stored(0..region.len())?;
        let shadow = self.shadow(number, region);
        let into = shadow.write(0..shadow.len())?;
        let what = What { file: region.clone(), is_write: false, bytes };
        self.submit(what, number, Work::Read { from, into }, Then::Shadowed, now);
        Ok(())
    }

    /// Removes a job that has ended. `None`: there is no such job.
    pub(crate) fn end(&mut self, number: u64, now: Duration) -> Option<Ended> {
        let ended = self.jobs.remove(&number)?;
        self.moved = now;
        Some(ended)
    }

    /// Returns what the owner must do after a job that has succeeded.
    pub(crate) fn next(&mut self, ended: Ended) -> Next {
        match ended.then {
            Then::Received { id, bytes, immediate, memory, place } => {
                self.landed.remove(&id);
                if !self.is_offloaded {
                    let used = self.jobs_made;
                    let block = Block { memory, is_loading: false, users: 0, used };
                    self.blocks.insert(place, block);
                }
                Next::Received { id, bytes, immediate }
            }
            Then::Placed { id, spare } => Next::Placed { id, spare },
            Then::Loaded { place } => {
                if let Some(block) = self.blocks.get_mut(&place) {
                    block.is_loading = false;
                }
                Next::Post { targets: self.outbox.keys().copied().collect() }
            }
            Then::SmallTaken { bytes } => Next::SmallTaken { message: ended.message, bytes },
            Then::Shadowed => {
                for unsent in &mut self.unsent {
                    unsent.is_read |= unsent.number == ended.message;
                }
                let mut messages_bytes = Vec::new();
                while self.unsent.front().is_some_and(|next| next.is_read) {
                    messages_bytes.extend(self.unsent.pop_front().map(|unsent| unsent.bytes));
                }
                Next::Relay { messages_bytes }
            }
        }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.disks.end(self.lane);
    }
}

/// Returns a range of a region. Lengths were checked against regions, which are no longer than
/// memory.
pub(crate) fn range(offset: u64, bytes: u64) -> Range<usize> {
    offset as usize..(offset + bytes) as usize
}
