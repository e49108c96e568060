//! What an end has posted and not yet written to its ring.

use std::{collections::VecDeque, mem};

use transport::{Completion, EndpointId, PeerMemory, ReadLease, Token};

use crate::{
    direct::Source,
    record::Record,
    ring::{RingWriter, payload_bytes_max},
};

/// The most bytes of control words that may wait for a peer that does not read.
const WORDS_BYTES_MAX: usize = 4 << 20;

/// The posts of one end, in their order, and the ring into which they are written.
pub(crate) struct Outgoing {
    id: EndpointId,
    ring: RingWriter<PeerMemory>,
    words: VecDeque<Vec<u8>>,
    words_bytes: usize,
    /// Messages to the peer about blocks that are copied.
    answers: VecDeque<Record>,
    /// Writes of which the peer is not told. They are done, but handing back takes longer than a short write: it is done in the
    /// next pass.
    placed: Vec<Placed>,
    writes: VecDeque<Write>,
    blocks: VecDeque<Transfer>,
    /// Blocks that the peer copies out of this end's memory.
    pub(crate) source: Source,
}

/// A one-sided write that is in the peer's memory.
struct Placed {
    from: ReadLease,
    token: Token,
}

/// A one-sided write that is to be reported to the peer.
enum Write {
    Placed {
        placed: Placed,
        immediate: u32,
    },
    /// The peer has to copy it.
    Copied(Transfer),
    /// It does not fit into the exposed memory: the link breaks.
    Refused(Token),
}

/// Bytes that go through the ring.
struct Transfer {
    from: ReadLease,
    token: Token,
    /// The record that begins it.
    begin: Record,
    has_begun: bool,
    sent: usize,
}

/// How a transfer went on.
enum Step {
    /// There is no space.
    Full,
    Some,
    Done,
}

impl Outgoing {
    pub(crate) fn new(id: EndpointId, ring: RingWriter<PeerMemory>) -> Self {
        let (words, answers, placed, writes, blocks, source) = Default::default();
        Self { id, ring, words, words_bytes: 0, answers, placed, writes, blocks, source }
    }

    /// Queues a word. Returns false if megabytes of words wait.
    pub(crate) fn push_word(&mut self, word: &[u8]) -> bool {
        let bytes = self.words_bytes + word.len();
        if bytes > WORDS_BYTES_MAX {
            return false;
        }
        self.words_bytes = bytes;
        self.words.push_back(word.to_vec());
        true
    }

    /// Queues a message to the peer about blocks that are copied.
    pub(crate) fn push_answer(&mut self, answer: Record) {
        self.answers.push_back(answer);
    }

    pub(crate) fn push_block(&mut self, from: ReadLease, immediate: u32, token: Token) {
        let begin = Record::Block { immediate, bytes: from.bytes() as u64 };
        self.blocks.push_back(Transfer { from, token, begin, has_begun: false, sent: 0 });
    }

    /// Queues a write that the peer has to copy.
    pub(crate) fn push_write(
        &mut self,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: Option<u32>,
        token: Token,
    ) {
        let begin = Record::Write { key, offset, bytes: from.bytes() as u64, immediate };
        let transfer = Transfer { from, token, begin, has_begun: false, sent: 0 };
        self.writes.push_back(Write::Copied(transfer));
    }

    /// Keeps a write that was placed, until it is handed back: after the peer was notified, if it is to be.
    pub(crate) fn push_placed(&mut self, from: ReadLease, immediate: Option<u32>, token: Token) {
        let placed = Placed { from, token };
        match immediate {
            Some(immediate) => self.writes.push_back(Write::Placed { placed, immediate }),
            None => self.placed.push(placed),
        }
    }

    /// Keeps a write that cannot be placed, until the link ends.
    pub(crate) fn push_refused(&mut self, token: Token) {
        self.writes.push_back(Write::Refused(token));
    }

    /// Returns whether posts wait for space in the ring.
    pub(crate) fn is_waiting(&self) -> bool {
        !(self.words.is_empty()
            && self.answers.is_empty()
            && self.writes.is_empty()
            && self.blocks.is_empty())
    }

    /// Returns whether the peer has read more than before, and is waited for.
    pub(crate) fn has_news(&self, peer: &PeerMemory) -> bool {
        self.is_waiting() && self.ring.has_news(peer)
    }

    /// Looks how far the peer has read. Errors: it broke the protocol.
    pub(crate) fn look(&mut self, peer: &PeerMemory) -> Result<(), &'static str> {
        self.ring.look(peer)
    }

    /// Writes as much as there is space for: words before writes and blocks, of which none waits for all of the other.
    /// Returns whether anything was written.
    pub(crate) fn advance(&mut self, completed: &mut Vec<Completion>) -> bool {
        self.complete_placed(completed);
        if !self.is_waiting() {
            return false;
        }
        let mut has_written = false;
        loop {
            self.write_words();
            self.write_answers();
            let writes = self.step_writes(completed);
            let blocks = self.step_blocks(completed);
            let is_published = self.ring.publish();
            has_written |= is_published;
            if !(writes || blocks) {
                return has_written;
            }
        }
    }

    /// Writes what precedes the end: words, then the farewell. Returns whether all was written.
    pub(crate) fn advance_last(&mut self) -> bool {
        let is_done = self.write_words() && self.ring.push(&Record::Farewell, &[]);
        self.ring.publish();
        is_done
    }

    fn complete_placed(&mut self, completed: &mut Vec<Completion>) {
        for Placed { from, token } in self.placed.drain(..) {
            drop(from);
            completed.push(Completion::Sent { endpoint: self.id, token });
        }
    }

    /// Returns whether no word is left.
    fn write_words(&mut self) -> bool {
        while let Some(word) = self.words.front() {
            if !self.ring.push(&Record::Word { bytes: word.len() }, word) {
                return false;
            }
            self.words_bytes -= word.len();
            self.words.pop_front();
        }
        true
    }

    fn write_answers(&mut self) {
        while let Some(answer) = self.answers.front()
            && self.ring.push(answer, &[])
        {
            self.answers.pop_front();
        }
    }

    /// Returns whether a write was taken further.
    fn step_writes(&mut self, completed: &mut Vec<Completion>) -> bool {
        let (step, token) = match self.writes.front_mut() {
            None | Some(Write::Refused(_)) => return false,
            Some(Write::Placed { placed: Placed { token, .. }, immediate }) => {
                let is_told = self.ring.push(&Record::Written { immediate: *immediate }, &[]);
                (if is_told { Step::Done } else { Step::Full }, *token)
            }
            Some(Write::Copied(transfer)) => {
                let chunk = |bytes| Record::WriteChunk { bytes };
                (transfer.step(&mut self.ring, chunk), transfer.token)
            }
        };
        if matches!(step, Step::Done) {
            // Drops the lease.
            self.writes.pop_front();
            completed.push(Completion::Sent { endpoint: self.id, token });
        }
        !matches!(step, Step::Full)
    }

    /// Returns whether a block was taken further.
    fn step_blocks(&mut self, completed: &mut Vec<Completion>) -> bool {
        let Some(block) = self.blocks.front_mut() else { return false };
        if let Some(reference) = block.reference(&self.source) {
            let is_told = self.ring.push(&reference, &[]);
            if is_told && let Some(block) = self.blocks.pop_front() {
                self.source.push(block.from, block.token);
            }
            return is_told;
        }
        let step = block.step(&mut self.ring, |bytes| Record::BlockChunk { bytes });
        if matches!(step, Step::Done) {
            let token = block.token;
            // Drops the lease.
            self.blocks.pop_front();
            completed.push(Completion::Sent { endpoint: self.id, token });
        }
        !matches!(step, Step::Full)
    }

    /// Cancels all posts that are not done.
    pub(crate) fn cancel(&mut self, completed: &mut Vec<Completion>) {
        self.complete_placed(completed);
        let endpoint = self.id;
        let referred = self.source.withdraw();
        completed.extend(referred.map(|token| Completion::Cancelled { endpoint, token }));
        let writes = mem::take(&mut self.writes).into_iter().map(|write| match write {
            Write::Placed { placed: Placed { token, .. }, .. } | Write::Refused(token) => token,
            Write::Copied(transfer) => transfer.token,
        });
        let blocks = mem::take(&mut self.blocks).into_iter().map(|block| block.token);
        completed
            .extend(writes.chain(blocks).map(|token| Completion::Cancelled { endpoint, token }));
    }
}

impl Transfer {
    /// Returns what refers the peer to a block of which nothing was sent, if it copies such blocks.
    fn reference(&self, source: &Source) -> Option<Record> {
        let bytes = self.from.bytes();
        match self.begin {
            Record::Block { immediate, .. } if !self.has_begun && source.takes(bytes) => {
                let address = self.from.as_ptr().addr() as u64;
                Some(Record::Reference { immediate, address, bytes })
            }
            _ => None,
        }
    }

    /// Writes the next record, of bytes one made by `chunk`.
    fn step(&mut self, ring: &mut RingWriter<PeerMemory>, chunk: fn(usize) -> Record) -> Step {
        let mut has_written = false;
        if !self.has_begun {
            if !ring.push(&self.begin, &[]) {
                return Step::Full;
            }
            (self.has_begun, has_written) = (true, true);
        }
        let rest = &self.from[self.sent..];
        let bytes = rest.len().min(payload_bytes_max(ring.ring_bytes()));
        if bytes > 0 {
            if !ring.push(&chunk(bytes), &rest[..bytes]) {
                return if has_written { Step::Some } else { Step::Full };
            }
            self.sent += bytes;
        }
        if self.sent == self.from.bytes() { Step::Done } else { Step::Some }
    }
}
