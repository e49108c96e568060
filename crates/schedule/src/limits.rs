//! Limits of every schedule.

use crate::flow::ceil_log2;

/// The most members that a group may have: 2^20.
pub const MAX_MEMBERS: u32 = 1 << 20;

/// The fewest steps in which any schedule can replicate `blocks` blocks to `members` members, in steps:
/// `blocks - 1 + ceil(log2(members))`, or 0 where there is nothing to do.
///
/// The root needs `blocks - 1` steps before it can even begin to send the last block, and the number of members
/// that hold that block at most doubles in a step (full-duplex one-port model; DSN section 4.4). The binomial
/// pipeline and the circulant schedule meet it for every `members`.
///
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
