//! The least that members on one machine can do: each stores a number, and polls for the other's.

use std::{
    hint,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use super::pair::{Pair, Wait};
use crate::outcome::Outcome;

/// How many loads come before others may run.
const SPINS: u32 = 100;

/// A number on a cache line of its own, and what is beside it.
#[repr(align(128))]
#[derive(Default)]
struct Line(AtomicU64);

/// A member. Processes would map the lines, threads share them: the processor moves the same lines.
pub struct CacheLines {
    lines: Arc<[Line; 2]>,
    rank: usize,
    operations: u64,
}

impl CacheLines {
    /// Both members.
    pub fn pair() -> [Self; 2] {
        let lines: Arc<[Line; 2]> = Arc::default();
        [0, 1].map(|rank| Self { lines: Arc::clone(&lines), rank, operations: 0 })
    }
}

impl Pair for CacheLines {
    fn operate(&mut self) -> Outcome<()> {
        self.operations += 1;
        self.lines[self.rank].0.store(self.operations, Ordering::Release);
        let theirs = &self.lines[1 - self.rank].0;
        Wait::Yielding.until(|| {
            let mut spins = 0;
            while theirs.load(Ordering::Acquire) < self.operations && spins < SPINS {
                hint::spin_loop();
                spins += 1;
            }
            Ok(theirs.load(Ordering::Acquire) >= self.operations)
        })
    }
}
