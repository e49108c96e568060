//! A posted receive and how much of it is filled.

use transport::{Completion, EndpointId, Token, WriteLease};

/// A posted receive.
pub(crate) struct PostedReceive {
    /// The memory that is not filled.
    pub(crate) lease: WriteLease,
    token: Token,
    /// Number of the block on its endpoint, modulo 2^32.
    pub(crate) block: u32,
    pub(crate) filled_bytes: usize,
    /// Set by the first segment.
    pub(crate) immediate: Option<u32>,
    /// Whether its owner was notified that the block is arriving.
    is_reported: bool,
}

impl PostedReceive {
    pub(crate) fn new(lease: WriteLease, token: Token, block: u32) -> Self {
        Self { lease, token, block, filled_bytes: 0, immediate: None, is_reported: false }
    }

    /// Checks a peer's description of a block, of which `bytes` bytes are to come next. Errors: it does not
    /// belong here.
    pub(crate) fn check(&mut self, bytes: usize, immediate: u32, block: u32) -> Result<(), String> {
        if block != self.block {
            return Err(format!("block {block} came instead of {}", self.block));
        }
        if *self.immediate.get_or_insert(immediate) != immediate {
            return Err("the immediate changed inside a block".into());
        }
        if bytes > self.lease.bytes() {
            return Err(format!(
                "a block longer than the {} bytes posted",
                self.filled_bytes + self.lease.bytes()
            ));
        }
        Ok(())
    }

    pub(crate) fn fill(&mut self, bytes: usize) {
        self.filled_bytes += bytes;
        self.lease.advance(bytes);
    }

    /// Reports that some of the block has arrived, once, if its memory is followed.
    pub(crate) fn report(&mut self, endpoint: EndpointId, completed: &mut Vec<Completion>) {
        if self.filled_bytes > 0
            && self.lease.is_followed()
            && !std::mem::replace(&mut self.is_reported, true)
        {
            let (token, immediate) = (self.token, self.immediate.unwrap_or(0));
            completed.push(Completion::Arriving { endpoint, token, immediate });
        }
    }

    /// Gives the memory back, and reports the block.
    pub(crate) fn complete(self, endpoint: EndpointId, completed: &mut Vec<Completion>) {
        let Self { lease, token, filled_bytes, immediate, .. } = self;
        drop(lease);
        completed.push(Completion::Received {
            endpoint,
            token,
            bytes: filled_bytes as u64,
            immediate: immediate.unwrap_or(0),
        });
    }

    /// Gives the memory back.
    pub(crate) fn cancel(self, endpoint: EndpointId, completed: &mut Vec<Completion>) {
        let Self { lease, token, .. } = self;
        drop(lease);
        completed.push(Completion::Cancelled { endpoint, token });
    }
}
