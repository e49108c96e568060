//! Writes into memory of a peer that takes no part in them.

use memory::{PeerMemory, ReadLease};

use crate::{
    completion::PostError,
    endpoint::{EndpointId, Token},
};

/// What networks with one-sided writes have besides a [`crate::Transport`]; such a transport returns
/// it from [`crate::Transport::one_sided`].
///
/// # Contract
/// Writes of one endpoint are placed and reported in posting order. They are not ordered against
/// blocks or control words. A write outside of what the peer exposed breaks the connection
/// ([`crate::Cause::Protocol`]) and writes nothing.
pub trait OneSidedWrites {
    /// Lets the peer of `endpoint` write into `memory` under the name `key`, until the endpoint
    /// ends; then the memory is let go. It belongs to both sides by turns as they agree. The peer
    /// may write it at any time: copy its bytes out once, then check the copy.
    ///
    /// Errors: the endpoint is gone, or the key is in use.
    fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError>;

    /// Writes into memory that the peer has exposed under `key`, at `offset` bytes from its start:
    /// [`crate::Completion::Sent`] here, [`crate::Completion::Written`] with `immediate` there. The
    /// caller knows
    /// from the peer (a control word, say) that it has exposed that memory.
    fn post_write(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError>;
}
