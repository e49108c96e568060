//! Reads and writes of files, and digests of blocks. The engine does not execute them itself, since a
//! disk may take any time.

use std::{
    fmt, io,
    sync::{Mutex, MutexGuard, PoisonError},
};

use transport::{ReadLease, Region, StoredRead, StoredWrite, WriteLease};

/// The BLAKE3 digest of a block, or of a message's blocks' digests.
pub type Digest = [u8; 32];

/// One transfer between memory and a file, or the digests of some blocks. It owns leases of all memory and
/// files until it is done.
pub struct Job {
    /// The lane of its group.
    pub lane: Lane,
    /// Its number among the jobs of the lane.
    pub number: u64,
    /// A description for errors.
    pub what: What,
    /// What is to be done.
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
#[derive(Clone, Debug)]
pub struct What {
    /// The message, in its file or in memory.
    pub region: Region,
    /// In one word.
    pub action: &'static str,
    /// Length in bytes.
    pub bytes: u64,
}

impl What {
    pub(crate) fn new(action: &'static str, region: &Region, bytes: u64) -> Self {
        Self { region: region.clone(), action, bytes }
    }
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { region, action, bytes } = self;
        let name = region.stored_name();
        write!(f, "{action} of {bytes} bytes of {}", name.as_deref().unwrap_or("memory"))
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
    /// The digest of each of these blocks.
    Digest {
        /// The blocks, where the message is.
        blocks: Vec<Source>,
    },
}

/// A block whose digest is computed.
pub enum Source {
    /// In memory.
    Memory(ReadLease),
    /// In a file: what it has is read.
    Stored(StoredRead),
}

impl Source {
    pub(crate) fn digest(&self) -> io::Result<Digest> {
        Ok(match self {
            Self::Memory(bytes) => *blake3::hash(bytes).as_bytes(),
            Self::Stored(file) => {
                let mut bytes = vec![0; file.bytes()];
                file.copy_to(&mut bytes)?;
                *blake3::hash(&bytes).as_bytes()
            }
        })
    }
}

/// The outcome of a job, which no longer uses its memory.
pub struct Done {
    /// Of which group.
    pub lane: Lane,
    /// The job's number.
    pub number: u64,
    /// The digests that were computed, in order; or why the job could not be done.
    pub outcome: io::Result<Vec<Digest>>,
}

impl Job {
    /// Executes the job; blocks as long as the disk takes.
    pub fn run(self) -> Done {
        let Self { lane, number, work, .. } = self;
        let outcome = match work {
            Work::Read { from, mut into } => from.copy_to(&mut into).map(|()| Vec::new()),
            Work::Write { from, into } => into.copy_from(&from).map(|()| Vec::new()),
            Work::Digest { blocks } => blocks.iter().map(Source::digest).collect(),
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

    /// Ends a lane: no more jobs will be submitted for it, and the outcomes of those that were are not needed.
    /// Jobs that have not begun need not be executed; [`Disks::take_done`] still appends each, once it uses
    /// its memory no more. May be called again.
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
