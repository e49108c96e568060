//! Reads and writes of files, which the engine does not carry out itself: they take as long
//! as a disk takes.

use std::{
    fmt, io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use transport::{ReadLease, Region, StoredRead, StoredWrite, WriteLease};

/// One transfer between memory and a file. It holds both until it is done.
pub struct Job {
    /// Of which group.
    pub lane: Lane,
    /// Its number among the jobs of the lane.
    pub number: u64,
    /// In words.
    pub what: What,
    /// What is to be done.
    pub work: Work,
}

/// The jobs of one group at one engine: carried out one after another, in order, and not held up by
/// those of other groups.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Lane {
    /// The group's number, which a later group may have again.
    pub group: u64,
    /// Unique in an engine.
    pub id: u64,
}

/// What a job is, in words.
#[derive(Clone)]
pub struct What {
    /// The message in its file.
    pub file: Region,
    /// Else it is read.
    pub is_write: bool,
    /// How much of it.
    pub bytes: u64,
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (action, bytes) = (if self.is_write { "write" } else { "read" }, self.bytes);
        write!(f, "{action} of {bytes} bytes of {}", self.file.stored_name().unwrap_or_default())
    }
}

/// What a job moves, and where to.
pub enum Work {
    /// From a file into memory.
    Read {
        /// The file's range.
        from: StoredRead,
        /// As much memory.
        into: WriteLease,
    },
    /// From memory into a file.
    Write {
        /// The memory.
        from: ReadLease,
        /// As long a range of the file.
        into: StoredWrite,
    },
}

/// A job that is done and no longer uses its memory.
pub struct Done {
    /// Of which group.
    pub lane: Lane,
    /// The job's number.
    pub number: u64,
    /// The system's answer.
    pub outcome: io::Result<()>,
}

impl Job {
    /// Blocks as long as the disk takes.
    pub fn run(self) -> Done {
        let Self { lane, number, work, .. } = self;
        let outcome = match work {
            Work::Read { from, mut into } => from.copy_to(&mut into),
            Work::Write { from, into } => into.copy_from(&from),
        };
        Done { lane, number, outcome }
    }
}

/// Carries out jobs.
pub trait Disks: Send + Sync {
    /// Takes a job, and does not wait for it.
    fn submit(&self, job: Job);

    /// Whether [`Disks::take_done`] has something to give.
    fn has_done(&self) -> bool;

    /// Appends what is done.
    fn take_done(&self, done: &mut Vec<Done>);

    /// No more jobs of this lane will come.
    fn end(&self, lane: Lane);
}

/// Carries out jobs where they are submitted: for engines that have no threads.
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
