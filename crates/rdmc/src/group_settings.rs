//! The settings of a group.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use engine::SmallMessages;
use plan::{
    choice::{Choice, ChoiceRequest},
    costs::Machine,
};
use relay::Window;
use schedule::{Algorithm, Schedule};
use session::Secret;

use crate::{ContextSettings, Error, Fabric, Scheduling};

/// The message length for which block size and algorithm are chosen if none is given: its blocks cost neither short nor
/// long messages much (docs/decisions/choice.md).
const MESSAGE_BYTES_USUAL: u64 = 16 << 20;

/// The longest block in bytes that a root may choose for members that have set none: each member allocates memory for blocks.
pub(crate) const BLOCK_BYTES_UNASKED_MAX: u64 = 16 << 20;

/// The longest message that is considered, in bytes. For longer messages the model would choose longer blocks than other
/// members allow.
const MESSAGE_BYTES_MAX: u64 = 1 << 49;

/// The shortest block in bytes that a root chooses.
const BLOCK_BYTES_LEAST: u64 = 16 << 10;

/// The least number of blocks that must fit into the stall timeout if the root chooses their length.
const BLOCKS_IN_STALL: u32 = 8;

/// The settings of a group at one member: its members, this member's rank, and how messages are
/// transferred.
///
/// All fields except `rank`, `message_bytes`, `rate_bits_per_second`, `window`, `report_blocks`, `report_delivered`,
/// `stall_timeout`, `connect_timeout`, `send_queue_max` and `receive_bytes_max` must be the same at all members;
/// [`crate::Context::create_group`] compares them. A member that leaves `schedule` or `block_bytes` open gets the root's.
///
/// # Examples
/// ```
/// # use std::net::SocketAddr;
/// use rdmc::{Algorithm, GroupSettings};
///
/// let members: Vec<SocketAddr> = vec!["10.0.0.1:7000".parse()?, "10.0.0.2:7000".parse()?];
/// // The fastest for messages of a gigabyte; and always along a chain in blocks of a megabyte.
/// let fastest = GroupSettings::new(1, members.clone(), 0).message_bytes(1 << 30);
/// let chain = GroupSettings::new(2, members, 0).schedule(Algorithm::Chain).block_bytes(1 << 20);
/// # Ok::<(), std::net::AddrParseError>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct GroupSettings {
    /// Identifies the group; unique among the groups and teams of its members' contexts.
    pub number: u64,
    /// The address of each member's context as the other members reach it, by rank. To shorten long lists, members to
    /// which this one does not connect ([`GroupSettings::neighbours`]) may be [`GroupSettings::UNKNOWN`]; addresses are
    /// then not compared.
    pub members: Vec<SocketAddr>,
    /// The rank of this member.
    pub rank: u32,
    /// The rank of the member that sends; 0 by default.
    pub root: u32,
    /// How the group gets its schedule. By default the root chooses the fastest; members that also leave it open learn
    /// the choice when the group is created ([`crate::Group::schedule`]).
    pub schedule: Scheduling,
    /// The length of a typical message in bytes, for the choice of algorithm and block size; 16 MiB by default. Takes effect
    /// at the root only.
    pub message_bytes: Option<u64>,
    /// The rate of each member's link in bits per second, for the same choice. A lower limit of the context
    /// ([`ContextSettings::rate_max`]) takes precedence. Default: the rate at which the processors copy if all members
    /// have the same address or loopback addresses; otherwise that of the root's interface ([`Fabric::link_rate`]);
    /// if that is unknown, 10 Gbit/s over TCP and 100 Gbit/s over other fabrics. Takes effect at the root only.
    pub rate_bits_per_second: Option<u64>,
    /// Length in bytes of every block of a message but the last; 1 to [`crate::BLOCK_BYTES_MAX`]. `None`, the default: the
    /// root chooses the fastest, at most 16 MiB, and the other members learn it. Each receiver allocates memory for
    /// `messages_in_flight` blocks.
    pub block_bytes: Option<u64>,
    /// The number of receives and sends posted ahead; `None`: [`Window::for_group`].
    pub window: Option<Window>,
    /// The maximum number of messages in flight; 1 to 1,024. With 1, each message starts when the
    /// previous one is complete.
    pub messages_in_flight: u32,
    /// Requests that the network itself relays blocks, so that a member whose process is delayed
    /// does not delay others (DSN 2018 section 2). Takes effect where the transport supports it;
    /// [`crate::Group::offload`] reports whether it does. All blocks of a message are then posted at
    /// once: `window.receives` has no effect, `window.sends` is the number of sends that the
    /// network runs at once, and no block of a message is received before its memory is known.
    pub offload: bool,
    /// Which messages the root writes directly to all receivers; `None`: all are relayed. Has no effect
    /// with [`Algorithm::InSwitch`], where the root transmits each block only once anyway.
    pub small: Option<SmallMessages>,
    /// Whether [`crate::Application::block`] is called; always on in groups without callbacks.
    /// Blocks that wait for a slow callback are merged: memory is bounded by the window and the
    /// messages in flight, not by the messages' lengths.
    pub report_blocks: bool,
    /// Whether the root learns when each message has reached every member, and calls
    /// [`crate::Application::delivered`]. Costs two control messages per message on each edge of the
    /// announcement tree. Without it, [`crate::Group::wait_delivered`] asks. Has no effect at other members.
    pub report_delivered: bool,
    /// Whether every member compares its copy of each message, in memory or in a file, with the root's by a
    /// BLAKE3 digest; off by default. A message is reported as received only if the digests are equal;
    /// otherwise the group fails with [`crate::FailureKind::Differs`], which names the member whose copy
    /// differs. With `verify` all messages are relayed, and each member reads every byte once more, on the
    /// group's storage thread.
    pub verify: bool,
    /// How long a due transfer may make no progress before the group fails with an error that names
    /// the member that stalled. [`Duration::MAX`]: no limit (a dead or silent peer is still detected).
    pub stall_timeout: Duration,
    /// The time limit for creating the group; `None`, the default: [`ContextSettings::connect_timeout`].
    pub connect_timeout: Option<Duration>,
    /// The maximum number of incomplete messages queued at the root; 1 or more. See
    /// [`crate::Group::send`].
    pub send_queue_max: u32,
    /// The maximum memory in bytes that the library allocates for messages that were not yet received.
    /// See [`crate::Group::receive`].
    pub receive_bytes_max: u64,
}

/// Default of [`GroupSettings::send_queue_max`].
const SEND_QUEUE_DEFAULT: u32 = 64;

/// Default of [`GroupSettings::receive_bytes_max`], in bytes.
const RECEIVE_BYTES_DEFAULT: u64 = 256 << 20;

impl GroupSettings {
    /// Stands for the address of a member to which this member does not connect.
    pub const UNKNOWN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

    /// Returns the settings for member `rank` of a group of `members`, with rank 0 as the root
    /// and defaults for everything else.
    pub fn new(number: u64, members: Vec<SocketAddr>, rank: u32) -> Self {
        Self {
            number,
            members,
            rank,
            root: 0,
            schedule: Scheduling::default(),
            message_bytes: None,
            rate_bits_per_second: None,
            block_bytes: None,
            window: None,
            messages_in_flight: 2,
            offload: false,
            small: Some(SmallMessages::default()),
            report_blocks: false,
            report_delivered: false,
            verify: false,
            stall_timeout: Duration::from_secs(60),
            connect_timeout: None,
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

    /// Sets [`GroupSettings::schedule`]; a [`Schedule`] also sets the root.
    #[must_use]
    pub fn schedule(mut self, schedule: impl Into<Scheduling>) -> Self {
        self.schedule = schedule.into();
        if let Scheduling::Schedule(schedule) = &self.schedule {
            self.root = schedule.root();
        }
        self
    }

    /// Sets [`GroupSettings::message_bytes`].
    #[must_use]
    pub fn message_bytes(mut self, bytes: u64) -> Self {
        self.message_bytes = Some(bytes);
        self
    }

    /// Sets [`GroupSettings::rate_bits_per_second`].
    #[must_use]
    pub fn rate_bits_per_second(mut self, rate: u64) -> Self {
        self.rate_bits_per_second = Some(rate);
        self
    }

    /// Sets [`GroupSettings::block_bytes`].
    #[must_use]
    pub fn block_bytes(mut self, bytes: u64) -> Self {
        self.block_bytes = Some(bytes);
        self
    }

    /// Sets [`GroupSettings::window`].
    #[must_use]
    pub fn window(mut self, window: Window) -> Self {
        self.window = Some(window);
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

    /// Sets [`GroupSettings::connect_timeout`].
    #[must_use]
    pub fn connect_timeout(mut self, timeout: Duration) -> Self {
        self.connect_timeout = Some(timeout);
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

    /// Returns the choice of a root with these settings and this context, with the predicted time: the settings that are
    /// given, completed by those that the cost model predicts to be fastest.
    pub fn choose(&self, context: &ContextSettings) -> Choice {
        let members = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        let tcp = context.limited_tcp();
        let mut costs = match self.rate_bits_per_second {
            None if self.is_on_one_machine() => {
                let machine = Fabric::this_machine();
                let copies_directly = machine.copies_directly && tcp.direct_copies;
                let machine = Machine { copies_directly, ..machine };
                context.fabric.costs_of_one_machine(members, machine)
            }
            rate => {
                let root = self.members.get(self.root as usize);
                let of_link = || context.fabric.link_rate(root?.ip());
                context.fabric.costs_between_hosts(rate.or_else(of_link))
            }
        };
        if let Some(rate) = tcp.rate_max {
            costs.rate_bytes_per_second = costs.rate_bytes_per_second.min(rate as f64);
        }
        // Several blocks have to arrive within the stall timeout, which counts whole blocks.
        let stall_seconds = self.stall_timeout.as_secs_f64();
        let patient_bytes =
            costs.rate_bytes_per_second * stall_seconds / f64::from(BLOCKS_IN_STALL);
        costs.block_bytes_max = costs
            .block_bytes_max
            .min(BLOCK_BYTES_UNASKED_MAX)
            .min((patient_bytes as u64).max(BLOCK_BYTES_LEAST));
        // Schedules count ranks from the root; for the model the root is rank 0.
        let mut racks = self.schedule.racks().to_vec();
        if let Some(rank) = (self.root as usize).checked_rem(racks.len()) {
            racks.rotate_left(rank);
        }
        let request = ChoiceRequest {
            members,
            racks: &racks,
            message_bytes: self.message_bytes.unwrap_or(MESSAGE_BYTES_USUAL).min(MESSAGE_BYTES_MAX),
            algorithm: self.schedule.algorithm(),
            block_bytes: self.block_bytes,
        };
        request.choose(&costs)
    }

    /// Returns a function that maps a rank to the ranks to which it connects; valid once algorithm and block size are given.
    /// With most algorithms these are few of the members (docs/decisions/neighbours-only.md).
    ///
    /// # Errors
    /// A setting is out of range, as for [`crate::Context::create_group`].
    pub fn neighbours(&self) -> Result<impl FnMut(u32) -> Vec<u32> + use<>, Error> {
        let mut made = engine::GroupSettings::try_from(self)?;
        Ok(move |rank| {
            made.rank = rank;
            made.neighbours()
        })
    }

    /// Errors: the address of a neighbour is unknown.
    pub(crate) fn check_known(&self, neighbours: &[u32]) -> Result<(), Error> {
        let unknown = neighbours.iter().find(|&&rank| self.members[rank as usize] == Self::UNKNOWN);
        unknown.map_or(Ok(()), |rank| {
            let value = format!("no address of member {rank}");
            Err(Error::setting("members", value, "the addresses of all neighbours"))
        })
    }

    fn is_on_one_machine(&self) -> bool {
        let mut hosts = self.members.iter().map(SocketAddr::ip);
        let first = self.members.first().map(SocketAddr::ip);
        hosts.clone().all(|host| host.is_loopback()) || hosts.all(|host| Some(host) == first)
    }

    /// Returns whether the root's choice completes these settings.
    pub(crate) fn is_open(&self) -> bool {
        self.schedule.algorithm().is_none() || self.block_bytes.is_none()
    }

    /// Returns these settings with algorithm, block size and windows set; those that were given do not change.
    pub(crate) fn with_choice(mut self, algorithm: Algorithm, block_bytes: u64) -> Self {
        let members = u32::try_from(self.members.len()).unwrap_or(u32::MAX);
        self.schedule = self.schedule.with_choice(algorithm);
        let block_bytes = *self.block_bytes.get_or_insert(block_bytes);
        self.window.get_or_insert_with(|| Window::for_group(block_bytes, members));
        self
    }

    /// Returns these settings, completed by the choice of a root with this context.
    pub(crate) fn chosen_by_root(self, context: &ContextSettings) -> Self {
        let (algorithm, block_bytes) = match (self.schedule.algorithm(), self.block_bytes) {
            (Some(algorithm), Some(block_bytes)) => (algorithm, block_bytes),
            _ => {
                let choice = self.choose(context);
                (choice.algorithm, choice.block_bytes)
            }
        };
        self.with_choice(algorithm, block_bytes)
    }

    /// Returns the schedule that these settings define. An open algorithm is chosen as for a context with default settings.
    ///
    /// # Errors
    /// No schedule exists for this number of members, this root or these racks; a given schedule is
    /// for another number of members or another root.
    pub fn make_schedule(&self) -> Result<Schedule, Error> {
        let members = self.members.len();
        let Scheduling::Schedule(given) = &self.schedule else {
            let racks = self.schedule.racks();
            let algorithm = self.schedule.algorithm();
            let algorithm = algorithm.unwrap_or_else(|| self.choose(&usual_context()).algorithm);
            if racks.is_empty() && members > 0 {
                let members = u32::try_from(members).unwrap_or(u32::MAX);
                return Ok(Schedule::new(algorithm, members, self.root)?);
            }
            if racks.len() != members {
                let value = format!("a list of {}", racks.len());
                return Err(Error::setting(
                    "racks",
                    value,
                    format!("one for each of {members} members"),
                ));
            }
            return Ok(Schedule::with_racks(algorithm, racks, self.root)?);
        };
        if given.members() as usize != members || given.root() != self.root {
            let value = format!("for {} members with root {}", given.members(), given.root());
            let allowed = format!("one for {members} members with root {}", self.root);
            return Err(Error::setting("schedule", value, allowed));
        }
        Ok(given.clone())
    }
}

/// Returns the default settings of a context.
fn usual_context() -> ContextSettings {
    ContextSettings::new(([127, 0, 0, 1], 0).into(), Secret::from_bytes([0; 32]))
}

/// The settings for an engine that runs without a context, as in simulations. What they leave open is chosen as for a context
/// with default settings.
///
/// Errors: a setting is out of range.
impl TryFrom<&GroupSettings> for engine::GroupSettings {
    type Error = Error;

    fn try_from(settings: &GroupSettings) -> Result<Self, Error> {
        if settings.send_queue_max == 0 {
            return Err(Error::setting("send_queue_max", 0, "1 or more"));
        }
        let schedule = settings.make_schedule()?;
        let settings = settings.clone().chosen_by_root(&usual_context());
        let mut made = Self::new(settings.number, settings.rank, schedule);
        made.block_bytes = settings.block_bytes.unwrap_or(made.block_bytes);
        made.window = settings.window.unwrap_or(made.window);
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
    fn by_default_the_model_chooses() {
        for members in [2, 5, 8] {
            let plain = settings(members).rate_bits_per_second(1_000_000_000);
            let choice = plain.choose(&usual_context());
            let made = engine::GroupSettings::try_from(&plain).unwrap();
            let taken = (made.schedule.algorithm(), made.block_bytes);
            assert_eq!(taken, (choice.algorithm, choice.block_bytes));
            assert_eq!(made.window, Window::for_group(choice.block_bytes, u32::from(members)));
            assert_eq!(u64::from(choice.blocks) * choice.block_bytes, MESSAGE_BYTES_USUAL);
        }
        let block = |bytes| {
            let long = settings(5).rate_bits_per_second(10_000_000_000).message_bytes(bytes);
            long.choose(&usual_context()).block_bytes
        };
        let (short, long) = (block(100 << 10), block(1 << 30));
        assert!(short < long, "{short}, {long}");
    }

    #[test]
    fn the_context_of_the_root_counts() {
        let local = settings(5).message_bytes(1 << 30);
        let block = |context: ContextSettings| local.choose(&context).block_bytes;
        let mut copied = usual_context();
        copied.tcp.direct_copies = false;
        assert!(block(copied.clone()) <= 256 << 10);
        // 10 MB in each second.
        assert!(block(copied.clone().rate_max(Some(10_000_000))) <= block(copied));
        let limited = usual_context().rate_max(Some(1_250_000_000));
        let rate = settings(5).rate_bits_per_second(10_000_000_000);
        assert_eq!(
            settings(5).rate_bits_per_second(100_000_000_000).choose(&limited),
            rate.choose(&usual_context())
        );
    }

    #[test]
    fn what_is_given_is_kept() {
        let given = settings(5).schedule(Algorithm::Sequential).block_bytes(77);
        assert!(!given.is_open() && settings(5).block_bytes(77).is_open());
        let given = given.window(Window { receives: 3, sends: 4 });
        let made = engine::GroupSettings::try_from(&given).unwrap();
        assert_eq!((made.schedule.algorithm(), made.block_bytes), (Algorithm::Sequential, 77));
        assert_eq!(made.window, Window { receives: 3, sends: 4 });
    }

    #[test]
    fn no_root_takes_longer_blocks_than_members_allow() {
        let long = settings(3).message_bytes(1 << 44);
        let choice = long.choose(&usual_context().fabric(Fabric::libfabric("shm")));
        assert!(choice.block_bytes <= BLOCK_BYTES_UNASKED_MAX, "{choice:?}");
        // Several blocks have to arrive within the stall timeout.
        let slow = |stall_s| {
            let slow = settings(3).schedule(Algorithm::Sequential).message_bytes(1 << 30);
            let slow = slow.rate_bits_per_second(16_000_000);
            slow.stall_timeout(Duration::from_secs(stall_s)).choose(&usual_context()).block_bytes
        };
        assert!(slow(2) <= 500_000 && slow(60) > 500_000, "{} {}", slow(2), slow(60));
        assert_eq!(slow(0), BLOCK_BYTES_LEAST);
        // More than there can be blocks.
        for bytes in [1 << 57, u64::MAX] {
            let choice = settings(3).message_bytes(bytes).choose(&usual_context());
            assert!(choice.block_bytes <= BLOCK_BYTES_UNASKED_MAX, "{choice:?}");
        }
    }

    #[test]
    fn racks_are_counted_from_the_root() {
        let in_racks = |root: u32| {
            let racks = (0..64).map(|rank| (rank + 64 - root) % 64 / 16).collect();
            let settings = settings(64).root(root).rate_bits_per_second(10_000_000_000);
            settings.schedule(Scheduling::AutoInRacks(racks)).message_bytes(4 << 30)
        };
        let choice = in_racks(0).choose(&usual_context());
        assert_eq!(choice.algorithm, Algorithm::RacksPipeline);
        assert_eq!(in_racks(17).choose(&usual_context()), choice);
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
            (
                settings(5).schedule(Scheduling::AutoInRacks(vec![0; 4])),
                "racks is a list of 4; use one for each of 5",
            ),
            (settings(5).schedule(Algorithm::ChainOfRacks), "give the racks"),
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
