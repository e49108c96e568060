//! One-sided writes into a peer's memory.

use memory::{PeerMemory, ReadLease};

use crate::{
    completion::PostError,
    endpoint::{EndpointId, Token},
    visibility::Visibility,
};

/// One-sided writes, on networks that have them; such a transport returns this from
/// [`crate::Transport::one_sided`].
///
/// # Contract
/// Writes of one endpoint are reported in posting order: once one is reported, those posted before
/// it have arrived, too. Writes to the same bytes must not be under way at the same time: the last
/// one need not win. Writes are not ordered against blocks or control words. A
/// write outside of what the peer exposed breaks the connection ([`crate::Cause::Protocol`]) and
/// writes nothing.
///
/// Before a write is reported, nothing is promised about its bytes but what
/// [`OneSidedWrites::visibility`] vouches for.
pub trait OneSidedWrites {
    /// Returns what may be relied on about the bytes of the peer's writes, before they are
    /// reported. Nothing by default.
    fn visibility(&self, _endpoint: EndpointId) -> Visibility {
        Visibility::default()
    }

    /// Returns whether writes of the peer that are not reported end waits in [`crate::Transport::poll`], too. Such a wait returns early
    /// once before it sleeps: the caller looks at its memory and waits again, and any write that it could not see then ends that wait.
    /// By default they do not.
    fn ends_waits(&self, _endpoint: EndpointId) -> bool {
        false
    }

    /// Lets the peer of `endpoint` write into `memory` under the name `key`, until the endpoint
    /// ends and the transport drops the memory. Both sides use it in turn, as they agree. The peer
    /// may write it at any time: copy its bytes out once, then check the copy.
    ///
    /// Errors: the endpoint has ended, or the key is in use.
    fn expose(
        &mut self,
        endpoint: EndpointId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError>;

    /// Writes into memory that the peer has exposed under `key`, at `offset` bytes from its start:
    /// [`crate::Completion::Sent`] here, [`crate::Completion::Written`] with `immediate` there.
    /// Without an immediate the peer's transport reports nothing, and such a write does not end a
    /// wait in its [`crate::Transport::poll`], unless [`OneSidedWrites::ends_waits`] there. The peer must have reported first, by a control word
    /// for example, that it has exposed that memory.
    fn post_write(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        key: u32,
        offset: u64,
        immediate: Option<u32>,
        token: Token,
    ) -> Result<(), PostError>;
}
