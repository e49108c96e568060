//! Reads and writes of files. The engine does not execute them itself, since a disk may take any
//! time.

use std::{
    fmt, io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use transport::{ReadLease, Region, StoredRead, StoredWrite, WriteLease};

/// One transfer between memory and a file. It owns leases of both until it is done.
pub struct Job {
    /// The lane of its group.
    pub lane: Lane,
    /// Its number among the jobs of the lane.
    pub number: u64,
    /// A description for errors.
    pub what: What,
    /// The transfer.
    pub work: Work,
}

/// The jobs of one group at one engine: executed one after another, in order, and independently of
/// those of other groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lane {
    /// The group's number, which a later group may reuse.
    pub group: u64,
    /// A number that is unique in an engine.
    pub id: u64,
}

/// The description of a job.
#[derive(Clone)]
pub struct What {
    /// The message in its file.
    pub file: Region,
    /// Whether the file is written; otherwise it is read.
    pub is_write: bool,
    /// Length in bytes.
    pub bytes: u64,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (action, bytes) = (if self.is_write { "write" } else { "read" }, self.bytes);
        write!(f, "{action} of {bytes} bytes of {}", self.file.stored_name().unwrap_or_default())
    }
}

/// The source and the destination of a job.
pub enum Work {
    /// From a file into memory.
    Read {
        /// The file's range.
        from: StoredRead,
        /// Memory of the same length.
        into: WriteLease,
    },
    /// From memory into a file.
    Write {
        /// The memory.
        from: ReadLease,
        /// A range of the file of the same length.
        into: StoredWrite,
    },
}

/// The outcome of a job, which no longer uses its memory.
pub struct Done {
    /// Of which group.
    pub lane: Lane,
    /// The job's number.
    pub number: u64,
    /// The system's answer.
    pub outcome: io::Result<()>,
}

impl Job {
    /// Executes the job; blocks as long as the disk takes.
    pub fn run(self) -> Done {
        let Self { lane, number, work, .. } = self;
        let outcome = match work {
            Work::Read { from, mut into } => from.copy_to(&mut into),
            Work::Write { from, into } => into.copy_from(&from),
        };
        Done { lane, number, outcome }
    }
}

/// Executes jobs.
pub trait Disks: Send + Sync {
    /// Submits a job without waiting for it.
    fn submit(&self, job: Job);

    /// Returns whether [`Disks::take_done`] has something to append.
    fn has_done(&self) -> bool;

    /// Appends the outcomes of finished jobs.
    fn take_done(&self, done: &mut Vec<Done>);

    /// Ends a lane: no more jobs will be submitted for it.
    fn end(&self, lane: Lane);
}

/// Executes jobs in the call that submits them: for engines without threads.
#[derive(Default)]
pub struct AtOnce(Mutex<Vec<Done>>);

impl AtOnce {
    fn done(&self) -> MutexGuard<'_, Vec<Done>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Disks for AtOnce {
    fn submit(&self, job: Job) {
        let done = job.run();
        self.done().push(done);
    }

    fn has_done(&self) -> bool {
        !self.done().is_empty()
    }

    fn take_done(&self, done: &mut Vec<Done>) {
        done.append(&mut self.done());
    }

    fn end(&self, _: Lane) {}
}
