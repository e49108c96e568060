//! The settings of a group.

use std::{net::SocketAddr, time::Duration};

use engine::{BLOCK_BYTES_DEFAULT, SmallMessages};
use relay::Window;
use schedule::{Algorithm, Schedule};

use crate::Error;

/// The settings of a group at one member: its members, this member's rank, and how messages are
/// transferred.
///
/// All fields except `rank`, `window`, `report_blocks`, `report_delivered`, `stall_timeout`,
/// `send_queue_max` and `receive_bytes_max` must be the same at all members; [`crate::Context::create_group`] compares
/// them.
///
/// ```
/// # use std::net::SocketAddr;
/// use rdmc::{Algorithm, GroupSettings};
///
/// let members: Vec<SocketAddr> = vec!["10.0.0.1:7000".parse()?, "10.0.0.2:7000".parse()?];
/// let settings = GroupSettings::new(1, members, 0)
///     .algorithm(Algorithm::Chain)
///     .block_bytes(1 << 20);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupSettings {
    /// Identifies the group; unique among the groups of its members' contexts.
    pub number: u64,
    /// The address at which others reach each member's context, by rank.
    pub members: Vec<SocketAddr>,
    /// The rank of this member.
    pub rank: u32,
    /// The rank of the member that sends; 0 by default.
    pub root: u32,
    /// The algorithm of the schedule. `None`, the default, selects one from the number of members,
    /// the same at all members: currently always the binomial pipeline, which takes the fewest
    /// steps for any number of blocks.
    pub algorithm: Option<Algorithm>,
    /// The rack of each rank, as arbitrary numbers; required by the algorithms for racks only
    /// ([`Algorithm::needs_racks`]). Empty: all members are in one rack.
    pub racks: Vec<u32>,
    /// An existing schedule, used instead of one made from `algorithm` and `racks`. It must have
    /// the group's number of members and its root.
    pub schedule: Option<Schedule>,
    /// Length in bytes of every block but the last of a message; 1 to [`crate::BLOCK_BYTES_MAX`].
    /// Each receiver allocates memory for `messages_in_flight` blocks.
    pub block_bytes: u64,
    /// The number of receives and sends posted ahead.
    pub window: Window,
    /// How many messages may be in flight at once; 1 to 1,024. With 1 each starts when the one
    /// before is complete.
    pub messages_in_flight: u32,
    /// Requests that the network itself relays blocks, so that a member whose process is delayed
    /// does not delay others (DSN 2018 section 2). Used where the transport supports it;
    /// [`crate::Group::offload`] reports whether it is. All blocks of a message are then posted at
    /// once: `window.receives` has no effect, `window.sends` is the number of sends that the
    /// network runs at once, and nothing is received before the memory of its message is known.
    pub offload: bool,
    /// Which messages the root writes directly to all receivers; `None`: all are relayed. Not used
    /// with [`Algorithm::InSwitch`], where the root transmits each block only once anyway.
    pub small: Option<SmallMessages>,
    /// Whether [`crate::Application::block`] is called; always on in groups without callbacks.
    /// Blocks that wait for a slow callback are merged: memory is bounded by the window and the
    /// messages in flight, not by the messages' lengths.
    pub report_blocks: bool,
    /// Whether the root learns of each message when it has reached every member, and
    /// [`crate::Application::delivered`] is called there. It costs two control messages on each edge of
    /// the announcement tree. Without it [`crate::Group::wait_delivered`] asks. No effect at other members.
    pub report_delivered: bool,
    /// Whether every member compares its copy of each message with the root's, by a BLAKE3 digest of what
    /// is in its memory or file; off by default. A message is reported as received only if they are the
    /// same; otherwise the group fails with [`crate::FailureKind::Differs`], which names the member
    /// whose copy is another. All messages are relayed then, and every byte is read once more at each member,
    /// on the group's storage thread.
    pub verify: bool,
    /// How long a due transfer may make no progress before the group fails with an error that names
    /// the member that was waited for. [`Duration::MAX`]: no limit (a dead or silent peer is still
    /// detected).
    pub stall_timeout: Duration,
    /// How many messages that are not complete may be queued at the root; 1 or more. See
    /// [`crate::Group::send`].
    pub send_queue_max: u32,
    /// How much memory, in bytes, the library allocates for messages that were not received yet.
    /// See [`crate::Group::receive`].
    pub receive_bytes_max: u64,
}

/// Default of [`GroupSettings::send_queue_max`].
const SEND_QUEUE_DEFAULT: u32 = 64;

/// Default of [`GroupSettings::receive_bytes_max`], in bytes.
const RECEIVE_BYTES_DEFAULT: u64 = 256 << 20;

impl GroupSettings {
    /// Returns the settings of a group of these members for member `rank`, with rank 0 as the root
    /// and defaults for everything else.
    pub fn new(number: u64, members: Vec<SocketAddr>, rank: u32) -> Self {
        Self {
            number,
            members,
            rank,
            root: 0,
            algorithm: None,
            racks: Vec::new(),
            schedule: None,
            block_bytes: BLOCK_BYTES_DEFAULT,
            window: Window::default(),
            messages_in_flight: 2,
            offload: false,
            small: Some(SmallMessages::default()),
            report_blocks: false,
            report_delivered: false,
            verify: false,
            stall_timeout: Duration::from_secs(60),
            send_queue_max: SEND_QUEUE_DEFAULT,
            receive_bytes_max: RECEIVE_BYTES_DEFAULT,
        }
    }

    /// Sets [`GroupSettings::root`].
    #[must_use]
    pub fn root(mut self, rank: u32) -> Self {
        self.root = rank;
        self
    }

    /// Sets [`GroupSettings::algorithm`].
    #[must_use]
    pub fn algorithm(mut self, algorithm: Algorithm) -> Self {
        self.algorithm = Some(algorithm);
        self
    }

    /// Sets [`GroupSettings::racks`].
    #[must_use]
    pub fn racks(mut self, racks: Vec<u32>) -> Self {
        self.racks = racks;
        self
    }

    /// Sets [`GroupSettings::schedule`], and the root to the schedule's.
    #[must_use]
    pub fn schedule(mut self, schedule: Schedule) -> Self {
        self.root = schedule.root();
        self.schedule = Some(schedule);
        self
    }

    /// Sets [`GroupSettings::block_bytes`].
    #[must_use]
    pub fn block_bytes(mut self, bytes: u64) -> Self {
        self.block_bytes = bytes;
        self
    }

    /// Sets [`GroupSettings::window`].
    #[must_use]
    pub fn window(mut self, window: Window) -> Self {
        self.window = window;
        self
    }

    /// Sets [`GroupSettings::messages_in_flight`].
    #[must_use]
    pub fn messages_in_flight(mut self, messages: u32) -> Self {
        self.messages_in_flight = messages;
        self
    }

    /// Sets [`GroupSettings::offload`].
    #[must_use]
    pub fn offload(mut self, offload: bool) -> Self {
        self.offload = offload;
        self
    }

    /// Sets [`GroupSettings::small`].
    #[must_use]
    pub fn small(mut self, small: Option<SmallMessages>) -> Self {
        self.small = small;
        self
    }

    /// Sets [`GroupSettings::report_blocks`].
    #[must_use]
    pub fn report_blocks(mut self, report: bool) -> Self {
        self.report_blocks = report;
        self
    }

    /// Sets [`GroupSettings::report_delivered`].
    #[must_use]
    pub fn report_delivered(mut self, report: bool) -> Self {
        self.report_delivered = report;
        self
    }

    /// Sets [`GroupSettings::verify`].
    #[must_use]
    pub fn verify(mut self, verify: bool) -> Self {
        self.verify = verify;
        self
    }

    /// Sets [`GroupSettings::stall_timeout`].
    #[must_use]
    pub fn stall_timeout(mut self, timeout: Duration) -> Self {
        self.stall_timeout = timeout;
        self
    }

    /// Sets [`GroupSettings::send_queue_max`].
    #[must_use]
    pub fn send_queue_max(mut self, messages: u32) -> Self {
        self.send_queue_max = messages;
        self
    }

    /// Sets [`GroupSettings::receive_bytes_max`].
    #[must_use]
    pub fn receive_bytes_max(mut self, bytes: u64) -> Self {
        self.receive_bytes_max = bytes;
        self
    }

    /// Returns whether this member is the root, the only one that may send.
    pub fn is_root(&self) -> bool {
        self.rank == self.root
    }

    /// Returns the schedule that these settings define.
    ///
    /// Errors: there is none for this number of members, this root or these racks; `schedule` is
    /// for another number of members or another root.
    pub fn make_schedule(&self) -> Result<Schedule, Error> {
        let members = self.members.len();
        let Some(given) = &self.schedule else {
            let algorithm = self.algorithm.unwrap_or(Algorithm::BinomialPipeline);
            if self.racks.is_empty() && members > 0 {
                let members = u32::try_from(members).unwrap_or(u32::MAX);
                return Ok(Schedule::new(algorithm, members, self.root)?);
            }
            if self.racks.len() != members {
                let value = format!("a list of {}", self.racks.len());
                return Err(Error::setting(
                    "racks",
                    value,
                    format!("one for each of {members} members"),
                ));
            }
            return Ok(Schedule::with_racks(algorithm, &self.racks, self.root)?);
        };
        if given.members() as usize != members || given.root() != self.root {
            let value = format!("for {} members with root {}", given.members(), given.root());
            let allowed = format!("one for {members} members with root {}", self.root);
            return Err(Error::setting("schedule", value, allowed));
        }
        Ok(given.clone())
    }
}

/// The settings for an engine that runs without a context, as in simulations.
///
/// Errors: a setting is out of range.
impl TryFrom<&GroupSettings> for engine::GroupSettings {
    type Error = Error;

    fn try_from(settings: &GroupSettings) -> Result<Self, Error> {
        if settings.send_queue_max == 0 {
            return Err(Error::setting("send_queue_max", 0, "1 or more"));
        }
        let mut made = Self::new(settings.number, settings.rank, settings.make_schedule()?);
        made.block_bytes = settings.block_bytes;
        made.window = settings.window;
        made.messages_in_flight = settings.messages_in_flight;
        made.offload = settings.offload;
        made.small = settings.small;
        made.report_blocks = settings.report_blocks;
        made.report_delivered = settings.report_delivered;
        made.verify = settings.verify;
        made.stall_timeout =
            (settings.stall_timeout != Duration::MAX).then_some(settings.stall_timeout);
        made.check()?;
        Ok(made)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(members: u16) -> GroupSettings {
        let address = |port| SocketAddr::from(([10, 0, 0, 1], port));
        GroupSettings::new(1, (0..members).map(address).collect(), 0)
    }

    #[test]
    fn defaults_make_a_binomial_pipeline_from_rank_0() {
        let made = settings(5).make_schedule().unwrap();
        let described = (made.algorithm(), made.members(), made.root());
        assert_eq!(described, (Algorithm::BinomialPipeline, 5, 0));
    }

    #[test]
    fn what_makes_no_group_is_refused() {
        let chain = Schedule::new(Algorithm::Chain, 5, 3).unwrap();
        let refused = |settings: GroupSettings| {
            engine::GroupSettings::try_from(&settings).unwrap_err().to_string()
        };
        let cases = [
            (settings(0), "1 to"),
            (settings(5).root(5), "root 5 is not a rank"),
            (settings(5).racks(vec![0; 4]), "racks is a list of 4; use one for each of 5"),
            (settings(5).algorithm(Algorithm::ChainOfRacks), "give the racks"),
            (settings(4).schedule(chain.clone()), "use one for 4 members with root 3"),
            (settings(5).schedule(chain.clone()).root(2), "use one for 5 members with root 2"),
            (GroupSettings { rank: 5, ..settings(5) }, "rank is 5; use 0 to 4"),
            (settings(5).block_bytes(0), "block_bytes is 0; use 1 to"),
        ];
        for (settings, part) in cases {
            let error = refused(settings);
            assert!(error.contains(part), "{error}");
        }
        let made = engine::GroupSettings::try_from(&settings(5).schedule(chain)).unwrap();
        assert_eq!((made.schedule.root(), made.schedule.algorithm()), (3, Algorithm::Chain));
    }
}
