//! What the receiving half of a stream holds for one channel.

use std::collections::{HashMap, VecDeque};

use transport::{Completion, EndpointId, PeerMemory, Token, WriteLease};

use crate::{posted_receive::PostedReceive, references::References};

/// The receives of one channel on one stream.
pub(crate) struct Inbound {
    pub(crate) endpoint: EndpointId,
    pub(crate) receives: VecDeque<PostedReceive>,
    pub(crate) exposed: HashMap<u32, PeerMemory>,
    pub(crate) references: References,
    /// The channel is closing or has ended: blocks are read and dropped.
    pub(crate) discarding: bool,
    pub(crate) received_bye: bool,
    /// The channel has ended here, and is kept until its bye.
    pub(crate) has_ended: bool,
}

impl Inbound {
    pub(crate) fn new(endpoint: EndpointId) -> Self {
        Self {
            endpoint,
            receives: VecDeque::new(),
            exposed: HashMap::new(),
            references: References::default(),
            discarding: false,
            received_bye: false,
            has_ended: false,
        }
    }

    pub(crate) fn post(&mut self, lease: WriteLease, token: Token, block: u32) {
        self.receives.push_back(PostedReceive::new(lease, token, block));
    }

    /// Returns whether nothing more comes for it and nobody asks for it.
    pub(crate) fn is_over(&self) -> bool {
        self.has_ended && self.received_bye
    }

    /// Cancels all receives; blocks that still arrive are dropped from now on.
    pub(crate) fn discard(&mut self, completed: &mut Vec<Completion>) {
        self.discarding = true;
        self.exposed.clear();
        self.references.discard(self.endpoint, completed);
        for receive in self.receives.drain(..) {
            receive.cancel(self.endpoint, completed);
        }
    }

    /// Takes the first posted receive for a block in the peer's memory. Errors: why the block is refused.
    pub(crate) fn begin_copy(
        &mut self,
        bytes: u32,
        immediate: u32,
        block: u32,
        address: u64,
    ) -> Result<(), String> {
        if !self.references.is_trusted() {
            return Err("it refers to memory that cannot be read here".into());
        }
        if self.discarding {
            return Ok(());
        }
        let mut receive =
            self.receives.pop_front().ok_or("a block for which no memory was posted")?;
        let checked = match receive.filled_bytes {
            0 => receive.check(bytes as usize, immediate, block),
            _ => Err("a reference inside a block".into()),
        };
        if checked.is_err() {
            self.receives.push_front(receive);
        } else {
            self.references.push(receive, address, bytes);
        }
        checked
    }
}
