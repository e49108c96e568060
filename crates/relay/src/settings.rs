//! Settings of a relay.

use schedule::Schedule;

/// The largest block in bytes, as 31 bits allow on every transport.
pub const BLOCK_BYTES_MAX: u64 = 1 << 31;

/// Settings: some must be the same at all members of a group, others each may choose.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The transfers of every message. The same at all members.
    pub schedule: Schedule,
    /// This member's rank.
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
    /// runs at once, and `window.receives` is ignored. Set at all members or at none.
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
    /// Sends posted and not complete, at least 1. With 1, sends keep the schedule's order.
    pub sends: u32,
}

impl Window {
    /// Returns half a megabyte in each direction, in at least 8 blocks and at least 4 for each of a
    /// member's `ceil(log2 members)` partners, and at most 64: what matters is how much time a
    /// member has until it has nothing to send (docs/decisions/windows.md).
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
