//! The jobs of one group that have not ended: reads and writes of files, and digests.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use relay::ReceiveId;
use transport::Region;

use crate::jobs::{Disks, Job, Lane, What, Work};

/// A block of a message: the message's number in the group, and the offset of the first byte.
pub(crate) type Place = (u64, u64);

/// A job to be submitted, of this message.
pub(crate) struct Request {
    pub(crate) what: What,
    pub(crate) message: u64,
    pub(crate) work: Work,
    pub(crate) then: Then,
}

/// A job that was submitted, or has just ended.
pub(crate) struct Ended {
    pub(crate) what: What,
    pub(crate) message: u64,
    pub(crate) then: Then,
}

/// What follows a job.
pub(crate) enum Then {
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
    /// The digests of these blocks are known.
    Digested { blocks: Vec<u32> },
}

/// The jobs of one lane, which ends with this.
pub(crate) struct JobList {
    disks: Arc<dyn Disks>,
    lane: Lane,
    submitted: u64,
    /// Submitted jobs that have not ended.
    jobs: BTreeMap<u64, Ended>,
    /// When a job ended last, or the first of the current jobs was submitted.
    moved: Duration,
}

impl JobList {
    pub(crate) fn new(disks: Arc<dyn Disks>, lane: Lane) -> Self {
        Self { disks, lane, submitted: 0, jobs: BTreeMap::new(), moved: Duration::ZERO }
    }

    pub(crate) fn lane(&self) -> Lane {
        self.lane
    }

    pub(crate) fn submit(&mut self, request: Request, now: Duration) {
        if self.jobs.is_empty() {
            self.moved = now;
        }
        let (number, Request { what, message, work, then }) = (self.submitted, request);
        self.submitted += 1;
        self.jobs.insert(number, Ended { what: what.clone(), message, then });
        self.disks.submit(Job { lane: self.lane, number, what, work });
    }

    /// Removes a job that has ended. `None`: there is no such job.
    pub(crate) fn end(&mut self, number: u64, now: Duration) -> Option<Ended> {
        let ended = self.jobs.remove(&number)?;
        self.moved = now;
        Some(ended)
    }

    /// Gives up jobs that have not begun; they end soon. No more are submitted.
    pub(crate) fn give_up(&self) {
        self.disks.end(self.lane);
    }

    /// Returns whether jobs have not ended, so that memory that the application provided is in use.
    pub(crate) fn is_busy(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Returns whether blocks are being read or written.
    pub(crate) fn moves_blocks(&self) -> bool {
        self.jobs.values().any(|job| !matches!(job.then, Then::Digested { .. }))
    }

    /// Returns whether a job of this message has not ended.
    pub(crate) fn uses(&self, message: u64) -> bool {
        self.jobs.values().any(|job| job.message == message)
    }

    /// Returns since when no job has ended, while there are any.
    pub(crate) fn stuck_since(&self) -> Option<Duration> {
        self.is_busy().then_some(self.moved)
    }

    /// Describes the job that is waited for.
    pub(crate) fn occupation(&self) -> Option<String> {
        self.jobs.values().next().map(|job| job.what.to_string())
    }
}

impl Drop for JobList {
    fn drop(&mut self) {
        self.give_up();
    }
}
