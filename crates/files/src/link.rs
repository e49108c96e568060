//! Links: groups of two members, in which one sends the other what that lacks of an object, each chunk as soon as it has it.
//!
//! Each chunk is two messages: its number, and its bytes. The lowest one that is lacked there and is here goes first, so that files
//! complete in the same order at all hosts. A sender does not have to have anything when the link begins
//! ([`schedule::attach`]). What was received counts, and is passed on, once it equals the root's digest of that chunk: a
//! member that lies, or memory that errs, harms nobody but its neighbour, which gets the chunk again.

use std::{
    collections::BTreeSet,
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rdmc::{Error, Failure, Group, Region};

use crate::{ranges::Ranges, resume::Chunking, sending::own_failure, watched::Watched};

/// The most messages of a link under way.
pub(crate) const MESSAGES_IN_FLIGHT: u32 = 8;
/// Length of a message that is a chunk's number.
pub(crate) const NUMBER_BYTES: usize = 4;
/// How long a wait for a group may last before it is begun again. A group that is stuck fails by itself.
pub(crate) const WAIT: Duration = Duration::from_secs(3600);

/// The chunks that a link has to bring.
pub struct Owed {
    chunking: Chunking,
    chunks: BTreeSet<u32>,
}

impl Owed {
    /// Every chunk with a byte in these ranges of an object with this division.
    pub fn new(chunking: Chunking, missing: &Ranges) -> Self {
        let chunks = missing.iter().flat_map(|range| chunking.chunks_of(range));
        Self { chunking, chunks: chunks.collect() }
    }

    /// Takes the lowest chunk of which all bytes are in `has`.
    pub fn take(&mut self, has: &Ranges) -> Option<u32> {
        let bytes = self.chunking.chunk_bytes;
        let found = has.iter().find_map(|(start, end)| {
            let first = start.div_ceil(bytes) as u32;
            let chunk = *self.chunks.range(first..).next()?;
            (self.chunking.range(chunk).1 <= end).then_some(chunk)
        });
        found.inspect(|chunk| {
            self.chunks.remove(chunk);
        })
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }
}

/// The sender's end of a link, which a thread runs.
pub(crate) struct LinkSender {
    pub(crate) group: Arc<Group>,
    /// The object.
    pub(crate) region: Region,
    /// What is here of it; changes are announced by `arrivals`.
    pub(crate) has: Box<dyn Fn() -> Ranges + Send>,
    pub(crate) arrivals: Arc<Watched<()>>,
    /// Counts the bytes of chunks that were sent.
    pub(crate) sent: Arc<AtomicU64>,
}

impl LinkSender {
    /// Starts the thread, which sends everything of `missing` and calls `done` when the group has closed, or failed.
    ///
    /// Errors: no thread.
    pub(crate) fn start(
        self,
        missing: &Ranges,
        done: impl FnOnce(Result<(), Failure>) + Send + 'static,
    ) -> Result<thread::JoinHandle<()>, Error> {
        let owed = Owed::new(Chunking::of_links(self.region.len() as u64), missing);
        let send = move || done(self.send_all(owed).map_err(|error| self.failure(&error)));
        let thread = thread::Builder::new().name("rdmc-link-tx".into()).spawn(send);
        thread.map_err(|error| crate::system::system("starting a thread", error))
    }

    fn send_all(&self, mut owed: Owed) -> Result<(), Error> {
        let chunking = owed.chunking;
        while !owed.is_empty() {
            let has_ended = || self.group.is_closing();
            let next = self.arrivals.wait(|()| owed.take(&(self.has)()), has_ended);
            // One that has ended says why when it is closed.
            let Some(chunk) = next else { break };
            let (start, end) = chunking.range(chunk);
            let part = self.region.slice(start as usize..end as usize);
            let part = part.map_err(|error| Error::Transport(error.to_string()))?;
            self.send(Region::from_vec(chunk.to_le_bytes().to_vec()))?;
            self.send(part)?;
            self.sent.fetch_add(end - start, Ordering::Relaxed);
        }
        self.group.close(WAIT)
    }

    fn send(&self, region: Region) -> Result<(), Error> {
        let mut left = region;
        loop {
            match self.group.send(left, WAIT) {
                Err(Error::QueueFull { region, .. }) => left = region,
                sent => return sent.map(drop),
            }
        }
    }

    fn failure(&self, error: &dyn fmt::Display) -> Failure {
        self.group.failure().unwrap_or_else(|| {
            // It has not failed yet, and the other end waits.
            self.group.abort(&error.to_string());
            own_failure(self.group.settings(), error)
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    fn ranges(list: &[(u64, u64)]) -> Ranges {
        list.iter().copied().collect()
    }

    #[test]
    fn the_lowest_chunk_that_is_whole_here_goes_first() {
        let bytes = 5 * MIB + 7;
        let mut owed =
            Owed::new(Chunking::of(bytes), &ranges(&[(0, 2 * MIB), (3 * MIB + 1, bytes)]));
        assert_eq!(owed.take(&Ranges::default()), None);
        let has = ranges(&[(1, 2 * MIB), (2 * MIB, 4 * MIB + 5)]);
        assert_eq!(owed.take(&has), Some(1));
        assert_eq!(owed.take(&has), Some(3), "a part of it is lacked there");
        assert_eq!(owed.take(&has), None, "0 and 4 are not whole here, 2 is there");
        let all = ranges(&[(0, bytes)]);
        assert_eq!(
            [owed.take(&all), owed.take(&all), owed.take(&all)],
            [Some(0), Some(4), Some(5)]
        );
        assert!(owed.is_empty() && owed.take(&all).is_none());
    }

    proptest! {
        #[test]
        fn every_chunk_is_sent_once_whatever_arrives_when(
            missing in prop::collection::vec((0..30 * MIB, 0..30 * MIB), 0..5),
            arrivals in prop::collection::vec((0..30_u64, 0..30_u64), 0..20),
        ) {
            let bytes = 30 * MIB - 1;
            let missing: Ranges = missing.into_iter().map(|(start, end)| (start, end.min(bytes))).collect();
            let chunking = Chunking::of(bytes);
            let is_lacked = |chunk: &u32| {
                let range = chunking.range(*chunk);
                missing.gaps(range).map(|(start, end)| end - start).sum::<u64>() < range.1 - range.0
            };
            let (mut owed, mut has, mut taken) = (Owed::new(chunking, &missing), Ranges::default(), Vec::new());
            for (start, end) in arrivals.into_iter().chain([(0, 30)]) {
                has.add((start * MIB, (end * MIB).min(bytes)));
                while let Some(chunk) = owed.take(&has) {
                    prop_assert!(has.covers(chunking.range(chunk)));
                    taken.push(chunk);
                }
            }
            taken.sort_unstable();
            prop_assert_eq!(taken, (0..30).filter(is_lacked).collect::<Vec<u32>>());
            prop_assert!(owed.is_empty());
        }
    }
}
