//! Memory that was posted for a block.

use transport::{Completion, EndpointId, Token, WriteLease};

pub(crate) struct Receive {
    pub(crate) into: WriteLease,
    pub(crate) token: Token,
}

impl Receive {
    /// Gives back the memory, with a block in it.
    pub(crate) fn complete(self, endpoint: EndpointId, immediate: u32, bytes: usize) -> Completion {
        let Self { into, token } = self;
        drop(into);
        Completion::Received { endpoint, token, bytes: bytes as u64, immediate }
    }
}
