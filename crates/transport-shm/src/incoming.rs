//! What an end reads from the peer's ring: words, blocks into posted memory, writes into exposed memory.

use std::{collections::VecDeque, mem};

use rustc_hash::FxHashMap;
use transport::{CONTROL_BYTES_MAX, Completion, EndpointId, PeerMemory, Token, WriteLease};

use crate::{
    direct::{Copies, Heard},
    receive::Receive,
    record::{RECORD_BYTES, Record},
    ring::{RingReader, framed_bytes},
};

/// Memory that the peer may write, by key.
pub(crate) type Exposed = FxHashMap<u32, PeerMemory>;

/// The receives of one end, and what has begun to arrive.
pub(crate) struct Incoming {
    id: EndpointId,
    receives: VecDeque<Receive>,
    block: Option<Block>,
    write: Option<Write>,
    /// Blocks that are copied out of the peer's memory.
    pub(crate) copies: Copies,
    /// What the peer has said of such blocks, until it is taken.
    pub(crate) heard: Vec<Heard>,
}

/// A block of which something is missing.
struct Block {
    receive: Receive,
    immediate: u32,
    bytes: usize,
    filled: usize,
}

/// A write of which something is missing.
struct Write {
    memory: PeerMemory,
    immediate: Option<u32>,
    /// Where the next byte goes.
    at: usize,
    end: usize,
    /// The first bytes of a word that has to become visible at once.
    kept: Vec<u8>,
}

/// What a pass over the ring has found.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Pass {
    /// Something was read.
    pub(crate) has_read: bool,
    /// The peer has closed; nothing follows.
    pub(crate) has_ended: bool,
}

impl Incoming {
    pub(crate) fn new(id: EndpointId) -> Self {
        let (receives, block, write, copies, heard) = Default::default();
        Self { id, receives, block, write, copies, heard }
    }

    pub(crate) fn push_receive(&mut self, into: WriteLease, token: Token) {
        self.receives.push_back(Receive { into, token });
    }

    /// Reads what the ring has, at most as much as fits into it; `own` is this end's segment. Errors: how the peer broke
    /// the protocol.
    pub(crate) fn read(
        &mut self,
        ring: &mut RingReader<PeerMemory>,
        own: &PeerMemory,
        exposed: &Exposed,
        completed: &mut Vec<Completion>,
    ) -> Result<Pass, String> {
        let mut pass = Pass::default();
        let mut available = ring.available()?;
        while available > 0 {
            let mut encoded = [0; RECORD_BYTES];
            if available < RECORD_BYTES {
                return Err("a ring ends within a record".into());
            }
            ring.take(&mut encoded);
            let record = Record::decode(&encoded).ok_or("a record that does not exist")?;
            let payload = record.payload_bytes();
            // First of all compared with what is there: no sum overflows.
            if payload > available || framed_bytes(payload) > available {
                return Err("a record that is longer than what is in the ring".into());
            }
            available -= framed_bytes(payload);
            if record == Record::Farewell {
                pass.has_ended = true;
                break;
            }
            self.take(record, ring, exposed, completed)?;
            // The peer may go on writing.
            pass.has_read |= payload > 0 && ring.free(own);
        }
        pass.has_read |= ring.free(own);
        Ok(pass)
    }

    fn take(
        &mut self,
        record: Record,
        ring: &mut RingReader<PeerMemory>,
        exposed: &Exposed,
        completed: &mut Vec<Completion>,
    ) -> Result<(), String> {
        match record {
            Record::Word { bytes } => {
                let mut word = [0; CONTROL_BYTES_MAX];
                ring.take(&mut word[..bytes]);
                let word = word[..bytes].to_vec();
                completed.push(Completion::Control { endpoint: self.id, word });
            }
            Record::Block { immediate, bytes } => {
                let receive = self.take_receive(bytes)?;
                // It fits into that.
                let bytes = bytes as usize;
                self.block = Some(Block { receive, immediate, bytes, filled: 0 });
                self.complete_block(completed);
            }
            Record::BlockChunk { bytes } => {
                let block = self.block.as_mut().ok_or("bytes of no block")?;
                block.take(bytes, ring)?;
                self.complete_block(completed);
            }
            Record::Write { key, offset, bytes, immediate } => {
                if self.write.is_some() {
                    return Err("a write within another one".into());
                }
                self.write = Some(Write::begin(exposed, key, offset, bytes, immediate)?);
                self.complete_write(completed);
            }
            Record::WriteChunk { bytes } => {
                let write = self.write.as_mut().ok_or("bytes of no write")?;
                write.take(bytes, ring)?;
                self.complete_write(completed);
            }
            Record::Written { immediate } => {
                completed.push(Completion::Written { endpoint: self.id, immediate });
            }
            Record::Farewell => {}
            Record::Reference { immediate, address, bytes } => {
                if !self.copies.are_possible() {
                    return Err("it refers to memory that cannot be read here".into());
                }
                let receive = self.take_receive(bytes as u64)?;
                self.copies.push(receive, immediate, address, bytes);
            }
            Record::Challenge { proof } => self.heard.push(Heard::Challenge(proof)),
            Record::Proof { address } => self.heard.push(Heard::Proof(address)),
            Record::Readable => self.heard.push(Heard::Readable),
            Record::Copied => self.heard.push(Heard::Copied),
        }
        Ok(())
    }

    /// Takes the memory for a block of this length. Errors: it does not fit, or there is none.
    fn take_receive(&mut self, bytes: u64) -> Result<Receive, String> {
        if self.block.is_some() {
            return Err("a block within another one".into());
        }
        let nobody = "an unsolicited block";
        let posted = self.receives.front().ok_or(nobody)?.into.bytes();
        if bytes > posted as u64 {
            return Err(format!("a block of {bytes} bytes for a receive of {posted}"));
        }
        self.receives.pop_front().ok_or_else(|| nobody.into())
    }

    fn complete_block(&mut self, completed: &mut Vec<Completion>) {
        let Some(block) = self.block.take_if(|block| block.filled == block.bytes) else { return };
        completed.push(block.receive.complete(self.id, block.immediate, block.bytes));
    }

    fn complete_write(&mut self, completed: &mut Vec<Completion>) {
        let write = self.write.take_if(|write| write.at == write.end);
        if let Some(immediate) = write.and_then(|write| write.immediate) {
            completed.push(Completion::Written { endpoint: self.id, immediate });
        }
    }

    /// Cancels all receives.
    pub(crate) fn cancel(&mut self, completed: &mut Vec<Completion>) {
        self.write = None;
        let begun = self.block.take().map(|block| block.receive);
        let rest = begun.into_iter().chain(mem::take(&mut self.receives)).map(|it| it.token);
        let tokens = self.copies.cancel().chain(rest);
        let endpoint = self.id;
        completed.extend(tokens.map(|token| Completion::Cancelled { endpoint, token }));
    }
}

impl Block {
    fn take(&mut self, bytes: usize, ring: &mut RingReader<PeerMemory>) -> Result<(), String> {
        if bytes > self.bytes - self.filled {
            return Err("more bytes than a block has".into());
        }
        ring.take(&mut self.receive.into[self.filled..self.filled + bytes]);
        self.filled += bytes;
        Ok(())
    }
}

impl Write {
    fn begin(
        exposed: &Exposed,
        key: u32,
        offset: u64,
        bytes: u64,
        immediate: Option<u32>,
    ) -> Result<Self, String> {
        let memory = exposed.get(&key).ok_or_else(|| format!("a write to {key}, not exposed"))?;
        let end = offset.checked_add(bytes).filter(|&end| end <= memory.len() as u64);
        let Some(end) = end else {
            return Err(outside(key, offset, bytes, memory.len()));
        };
        let (at, end, kept) = (offset as usize, end as usize, Vec::new());
        Ok(Self { memory: memory.clone(), immediate, at, end, kept })
    }

    /// Places all but the first bytes of a word whose other ones are still to come.
    fn take(&mut self, bytes: usize, ring: &mut RingReader<PeerMemory>) -> Result<(), String> {
        if bytes > self.end - self.at - self.kept.len() {
            return Err("more bytes than a write has".into());
        }
        let begin = self.kept.len();
        self.kept.resize(begin + bytes, 0);
        ring.take(&mut self.kept[begin..]);
        let end = self.at + self.kept.len();
        let beyond = if end == self.end { 0 } else { (self.memory.start().addr() + end) % 8 };
        let whole = self.kept.len().saturating_sub(beyond);
        self.memory.publish(self.at, &self.kept[..whole]).map_err(|error| error.to_string())?;
        self.kept.drain(..whole);
        self.at += whole;
        Ok(())
    }
}

/// Says that a write does not fit.
pub(crate) fn outside(key: u32, offset: u64, bytes: u64, exposed: usize) -> String {
    format!("a write of {bytes} bytes at {offset} to {key}, of which {exposed} are exposed")
}
