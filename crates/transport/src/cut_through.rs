//! Sends of blocks that are still being received.

use memory::ArrivingRead;

use crate::{
    completion::PostError,
    endpoint::{EndpointId, Token},
};

/// Sends of blocks that are still being received, on networks that have them; such a transport
/// returns this from [`crate::Transport::cut_through`].
///
/// # Contract
/// A receive is reported by [`crate::Completion::Arriving`] if its memory is followed
/// ([`memory::WriteLease::arriving`]) and some of its block arrives before the rest. Bytes count as
/// arrived in ascending order, and on protected links only once they were verified. What of such memory is
/// behind the block's end, or has not arrived, may have any contents.
pub trait CutThroughSends {
    /// Returns the length from which sending a block on while it arrives gains anything.
    fn block_bytes_min(&self) -> u64;

    /// As [`crate::Transport::post_send`], for memory that was posted as a receive on any endpoint
    /// of this transport: sends what has arrived of it as it arrives. Sends on the same endpoint
    /// that are posted later wait for it, those of other endpoints and control words do not.
    ///
    /// Completes once the whole block has been received; a network that moves bytes by several threads may report that before it
    /// reports the receive. If the receive is cancelled, the send is completed only by the
    /// end of its endpoint; the peer never gets the rest.
    fn post_cut_through_send(
        &mut self,
        endpoint: EndpointId,
        from: ArrivingRead,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError>;
}
