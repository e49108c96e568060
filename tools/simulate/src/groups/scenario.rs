//! The scenario of a run as plain data: it can be printed, kept in files, and shrunk.

use std::{fmt, time::Duration};

use engine::{GroupSettings, SmallMessages};
use rdmc::{Algorithm, Schedule, Window};
use serde::{Deserialize, Serialize};

use crate::{
    clock::Clock,
    faults::PlannedFault,
    member_fault::{MemberFault, rename},
    network::NetworkPlan,
};

/// A scenario determines a run: equal scenarios give equal runs.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct Scenario {
    /// Seed of all random choices in the network and the applications.
    pub seed: u64,
    /// The network between the members.
    pub network: NetworkPlan,
    /// One for each member; its rank is its index, in every group.
    pub members: Vec<MemberPlan>,
    /// Groups of all members, side by side.
    pub groups: Vec<GroupPlan>,
    /// Faults, by step.
    pub faults: Vec<PlannedFault<Fault>>,
}

/// One member's machine.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct MemberPlan {
    /// When it joins its groups.
    pub start_ns: u64,
    /// The maximum delay from a completion until its process polls.
    pub poll_delay_ns_max: u64,
    /// How many completions one poll reports; 0: all.
    pub batch: u32,
    /// Its clock.
    pub clock: Clock,
    /// Rate of its ports, if it is not the network's.
    pub rate_bytes_per_s: Option<u64>,
    /// How often it creates a group of one member beside the others, and closes the one before; 0:
    /// never.
    #[serde(default)]
    pub beside_ns: u64,
}

/// One group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct GroupPlan {
    /// Its number; another may have the same only after this one has ended.
    pub number: u64,
    /// How long after its start, or after the end of the group of index `after`, a member joins.
    pub start_ns: u64,
    /// A group of a lower index.
    pub after: Option<usize>,
    /// Name of the algorithm.
    pub algorithm: String,
    /// Rank of the root.
    pub root: u32,
    /// Members in a rack, for algorithms with racks.
    pub rack: u32,
    /// Length of a block.
    pub block_bytes: u64,
    /// See [`GroupSettings::messages_in_flight`].
    pub messages_in_flight: u32,
    /// See [`GroupSettings::offload`].
    pub offload: bool,
    /// Slots, and the longest message that goes into one.
    pub small: Option<(u32, u32)>,
    /// See [`GroupSettings::stall_timeout`]; 0 is no limit.
    pub stall_timeout_ms: u64,
    /// The root's messages, in order.
    pub sends: Vec<SendPlan>,
    /// When the root closes; if it has not sent all messages by then, it closes after the last.
    pub close_ns: u64,
    /// Whether it closes at `close_ns` even if it has not sent all messages.
    pub closes_early: bool,
    /// Whether the root learns what every member has.
    #[serde(default)]
    pub told: Told,
    /// See [`GroupSettings::verify`].
    #[serde(default)]
    pub verify: bool,
    /// One for each member.
    pub applications: Vec<ApplicationPlan>,
}

/// Whether the root learns what every member has, before the group has ended.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub enum Told {
    /// It does not.
    #[default]
    No,
    /// Of each message: [`GroupSettings::report_delivered`].
    Each,
    /// Its application waits until every member has all messages, and only then closes.
    BeforeClosing,
}

/// A message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct SendPlan {
    /// The earliest time of the send.
    pub at_ns: u64,
    /// Length.
    pub bytes: usize,
    /// Whether its memory is read-only and shared with the application.
    pub shared: bool,
}

/// The behaviour of one member's application in one group.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct ApplicationPlan {
    /// See [`Window`].
    pub window: (u32, u32),
    /// See [`GroupSettings::report_blocks`].
    pub report_blocks: bool,
    /// How it provides memory.
    pub answer: Answer,
    /// When a receiver closes the group, if it does.
    pub close_ns: Option<u64>,
    /// Whether it also makes invalid calls.
    pub rude: bool,
}

/// How an application provides memory for a message.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Answer {
    /// At once, as long as the message.
    Exact,
    /// After a random delay.
    Late { ns_max: u64 },
    /// This many bytes more than are needed.
    Larger { bytes: usize },
    /// First an unusable region, which is too small or else read-only; a valid one after a delay.
    Wrong { too_small: bool, then_ns: u64 },
    /// At once; that of the message of this number is in use, which fails the group.
    InUse { message: u64 },
}

/// The kinds of faults; members by their ranks, groups by their indices.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Fault {
    /// An application aborts a group.
    Abort { member: u32, group: usize },
    /// An application refuses the next message, which aborts the group.
    Refuse { member: u32, group: usize },
    /// An application provides no memory any more.
    Mute { member: u32, group: usize },
    /// One byte of the next block that a member sends is changed; only where groups verify.
    Corrupt { member: u32 },
    /// A fault of members and of what connects them.
    #[serde(untagged)]
    Member(MemberFault),
}

impl Fault {
    /// Names of the kinds, in the order of [`Fault::kind`].
    pub const KINDS: [&'static str; 10] = {
        let [a, b, c, d, e, f] = MemberFault::KINDS;
        [a, b, c, d, e, f, "abort", "refusal", "no answer", "corruption"]
    };

    /// Returns the index of its kind.
    pub fn kind(&self) -> usize {
        let own = match self {
            Self::Member(fault) => return fault.kind(),
            Self::Abort { .. } => 0,
            Self::Refuse { .. } => 1,
            Self::Mute { .. } => 2,
            Self::Corrupt { .. } => 3,
        };
        MemberFault::KINDS.len() + own
    }

    /// Returns how long it delays something; `u64::MAX` for ever, 0 if it does not.
    pub fn holds_ns(&self) -> u64 {
        match self {
            Self::Member(fault) => fault.holds_ns(),
            Self::Mute { .. } => u64::MAX,
            _ => 0,
        }
    }

    /// Returns whether it affects only an application, and no member and no connection.
    pub fn is_of_application(&self) -> bool {
        matches!(self, Self::Abort { .. } | Self::Refuse { .. } | Self::Mute { .. })
    }

    /// Returns every member that it names.
    pub fn members(&self) -> Vec<u32> {
        match self {
            Self::Member(fault) => fault.members(),
            Self::Abort { member, .. }
            | Self::Refuse { member, .. }
            | Self::Mute { member, .. }
            | Self::Corrupt { member } => vec![*member],
        }
    }

    /// Gives other members a member's rank. Returns `false` if that leaves nothing of the fault.
    pub(crate) fn without(&mut self, rank: u32) -> bool {
        match self {
            Self::Member(fault) => fault.without(rank),
            Self::Abort { member, .. }
            | Self::Refuse { member, .. }
            | Self::Mute { member, .. }
            | Self::Corrupt { member } => rename(member, rank),
        }
    }
}

impl GroupPlan {
    /// Returns the stall timeout.
    pub fn stall_timeout(&self) -> Option<Duration> {
        (self.stall_timeout_ms > 0).then(|| Duration::from_millis(self.stall_timeout_ms))
    }

    /// Returns how long a member counts after a failure, as the engine limits it.
    pub fn count_timeout_ns(&self) -> u64 {
        let limit = Duration::from_secs(2);
        self.stall_timeout().unwrap_or(limit).min(limit).as_nanos() as u64
    }
}

impl Scenario {
    /// Returns how many members there are.
    pub fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// Returns a group's settings at one member.
    ///
    /// Errors: the algorithm does not exist, or is not possible for the group.
    pub fn settings(&self, group: usize, rank: u32) -> Result<GroupSettings, String> {
        let plan = &self.groups[group];
        let named = |algorithm: &&Algorithm| algorithm.to_string() == plan.algorithm;
        let algorithm = *Algorithm::ALL
            .iter()
            .find(named)
            .ok_or_else(|| format!("there is no algorithm {:?}", plan.algorithm))?;
        let racks: Vec<u32> = (0..self.size()).map(|rank| rank / plan.rack.max(1)).collect();
        let schedule = Schedule::with_racks(algorithm, &racks, plan.root)
            .map_err(|error| error.to_string())?;
        let application = &plan.applications[rank as usize];
        let (receives, sends) = application.window;
        Ok(GroupSettings {
            block_bytes: plan.block_bytes,
            window: Window { receives, sends },
            messages_in_flight: plan.messages_in_flight,
            offload: plan.offload,
            small: plan.small.map(|(slots, bytes_max)| SmallMessages {
                slots,
                bytes_max,
                ..SmallMessages::default()
            }),
            report_blocks: application.report_blocks,
            report_delivered: plan.told == Told::Each,
            verify: plan.verify,
            stall_timeout: plan.stall_timeout(),
            ..GroupSettings::new(plan.number, rank, schedule)
        })
    }

    /// Returns how long a run may last after something was delayed: the timeouts, and the rest of
    /// the run.
    pub fn deadlines_ns(&self) -> u64 {
        let net = &self.network;
        let stall_ms = self.groups.iter().map(|group| group.stall_timeout_ms).max().unwrap_or(0);
        // Once for the group's stall, once for the count after it; a clock may be slow.
        let stall_ns = 2 * stall_ms * 1_100_000;
        stall_ns + (net.silence_timeout_ms + net.drain_timeout_ms) * 1_000_000 + self.moving_ns()
    }

    /// Returns how long a run may last if nothing is delayed: the detection of a death, and the
    /// time to transfer everything one block after another.
    pub fn moving_ns(&self) -> u64 {
        let net = &self.network;
        let slowest = self.slowest_bytes_per_s();
        let look_ns = self.members.iter().map(|member| member.poll_delay_ns_max).max().unwrap_or(0);
        let word_ns = net.latency_ns + net.control_jitter_ns_max + look_ns;
        let flight_ns = net.latency_ns + net.delivery_jitter_ns_max + look_ns;
        let moved_ns = |group: &GroupPlan| -> u64 {
            let block_ns = group.block_bytes * 1_000_000_000 / slowest;
            let slow_ns = block_ns * (100 + net.block_jitter_percent) / 100;
            // A part of a block passes two ports where they are shared, and may be waited for.
            let (ports, parts) = match net.shared_ports {
                None => (1, 1),
                Some((part_bytes, _)) => (2, group.block_bytes.div_ceil(part_bytes)),
            };
            let passing_ns = ports * slow_ns + parts * flight_ns + 2 * word_ns;
            let blocks = |send: &SendPlan| send.bytes as u64 / group.block_bytes + 4;
            group.sends.iter().map(blocks).sum::<u64>() * passing_ns
        };
        let size = u64::from(self.size());
        let moving_ns = size * self.groups.iter().map(moved_ns).sum::<u64>();
        // Closing takes three passes along a chain of all members, a failure one, its count two, and
        // what all have before closing two.
        let ending_ns = (8 * size + 8) * word_ns * self.groups.len() as u64;
        net.loss_detection_ns + moving_ns + ending_ns
    }

    /// Returns how long other groups may occupy a port while this one waits for it: ports serve one
    /// block after another, in an arbitrary order.
    pub fn crowded_ns(&self, index: usize) -> u64 {
        let slowest = self.slowest_bytes_per_s();
        let bytes = |group: &GroupPlan| -> u64 {
            let sends = group.sends.iter().map(|send| send.bytes as u64 + group.block_bytes);
            sends.sum::<u64>() * u64::from(self.size())
        };
        let others = self.groups.iter().enumerate().filter(|&(other, _)| other != index);
        let bytes: u64 = others.map(|(_, group)| bytes(group)).sum();
        let ports = if self.network.shared_ports.is_some() { 2 } else { 1 };
        ports * bytes * 1_000_000_000 / slowest * (100 + self.network.block_jitter_percent) / 100
    }

    /// Returns the lowest rate of any port or link at any time.
    fn slowest_bytes_per_s(&self) -> u64 {
        let ports = self.members.iter().filter_map(|member| member.rate_bytes_per_s);
        let links = self.network.slow_links.iter().map(|link| link.rate_bytes_per_s);
        let faults = self.faults.iter().filter_map(|fault| match fault.what {
            Fault::Member(MemberFault::Rate { bytes_per_s, .. }) => Some(bytes_per_s),
            _ => None,
        });
        let slowest = ports.chain(links).chain(faults).min().unwrap_or(u64::MAX);
        slowest.min(self.network.rate_bytes_per_s).max(1)
    }

    /// Checks that a scenario from a file is valid.
    ///
    /// Errors: what is invalid.
    pub fn check(&self) -> Result<(), String> {
        let size = self.size();
        if size == 0 || self.groups.is_empty() {
            return Err("a scenario needs a member and a group".to_owned());
        }
        for (index, group) in self.groups.iter().enumerate() {
            if group.applications.len() != size as usize {
                return Err(format!("group {index} needs {size} applications"));
            }
            if group.block_bytes == 0 {
                return Err(format!("group {index} needs blocks of bytes"));
            }
            let earlier = &self.groups[..index];
            let is_free = |other: &GroupPlan| other.number != group.number;
            let follows = |after: usize| after < index && !is_free(&earlier[after]);
            if group.after.is_some_and(|after| after >= index)
                || !(group.after.is_some_and(follows) || earlier.iter().all(is_free))
            {
                return Err(format!("group {index} comes after none, or has another's number"));
            }
            (0..size).try_for_each(|rank| self.settings(index, rank).map(drop))?;
        }
        for fault in &self.faults {
            if fault.what.members().iter().any(|&member| member >= size) {
                return Err(format!("{:?} names no member", fault.what));
            }
            let (Fault::Abort { group, .. }
            | Fault::Refuse { group, .. }
            | Fault::Mute { group, .. }) = fault.what
            else {
                continue;
            };
            if group >= self.groups.len() {
                return Err(format!("{:?} names no group", fault.what));
            }
        }
        Ok(())
    }
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} members, seed {}; {:?}", self.size(), self.seed, self.network)?;
        for (rank, member) in self.members.iter().enumerate() {
            writeln!(f, "member {rank}: {member:?}")?;
        }
        for (index, group) in self.groups.iter().enumerate() {
            let GroupPlan { sends, applications, .. } = group;
            let rest = GroupPlan { sends: Vec::new(), applications: Vec::new(), ..group.clone() };
            writeln!(f, "group index {index}: {rest:?}")?;
            for (message, send) in sends.iter().enumerate() {
                writeln!(f, "  message {message}: {send:?}")?;
            }
            for (rank, application) in applications.iter().enumerate() {
                writeln!(f, "  application at {rank}: {application:?}")?;
            }
        }
        self.faults.iter().try_for_each(|fault| write!(f, "{fault}"))
    }
}
