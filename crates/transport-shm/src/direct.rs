//! Long blocks that the receiver copies out of the sender's memory, where the system lets it (docs/decisions/one-machine.md).

use std::{collections::VecDeque, mem, os::fd::BorrowedFd, sync::Arc};

use transport::{
    Cause, Completion, EndpointId, Neighbour, PROOF_BYTES, Process, Proof, ReadLease, Token,
    check_unprivileged,
};

use crate::receive::Receive;

/// Shorter blocks cost less through the ring than a reference and its answer.
pub(crate) const REFERENCE_BYTES_MIN: usize = 16 << 10;
/// How much is copied at once; other links have their turn between.
const COPY_BYTES_MAX: usize = 512 << 10;

/// Messages of the peer about blocks that are copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// It wants these bytes to be placed in this end's memory.
    Challenge([u8; PROOF_BYTES]),
    /// It has placed the bytes at this address.
    Proof(u64),
    /// It can read this end's memory.
    Readable,
    /// It has copied the first block that it was referred to.
    Copied,
}

/// This end's memory, as far as the peer may read it, and the blocks that it was referred to. Declared in the order in which it
/// is dropped: the proof is overwritten before the memory of any block is given back.
#[derive(Default)]
pub(crate) struct Source {
    proof: Option<Proof>,
    is_readable: bool,
    referred: VecDeque<Referred>,
}

struct Referred {
    _from: ReadLease,
    token: Token,
}

impl Source {
    /// Places the proof that the peer wants to read, and returns its address. Errors: it has wanted one before.
    pub(crate) fn place(&mut self, proof: [u8; PROOF_BYTES]) -> Result<u64, String> {
        match self.proof {
            Some(_) => Err("a second challenge".into()),
            None => Ok(self.proof.insert(Proof::place(proof)).address()),
        }
    }

    /// Notes that the peer can read this end's memory. Errors: it was not told where that is.
    pub(crate) fn set_readable(&mut self) -> Result<(), String> {
        self.is_readable = true;
        let why = "it says that it can read memory that was not offered";
        self.proof.as_ref().map(drop).ok_or_else(|| why.into())
    }

    /// Returns whether the peer is referred to a block of this length, instead of sending it.
    pub(crate) fn takes(&self, bytes: usize) -> bool {
        self.is_readable && bytes >= REFERENCE_BYTES_MIN
    }

    /// Keeps a block until the peer has copied it.
    pub(crate) fn push(&mut self, from: ReadLease, token: Token) {
        self.referred.push_back(Referred { _from: from, token });
    }

    /// Gives back the first block, which the peer has copied. Errors: there is none.
    pub(crate) fn complete(&mut self) -> Result<Token, String> {
        let first = self.referred.pop_front();
        first.map(|it| it.token).ok_or_else(|| "it has copied a block without a reference".into())
    }

    /// Lets the peer's copies count no longer, and gives back all blocks.
    pub(crate) fn withdraw(&mut self) -> impl Iterator<Item = Token> {
        if let Some(proof) = self.proof.take() {
            proof.withdraw();
        }
        self.is_readable = false;
        mem::take(&mut self.referred).into_iter().map(|it| it.token)
    }
}

/// What this end knows of the peer's memory, and what it has to copy out of it.
#[derive(Default)]
pub(crate) struct Copies {
    /// The peer, and what it has to place in its memory, until it says where.
    wanted: Option<(Arc<Process>, [u8; PROOF_BYTES])>,
    /// The peer, once its memory was found to be readable.
    neighbour: Option<Neighbour>,
    /// In the order in which they came; the first is being copied.
    referred: VecDeque<Reference>,
    /// A copy was not confirmed: the link is about to end, and nothing more is copied.
    is_stale: bool,
}

/// A block in the peer's memory, and where it goes.
struct Reference {
    receive: Receive,
    immediate: u32,
    address: u64,
    bytes: usize,
    filled: usize,
}

impl Copies {
    /// Draws what the process at the other end has to place in its memory, after that was opened: other bytes may be in it
    /// anyway. Errors: why its memory cannot be read.
    pub(crate) fn challenge(
        &mut self,
        socket: BorrowedFd<'_>,
    ) -> Result<[u8; PROOF_BYTES], String> {
        check_unprivileged()?;
        let process = Process::at_other_end(socket)?;
        process.check_near()?;
        let mut proof = [0; PROOF_BYTES];
        getrandom::fill(&mut proof).map_err(|error| error.to_string())?;
        self.wanted = Some((Arc::new(process), proof));
        Ok(proof)
    }

    /// Accepts references from now on, if the peer has placed the proof there. Returns why its memory cannot be read.
    ///
    /// Errors: the proof is unsolicited.
    pub(crate) fn trust(&mut self, address: u64) -> Result<Result<(), String>, String> {
        let (process, proof) = self.wanted.take().ok_or("an unsolicited proof")?;
        let neighbour = Neighbour::new(process, address, proof);
        Ok(neighbour.map(|neighbour| self.neighbour = Some(neighbour)))
    }

    /// Returns whether the peer may refer to its memory.
    pub(crate) fn are_possible(&self) -> bool {
        self.neighbour.is_some()
    }

    /// Queues a block; its length was checked against its memory.
    pub(crate) fn push(&mut self, receive: Receive, immediate: u32, address: u64, bytes: usize) {
        self.referred.push_back(Reference { receive, immediate, address, bytes, filled: 0 });
    }

    /// Returns whether there is something to copy.
    pub(crate) fn are_due(&self) -> bool {
        !self.is_stale && !self.referred.is_empty()
    }

    /// Copies a piece of the first block. Returns whether that is complete; the peer has to be notified.
    ///
    /// Errors: the peer's memory or the local memory cannot be accessed.
    pub(crate) fn step(
        &mut self,
        endpoint: EndpointId,
        completed: &mut Vec<Completion>,
    ) -> Result<bool, Cause> {
        let (Some(neighbour), Some(first)) = (&self.neighbour, self.referred.front_mut()) else {
            return Ok(false);
        };
        let end = first.bytes.min(first.filled + COPY_BYTES_MAX);
        let address = first.address.wrapping_add(first.filled as u64);
        let copied = neighbour.copy(address, &mut first.receive.into[first.filled..end]);
        if !Cause::check_copied(copied)? {
            self.is_stale = true;
            return Ok(false);
        }
        first.filled = end;
        if end < first.bytes {
            return Ok(false);
        }
        if let Some(Reference { receive, immediate, bytes, .. }) = self.referred.pop_front() {
            completed.push(receive.complete(endpoint, immediate, bytes));
        }
        Ok(true)
    }

    /// Gives back the memory of all blocks that were not copied.
    pub(crate) fn cancel(&mut self) -> impl Iterator<Item = Token> {
        mem::take(&mut self.referred).into_iter().map(|it| it.receive.token)
    }
}
