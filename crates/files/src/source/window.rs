//! Which parts of a remote source are held in memory, for the two that read it at about the same time: what sends it, and what
//! digests it. Without threads and waits, which are in [`super::fetching`].
//!
//! The reader that is ahead has a chunk fetched, and the chunk is held until the other one has read it as well. If there is no
//! room for another chunk, the one ahead waits; the one behind gets the place of the chunk that is needed last.

use std::collections::BTreeMap;

use crate::ranges::{ByteRange, Ranges};

/// How much is held, and fetched at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Length of a chunk, the most that is fetched by one thread at a time.
    pub(super) chunk_bytes: u64,
    /// The most chunks that are held, those included that are being fetched.
    pub(super) chunks_max: usize,
    /// The most that are fetched at once.
    pub(super) fetches_max: usize,
}

/// How many further chunks are fetched where a reader begins that has planned nothing: one that sends again what was lost.
const UNPLANNED_CHUNKS: u64 = 2;

/// Who reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Reader {
    /// What sends to the hosts.
    Sender,
    /// What digests files.
    Digest,
}

/// What a reader gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// The bytes.
    Done,
    /// They are being fetched, or will be.
    Wait,
    /// There is no room for them before the other reader has read what is held.
    Full,
    /// They have to be read without the window.
    Apart,
}

/// The parts of an object that are held.
#[derive(Debug)]
pub(super) struct Window {
    limits: Limits,
    bytes: u64,
    chunks: BTreeMap<u64, Chunk>,
    /// What each reader will read.
    planned: [Ranges; 2],
    /// The last chunk that each reader has asked for.
    last: [Option<u64>; 2],
    /// How many may be fetched at once: more as long as each comes quickly.
    fetches: usize,
}

#[derive(Debug)]
struct Chunk {
    /// What of it is fetched.
    wanted: Ranges,
    /// Where its contents begin in the object.
    start: u64,
    /// What has come, with zeros where nothing is wanted.
    contents: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Queued,
    Fetched,
    Whole,
}

impl Reader {
    /// The other one.
    pub(super) fn other(self) -> Self {
        match self {
            Self::Sender => Self::Digest,
            Self::Digest => Self::Sender,
        }
    }
}

impl Window {
    pub(super) fn new(bytes: u64, limits: Limits) -> Self {
        let (chunks, planned, last) = Default::default();
        Self { limits, bytes, chunks, planned, last, fetches: 1 }
    }

    /// A reader will read these ranges.
    pub(super) fn plan(&mut self, reader: Reader, ranges: impl IntoIterator<Item = ByteRange>) {
        self.planned[reader as usize].extend(ranges);
    }

    /// It will not.
    pub(super) fn give_up(&mut self, reader: Reader, range: ByteRange) {
        self.planned[reader as usize].remove(range);
    }

    /// A reader has not read for too long: nothing is held for it until it reads again.
    pub(super) fn on_absent(&mut self, reader: Reader) {
        self.planned[reader as usize] = Ranges::default();
    }

    /// How much of a range from its start on is in one chunk, in bytes.
    pub(super) fn first_part(&self, (start, end): ByteRange) -> u64 {
        end.min(self.range_of(start / self.limits.chunk_bytes).1) - start
    }

    /// Fills `into` with what is from `at` on, within one chunk, if it is held.
    pub(super) fn read(&mut self, reader: Reader, into: &mut [u8], at: u64) -> Access {
        let number = at / self.limits.chunk_bytes;
        let range = (at, at + into.len() as u64);
        if self.chunks.get(&number).is_some_and(|chunk| !chunk.wanted.covers(range)) {
            let is_free = self.is_free(number);
            if !is_free {
                // Nothing is held for it.
                self.give_up(reader, range);
                return Access::Apart;
            }
            self.chunks.remove(&number);
        }
        self.last[reader as usize] = Some(number);
        if let Some(chunk) = self.chunks.get(&number) {
            let start = (at - chunk.start) as usize;
            let Some(held) = chunk.contents.get(start..start + into.len()) else {
                // It stays until it is read.
                self.plan(reader, [range]);
                return Access::Wait;
            };
            into.copy_from_slice(held);
            self.give_up(reader, range);
            return Access::Done;
        }
        let is_first = self.chunks.last_key_value().is_none_or(|(&last, _)| number > last);
        let has_room = !(is_first && self.keeps_room_before(number, reader.other()));
        if !(has_room && self.make_room(1)) {
            if is_first {
                return Access::Full;
            }
            // The last of those after it is needed last.
            let after = self.chunks.range(number..).rev();
            let mut whole = after.filter(|(_, chunk)| chunk.state == State::Whole);
            let Some(last) = whole.next().map(|(&last, _)| last) else { return Access::Wait };
            self.chunks.remove(&last);
        }
        if !self.planned[reader as usize].covers(range) {
            // What follows is probably read next.
            self.plan(reader, [(at, self.range_of(number + UNPLANNED_CHUNKS).1)]);
        }
        self.queue(number);
        Access::Wait
    }

    /// The next chunk to be fetched, if one more may be, and what of it; it counts as being fetched then.
    pub(super) fn next_fetch(&mut self) -> Option<(u64, Ranges)> {
        let running = self.chunks.values().filter(|chunk| chunk.state == State::Fetched).count();
        if running >= self.fetches {
            return None;
        }
        if !self.chunks.values().any(|chunk| chunk.state == State::Queued) {
            let ahead = self.next_ahead()?;
            // The last place is for what is asked for: otherwise this would lose its place to that, and be fetched again.
            if !self.make_room(2) {
                return None;
            }
            self.queue(ahead);
        }
        let (&number, chunk) =
            self.chunks.iter_mut().find(|(_, chunk)| chunk.state == State::Queued)?;
        chunk.state = State::Fetched;
        Some((number, chunk.wanted.clone()))
    }

    /// Bytes of a chunk that is being fetched have come, in order.
    pub(super) fn on_bytes(&mut self, number: u64, at: u64, bytes: &[u8]) {
        if let Some(chunk) = self.chunks.get_mut(&number) {
            chunk.contents.resize((at - chunk.start) as usize, 0);
            chunk.contents.extend_from_slice(bytes);
        }
    }

    /// A chunk has come as a whole. `is_quick`: so soon that more may be fetched at once.
    pub(super) fn on_fetched(&mut self, number: u64, is_quick: bool) {
        self.fetches = match is_quick {
            true => (self.fetches + 1).min(self.limits.fetches_max),
            false => (self.fetches / 2).max(1),
        };
        if let Some(chunk) = self.chunks.get_mut(&number) {
            chunk.state = State::Whole;
        }
    }

    fn range_of(&self, number: u64) -> ByteRange {
        let start = self.bytes.min(number * self.limits.chunk_bytes);
        (start, self.bytes.min(start + self.limits.chunk_bytes))
    }

    /// The next chunk that is not held of those that any reader has planned.
    fn next_ahead(&self) -> Option<u64> {
        [Reader::Sender, Reader::Digest].into_iter().filter_map(|it| self.next_of(it)).min()
    }

    /// The same of one reader, from the last chunk on that it has asked for: that may have had no room.
    fn next_of(&self, reader: Reader) -> Option<u64> {
        let end = self.bytes.div_ceil(self.limits.chunk_bytes);
        let next = self.last[reader as usize]?;
        let planned = &self.planned[reader as usize];
        let is_next = |number: &u64| {
            !self.chunks.contains_key(number) && planned.overlaps(self.range_of(*number))
        };
        (next..end.min(next + 1 + self.limits.chunks_max as u64)).find(is_next)
    }

    /// Whether the last place is for a chunk before this one, which another reader needs earlier.
    fn keeps_room_before(&self, number: u64, other: Reader) -> bool {
        let held = self.chunks.keys().filter(|&&held| !self.is_free(held)).count();
        held + 1 == self.limits.chunks_max && self.next_of(other).is_some_and(|it| it < number)
    }

    fn is_planned(&self, number: u64) -> bool {
        self.planned.iter().any(|planned| planned.overlaps(self.range_of(number)))
    }

    fn is_free(&self, number: u64) -> bool {
        let is_whole = self.chunks.get(&number).is_some_and(|chunk| chunk.state == State::Whole);
        is_whole && !self.is_planned(number)
    }

    /// Whether this many further chunks can be held. Forgets some that no reader has planned to read, if necessary.
    fn make_room(&mut self, further: usize) -> bool {
        while self.chunks.len() + further > self.limits.chunks_max {
            let free = self.chunks.keys().copied().find(|&number| self.is_free(number));
            let Some(free) = free else { return false };
            self.chunks.remove(&free);
        }
        true
    }

    fn queue(&mut self, number: u64) {
        let range = self.range_of(number);
        let whole: Ranges = [range].into_iter().collect();
        let [sent, digested] = &self.planned;
        let mut wanted = sent.intersection(&whole);
        wanted.extend(digested.intersection(&whole).iter());
        let (start, end) = wanted
            .iter()
            .fold((range.1, range.0), |(start, end), part| (start.min(part.0), end.max(part.1)));
        let contents = Vec::with_capacity(end.saturating_sub(start) as usize);
        self.chunks.insert(number, Chunk { wanted, start, contents, state: State::Queued });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const LIMITS: Limits = Limits { chunk_bytes: 8, chunks_max: 4, fetches_max: 3 };

    fn byte(at: u64) -> u8 {
        (at * 7 % 251) as u8
    }

    /// Fetches everything that may be, as if by one thread; counts the bytes.
    fn fetch(window: &mut Window) -> u64 {
        let mut fetched = 0;
        while let Some((number, wanted)) = window.next_fetch() {
            for (start, end) in wanted.iter() {
                let bytes: Vec<u8> = (start..end).map(byte).collect();
                window.on_bytes(number, start, &bytes);
                fetched += end - start;
            }
            window.on_fetched(number, true);
        }
        fetched
    }

    fn held(window: &Window) -> u64 {
        window.chunks.values().map(|chunk| chunk.contents.capacity() as u64).sum()
    }

    #[test]
    fn two_readers_that_follow_each_other_have_each_byte_fetched_once() {
        let all = [(0, 100)];
        let mut window = Window::new(100, LIMITS);
        window.plan(Reader::Sender, all);
        window.plan(Reader::Digest, all);
        let (mut fetched, mut at, mut was_full) = (0, [0_u64; 2], false);
        while at != [100, 100] {
            let before = at;
            // What digests runs ahead as far as it can.
            for reader in [Reader::Digest, Reader::Digest, Reader::Digest, Reader::Sender] {
                let position = &mut at[reader as usize];
                if *position == 100 {
                    continue;
                }
                let mut into = vec![0; window.first_part((*position, 100)).min(3) as usize];
                match window.read(reader, &mut into, *position) {
                    Access::Done => {
                        let end = *position + into.len() as u64;
                        assert_eq!(into, (*position..end).map(byte).collect::<Vec<_>>());
                        *position = end;
                    }
                    Access::Wait => fetched += fetch(&mut window),
                    Access::Full => was_full = reader == Reader::Digest,
                    Access::Apart => panic!("nothing is behind"),
                }
            }
            assert!(before != at || fetched > 0);
        }
        assert_eq!((fetched, was_full), (100, true));
    }

    #[test]
    fn nothing_is_held_for_a_reader_that_has_gone() {
        let mut window = Window::new(100, LIMITS);
        window.plan(Reader::Sender, [(0, 100)]);
        window.plan(Reader::Digest, [(0, 100)]);
        let mut read = |window: &mut Window, at: u64| loop {
            match window.read(Reader::Digest, &mut [0; 4], at) {
                Access::Wait => assert!(fetch(window) > 0),
                other => return other,
            }
        };
        let first = |window: &mut Window, read: &mut dyn FnMut(&mut Window, u64) -> Access| {
            (0..25).find(|at| read(window, at * 4) != Access::Done)
        };
        assert_eq!(first(&mut window, &mut read), Some(8));
        assert_eq!(read(&mut window, 32), Access::Full);
        window.on_absent(Reader::Sender);
        assert_eq!((8..25).find(|at| read(&mut window, at * 4) != Access::Done), None);
        // It has come after all, and what it needs is not there any more.
        assert_eq!(window.read(Reader::Sender, &mut [0; 4], 0), Access::Wait);
    }

    #[test]
    fn only_what_is_planned_is_fetched() {
        let mut window = Window::new(100, LIMITS);
        window.plan(Reader::Digest, [(9, 10), (14, 15), (40, 41)]);
        assert_eq!(window.read(Reader::Digest, &mut [0], 9), Access::Wait);
        assert_eq!(fetch(&mut window), 3);
        assert_eq!(window.read(Reader::Digest, &mut [0], 14), Access::Done);
        // Held, and nothing is known of what is between.
        assert_eq!(window.read(Reader::Sender, &mut [0], 12), Access::Apart);
    }

    #[test]
    fn a_reader_that_is_behind_gets_the_place_of_what_is_needed_last() {
        let mut window = Window::new(100, LIMITS);
        window.plan(Reader::Sender, [(48, 100)]);
        window.plan(Reader::Digest, [(0, 100)]);
        for at in [48, 56, 64, 72] {
            window.read(Reader::Sender, &mut [0; 8], at);
            fetch(&mut window);
            assert_eq!(window.read(Reader::Sender, &mut [0; 8], at), Access::Done);
        }
        assert_eq!(window.read(Reader::Sender, &mut [0; 8], 80), Access::Full);
        assert_eq!(window.read(Reader::Digest, &mut [0; 8], 0), Access::Wait);
        assert_eq!(window.chunks.keys().copied().collect::<Vec<_>>(), [0, 6, 7, 8]);
        fetch(&mut window);
        assert_eq!(window.read(Reader::Digest, &mut [0; 8], 0), Access::Done);
    }

    #[derive(Clone, Copy, Debug)]
    enum Step {
        Read(Reader, u64, u64),
        Plan(Reader, u64, u64),
        GiveUp(Reader, u64, u64),
        Absent(Reader),
        Fetch,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let reader = || prop_oneof![Just(Reader::Sender), Just(Reader::Digest)];
        let range = || (reader(), 0..100_u64, 1..30_u64);
        let step = prop_oneof![
            6 => range().prop_map(|(reader, at, bytes)| Step::Read(reader, at, bytes)),
            2 => range().prop_map(|(reader, at, bytes)| Step::Plan(reader, at, bytes)),
            1 => range().prop_map(|(reader, at, bytes)| Step::GiveUp(reader, at, bytes)),
            1 => reader().prop_map(Step::Absent),
            4 => Just(Step::Fetch),
        ];
        proptest::collection::vec(step, 0..200)
    }

    proptest! {
        /// In any order of reads, plans and fetches: what is read is right, and no more than the limit is held.
        #[test]
        fn reads_are_right_and_memory_is_bounded(steps in steps()) {
            let mut window = Window::new(100, LIMITS);
            for step in steps {
                let within = |at: u64, bytes: u64| (at, 100.min(at + bytes));
                match step {
                    Step::Read(reader, at, bytes) => {
                        let bytes = window.first_part(within(at, bytes));
                        let mut into = vec![0; bytes as usize];
                        if window.read(reader, &mut into, at) == Access::Done {
                            prop_assert_eq!(into, (at..at + bytes).map(byte).collect::<Vec<_>>());
                        }
                    }
                    Step::Plan(reader, at, bytes) => window.plan(reader, [within(at, bytes)]),
                    Step::GiveUp(reader, at, bytes) => window.give_up(reader, within(at, bytes)),
                    Step::Absent(reader) => window.on_absent(reader),
                    Step::Fetch => drop(fetch(&mut window)),
                }
                prop_assert!(window.chunks.len() <= LIMITS.chunks_max);
                prop_assert!(held(&window) <= LIMITS.chunk_bytes * LIMITS.chunks_max as u64);
            }
            // A reader that waits gets its bytes once the other one has gone.
            window.on_absent(Reader::Digest);
            let mut into = [0; 4];
            let mut access = window.read(Reader::Sender, &mut into, 96);
            for _ in 0..3 {
                if access == Access::Full {
                    window.give_up(Reader::Sender, (0, 96));
                }
                fetch(&mut window);
                access = window.read(Reader::Sender, &mut into, 96);
            }
            prop_assert!(matches!(access, Access::Done | Access::Apart), "{:?}", access);
        }
    }
}
