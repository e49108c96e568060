//! Sends that the network starts by itself.

use memory::{FutureRead, WriteLease};

use crate::{
    completion::PostError,
    endpoint::{EndpointId, Token},
};

/// Sends that the network starts by itself, on networks that have them; such a transport returns
/// this from [`crate::Transport::triggered`].
pub trait TriggeredSends {
    /// As [`crate::Transport::post_receive`], for the block that the peer sends with
    /// [`TriggeredSends::post_offloaded_send`] and this `immediate`. Offloaded sends and receives
    /// match by their immediate, not by order, so no two that are open on one endpoint may share it
    /// (the second is refused); and they are independent of other sends and receives.
    fn post_offloaded_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError>;

    /// Posts a send that the network starts by itself, without polling, once all offloaded
    /// operations `after` (at most two, each by the endpoint and the token that it was posted with)
    /// are done: receives hold their blocks, sends have been sent. It starts at once if they are
    /// done already, or if there are none (DSN 2018 section 2, `CORE-Direct`). Completes as a send
    /// does. If one of `after` is cancelled, so is the send.
    ///
    /// The peer must have posted the offloaded receive with this immediate before. An operation can
    /// be named in `after` until the poll after the one that reported it; it need not be named once
    /// its completion was reported.
    ///
    /// Errors: as for a send; an operation in `after` is unknown; with nothing to wait for, the
    /// memory is being written.
    fn post_offloaded_send(
        &mut self,
        endpoint: EndpointId,
        from: FutureRead,
        immediate: u32,
        token: Token,
        after: &[(EndpointId, Token)],
    ) -> Result<(), PostError>;
}
