//! Messages whose bytes are in files: their blocks pass through memory of the group's own.
//!
//! A block that is sent is read from its file into memory first, and one that comes is received into
//! memory and then written to its file; only then the relay hears of it. [`Disks`] reads and writes,
//! so the thread that makes progress never waits for a disk, and the network never touches a file
//! (docs/decisions/storage.md). What has just come or gone is kept in memory as long as there is
//! room, so that relaying reads nothing back.
//!
//! Memory: as many blocks as there are sends and receives in the window; with offload, where the
//! network wants all of a message at once, the whole message.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    io,
    sync::Arc,
    time::Duration,
};

use relay::{ReceiveId, RelayError, SendId};
use transport::{Cause, LeaseError, ReadLease, Region, StoredWrite, Token, Transport, WriteLease};

use crate::{
    counters::Counters,
    error::Error,
    event::Event,
    failure::FailureKind,
    group::{Group, range},
    jobs::{Disks, Done, Job, Lane, What, Work},
};

/// After a failure, how long memory of messages is kept back for jobs that are under way. Then the
/// group ends without it: a disk that is stuck may be so for ever.
pub(crate) const HAND_BACK_TIMEOUT: Duration = Duration::from_secs(2);

/// A block of a message: the message's number in the group, and the first byte.
type Place = (u64, u64);

/// What one member of one group has on its way between files and the network.
pub(crate) struct Staging {
    disks: Arc<dyn Disks>,
    pub(crate) lane: Lane,
    jobs_made: u64,
    /// Jobs that are under way.
    jobs: BTreeMap<u64, Open>,
    /// When a job ended last, or the first of those under way was submitted.
    moved: Duration,
    /// Receives whose blocks go on to a file.
    landings: BTreeMap<ReceiveId, Landing>,
    /// Receives whose blocks are in memory, and on their way to a file.
    landed: BTreeSet<ReceiveId>,
    /// Blocks in memory, or on their way into it.
    blocks: BTreeMap<Place, Block>,
    /// Memory of one block each, which nothing uses.
    spare: Vec<Region>,
    /// Blocks of memory that were made.
    pub(crate) made: usize,
    made_max: usize,
    block_bytes: usize,
    /// Sends in the order in which they are to be posted, by target.
    outbox: BTreeMap<u32, VecDeque<Waiting>>,
    /// Offload: whole messages, by number.
    shadows: BTreeMap<u64, Region>,
    /// Offload, at the root: messages that are being read, or wait for such, with their lengths.
    unsent: VecDeque<Unsent>,
}

struct Open {
    what: What,
    message: u64,
    then: Then,
}

/// What follows a job.
enum Then {
    /// The relay hears of a block that has come.
    Received { id: ReceiveId, bytes: u64, immediate: u32, memory: Region, place: Place },
    /// The same of a first block, whose memory is free again.
    Placed { id: ReceiveId, spare: Region },
    /// Sends of a block can be posted.
    Loaded { place: Place },
    /// A small message is where it belongs.
    SmallTaken { bytes: u64 },
    /// A message can be relayed.
    Shadowed,
}

/// Where the block of a receive goes.
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
    /// When it was last used, in jobs.
    used: u64,
}

/// A send that has not been posted.
struct Waiting {
    id: SendId,
    block: u32,
    from: From,
}

enum From {
    Memory(ReadLease),
    Block(Place, u64),
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
            shadows: BTreeMap::new(),
            unsent: VecDeque::new(),
        }
    }

    /// Whether a job is under way: then somebody else uses memory that the application gave.
    pub(crate) fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Whether a job of this message is under way.
    pub(crate) fn uses(&self, message: u64) -> bool {
        self.jobs.values().any(|job| job.message == message)
    }

    /// Whether sends wait for their blocks to be read.
    pub(crate) fn holds_sends_back(&self) -> bool {
        self.outbox.values().any(|waiting| !waiting.is_empty())
    }

    /// Since when no job has ended, while there are any.
    pub(crate) fn stuck_since(&self) -> Option<Duration> {
        self.is_busy().then_some(self.moved)
    }

    /// The job that is waited for, in words.
    pub(crate) fn occupation(&self) -> Option<String> {
        self.jobs.values().next().map(|job| job.what.to_string())
    }

    /// Whether the block of this receive is in memory, though the relay has not heard of it.
    pub(crate) fn has_landed(&self, id: ReceiveId) -> bool {
        self.landed.contains(&id)
    }

    /// Lets go of all that no job has; called once the group has failed.
    pub(crate) fn clear(&mut self) {
        self.landings.clear();
        self.blocks.clear();
        self.outbox.clear();
        self.shadows.clear();
        self.unsent.clear();
    }

    /// A message is complete: no block of it is of use any more.
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
        self.jobs.insert(number, Open { what: what.clone(), message, then });
        self.disks.submit(Job { lane: self.lane, number, what, work });
    }

    /// Memory for one block: spare, or new, or of the block that was used longest ago. There is
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

    /// Sees to it that a block is in memory or on its way there, for one more send.
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

    /// The next send to `target`, if its bytes are in memory.
    fn take_ready(&mut self, target: u32) -> Option<Result<(SendId, u32, ReadLease), LeaseError>> {
        let waiting = self.outbox.get_mut(&target)?;
        if let From::Block(place, _) = &waiting.front()?.from
            && self.blocks.get(place).is_none_or(|block| block.is_loading)
        {
            return None;
        }
        let Waiting { id, block, from } = waiting.pop_front()?;
        let lease = match from {
            From::Memory(lease) => Ok(lease),
            From::Block(place, bytes) => {
                let block = self.blocks.get_mut(&place)?;
                block.users -= 1;
                block.memory.read(0..bytes as usize)
            }
        };
        Some(lease.map(|lease| (id, block, lease)))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        self.disks.end(self.lane);
    }
}

impl Group {
    /// Memory that a block of a message in a file is received into, before it is written there.
    pub(crate) fn land(
        &mut self,
        id: ReceiveId,
        message: u64,
        offset: u64,
        bytes: u64,
    ) -> Result<WriteLease, LeaseError> {
        let (number, file) = (self.number_of(message), self.region(message));
        let into = file.write_stored(range(offset, bytes))?;
        let memory = match self.offload.is_used() {
            true => self.shadow(number, &file).slice(range(offset, bytes))?,
            false => self.staging.memory(),
        };
        let lease = memory.write(0..bytes as usize)?;
        let what = What { file, is_write: true, bytes };
        let landing = Landing { memory, into, what, place: (number, offset) };
        self.staging.landings.insert(id, landing);
        Ok(lease)
    }

    /// The message in memory, as the network wants it that relays by itself.
    pub(crate) fn shadow(&mut self, number: u64, file: &Region) -> Region {
        let shadow = self.staging.shadows.entry(number);
        shadow.or_insert_with(|| Region::zeroed(file.len())).clone()
    }

    /// A posted receive holds a block, which goes to its file first if it belongs to one.
    pub(crate) fn landed(
        &mut self,
        id: ReceiveId,
        bytes: u64,
        immediate: u32,
        now: Duration,
    ) -> Result<(), RelayError> {
        let is_whole = |landing: &Landing| landing.what.bytes == bytes;
        let Some(landing) = self.staging.landings.remove(&id).filter(is_whole) else {
            return self.relay.received(id, bytes, immediate);
        };
        let Landing { memory, into, what, place } = landing;
        // Nobody else knows of that memory, but for readers of the network's.
        let Ok(from) = memory.read(0..bytes as usize) else {
            return Err(RelayError::Unknown { what: "receive", number: id.0 });
        };
        self.staging.landed.insert(id);
        let then = Then::Received { id, bytes, immediate, memory, place };
        self.staging.submit(what, place.0, Work::Write { from, into }, then, now);
        Ok(())
    }

    /// A receive was not carried out.
    pub(crate) fn missed(&mut self, id: ReceiveId) {
        self.staging.landings.remove(&id);
    }

    /// Puts a send behind those to the same target, and posts what can be posted.
    pub(crate) fn queue_send<T: Transport>(
        &mut self,
        transport: &mut T,
        target: u32,
        (id, block): (SendId, u32),
        message: u64,
        (offset, bytes): (u64, u64),
    ) -> Result<(), LeaseError> {
        let (number, region) = (self.number_of(message), self.region(message));
        let from = if region.is_stored() {
            self.staging.load((number, offset), &region, bytes, transport.now())?;
            From::Block((number, offset), bytes)
        } else {
            From::Memory(region.read(range(offset, bytes))?)
        };
        let outbox = self.staging.outbox.entry(target).or_default();
        outbox.push_back(Waiting { id, block, from });
        self.post_sends(transport, target)
    }

    /// Posts the sends to `target` whose bytes are in memory, in order.
    fn post_sends<T: Transport>(
        &mut self,
        transport: &mut T,
        target: u32,
    ) -> Result<(), LeaseError> {
        while let Some(ready) = self.staging.take_ready(target) {
            let (id, block, lease) = ready?;
            if let Some(endpoint) = self.peer(target) {
                let posted = transport.post_send(endpoint, lease, block, Token(id.0));
                self.is_posted(target, posted);
            }
        }
        Ok(())
    }

    /// Copies a first block to its place, and tells the relay so, now or later.
    pub(crate) fn place_first(
        &mut self,
        id: ReceiveId,
        message: u64,
        (offset, bytes): (u64, u64),
        now: Duration,
    ) -> Result<(), LeaseError> {
        let Some(spare) = self.spare_used.remove(&id) else { return Ok(()) };
        let (number, region) = (self.number_of(message), self.region(message));
        let from = spare.read(range(0, bytes))?;
        if region.is_stored() {
            let into = region.write_stored(range(offset, bytes))?;
            let what = What { file: region, is_write: true, bytes };
            let then = Then::Placed { id, spare };
            self.staging.submit(what, number, Work::Write { from, into }, then, now);
            return Ok(());
        }
        region.write(range(offset, bytes))?.copy_from_slice(&from);
        drop(from);
        self.spare.put(spare);
        // The relay has just asked for it.
        let placed = self.relay.placed(id);
        debug_assert_eq!(placed, Ok(()));
        Ok(())
    }

    /// A small message goes from a copy to the application's file.
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
        self.staging.submit(what, message, Work::Write { from, into }, then, now);
        Ok(())
    }

    /// Offload, at the root: a message is relayed once it is in memory, in its turn.
    ///
    /// Errors: too many blocks; the file is being written.
    pub(crate) fn send_shadowed(&mut self, file: &Region, now: Duration) -> Result<u64, Error> {
        let bytes = file.len() as u64;
        let blocks = relay::Blocks::new(bytes, self.settings.block_bytes)?;
        blocks.check_offload(self.settings.messages_in_flight)?;
        if !file.is_stored() && self.staging.unsent.is_empty() {
            self.relay.send(bytes)?;
            return Ok(self.order.number(true));
        }
        let in_use = |error: LeaseError| Error::Setting(format!("memory to send: {error}"));
        let is_stored = file.is_stored();
        let from =
            if is_stored { Some(file.read_stored(0..file.len()).map_err(in_use)?) } else { None };
        let number = self.order.number(true);
        self.staging.unsent.push_back(Unsent { bytes, is_read: !is_stored, number });
        if let Some(from) = from {
            let shadow = self.shadow(number, file);
            let into = shadow.write(0..shadow.len()).map_err(in_use)?;
            let what = What { file: file.clone(), is_write: false, bytes };
            self.staging.submit(what, number, Work::Read { from, into }, Then::Shadowed, now);
        }
        Ok(number)
    }

    /// Takes in what has become of a job.
    pub(crate) fn job_done<T: Transport>(
        &mut self,
        transport: &mut T,
        counters: &mut Counters,
        done: Done,
        now: Duration,
    ) {
        let Some(open) = self.staging.jobs.remove(&done.number) else { return };
        self.staging.moved = now;
        self.note_progress(now);
        if !self.is_running() {
            return;
        }
        let outcome = match done.outcome {
            Ok(()) => self.follow(transport, open),
            Err(error) => return self.fail_job(transport, &open.what, &error),
        };
        match outcome {
            Ok(outcome) => self.go_on(transport, counters, outcome),
            Err(error) => self.fail_memory(transport, &error),
        }
    }

    fn follow<T: Transport>(
        &mut self,
        transport: &mut T,
        open: Open,
    ) -> Result<Result<(), RelayError>, LeaseError> {
        match open.then {
            Then::Received { id, bytes, immediate, memory, place } => {
                self.staging.landed.remove(&id);
                if !self.offload.is_used() {
                    let used = self.staging.jobs_made;
                    let block = Block { memory, is_loading: false, users: 0, used };
                    self.staging.blocks.insert(place, block);
                }
                return Ok(self.relay.received(id, bytes, immediate));
            }
            Then::Placed { id, spare } => {
                self.spare.put(spare);
                return Ok(self.relay.placed(id));
            }
            Then::Loaded { place } => {
                if let Some(block) = self.staging.blocks.get_mut(&place) {
                    block.is_loading = false;
                }
                let targets: Vec<u32> = self.staging.outbox.keys().copied().collect();
                for target in targets {
                    self.post_sends(transport, target)?;
                }
            }
            Then::SmallTaken { bytes } => self.small_taken(open.message, bytes),
            Then::Shadowed => {
                for unsent in &mut self.staging.unsent {
                    unsent.is_read |= unsent.number == open.message;
                }
                while self.staging.unsent.front().is_some_and(|next| next.is_read) {
                    let Some(unsent) = self.staging.unsent.pop_front() else { break };
                    if let Err(error) = self.relay.send(unsent.bytes) {
                        return Ok(Err(error));
                    }
                }
            }
        }
        Ok(Ok(()))
    }

    fn fail_job<T: Transport>(&mut self, transport: &mut T, what: &What, error: &io::Error) {
        let access = if what.is_write { "written" } else { "read" };
        let cause = Cause::Memory { access, error: error.to_string() };
        let detail = format!("while {}, {cause}: {what}", self.occupation());
        self.fail(transport, Some(self.settings.rank), FailureKind::Memory, detail);
    }

    /// Tells the application of a small message that is in its file.
    pub(crate) fn small_taken(&mut self, message: u64, bytes: u64) {
        if self.settings.report_blocks {
            let group = self.settings.number;
            self.events.push_back(Event::Block { group, message, offset: 0, bytes });
        }
        self.order.received(message);
        self.order.complete(message);
    }
}
