//! What has to be done for a team's operations.

use crate::Header;

/// The two rings of each direction of a link: contributions and results have their own, so that neither waits for the other.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Ring {
    /// Contributions on their way to rank 0.
    Up,
    /// Messages and results.
    Down,
}

impl Ring {
    /// Both directions.
    pub const ALL: [Self; 2] = [Self::Up, Self::Down];
}

/// What has to be done, in this order.
///
/// "Memory" is the operation's: the message, or this member's contribution, which becomes the result; for an all-gather, room
/// for all contributions with this member's at its place; for a reduction, memory of the length of one contribution, at any member.
/// For a reduce-scatter it is a contribution of all parts, of which afterwards only this member's is the result. For a scatter or
/// gather, see [`crate::Member::memory_bytes`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effect {
    /// Fold the contents of a slot into memory.
    Fold {
        /// The contents are the left operand, and else the right one.
        is_left: bool,
        /// Number of the operation.
        operation: u64,
        /// Where the contents are.
        contents: Contents,
        /// Position in memory, in bytes.
        at: u64,
    },
    /// Copy the contents of a slot to memory.
    Copy {
        /// Number of the operation.
        operation: u64,
        /// Where the contents are.
        contents: Contents,
        /// Position in memory, in bytes.
        at: u64,
    },
    /// Write contents from memory, and behind them the header, to the end of a member's slot. The memory may change
    /// afterwards.
    Write {
        /// The member.
        to: u32,
        /// Its ring for this member.
        ring: Ring,
        /// The slot.
        slot: u32,
        /// Position of the contents in memory, in bytes.
        at: u64,
        /// The header, with operation and length. The flag is to be set by the executor.
        header: Header,
    },
    /// Tell a member how many slots of a ring were freed in all. They are free from now on: what marks them as written has to
    /// be reset before.
    Freed {
        /// The member.
        to: u32,
        /// The ring that it writes.
        ring: Ring,
        /// How many slots.
        count: u64,
    },
    /// Post a receive for the next block of a member. If it is to be folded, into memory apart, where it stays until
    /// [`Effect::FoldBlock`].
    Receive {
        /// Number of the operation.
        operation: u64,
        /// Number of the block among those that this member receives in the operation.
        index: u32,
        /// The member.
        from: u32,
        /// Position in memory, in bytes.
        at: u64,
        /// Length in bytes.
        bytes: u64,
        /// The block will be folded.
        folds: bool,
    },
    /// Fold a block that has come into memory, as the right operand.
    FoldBlock {
        /// Number of the operation.
        operation: u64,
        /// Number of the block, as in [`Effect::Receive`].
        index: u32,
        /// Position in memory, in bytes.
        at: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// Post the send of a block; the memory does not change until [`crate::Member::sent`].
    Send {
        /// Number of the operation.
        operation: u64,
        /// Number of the block among those that this member sends in the operation.
        index: u32,
        /// The member.
        to: u32,
        /// Position in memory, in bytes.
        at: u64,
        /// Length in bytes.
        bytes: u64,
    },
    /// Tell a member how many receives of its blocks were posted in an operation: it may send that many.
    Grant {
        /// The member.
        to: u32,
        /// Number of the operation.
        operation: u64,
        /// This member's call of it.
        call: crate::Call,
        /// How many receives, in all.
        blocks: u32,
    },
    /// An operation is complete at this member. Its memory holds the result, and is not used any more.
    Complete {
        /// Number of the operation.
        operation: u64,
    },
}

/// The contents of a slot that another member has written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Contents {
    /// The member that wrote them.
    pub from: u32,
    /// Its ring.
    pub ring: Ring,
    /// The slot.
    pub slot: u32,
    /// Their length in bytes.
    pub bytes: u32,
}
