//! What a group is made of.

use relay::Window;
use schedule::{Algorithm, Schedule};
use transport::Region;

use crate::error::Error;

/// Which messages are not relayed but written to every receiver at once (DSN 2018 section 4.6),
/// where the transport has one-sided writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SmallMessages {
    /// The longest such message.
    pub bytes_max: u32,
    /// How many of them each receiver has room for. Every member sets aside memory for this many
    /// of the longest.
    pub slots: u32,
    /// Groups of more members relay everything.
    pub members_max: u32,
}

impl Default for SmallMessages {
    fn default() -> Self {
        Self { bytes_max: 10 * 1024, slots: 64, members_max: 16 }
    }
}

/// A group as one member sees it. All but `rank`, `window`, `report_blocks` and
/// `stall_timeout_ms` must be the same at all members.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    /// Names the group among all that share these members' contexts.
    pub number: u64,
    /// This member.
    pub rank: u32,
    /// Members, root, and who sends which block to whom.
    pub schedule: Schedule,
    /// Length of every block but the last of a message; 1 to 2^31 bytes. Each receiver sets aside
    /// memory for `messages_in_flight` blocks.
    pub block_bytes: u64,
    /// Receives and sends posted ahead.
    pub window: Window,
    /// How many messages may overlap; 1 to 1,024. With 1 each starts when the one before is done.
    pub messages_in_flight: u32,
    /// Asks that the network itself relays blocks, so that a member whose program is late delays
    /// nobody (DSN 2018 section 2). Used where the transport can; [`crate::Offload`] tells. All of
    /// a message is posted at once then: `window.receives` does not matter, `window.sends` is how
    /// many sends the network runs at once, and nothing is received before its memory is known.
    pub offload: bool,
    /// Which messages are written to all receivers at once; `None`: all are relayed. Where switches
    /// copy, which costs the root one transmission anyway, this is not used.
    pub small: Option<SmallMessages>,
    /// Whether [`crate::Event::Block`] is reported for every block, and the application's
    /// callback called. Blocks that wait for a slow callback are merged: memory is bounded by the window and
    /// the messages in flight, not by the messages' lengths.
    pub report_blocks: bool,
    /// How long nothing may move while something is due, before the group fails and names the
    /// member that was waited for. 0: for ever (a dead or silent peer is still noticed).
    pub stall_timeout_ms: u64,
}

/// Blocks of this size keep the pipeline fed over TCP without costing much per block
/// (docs/decisions/block-size.md).
pub const BLOCK_BYTES_DEFAULT: u64 = 64 * 1024;

/// The largest block: what fits into 31 bits everywhere.
pub const BLOCK_BYTES_MAX: u64 = 1 << 31;

impl GroupSettings {
    /// A group with default block size, windows and deadlines.
    pub fn new(number: u64, rank: u32, schedule: Schedule) -> Self {
        Self {
            number,
            rank,
            schedule,
            block_bytes: BLOCK_BYTES_DEFAULT,
            window: Window::default(),
            messages_in_flight: 2,
            offload: false,
            small: Some(SmallMessages::default()),
            report_blocks: false,
            stall_timeout_ms: 60_000,
        }
    }

    /// Errors: a setting is out of range.
    pub fn check(&self) -> Result<(), Error> {
        let refuse = |name, value: &dyn ToString, allowed: String| {
            Err(Error::Setting { name, value: value.to_string(), allowed })
        };
        if !(1..=BLOCK_BYTES_MAX).contains(&self.block_bytes) {
            return refuse("block_bytes", &self.block_bytes, format!("1 to {BLOCK_BYTES_MAX}"));
        }
        if !(1..=1024).contains(&self.messages_in_flight) {
            return refuse("messages_in_flight", &self.messages_in_flight, "1 to 1024".into());
        }
        if let Some(SmallMessages { bytes_max, slots, .. }) = self.small {
            if !(1..=4096).contains(&slots) {
                return refuse("small.slots", &slots, "1 to 4096".into());
            }
            if bytes_max > 1 << 20 {
                return refuse("small.bytes_max", &bytes_max, format!("{} or less", 1 << 20));
            }
        }
        let members = self.schedule.members();
        if self.rank >= members {
            return refuse("rank", &self.rank, format!("0 to {} of the members", members - 1));
        }
        Ok(())
    }

    /// The limits of small messages, if a group of this size has them.
    pub(crate) fn small_messages(&self) -> Option<SmallMessages> {
        let members = self.schedule.members();
        // What switches copy costs the root one transmission anyway.
        self.small
            .filter(|small| members >= 2 && members <= small.members_max && !self.is_in_switch())
    }

    /// Whether switches copy the group's blocks.
    pub fn is_in_switch(&self) -> bool {
        self.schedule.algorithm() == Algorithm::InSwitch
    }

    /// Windows in single sends. Where switches copy, a block is sent when it is posted for all.
    pub(crate) fn relay_window(&self) -> Window {
        let Window { receives, sends } = self.window;
        let copies = if self.is_in_switch() { self.schedule.members().max(2) - 1 } else { 1 };
        Window { receives, sends: sends.saturating_mul(copies) }
    }

    /// Members that this one has links to: its neighbours in the schedule and, where small messages
    /// are written to everybody, the root, or everybody from the root.
    pub fn neighbours(&self) -> Vec<u32> {
        let (schedule, rank) = (&self.schedule, self.rank);
        let mut ranks: Vec<u32> = schedule.neighbours(rank).collect();
        if self.small_messages().is_some() {
            let root = schedule.root();
            let all = (0..schedule.members()).filter(|&other| other != rank);
            ranks.extend(all.filter(|&other| rank == root || other == root));
        }
        ranks.sort_unstable();
        ranks.dedup();
        ranks
    }

    /// Whether this member is the root, the only one that may send.
    pub fn is_root(&self) -> bool {
        self.rank == self.schedule.root()
    }
}

/// Whether a message of `bytes` bytes can be received into a region: long enough and writable.
///
/// Errors: [`Error::RegionTooSmall`], [`Error::RegionReadOnly`].
pub fn check_region(group: u64, message: u64, bytes: u64, region: &Region) -> Result<(), Error> {
    let region_bytes = region.len() as u64;
    if region_bytes < bytes {
        return Err(Error::RegionTooSmall { group, message, bytes, region_bytes });
    }
    if !region.is_writable() {
        return Err(Error::RegionReadOnly { group, message });
    }
    Ok(())
}
