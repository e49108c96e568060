//! Blocks that the peer has referred to in its memory, and their copies (docs/decisions/one-machine.md).

use std::collections::VecDeque;

use transport::{Cause, Completion, EndpointId, Neighbour, PROOF_BYTES};

use crate::posted_receive::PostedReceive;

/// A block in the peer's memory, and where it goes.
struct Referred {
    receive: PostedReceive,
    /// Of the byte that is copied next.
    address: u64,
    rest_bytes: usize,
}

/// What the receiving half of a stream knows of the peer's memory, and what the sending half has to be
/// told of what the peer knows of this end's.
#[derive(Default)]
pub(crate) struct References {
    /// The number of its process, as the peer has said, until it is taken.
    introduction: Option<u32>,
    was_introduced: bool,
    /// What the peer has to place in its memory, until it says where.
    wanted: Option<[u8; PROOF_BYTES]>,
    /// What the peer has to have placed, and where; until it is taken.
    placed: Option<(u64, [u8; PROOF_BYTES])>,
    /// What the peer wants to be placed in this end's memory, until it is taken.
    challenge: Option<[u8; PROOF_BYTES]>,
    /// The peer, once its memory was found to be readable.
    neighbour: Option<Neighbour>,
    /// In the order in which they came; the first is being copied.
    referred: VecDeque<Referred>,
    /// A copy was not confirmed: the stream is about to end, and nothing more is copied.
    is_stale: bool,
    /// Blocks whose copies have to be reported to the peer.
    copied: Vec<u32>,
    /// The peer can read this end's memory; until it is taken.
    is_readable: bool,
    /// Blocks that the peer has copied; until they are taken.
    acknowledged: Vec<u32>,
}

impl References {
    /// Takes the number of the peer's process, as it says. Errors: it has said so before.
    pub(crate) fn introduce(&mut self, pid: u32) -> Result<(), String> {
        if std::mem::replace(&mut self.was_introduced, true) {
            return Err("a second introduction".into());
        }
        self.introduction = Some(pid);
        Ok(())
    }

    pub(crate) fn take_introduction(&mut self) -> Option<u32> {
        self.introduction.take()
    }

    /// Waits for the peer to place a proof in its memory.
    pub(crate) fn want(&mut self, proof: [u8; PROOF_BYTES]) {
        self.wanted = Some(proof);
    }

    /// Takes the address at which the peer has placed the proof, as it says. Errors: it was not sent one, or has said so before.
    pub(crate) fn prove(&mut self, address: u64) -> Result<(), String> {
        let proof = self.wanted.take().ok_or("an unsolicited proof")?;
        self.placed = Some((address, proof));
        Ok(())
    }

    pub(crate) fn take_placed(&mut self) -> Option<(u64, [u8; PROOF_BYTES])> {
        self.placed.take()
    }

    /// Takes what the peer wants to be placed in this end's memory. Errors: it has wanted something else just before.
    pub(crate) fn set_challenge(&mut self, proof: [u8; PROOF_BYTES]) -> Result<(), String> {
        match self.challenge.replace(proof) {
            None => Ok(()),
            Some(_) => Err("a second challenge".into()),
        }
    }

    pub(crate) fn take_challenge(&mut self) -> Option<[u8; PROOF_BYTES]> {
        self.challenge.take()
    }

    /// Accepts references from now on.
    pub(crate) fn trust(&mut self, neighbour: Neighbour) {
        self.neighbour = Some(neighbour);
    }

    /// Returns whether the peer may refer to its memory.
    pub(crate) fn is_trusted(&self) -> bool {
        self.neighbour.is_some()
    }

    pub(crate) fn set_readable(&mut self) {
        self.is_readable = true;
    }

    pub(crate) fn take_readable(&mut self) -> bool {
        std::mem::take(&mut self.is_readable)
    }

    pub(crate) fn acknowledge(&mut self, block: u32) {
        self.acknowledged.push(block);
    }

    /// Returns the blocks that the peer has copied since the last call.
    pub(crate) fn take_acknowledged(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.acknowledged)
    }

    /// Returns the blocks that were copied since the last call.
    pub(crate) fn take_copied(&mut self) -> Vec<u32> {
        std::mem::take(&mut self.copied)
    }

    /// Queues a block, whose length was checked against its memory.
    pub(crate) fn push(&mut self, receive: PostedReceive, address: u64, bytes: u32) {
        self.referred.push_back(Referred { receive, address, rest_bytes: bytes as usize });
    }

    /// Returns whether there is something to copy.
    pub(crate) fn can_copy(&self) -> bool {
        !self.is_stale && !self.referred.is_empty()
    }

    /// Copies up to `budget_bytes` bytes, which are at least 1, of the first block, and reports what
    /// that has completed. Returns the number of bytes; 0 if the peer is gone.
    ///
    /// Errors: the peer's memory or the local memory cannot be accessed.
    pub(crate) fn copy(
        &mut self,
        budget_bytes: usize,
        endpoint: EndpointId,
        completed: &mut Vec<Completion>,
    ) -> Result<usize, Cause> {
        let (Some(neighbour), Some(first)) = (&self.neighbour, self.referred.front_mut()) else {
            return Ok(0);
        };
        let bytes = first.rest_bytes.min(budget_bytes);
        let copied = neighbour.copy(first.address, &mut first.receive.lease[..bytes]);
        if !Cause::check_copied(copied)? {
            self.is_stale = true;
            return Ok(0);
        }
        first.receive.fill(bytes);
        first.rest_bytes -= bytes;
        first.address = first.address.wrapping_add(bytes as u64);
        if first.rest_bytes > 0 {
            first.receive.report(endpoint, completed);
        } else if let Some(Referred { receive, .. }) = self.referred.pop_front() {
            self.copied.push(receive.block);
            receive.complete(endpoint, completed);
        }
        Ok(bytes)
    }

    /// Cancels the receives of all blocks that were not copied.
    pub(crate) fn discard(&mut self, endpoint: EndpointId, completed: &mut Vec<Completion>) {
        for Referred { receive, .. } in self.referred.drain(..) {
            receive.cancel(endpoint, completed);
        }
    }
}
