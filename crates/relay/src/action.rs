//! Actions that a [`crate::Relay`] requests of its owner.

use schedule::Transfer;

/// Identifies a posted receive; unique within its relay.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ReceiveId(pub u64);

/// Identifies a posted send; unique within its relay.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct SendId(pub u64);

/// One transfer of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// Message number.
    pub message: u64,
    /// The transfer of the schedule.
    pub transfer: Transfer,
}

/// An action, to be carried out in the order in which [`crate::Relay::poll_action`] returns it.
///
/// `offset` and `bytes` select a part of the message's memory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Post a receive for a first block into spare memory of one block's length, since its
    /// message's memory is not known yet; then grant `source` one credit.
    PostFirst {
        /// The neighbour that sends it.
        source: u32,
        /// The identifier for [`crate::Relay::received`].
        id: ReceiveId,
    },
    /// Post a receive straight into the message's memory; then grant `source` one credit.
    PostReceive {
        /// The neighbour that sends it.
        source: u32,
        /// The identifier for [`crate::Relay::received`].
        id: ReceiveId,
        /// Message number.
        message: u64,
        /// First byte.
        offset: u64,
        /// Length; 0 for the one block of an empty message.
        bytes: u64,
    },
    /// Post a send with the block's number as its immediate: out of the message's memory, or of what
    /// arrives as it arrives.
    PostSend {
        /// The neighbour that receives it.
        target: u32,
        /// The identifier for [`crate::Relay::sent`].
        id: SendId,
        /// Cut-through: the receive that brings the block, of [`Action::PostReceive`] or
        /// [`Action::PostFirst`], if it is still arriving. If it was placed since, it is to be sent out of
        /// the message's memory.
        after: Option<ReceiveId>,
        /// Message number.
        message: u64,
        /// Block number within the message.
        block: u32,
        /// First byte.
        offset: u64,
        /// Length; 0 for the one block of an empty message.
        bytes: u64,
    },
    /// Offload: post a receive straight into the message's memory, which the network matches by
    /// its immediate. Its credit is granted later, by [`Action::Grant`].
    PostOffloadedReceive {
        /// The neighbour that sends it.
        source: u32,
        /// The identifier for [`crate::Relay::received`].
        id: ReceiveId,
        /// Message number.
        message: u64,
        /// The immediate; no other open receive from this source has it.
        immediate: u32,
        /// First byte.
        offset: u64,
        /// Length; 0 for the one block of an empty message.
        bytes: u64,
    },
    /// Offload: grant `source` this many credits, in one word.
    Grant {
        /// The neighbour.
        source: u32,
        /// How many receives were posted for it, at least 1.
        count: u32,
    },
    /// Offload: post a send that the network starts by itself once two other operations are done.
    PostOffloadedSend {
        /// The neighbour that receives it.
        target: u32,
        /// The identifier for [`crate::Relay::sent`].
        id: SendId,
        /// Message number.
        message: u64,
        /// The immediate that the target has posted the receive with.
        immediate: u32,
        /// First byte.
        offset: u64,
        /// Length; 0 for the one block of an empty message.
        bytes: u64,
        /// The source and the receive that brings the block; `None` if the block has arrived.
        after_receive: Option<(u32, ReceiveId)>,
        /// The target and the send that must be done before this may start; `None` if it is done.
        after_send: Option<(u32, SendId)>,
    },
    /// Announce the next message and its length to `target`.
    Announce {
        /// The neighbour.
        target: u32,
        /// Message number.
        message: u64,
        /// Length of the message.
        bytes: u64,
    },
    /// Ask the application for memory of exactly this length; answer by
    /// [`crate::Relay::accepted`], at any later time.
    Incoming {
        /// Message number.
        message: u64,
        /// Length of the message.
        bytes: u64,
    },
    /// Copy the block of this [`Action::PostFirst`] to its place in the message's memory, after
    /// which the spare memory is free again; answer by [`crate::Relay::placed`], at any later time.
    PlaceFirst {
        /// The receive that holds it.
        id: ReceiveId,
        /// Message number.
        message: u64,
        /// First byte.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// A block is in its place and will not change: the application may read it.
    BlockReady {
        /// Message number.
        message: u64,
        /// Block number within the message.
        block: u32,
        /// First byte.
        offset: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// All blocks of the message are in place here. In order of messages; never at the root.
    Received {
        /// Message number.
        message: u64,
    },
    /// This member has nothing left to do for the message: its memory is no longer needed. In
    /// order of messages. Other members may still be receiving it.
    Complete {
        /// Message number.
        message: u64,
    },
}
