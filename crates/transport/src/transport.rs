//! The contract between the engine and a network.

use std::{sync::Arc, time::Duration};

use memory::{ReadLease, Region, WriteLease};

use crate::{
    completion::{Completion, PostError},
    cut_through::CutThroughSends,
    endpoint::{EndpointId, Token},
    one_sided::OneSidedWrites,
    triggered::TriggeredSends,
};

/// Wakes a transport that sleeps in [`Transport::poll`]; callable from any thread, never blocks.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// One member's access to a network: endpoints, posts, and one completion queue.
///
/// # Contract
/// - **Matching.** Sends on an endpoint match the peer's receives on it in posting order: the i-th
///   send fills the i-th receive. Completions of one endpoint may come in another order (a
///   transport may use several streams), so match them by [`Token`].
/// - **Credit.** A send must not be posted before the peer has posted the matching receive. A peer
///   that breaks this rule, or sends more bytes than were posted, breaks the connection
///   ([`crate::Cause::Protocol`]); it never makes the transport buffer or allocate.
/// - **Control words** arrive whole, once, and in order among themselves. They are not ordered
///   against blocks. They need no posted receive, and the transport lets them overtake blocks
///   that wait to be sent.
/// - **Handing back.** Every accepted post completes exactly once: [`Completion::Sent`],
///   [`Completion::Received`] or [`Completion::Cancelled`]. The lease is dropped before the
///   completion is reported, and nothing touches the memory afterwards.
/// - **Ends.** An endpoint ends exactly once, by [`Completion::Closed`] after [`Transport::close`]
///   or else by [`Completion::Broken`]; all its posts have completed by then, and nothing of that
///   endpoint follows. Where blocks have a path of their own, that may end before:
///   [`Completion::Halted`] then reports it, and the endpoint stays until it is closed or breaks.
/// - **No blocking.** Only [`Transport::poll`] waits. A peer that does not read or does not send
///   never delays another endpoint.
/// - **Dropping** the transport hands back all memory at once; peers see [`crate::Cause::Lost`] or
///   [`crate::Cause::Silent`].
/// - **Silence.** A peer that stops answering is reported as [`crate::Cause::Silent`] within the
///   transport's configured time.
///
/// A transport belongs to one thread at a time; only its [`Waker`] may be used from others.
pub trait Transport {
    /// What [`Transport::open`] makes an endpoint of: connected, authenticated, not yet used.
    type Link: Send + 'static;

    /// Returns the time since an origin of the transport's choice, by a monotonic clock or in
    /// virtual time.
    fn now(&self) -> Duration;

    /// Returns the most bytes that one post can carry.
    fn block_bytes_max(&self) -> u64;

    /// Makes an endpoint of a connected link. Does not block.
    fn open(&mut self, link: Self::Link) -> Result<EndpointId, PostError>;

    /// Prepares memory for posts, where the network needs that: it is registered now instead of with
    /// the first post, and until it is freed. May take milliseconds for each 100 MB. Does nothing
    /// where the network needs no preparation, and for a region of a file.
    ///
    /// Errors: [`PostError::System`], with the remedy; posts try again.
    fn register(&mut self, _region: &Region) -> Result<(), PostError> {
        Ok(())
    }

    /// Posts memory for the next block that the peer sends. The block may be shorter than the
    /// memory; [`Completion::Received`] has its length.
    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError>;

    /// Sends a block, with 32 bits for the receiver's completion.
    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError>;

    /// Writes a small word (at most [`crate::CONTROL_BYTES_MAX`] bytes) to the peer, where it
    /// appears as [`Completion::Control`]: the one-sided write by which a receiver reports that it
    /// is ready (DSN 2018 section 4.2, `ready_for_block`). The bytes are copied; there is no local
    /// completion. An empty word is refused.
    ///
    /// Errors: as for a send; also [`PostError::System`] when too many words wait for the peer.
    /// That word is lost, and the endpoint stays open: the caller decides whether to close it.
    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError>;

    /// Returns the one-sided writes of this network, if it has them: always or never.
    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        None
    }

    /// Returns the sends of blocks that are still being received, if this network has them: always or
    /// never.
    fn cut_through(&mut self) -> Option<&mut dyn CutThroughSends> {
        None
    }

    /// Returns the sends that the network starts by itself, if it has them: always or never.
    fn triggered(&mut self) -> Option<&mut dyn TriggeredSends> {
        None
    }

    /// Starts an ordered close. Posted receives and sends that have not begun are cancelled;
    /// control words already written are still delivered, within the transport's drain time, to
    /// a peer that reads. Ends with [`Completion::Closed`]. Closing an endpoint that is closing
    /// or gone does nothing.
    fn close(&mut self, endpoint: EndpointId);

    /// Moves bytes, then appends what has completed. With nothing to report it waits up to `wait`
    /// (zero: not at all), or until the waker is used. May return early with nothing.
    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration);

    /// Hands to the network what was posted, as far as it takes that now; reports nothing. For a
    /// caller that may not poll soon: until then a network may keep posts to itself. Where a peer is
    /// told of a write only after that has completed, this takes a poll, too.
    fn flush(&mut self) {}

    /// Returns the handle by which other threads end a wait in [`Transport::poll`]; used between
    /// two polls, it ends the next wait.
    fn waker(&self) -> Waker;

    /// Ends all endpoints and hands back all memory in an ordered way that may wait, for less than
    /// a second, where dropping the transport would not. No other method may be called afterwards.
    fn finish(&mut self) {}
}
