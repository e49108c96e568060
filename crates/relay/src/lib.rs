//! Relaying messages at one member of a group: events in, actions out.
//!
//! [`Relay`] follows a [`schedule::Schedule`] asynchronously (DSN 2018 section 4.2, "Data
//! Transfer"): each member posts receives and sends in the order of the schedule's steps, but a
//! send waits only for its own block and for its target's credit, and a receive only for room in
//! the window. There is no clock, no socket, no thread and no memory of blocks here; whoever owns
//! those calls the event methods and carries out what [`Relay::poll_action`] returns, in order.
//!
//! # How a message travels
//! 1. The root's [`Relay::send`] gives the message a number. It is *activated* once fewer than
//!    [`Settings::messages_in_flight`] earlier messages are unfinished here.
//! 2. Activation announces the message's length to the members that first hear of it from here
//!    ([`schedule::Schedule::announcer`]); they activate it in turn, and ask their application for
//!    memory ([`Action::Incoming`]).
//! 3. Meanwhile a receive stands ready for the first block, whose source is known before the
//!    length is ([`schedule::Schedule::first_source`]); it goes to spare memory and is copied once
//!    ([`Action::PlaceFirst`]). Where the application's memory is known in time, nothing is copied.
//! 4. Every other block goes straight into its place. Each posted receive grants its source one
//!    credit, so no block is ever sent to a member that has no memory posted for it.
//!
//! # Offload
//! With [`Settings::offload`] a member posts all operations of a message at once and lets the
//! network run them ([`Action::PostOffloadedReceive`], [`Action::PostOffloadedSend`]): the dataflow
//! graph of DSN 2018 section 2. There is no standing receive then, since copying a first block
//! would take the member's own program; and credits come in bulk. Both ends of a connection take
//! its transfers in the order of (message, step), so the i-th credit is for the i-th of them.
//!
//! The paper warns of priority inversions when operations are performed as soon as they become
//! possible. So a send waits for two things: the receive of its block, and the send that comes
//! [`Window::sends`] before it in the schedule.
//!
//! # Why it cannot get stuck
//! Order all transfers by (message, step). The smallest one not done has a source that holds the
//! block (it came at a smaller step) and a target for which all smaller receives are done, so its
//! receive is within every window of at least one; nothing else is ever waited for. With offload,
//! sends are posted in just this order, and those that one waits for are smaller.
//!
//! # Cost
//! One bit a block and message at a receiver; otherwise memory of the order of the windows. An
//! event costs O(window + log members) time.

#![forbid(unsafe_code)]

mod action;
mod blocks;
mod message;
mod relay;

pub use action::{Action, ReceiveId, SendId};
pub use blocks::{BlockRange, Blocks};
pub use relay::{Obstacle, Relay, Wait};

use schedule::Schedule;

/// What all members of a group must agree on, and what each may choose.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Who sends which block to whom, and when. The same at all members.
    pub schedule: Schedule,
    /// This member.
    pub rank: u32,
    /// Length of every block but the last of a message; at least 1. The same at all members.
    pub block_bytes: u64,
    /// How far this member posts ahead.
    pub window: Window,
    /// How many messages may be unfinished at a member at once: with 1 a message starts when the
    /// one before is done (as RDMC does), with more their head and tail overlap. At least 1. The
    /// same at all members.
    pub messages_in_flight: u32,
    /// Lets the network start the sends: how many operations may be posted in each direction, at
    /// least 1; should be enough for a message. `window.sends` is then how many sends the network
    /// runs at once, and `window.receives` means nothing. Set at all members or at none.
    pub offload: Option<u32>,
}

/// How many operations a member keeps posted.
///
/// Eight of each by default, for blocks of 64 KiB; [`Window::for_group`] for others. Where several
/// blocks share a link, shallow windows leave links idle (docs/decisions/windows.md).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Window {
    /// Receives posted and not complete, at least 1.
    pub receives: u32,
    /// Sends posted and not complete, at least 1.
    pub sends: u32,
}

impl Window {
    /// Half a megabyte in each direction, in at least 8 blocks and at least 4 for each of a member's
    /// `ceil(log2 members)` partners, and at most 64: what matters is how much time a member has until
    /// it runs out of work (docs/decisions/windows.md).
    pub fn for_group(block_bytes: u64, members: u32) -> Self {
        let partners = u64::from(members.max(2)).next_power_of_two().ilog2();
        let least = u64::from(4 * partners).clamp(8, 64);
        let blocks = ((512 << 10) / block_bytes.max(1)).clamp(least, 64) as u32;
        Self { receives: blocks, sends: blocks }
    }
}

impl Default for Window {
    fn default() -> Self {
        Self { receives: 8, sends: 8 }
    }
}

/// Why an event was refused.
///
/// [`RelayError::Peer`] means that the group cannot go on; the others are mistakes of the caller
/// and change nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RelayError {
    /// A setting is out of range.
    #[error("{0}")]
    Setting(&'static str),
    /// Only the root sends.
    #[error("only the root (rank {root}) may send; this is rank {rank}")]
    NotRoot {
        /// The group's root.
        root: u32,
        /// This member.
        rank: u32,
    },
    /// The message would have more blocks than can be numbered.
    #[error(
        "{bytes} bytes in blocks of {block_bytes} make more than {} blocks; use larger blocks",
        u32::MAX
    )]
    TooManyBlocks {
        /// Length of the message.
        bytes: u64,
        /// Length of a block.
        block_bytes: u64,
    },
    /// The message would have more blocks than offload can tell apart.
    #[error(
        "{blocks} blocks are more than the {blocks_max} that offload can tell apart with this many \
         messages in flight; use larger blocks or fewer messages in flight"
    )]
    TooManyOffloaded {
        /// Of the message.
        blocks: u32,
        /// The limit.
        blocks_max: u64,
    },
    /// A message or operation with this number is not known, or not in the state for this event.
    #[error("{what} {number} is not known or not waiting for this")]
    Unknown {
        /// What was named.
        what: &'static str,
        /// Its number.
        number: u64,
    },
    /// A peer did what the protocol forbids.
    #[error("member {member} {what}")]
    Peer {
        /// Who.
        member: u32,
        /// What it did.
        what: String,
    },
}
