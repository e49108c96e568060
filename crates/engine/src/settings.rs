//! The settings of a group.

use std::time::Duration;

use relay::{BLOCK_BYTES_MAX, Window};
use schedule::{Algorithm, Schedule};
use transport::Region;

use crate::error::{Error, check_range};

/// Which messages the root writes to every receiver instead of relaying them (DSN 2018 section 4.6);
/// takes effect if the transport has one-sided writes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SmallMessages {
    /// The maximum length of such a message, in bytes.
    pub bytes_max: u32,
    /// The number of slots at each receiver. Every member allocates memory for this many messages
    /// of maximum length.
    pub slots: u32,
    /// The maximum number of members. Larger groups relay all messages.
    pub members_max: u32,
}

impl Default for SmallMessages {
    fn default() -> Self {
        Self { bytes_max: 10 * 1024, slots: 64, members_max: 16 }
    }
}

/// The settings of a group at one member. All fields except `rank`, `window`, `report_blocks`,
/// `report_delivered` and `stall_timeout` must be the same at all members.
#[derive(Clone, Debug)]
pub struct GroupSettings {
    /// Identifies the group; unique among the groups of its members' contexts.
    pub number: u64,
    /// The rank of this member.
    pub rank: u32,
    /// Members, root, and the transfers of every message.
    pub schedule: Schedule,
    /// Length in bytes of every block but the last of a message; 1 to 2^31. Each receiver allocates
    /// memory for `messages_in_flight` blocks.
    pub block_bytes: u64,
    /// The number of receives and sends posted ahead.
    pub window: Window,
    /// How many messages may be in flight at once; 1 to 1,024. With 1 each starts when the one
    /// before is complete.
    pub messages_in_flight: u32,
    /// Requests that the network itself relays blocks, so that a member whose process is delayed
    /// does not delay others (DSN 2018 section 2). Used where the transport supports it; see
    /// [`crate::Offload`]. All blocks of a message are then posted at once: `window.receives` has
    /// no effect, `window.sends` is the number of sends that the network runs at once, and nothing
    /// is received before the memory of its message is known.
    pub offload: bool,
    /// Which messages the root writes directly to all receivers; `None`: all are relayed. Not used
    /// where switches copy blocks: there the root transmits each block only once anyway.
    pub small: Option<SmallMessages>,
    /// Whether [`crate::Event::Block`] is reported for every block, and the application's callback
    /// called. Blocks that wait for a slow callback are merged: memory is bounded by the window and
    /// the messages in flight, not by the messages' lengths.
    pub report_blocks: bool,
    /// Whether [`crate::Event::Delivered`] is reported at the root whenever one more message has reached
    /// every member. It costs two words on each edge of the announcement tree for a message, and has no
    /// effect at other members.
    pub report_delivered: bool,
    /// Whether every member compares its copy of each message with the root's, by a digest of what is in
    /// its memory or file (docs/decisions/verification.md). A message is then reported as received only if
    /// they are the same, and [`crate::FailureKind::Differs`] ends the group otherwise. All messages are
    /// relayed.
    pub verify: bool,
    /// How long a due transfer may make no progress before the group fails with an error that names
    /// the member that was waited for. `None`: no limit (a dead or silent peer is still detected).
    pub stall_timeout: Option<Duration>,
}

/// Blocks of this size keep the pipeline fed over TCP without costing much per block
/// (docs/decisions/block-size.md).
pub const BLOCK_BYTES_DEFAULT: u64 = 64 * 1024;

impl GroupSettings {
    /// Returns settings with the default block size, windows and timeouts.
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
            report_delivered: false,
            verify: false,
            stall_timeout: Some(Duration::from_secs(60)),
        }
    }

    /// Checks the ranges of all settings. Errors: [`Error::OutOfRange`].
    pub fn check(&self) -> Result<(), Error> {
        check_range("block_bytes", self.block_bytes, 1..=BLOCK_BYTES_MAX)?;
        check_range("messages_in_flight", self.messages_in_flight, 1..=1024)?;
        if let Some(SmallMessages { bytes_max, slots, .. }) = self.small {
            check_range("small.slots", slots, 1..=4096)?;
            check_range("small.bytes_max", bytes_max, 0..=1 << 20)?;
        }
        check_range("window.receives", self.window.receives, 1..=u32::MAX)?;
        check_range("window.sends", self.window.sends, 1..=u32::MAX)?;
        let stall_ms = self.stall_timeout.map_or(1, |timeout| timeout.as_millis() as u64);
        check_range("stall_timeout in ms", stall_ms, 1..=u64::MAX)?;
        Ok(check_range("rank", self.rank, 0..=self.schedule.members() - 1)?)
    }

    /// Returns the limits of small messages, if a group of this size has them.
    pub(crate) fn small_messages(&self) -> Option<SmallMessages> {
        let members = self.schedule.members();
        // Where switches copy blocks the root transmits each only once anyway; and slots have no digest.
        let is_possible = !self.is_in_switch() && !self.verify;
        self.small.filter(|small| members >= 2 && members <= small.members_max && is_possible)
    }

    /// Returns whether switches copy the group's blocks.
    pub fn is_in_switch(&self) -> bool {
        self.schedule.algorithm() == Algorithm::InSwitch
    }

    /// Returns the windows in units of single sends. Where switches copy, a block is sent once it
    /// is posted for all receivers.
    pub(crate) fn relay_window(&self) -> Window {
        let Window { receives, sends } = self.window;
        let copies = if self.is_in_switch() { self.schedule.members().max(2) - 1 } else { 1 };
        Window { receives, sends: sends.saturating_mul(copies) }
    }

    /// Returns the members to which this one has links: its neighbours in the schedule and, where
    /// small messages are written to all receivers, the root, or at the root all receivers.
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

    /// Returns whether this member is the root, the only one that may send.
    pub fn is_root(&self) -> bool {
        self.rank == self.schedule.root()
    }
}

/// Checks that a message of `bytes` bytes can be received into a region: long enough and writable.
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
