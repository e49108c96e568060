//! A barrier in memory that the processes of all members have mapped, the same for every program that is compared.
//!
//! Each program first passes its own barrier, which completes what it has begun: some send only within calls. Then all pass
//! this one, so that the measured operation starts at the same time everywhere and not beside what is left of a barrier.

use std::{
    fs::{self, OpenOptions},
    hint,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    process, thread,
    time::{Duration, Instant},
};

use clap::ValueEnum;
use transport::{FileAccess, PeerMemory};

use crate::outcome::Outcome;

/// Each member has a cache line of its own.
const LINE_BYTES: usize = 64;
/// For 64 members.
const BYTES: usize = 4096;
const TIMEOUT: Duration = Duration::from_secs(60);
/// How many loads there are between two looks at the clock.
const LOADS: u32 = 1 << 16;

/// What members pass before each measured operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Barrier {
    /// Their program's, then one in shared memory
    Shared,
    /// Their program's alone
    Own,
}

/// The memory of one barrier; processes of this user open it by its path while this exists.
#[derive(Debug)]
pub enum BarrierMemory {
    /// For members that are processes of this program. The file's length cannot change.
    Own(OwnedFd),
    /// For programs in C, which are in process namespaces, and have no `/proc` of this process.
    File(PathBuf),
}

impl BarrierMemory {
    pub fn own() -> Outcome<Self> {
        Ok(Self::Own(PeerMemory::zeroed(BYTES).share(FileAccess::Write)?))
    }

    /// A file in this directory.
    pub fn file(directory: &Path) -> Outcome<Self> {
        let path = directory.join("barrier");
        fs::write(&path, [0; BYTES])?;
        Ok(Self::File(path))
    }

    pub fn path(&self) -> PathBuf {
        match self {
            Self::Own(file) => format!("/proc/{}/fd/{}", process::id(), file.as_raw_fd()).into(),
            Self::File(path) => path.clone(),
        }
    }
}

/// One of the words that a member has on its cache line.
#[derive(Clone, Copy, Debug)]
pub enum Word {
    /// Counts arrivals at the barrier.
    Arrivals,
    /// Of an operation by bare memory.
    Value,
}

/// A member's view of the memory.
#[derive(Debug)]
pub struct Words {
    memory: PeerMemory,
    rank: usize,
    members: usize,
    /// There are more members than processors.
    yields: bool,
}

impl Words {
    pub fn open(path: &Path, rank: u32, members: u32) -> Outcome<Self> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let memory = PeerMemory::of_peer(&file.into(), BYTES, FileAccess::Write)?;
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let (rank, members) = (rank as usize, members as usize);
        Ok(Self { memory, rank, members, yields: members > cores })
    }

    pub fn rank(&self) -> usize {
        self.rank
    }

    pub fn members(&self) -> usize {
        self.members
    }

    /// Replaces a word of this member, after all that it has stored before.
    pub fn publish(&self, word: Word, value: u64) -> Outcome<()> {
        Ok(self.memory.publish(place(self.rank, word), &value.to_le_bytes())?)
    }

    /// A word of a member, as soon as it is one of those waited for. Errors: it is not for a minute.
    pub fn wait(&self, member: usize, word: Word, is_it: impl Fn(u64) -> bool) -> Outcome<u64> {
        let start = Instant::now();
        loop {
            for _ in 0..LOADS {
                let value = self.memory.load_word(place(member, word))?;
                if let Some(value) = value.filter(|&value| is_it(value)) {
                    return Ok(value);
                }
                if self.yields {
                    thread::yield_now();
                } else {
                    hint::spin_loop();
                }
            }
            if start.elapsed() > TIMEOUT {
                return Err(format!("member {member} has not come to the barrier").into());
            }
        }
    }
}

fn place(member: usize, word: Word) -> usize {
    member * LINE_BYTES + word as usize * 8
}

/// A member's end of the barrier. Programs in C have the same in tools/compare/peers/collectives.h.
#[derive(Debug)]
pub struct SharedBarrier {
    words: Words,
    /// How often this member has arrived.
    arrivals: u64,
}

impl SharedBarrier {
    pub fn new(words: Words) -> Self {
        Self { words, arrivals: 0 }
    }

    /// Waits until all members have called this as often. Errors: one has not for a minute.
    pub fn pass(&mut self) -> Outcome<()> {
        self.arrivals += 1;
        self.words.publish(Word::Arrivals, self.arrivals)?;
        for other in 0..self.words.members() {
            self.words.wait(other, Word::Arrivals, |arrivals| arrivals >= self.arrivals)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn nobody_passes_before_all_have_come() {
        const MEMBERS: u32 = 3;
        let (memory, entered) = (BarrierMemory::own().unwrap(), AtomicU64::new(0));
        thread::scope(|scope| {
            for rank in 0..MEMBERS {
                let (path, entered) = (memory.path(), &entered);
                scope.spawn(move || {
                    let mut barrier =
                        SharedBarrier::new(Words::open(&path, rank, MEMBERS).unwrap());
                    for round in 1..=200 {
                        entered.fetch_add(1, Ordering::Relaxed);
                        barrier.pass().unwrap();
                        assert!(entered.load(Ordering::Relaxed) >= round * u64::from(MEMBERS));
                    }
                });
            }
        });
    }
}
