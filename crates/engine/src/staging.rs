//! Messages whose bytes are in files: their blocks pass through memory of the group.
//!
//! A block that is sent is read from its file into memory first; a block that arrives is received
//! into memory, then written to its file, and only then reported to the relay. [`Disks`] reads and
//! writes, so the thread that makes progress never waits for a disk, and the network never accesses
//! a file (docs/decisions/storage.md). Blocks of files are in [`FileBlocks`], and with offload whole messages in
//! [`Shadows`].

use std::{sync::Arc, time::Duration};

use relay::{ReceiveId, RelayError};
use transport::{LeaseError, ReadLease, Region, WriteLease};

use crate::{
    file_blocks::FileBlocks,
    job_list::{JobList, Place, Request, Then},
    jobs::{Disks, Lane, What, Work},
    memory::range,
    shadows::Shadows,
};

/// What one member of one group moves between files and the network.
pub(crate) struct Staging {
    pub(crate) jobs: JobList,
    pub(crate) blocks: FileBlocks,
    /// With offload only.
    shadows: Option<Shadows>,
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
            jobs: JobList::new(disks, lane),
            blocks: FileBlocks::new(block_bytes, made_max),
            shadows: is_offloaded.then(Shadows::default),
        }
    }

    /// Drops everything that no job uses, and jobs that have not begun; called once the group has failed.
    pub(crate) fn clear(&mut self) {
        self.jobs.give_up();
        self.blocks.clear();
        self.shadows.iter_mut().for_each(Shadows::clear);
    }

    /// Drops the blocks of a message that is complete.
    pub(crate) fn forget(&mut self, message: u64) {
        self.blocks.forget(message);
        self.shadows.iter_mut().for_each(|shadows| shadows.forget(message));
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
        let shadow = self.shadows.as_mut().map(|shadows| shadows.of(place.0, &file));
        self.blocks.land(id, file, place, bytes, shadow)
    }

    /// Returns memory that has the whole message, for a network that relays by itself: a shadow of a
    /// file, else the message's own.
    pub(crate) fn whole(&mut self, number: u64, region: Region) -> Region {
        match &mut self.shadows {
            Some(shadows) if region.is_stored() => shadows.of(number, &region),
            _ => region,
        }
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
        let request = self.blocks.landed(id, bytes, immediate)?;
        Ok(request.map(|request| self.jobs.submit(request, now)).is_some())
    }

    /// Reads a block of a file into memory, unless it is there or being read. Errors: the file is being written.
    pub(crate) fn load(
        &mut self,
        place: Place,
        file: &Region,
        bytes: u64,
        now: Duration,
    ) -> Result<(), LeaseError> {
        if let Some(request) = self.blocks.load(place, file, bytes)? {
            self.jobs.submit(request, now);
        }
        Ok(())
    }

    /// Writes bytes to their place in a file. Errors: it is in use.
    pub(crate) fn store(
        &mut self,
        from: ReadLease,
        file: &Region,
        (message, offset): Place,
        then: Then,
        now: Duration,
    ) -> Result<(), LeaseError> {
        let bytes = from.len() as u64;
        let into = file.write_stored(range(offset, bytes))?;
        let (what, work) = (What::new("write", file, bytes), Work::Write { from, into });
        self.jobs.submit(Request { what, message, work, then }, now);
        Ok(())
    }

    /// Offload: returns whether messages wait to be read before they can be relayed.
    pub(crate) fn has_unsent(&self) -> bool {
        self.shadows.as_ref().is_some_and(Shadows::has_unsent)
    }

    /// Offload: queues a message, which is relayed after those before it, once it is read if it is in
    /// a file. Errors: the file is being written.
    pub(crate) fn queue_message(
        &mut self,
        number: u64,
        region: &Region,
        now: Duration,
    ) -> Result<(), LeaseError> {
        let Some(shadows) = &mut self.shadows else { return Ok(()) };
        if let Some(request) = shadows.queue(number, region)? {
            self.jobs.submit(request, now);
        }
        Ok(())
    }

    /// Notes that the block of a receive is in its file. `memory`: it is there as well.
    pub(crate) fn written(&mut self, id: ReceiveId, place: Place, memory: Region) {
        self.blocks.written(id, place, self.shadows.is_none().then_some(memory));
    }

    /// Offload: notes that a message was read. Returns the numbers and lengths of those that can be relayed
    /// now.
    pub(crate) fn shadowed(&mut self, message: u64) -> Vec<(u64, u64)> {
        self.shadows.as_mut().map(|shadows| shadows.read(message)).unwrap_or_default()
    }
}
