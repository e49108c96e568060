//! What the engine reports.

use transport::Region;

use crate::{failure::Failure, slot::Slot};

/// What has happened in a group. Events of one group are in order; after [`Event::Failed`] or
/// [`Event::Closed`] nothing of that group follows.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event {
    /// A message of exactly this length was announced; reply with [`crate::Engine::accept`] (or
    /// [`crate::Engine::abort`]).
    Incoming {
        /// The group's number.
        group: u64,
        /// Message number.
        message: u64,
        /// Length of the message.
        bytes: u64,
        /// The contents, if they are here: once all earlier messages are complete, they may be copied
        /// from here, and [`crate::Engine::taken`] is the reply.
        slot: Option<Slot>,
    },
    /// A block is in place and will not change (with [`crate::GroupSettings::report_blocks`]).
    Block {
        /// The group's number.
        group: u64,
        /// Message number.
        message: u64,
        /// First byte in the message.
        offset: u64,
        /// Length of the block.
        bytes: u64,
    },
    /// The whole message is in place here; this member may still be relaying it.
    Received {
        /// The group's number.
        group: u64,
        /// Message number.
        message: u64,
    },
    /// This member is done with the message, and returns its memory.
    Complete {
        /// The group's number.
        group: u64,
        /// Message number.
        message: u64,
        /// The region that the application provided.
        region: Region,
    },
    /// Every member has this many messages, counted from the first. At the root only, if it was asked for
    /// ([`crate::GroupSettings::report_delivered`], [`crate::Engine::ask_delivered`]); before
    /// [`Event::Closed`] for all messages.
    Delivered {
        /// The group's number.
        group: u64,
        /// How many messages.
        count: u64,
    },
    /// The group has failed, and has ended at this member.
    Failed {
        /// The first cause that this member learned of.
        failure: Failure,
        /// Memory of messages that are not complete, by message number.
        regions: Vec<(u64, Region)>,
    },
    /// The group is closed: every message has reached every member.
    Closed {
        /// The group's number.
        group: u64,
    },
}

impl Event {
    /// The group's number.
    pub fn group(&self) -> u64 {
        match self {
            Self::Incoming { group, .. }
            | Self::Block { group, .. }
            | Self::Received { group, .. }
            | Self::Complete { group, .. }
            | Self::Delivered { group, .. }
            | Self::Closed { group } => *group,
            Self::Failed { failure, .. } => failure.group,
        }
    }

    /// Returns whether this is the last event of its group.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Failed { .. } | Self::Closed { .. })
    }
}
