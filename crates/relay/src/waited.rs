//! How long members wait for each other.

use std::time::Duration;

/// How long one member of a group has waited for another since the group was created, while there
/// were blocks to relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waited {
    /// The neighbour. This member's own rank stands for time in which it waited for no neighbour.
    pub member: u32,
    /// Time in which sends were blocked: a block was being sent to that neighbour, or it had posted
    /// no receive for one.
    pub to_take: Duration,
    /// Time in which receives were blocked: that neighbour had not sent a block.
    pub to_give: Duration,
}
