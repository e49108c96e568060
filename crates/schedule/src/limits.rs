//! Limits of every schedule.

use crate::flow::ceil_log2;

/// The maximum number of members of a group: 2^20.
pub const MAX_MEMBERS: u32 = 1 << 20;

/// Returns the minimum number of steps in which any schedule can replicate `blocks` blocks to `members` members:
/// `blocks - 1 + ceil(log2(members))`, or 0 for one member or no blocks.
///
/// The root needs `blocks - 1` steps before it can begin to send the last block, and the number of members
/// that hold that block at most doubles in a step (full-duplex one-port model; DSN section 4.4). The binomial
/// pipeline and the circulant schedule reach this bound for every `members`.
///
/// # Examples
/// ```
/// assert_eq!(schedule::lower_bound_steps(8, 3), 5);
/// assert_eq!(schedule::lower_bound_steps(9, 3), 6);
/// ```
#[must_use]
pub const fn lower_bound_steps(members: u32, blocks: u32) -> u64 {
    if members <= 1 || blocks == 0 {
        return 0;
    }
    blocks as u64 - 1 + ceil_log2(members) as u64
}
