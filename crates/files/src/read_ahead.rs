//! Asking the system to read a file ahead of its reader, so that a file that is not in memory does not hold the reader up
//! for each block.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use crate::{disk, ranges::ByteRange};

/// How far ahead.
const AHEAD_BYTES: u64 = 16 << 20;
/// The least that is asked for at once, but at the end.
const STEP_BYTES: u64 = 4 << 20;

/// How far one reader's object was asked for. The reader may have several threads, each a little ahead of the others.
///
/// Nothing is asked for until something is found not to be in memory: asking costs processor time, as the system takes
/// smaller pages for it than for what it reads ahead by itself.
#[derive(Default, Debug)]
pub(crate) struct ReadAhead {
    is_needed: AtomicBool,
    asked: Mutex<u64>,
}

impl ReadAhead {
    /// Fills `into` with the object's bytes from `at` on, which are in `file`, the part `holds` of the object. Before it
    /// waits for the disk it asks for what follows in that file.
    ///
    /// Errors: the system's; the file is too short.
    pub(crate) fn read_exact(
        &self,
        file: &File,
        holds: ByteRange,
        into: &mut [u8],
        at: u64,
    ) -> io::Result<()> {
        if !self.is_needed.load(Ordering::Relaxed) {
            if disk::read_from_memory(file, into, at - holds.0) == Ok(into.len()) {
                return Ok(());
            }
            self.is_needed.store(true, Ordering::Relaxed);
        }
        let reads = (at, at + into.len() as u64);
        let ask =
            next(&mut self.asked.lock().unwrap_or_else(PoisonError::into_inner), reads, holds.1);
        if let Some((start, end)) = ask {
            disk::read_ahead(file, (start - holds.0, end - holds.0));
        }
        file.read_exact_at(into, at - holds.0)
    }
}

/// The bytes to be asked for next. `asked`: all before this was asked for; `end`: where the file ends.
fn next(asked: &mut u64, reads: ByteRange, end: u64) -> Option<ByteRange> {
    let has_jumped = reads.0 > *asked || *asked > reads.1.saturating_add(2 * AHEAD_BYTES);
    if has_jumped {
        *asked = reads.0;
    }
    let goal = end.min(reads.1.saturating_add(AHEAD_BYTES));
    let is_worth_it = goal > *asked && (goal - *asked >= STEP_BYTES || goal == end);
    is_worth_it.then(|| (std::mem::replace(asked, goal), goal))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    #[test]
    fn a_sequential_reader_has_every_byte_asked_for_once_and_never_far_ahead() {
        for bytes in [0, 1, MIB, 16 * MIB, 17 * MIB, 100 * MIB + 5] {
            for block in [MIB / 4, MIB, 40 * MIB] {
                let (mut asked, mut calls, mut from) = (0, 0, 0);
                for start in (0..bytes).step_by(block as usize) {
                    let end = bytes.min(start + block);
                    if let Some(range) = next(&mut asked, (start, end), bytes) {
                        assert_eq!(range.0, from);
                        assert!(range.0 < range.1 && range.1 <= bytes.min(end + AHEAD_BYTES));
                        (from, calls) = (range.1, calls + 1);
                    }
                    // At least that much is being read before its block is due.
                    assert!(from >= bytes.min(end + AHEAD_BYTES - STEP_BYTES));
                }
                assert_eq!(from, bytes);
                assert!(calls <= bytes / STEP_BYTES + 1, "{calls} of {bytes}");
            }
        }
    }

    #[test]
    fn readers_a_little_apart_ask_for_nothing_twice() {
        let mut asked = 0;
        let (mut from, bytes) = (0, 200 * MIB);
        for start in (0..bytes).step_by(8 * MIB as usize) {
            for piece in [0, 3, 7, 1, 2, 6, 5, 4] {
                let start = start + piece * MIB;
                if let Some(range) = next(&mut asked, (start, start + MIB), bytes) {
                    assert_eq!(range.0, from);
                    from = range.1;
                }
            }
        }
        assert_eq!(from, bytes);
    }

    #[test]
    fn a_reader_that_jumps_is_followed() {
        let mut asked = 0;
        assert_eq!(next(&mut asked, (50 * MIB, 51 * MIB), 99 * MIB), Some((50 * MIB, 67 * MIB)));
        assert_eq!(next(&mut asked, (0, MIB), 99 * MIB), Some((0, 17 * MIB)));
        assert_eq!(next(&mut asked, (98 * MIB, 99 * MIB), 99 * MIB), Some((98 * MIB, 99 * MIB)));
    }

    #[test]
    fn files_of_one_object_follow_each_other() {
        let mut asked = 0;
        assert_eq!(next(&mut asked, (0, MIB), 3 * MIB), Some((0, 3 * MIB)));
        assert_eq!(next(&mut asked, (MIB, 3 * MIB), 3 * MIB), None);
        assert_eq!(next(&mut asked, (3 * MIB, 4 * MIB), 99 * MIB), Some((3 * MIB, 20 * MIB)));
    }
}
