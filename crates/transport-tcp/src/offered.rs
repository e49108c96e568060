//! This end's memory, as far as the peer may read it, and the blocks that it was referred to
//! (docs/decisions/one-machine.md).

use std::collections::VecDeque;

use transport::{Completion, EndpointId, PROOF_BYTES, Proof};

use crate::posted_send::PostedSend;

/// Shorter blocks cost less through the socket than a reference and its answer.
pub(crate) const REFERENCE_BYTES_MIN: usize = 32 << 10;

/// What the peer may read. Declared in the order in which it is dropped: the proof is overwritten before
/// the memory of any block is given back.
#[derive(Default)]
pub(crate) struct Offered {
    /// The peer has received which process this is.
    is_introduced: bool,
    /// `None` if nothing is offered.
    proof: Option<Proof>,
    /// The peer has found that it can read this end's memory.
    is_readable: bool,
    /// Blocks that the peer was referred to and has not copied, in order.
    referred: VecDeque<PostedSend>,
}

impl Offered {
    /// Returns the number of this process, by which it is introduced.
    pub(crate) fn introduce(&mut self) -> u32 {
        self.is_introduced = true;
        std::process::id()
    }

    /// Places the proof that the peer wants to read, and returns its address. Errors: the request is unsolicited, or it has
    /// sent one before.
    pub(crate) fn place(&mut self, proof: [u8; PROOF_BYTES]) -> Result<u64, String> {
        if !std::mem::take(&mut self.is_introduced) {
            return Err("an unsolicited challenge".into());
        }
        Ok(self.proof.insert(Proof::place(proof)).address())
    }

    /// Notes that the peer can read this end's memory. Errors: it was not told where that is.
    pub(crate) fn set_readable(&mut self) -> Result<(), String> {
        if self.proof.is_none() {
            return Err("it says that it can read memory that was not offered".into());
        }
        self.is_readable = true;
        Ok(())
    }

    /// Returns whether a block of which nothing was sent is referred to instead.
    pub(crate) fn takes(&self, send: &PostedSend) -> bool {
        self.is_readable && send.is_block() && send.bytes() >= REFERENCE_BYTES_MIN
    }

    /// Keeps a block until the peer has copied it.
    pub(crate) fn push(&mut self, send: PostedSend) {
        self.referred.push_back(send);
    }

    /// Completes the first block, which the peer has copied. Errors: it is another one.
    pub(crate) fn complete(
        &mut self,
        block: u32,
        endpoint: EndpointId,
        completed: &mut Vec<Completion>,
    ) -> Result<(), String> {
        if self.referred.front().is_none_or(|send| send.block() != Some(block)) {
            return Err(format!("it has copied block {block}, to which it was not referred"));
        }
        if let Some(send) = self.referred.pop_front() {
            completed.push(Completion::Sent { endpoint, token: send.into_token() });
        }
        Ok(())
    }

    /// Lets the peer's copies count no longer, and cancels their blocks.
    pub(crate) fn withdraw(&mut self, endpoint: EndpointId, completed: &mut Vec<Completion>) {
        if let Some(proof) = self.proof.take() {
            proof.withdraw();
        }
        self.is_readable = false;
        for send in self.referred.drain(..) {
            completed.push(Completion::Cancelled { endpoint, token: send.into_token() });
        }
    }
}
