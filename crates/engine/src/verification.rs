//! Verification: whether each copy of a message is the root's.
//!
//! Every member computes a digest of each block, in its message's memory or file, once it is in place, and
//! a digest of these (docs/decisions/verification.md). The root's goes down the announcement tree
//! ([`Word::Digest`]), after the announcement. Digests of blocks are computed by jobs, one at a time, while
//! blocks arrive. Memory: 2 KiB a message, and 32 bytes for each block that arrives before an earlier one.
//!
//! Copies may be compared later than blocks arrive. So that messages that wait for it do not pile up, the
//! application is asked for memory only for as many as may be in flight beyond those.

use std::collections::{BTreeMap, VecDeque};

use relay::{Blocks, RelayError};
use schedule::Schedule;
use transport::{LeaseError, Region};

use crate::{
    job_list::{Request, Then},
    jobs::{Digest, Source, What, Work},
    memory::{Memory, range},
    words::Word,
};

/// One job computes digests of about this many bytes, or of one block.
const JOB_BYTES: u64 = 1 << 20;

/// The messages at one member that were not compared.
pub(crate) struct Verification {
    parent: Option<u32>,
    children: Vec<u32>,
    block_bytes: u64,
    messages: BTreeMap<u64, Copied>,
    /// Messages whose announcement waits for earlier ones to be compared, with their lengths.
    held_back: VecDeque<(u64, u64)>,
    /// How many were not held back and not compared.
    open: usize,
    open_max: usize,
    /// A job has not ended.
    is_computing: bool,
}

/// The copy of one message.
struct Copied {
    blocks: Blocks,
    /// Blocks in place whose digest was not computed: these, and all from `rest` on.
    in_place: VecDeque<u32>,
    rest: u32,
    /// Of the digests of the first `hashed` blocks.
    hasher: Box<blake3::Hasher>,
    hashed: u32,
    /// Digests of later blocks.
    early: BTreeMap<u32, Digest>,
    /// The digest of this copy, once it is known.
    own: Option<Digest>,
    root: Option<Digest>,
    /// Children may get the root's digest: the message was announced to them.
    is_announced: bool,
    is_passed_on: bool,
    /// It is the root's.
    is_same: bool,
    /// The relay is done with it.
    is_complete: bool,
}

/// What has become certain of a message.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// This copy is the root's.
    Same { message: u64 },
    /// It is, and this member is done with it.
    Complete { message: u64 },
    /// This copy is another.
    Differs { message: u64, bytes: u64 },
}

impl Verification {
    pub(crate) fn new(schedule: &Schedule, rank: u32, block_bytes: u64, in_flight: u32) -> Self {
        Self {
            parent: schedule.announcer(rank),
            children: schedule.announces_to(rank).collect(),
            block_bytes,
            messages: BTreeMap::new(),
            held_back: VecDeque::new(),
            open: 0,
            open_max: 2 * in_flight as usize,
            is_computing: false,
        }
    }

    /// Adds a message that is sent from here, and is all in place, or that was announced.
    pub(crate) fn begin(&mut self, message: u64, bytes: u64) -> Result<(), RelayError> {
        let blocks = Blocks::new(bytes, self.block_bytes)?;
        let copied = Copied {
            blocks,
            in_place: VecDeque::new(),
            rest: if self.parent.is_none() { 0 } else { blocks.count() },
            hasher: Box::default(),
            hashed: 0,
            early: BTreeMap::new(),
            own: None,
            root: None,
            is_announced: false,
            is_passed_on: self.children.is_empty(),
            is_same: false,
            is_complete: false,
        };
        self.messages.insert(message, copied);
        Ok(())
    }

    /// Notes that a message was announced to the children.
    pub(crate) fn announced(&mut self, message: u64) {
        self.change(message, |copied| copied.is_announced = true);
    }

    /// Notes that the application is to be asked for memory for a message. Returns `false` if it has to
    /// wait: [`Verification::next_incoming`] returns it later.
    pub(crate) fn admits(&mut self, message: u64, bytes: u64) -> bool {
        let is_admitted = self.held_back.is_empty() && self.open < self.open_max;
        if is_admitted {
            self.open += 1;
        } else {
            self.held_back.push_back((message, bytes));
        }
        is_admitted
    }

    /// Returns the next message for which the application is to be asked for memory now.
    pub(crate) fn next_incoming(&mut self) -> Option<(u64, u64)> {
        let next = self.held_back.front().filter(|_| self.open < self.open_max).copied()?;
        self.held_back.pop_front();
        self.open += 1;
        Some(next)
    }

    /// Notes that a block is in place.
    pub(crate) fn held(&mut self, message: u64, block: u32) {
        self.change(message, |copied| copied.in_place.push_back(block));
    }

    /// Notes that the relay is done with a message.
    pub(crate) fn complete(&mut self, message: u64) {
        self.change(message, |copied| copied.is_complete = true);
    }

    fn change(&mut self, message: u64, act: impl FnOnce(&mut Copied)) {
        if let Some(copied) = self.messages.get_mut(&message) {
            act(copied);
        }
    }

    /// Processes the root's digest of a message. Errors: it is out of turn.
    pub(crate) fn on_digest(
        &mut self,
        rank: u32,
        message: u64,
        digest: Digest,
    ) -> Result<(), RelayError> {
        let copied = self.messages.get_mut(&message).filter(|copied| copied.root.is_none());
        let Some(copied) = copied.filter(|_| self.parent == Some(rank)) else {
            let what = format!("wrote the digest of message {message} out of turn");
            return Err(RelayError::peer(rank, what));
        };
        copied.root = Some(digest);
        Ok(())
    }

    /// Returns the next job, if none is under way. Errors: the memory of its message is in use.
    pub(crate) fn next_job(&mut self, memory: &Memory) -> Result<Option<Request>, LeaseError> {
        if self.is_computing {
            return Ok(None);
        }
        for (&message, copied) in self.messages.iter_mut().take(self.open_max) {
            let Some(region) = memory.get(message) else { continue };
            let (mut blocks, mut sources, mut bytes) = (Vec::new(), Vec::new(), 0);
            while bytes < JOB_BYTES
                && let Some(block) = copied.next_in_place()
            {
                let place = copied.blocks.range(block);
                sources.push(source(region, place.offset, place.bytes)?);
                blocks.push(block);
                bytes += place.bytes.max(1);
            }
            if !blocks.is_empty() {
                self.is_computing = true;
                let (what, work) =
                    (What::new("digest", region, bytes), Work::Digest { blocks: sources });
                return Ok(Some(Request { what, message, work, then: Then::Digested { blocks } }));
            }
        }
        Ok(None)
    }

    /// Notes digests of blocks.
    pub(crate) fn computed(&mut self, message: u64, digests: Vec<(u32, Digest)>) {
        self.is_computing = false;
        let is_root = self.parent.is_none();
        self.change(message, |copied| {
            copied.early.extend(digests);
            while let Some(digest) = copied.early.remove(&copied.hashed) {
                copied.hasher.update(&digest);
                copied.hashed += 1;
            }
            if copied.hashed == copied.blocks.count() {
                copied.own = Some(*copied.hasher.finalize().as_bytes());
                copied.root = copied.own.filter(|_| is_root).or(copied.root);
            }
        });
    }

    /// Returns the words to be written now, with their receivers.
    pub(crate) fn next_words(&mut self) -> Vec<(u32, Word)> {
        let mut words = Vec::new();
        // Digests come, and are passed on, in the order of messages.
        for (&message, copied) in self.messages.iter_mut().skip_while(|(_, it)| it.is_passed_on) {
            let Some(digest) = copied.root.filter(|_| copied.is_announced) else { break };
            copied.is_passed_on = true;
            let word = Word::Digest { message, digest };
            words.extend(self.children.iter().map(|&child| (child, word.clone())));
        }
        words
    }

    /// Returns the next message of which something has become certain.
    pub(crate) fn next_verdict(&mut self) -> Option<Verdict> {
        for (&message, copied) in self.messages.iter_mut().take(self.open_max) {
            if copied.is_same && copied.is_complete && copied.is_passed_on {
                self.messages.remove(&message);
                self.open = self.open.saturating_sub(1);
                return Some(Verdict::Complete { message });
            }
            let (Some(own), Some(root)) = (copied.own, copied.root) else { continue };
            if own != root {
                return Some(Verdict::Differs { message, bytes: copied.blocks.bytes() });
            }
            if !std::mem::replace(&mut copied.is_same, true) {
                return Some(Verdict::Same { message });
            }
        }
        None
    }

    /// Returns whether messages wait to be compared.
    pub(crate) fn is_busy(&self) -> bool {
        !self.messages.is_empty()
    }

    /// Returns the member whose digest is waited for, if all blocks of a message are in place.
    pub(crate) fn waited_for(&self) -> Option<u32> {
        let mut messages = self.messages.values();
        self.parent.filter(|_| messages.any(|copied| copied.own.is_some() && copied.root.is_none()))
    }
}

impl Copied {
    fn next_in_place(&mut self) -> Option<u32> {
        self.in_place.pop_front().or_else(|| {
            (self.rest < self.blocks.count()).then(|| {
                self.rest += 1;
                self.rest - 1
            })
        })
    }
}

fn source(region: &Region, offset: u64, bytes: u64) -> Result<Source, LeaseError> {
    let range = range(offset, bytes);
    match region.is_stored() {
        true => region.read_stored(range).map(Source::Stored),
        false => region.read(range).map(Source::Memory),
    }
}

#[cfg(test)]
mod tests {
    use schedule::Algorithm;

    use super::*;

    const BLOCK_BYTES: u64 = 10;

    fn member(rank: u32) -> Verification {
        let schedule = Schedule::new(Algorithm::Chain, 3, 0).unwrap();
        Verification::new(&schedule, rank, BLOCK_BYTES, 1)
    }

    /// Computes what can be computed.
    fn compute(verification: &mut Verification, memory: &Memory) {
        while let Some(Request { message, work, then, .. }) = verification.next_job(memory).unwrap()
        {
            let (Work::Digest { blocks: sources }, Then::Digested { blocks }) = (work, then) else {
                panic!("another job")
            };
            let digests = sources.iter().map(|source| source.digest().unwrap());
            verification.computed(message, blocks.into_iter().zip(digests).collect());
        }
    }

    fn with(contents: &[u8]) -> Memory {
        let mut memory = Memory::default();
        memory.insert(0, Region::from_vec(contents.to_vec()));
        memory
    }

    /// Returns the root's digest of a message.
    fn of_root(contents: &[u8]) -> Digest {
        let mut root = member(0);
        root.begin(0, contents.len() as u64).unwrap();
        compute(&mut root, &with(contents));
        assert_eq!(root.next_words(), [], "it was not announced");
        root.announced(0);
        let words = root.next_words();
        let [(1, Word::Digest { message: 0, digest })] = &words[..] else { panic!("{words:?}") };
        assert_eq!(root.next_words(), [], "once");
        *digest
    }

    /// Returns what a receiver finds, whose blocks come in this order.
    fn verdicts(contents: &[u8], blocks: &[u32], root: Digest) -> Vec<Verdict> {
        let mut last = member(2);
        last.begin(0, contents.len() as u64).unwrap();
        let memory = with(contents);
        for &block in blocks {
            assert_eq!((last.next_verdict(), last.waited_for()), (None, None));
            last.held(0, block);
            compute(&mut last, &memory);
        }
        assert_eq!(last.waited_for(), Some(1));
        last.on_digest(1, 0, root).unwrap();
        last.complete(0);
        let mut all: Vec<_> = std::iter::from_fn(|| last.next_verdict()).take(2).collect();
        all.dedup();
        all
    }

    #[test]
    fn the_same_bytes_in_any_order_of_blocks_are_the_same() {
        let (contents, empty) = ((0..35).collect::<Vec<u8>>(), of_root(&[]));
        let root = of_root(&contents);
        let good = [Verdict::Same { message: 0 }, Verdict::Complete { message: 0 }];
        assert_eq!(verdicts(&contents, &[0, 1, 2, 3], root), good);
        assert_eq!(verdicts(&contents, &[3, 1, 0, 2], root), good);
        assert_eq!(verdicts(&[], &[0], empty), good);
        for changed in 0..35 {
            let mut other = contents.clone();
            other[changed] ^= 1;
            let found = verdicts(&other, &[1, 0, 2, 3], root);
            assert_eq!(found, [Verdict::Differs { message: 0, bytes: 35 }]);
        }
    }

    #[test]
    fn a_message_is_complete_once_its_digest_was_passed_on() {
        let contents = [7; 5];
        let mut relay = member(1);
        relay.begin(0, 5).unwrap();
        relay.held(0, 0);
        compute(&mut relay, &with(&contents));
        relay.on_digest(0, 0, of_root(&contents)).unwrap();
        relay.complete(0);
        assert_eq!(relay.next_verdict(), Some(Verdict::Same { message: 0 }));
        assert_eq!((relay.next_words(), relay.next_verdict()), (vec![], None));
        relay.announced(0);
        assert_eq!(relay.next_words().len(), 1);
        assert_eq!(relay.next_verdict(), Some(Verdict::Complete { message: 0 }));
        assert!(!relay.is_busy());
    }

    #[test]
    fn digests_out_of_turn_are_refused() {
        let mut relay = member(1);
        assert!(relay.on_digest(0, 0, [1; 32]).is_err(), "nothing was announced");
        relay.begin(0, 5).unwrap();
        assert!(relay.on_digest(2, 0, [1; 32]).is_err(), "a child");
        assert!(relay.on_digest(0, 0, [1; 32]).is_ok());
        assert!(relay.on_digest(0, 0, [1; 32]).is_err(), "twice");
        assert!(member(0).on_digest(1, 0, [1; 32]).is_err(), "at the root");
    }

    #[test]
    fn messages_that_wait_to_be_compared_hold_later_ones_back() {
        let mut last = member(2);
        let contents = [7; 5];
        for message in 0..3 {
            last.begin(message, 5).unwrap();
        }
        assert!(last.admits(0, 5) && last.admits(1, 5) && !last.admits(2, 5));
        assert_eq!(last.next_incoming(), None);
        last.held(0, 0);
        compute(&mut last, &with(&contents));
        last.on_digest(1, 0, of_root(&contents)).unwrap();
        last.complete(0);
        while last.next_verdict().is_some() {}
        assert_eq!((last.next_incoming(), last.next_incoming()), (Some((2, 5)), None));
    }
}
