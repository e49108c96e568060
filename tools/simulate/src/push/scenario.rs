//! The scenario of a push as plain data: it can be printed, kept in files, and shrunk.
//!
//! Machine 0 is the root's; host `h` of the push is machine `h + 1`.

use std::fmt;

use files::machines::Subtrees;
use rdmc::Algorithm;
use serde::{Deserialize, Serialize};

use crate::{faults::PlannedFault, network::NetworkPlan};

/// Length of a subtree of a file that hosts read: the shortest that BLAKE3 has.
const SUBTREE_BYTES: u64 = 1_024;

/// A scenario determines a run: equal scenarios give equal runs.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct PushScenario {
    /// Seed of all random choices during the run.
    pub seed: u64,
    /// Length of the object.
    pub bytes: u64,
    /// Length of a block.
    pub block_bytes: u64,
    /// Length of the chunks that are compared with files of earlier sessions; a chunk with a
    /// difference is sent again.
    pub chunk_bytes: u64,
    /// Name of the algorithm; `None`: the one expected to be fastest.
    pub algorithm: Option<String>,
    /// How often each host may be lost and reconnect.
    pub retries: u32,
    /// The minimum rate below which a host is deferred, in percent of the network's rate; 0: none.
    #[serde(default)]
    pub rate_min_percent: u64,
    /// The network between the machines.
    pub network: NetworkPlan,
    /// The maximum delay of a message on a control connection in addition to the network's latency.
    pub word_ns_max: u64,
    /// The maximum delay until a thread processes its inbox.
    pub look_ns_max: u64,
    /// How long the root takes to digest the source.
    pub digest_ns: u64,
    /// All receivers.
    pub hosts: Vec<HostScenario>,
    /// How many of them are in a rack.
    #[serde(default = "hosts_per_rack")]
    pub hosts_per_rack: u32,
    /// Where its files end, ascending, if the object is a tree.
    #[serde(default)]
    pub files: Vec<u64>,
    /// Length of the listing of a tree, which is relayed; 0: receivers know it.
    #[serde(default)]
    pub listing_bytes: u64,
    /// If it is not 0, hosts that the command names send shares of at least this length of what they have.
    #[serde(default)]
    pub share_bytes_min: u64,
    /// Whether hosts read shares of a tree themselves, at a URL.
    #[serde(default)]
    pub together: bool,
    /// Whether hosts publish only if all of them can.
    #[serde(default)]
    pub all_or_none: bool,
    /// Whether hosts fetch it: they come at any time, and all join.
    #[serde(default)]
    pub serves: bool,
    /// How it is read, if the object is a stream.
    #[serde(default)]
    pub stream: Option<StreamPlan>,
    /// Irregularities of the source.
    #[serde(default)]
    pub source: SourceFaults,
    /// Pairs of machines that never get a connection for blocks to each other.
    #[serde(default)]
    pub firewalls: Vec<[u32; 2]>,
    /// Faults, by step.
    pub planned_faults: Vec<PlannedFault<Fault>>,
}

/// In scenarios that do not say it.
pub(super) fn hosts_per_rack() -> u32 {
    3
}

/// Irregularities of the source during the first push; but for the second writer not drawn from seeds.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct SourceFaults {
    /// When its attributes show a change.
    pub changes_ns: Option<u64>,
    /// Whether its contents differ when it is read for the second time.
    pub reads_differently: bool,
    /// When a second writer replaces it under its name: what the root has open stays as it is.
    #[serde(default)]
    pub replaced_ns: Option<u64>,
}

/// Irregularities of a host during the first push; but for a disk that fails not drawn from seeds.
#[derive(Clone, PartialEq, Default, Debug, Serialize, Deserialize)]
pub struct HostFaults {
    /// Until when it cannot be started; each attempt is reported as failed.
    pub absent_ns: u64,
    /// How long it takes to prepare its target, in addition to its disk's time.
    pub prepare_ns: u64,
    /// How long it takes to start its fabric.
    pub fabric_ns: u64,
    /// Whether it reports progress while it digests its copy.
    #[serde(alias = "tells_work")]
    pub reports_work: bool,
    /// Whether its digest differs from the source's.
    pub differs: bool,
    /// Whether it never reports that a group has failed.
    pub is_mute: bool,
    /// Whether it sends other bytes than it has in links.
    #[serde(default)]
    pub lies: bool,
    /// When its disk takes no more, since its receiver was started.
    #[serde(default)]
    pub disk_fails_ns: Option<u64>,
    /// After how many bytes it cannot read the URL.
    #[serde(default)]
    pub url_fails_at: Option<u64>,
}

/// A stream, whose length nobody knows before its end.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct StreamPlan {
    /// The length of each read but the last.
    pub read_bytes: u64,
    /// The most that a read takes.
    pub read_ns_max: u64,
    /// After how many bytes the reader fails, in the first push.
    pub fails_at: Option<u64>,
    /// The most that a consumer takes for a message.
    pub consumer_ns_max: u64,
}

/// One host.
#[derive(Clone, Default, PartialEq, Debug, Serialize, Deserialize)]
pub struct HostScenario {
    /// When its receiver is started; also how long starting it again takes.
    pub start_ns: u64,
    /// Whether it cannot be started.
    pub is_absent: bool,
    /// Whether the command does not name it, and it asks to join once it is started.
    #[serde(default)]
    pub joins: bool,
    /// For how long it sends what it has fetched to others; `None` not at all.
    #[serde(default)]
    pub shares_ns: Option<u64>,
    /// How long its disk takes to prepare a target, and to publish it.
    pub disk_ns: u64,
    /// How long its storage takes for each read and write of a block; 0: the copy is in memory.
    #[serde(default)]
    pub store_ns: u64,
    /// How long it takes to read a subtree at a URL.
    #[serde(default)]
    pub url_ns_per_subtree: u64,
    /// Time from its last byte until its digest is known.
    pub verify_ns: u64,
    /// Rate of its ports, if it is not the network's.
    pub rate_bytes_per_s: Option<u64>,
    /// The part of the file that an earlier session has left, from the start, in percent.
    #[serde(alias = "leftover_percent")]
    pub partial_percent: u64,
    /// The files of a tree that it has, by their numbers.
    #[serde(default)]
    pub kept_files: Vec<usize>,
    /// Other irregularities.
    #[serde(default, alias = "trouble")]
    pub faults: HostFaults,
}

/// The kinds of faults; machines by their indices. `for_ns: None` is for ever.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum Fault {
    /// All processes of rdmc on a machine are killed; its files are damaged as by a crash of the machine, or not.
    Kill { machine: u32, damages: bool },
    /// A machine stops, with its network.
    Freeze { machine: u32, for_ns: Option<u64> },
    /// The processes on a machine stop; its network continues.
    Pause { machine: u32, for_ns: Option<u64> },
    /// All connections that carry blocks between two machines are lost.
    Reset { machines: [u32; 2] },
    /// A host's control connection is lost.
    HangUp { machine: u32 },
    /// Nothing is delivered between these machines and the others.
    Partition { machines: Vec<u32>, for_ns: Option<u64> },
    /// A machine's ports become slow, or fast, from the next block on.
    Rate { machine: u32, bytes_per_s: u64 },
    /// A byte that a host has received and not yet digested changes in its memory.
    #[serde(alias = "Spoil")]
    Corrupt { machine: u32 },
    /// The push is interrupted at the root.
    Cancel,
}

impl Fault {
    /// Names of the kinds, in the order of [`Fault::kind`].
    pub const KINDS: [&'static str; 10] = [
        "death",
        "root's death",
        "freeze",
        "pause",
        "reset",
        "hang-up",
        "partition",
        "rate",
        "bad memory",
        "interruption",
    ];

    /// Returns the index of its kind.
    pub fn kind(&self) -> usize {
        match self {
            Self::Kill { machine: 0, .. } => 1,
            Self::Kill { .. } => 0,
            Self::Freeze { .. } => 2,
            Self::Pause { .. } => 3,
            Self::Reset { .. } => 4,
            Self::HangUp { .. } => 5,
            Self::Partition { .. } => 6,
            Self::Rate { .. } => 7,
            Self::Corrupt { .. } => 8,
            Self::Cancel => 9,
        }
    }

    /// Returns how long it delays something; `u64::MAX` for ever, 0 if it does not.
    pub fn holds_ns(&self) -> u64 {
        match self {
            Self::Freeze { for_ns, .. }
            | Self::Pause { for_ns, .. }
            | Self::Partition { for_ns, .. } => for_ns.unwrap_or(u64::MAX),
            _ => 0,
        }
    }

    /// Returns every machine that it names.
    pub fn machines(&self) -> Vec<u32> {
        match self {
            Self::Reset { machines } => machines.to_vec(),
            Self::Partition { machines, .. } => machines.clone(),
            Self::Kill { machine, .. }
            | Self::Freeze { machine, .. }
            | Self::Pause { machine, .. }
            | Self::HangUp { machine }
            | Self::Rate { machine, .. }
            | Self::Corrupt { machine } => vec![*machine],
            Self::Cancel => Vec::new(),
        }
    }
}

impl PushScenario {
    /// Plans that a machine is killed, whose files stay as they are.
    pub fn kill(&mut self, machine: u32, step: u64) {
        let what = Fault::Kill { machine, damages: false };
        self.planned_faults.push(PlannedFault { step, what });
    }

    /// Plans that the push is interrupted.
    pub fn cancel(&mut self, step: u64) {
        self.planned_faults.push(PlannedFault { step, what: Fault::Cancel });
    }

    /// Plans that a machine's ports have this rate from the start.
    pub fn slow(&mut self, machine: u32, bytes_per_s: u64) {
        let what = Fault::Rate { machine, bytes_per_s };
        self.planned_faults.push(PlannedFault { step: 0, what });
    }

    /// Returns how many machines there are, including the root's.
    pub fn machines(&self) -> u32 {
        self.hosts.len() as u32 + 1
    }

    /// Returns the hosts that the command names.
    pub fn named(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.hosts.len()).filter(|&host| !self.hosts[host].joins)
    }

    /// Returns whether a firewall is between two machines.
    pub(super) fn has_firewall(&self, one: u32, other: u32) -> bool {
        self.firewalls.contains(&[one.min(other), one.max(other)])
    }

    /// Returns the ranges of the files of a tree.
    pub fn files(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let starts = std::iter::once(0).chain(self.files.iter().copied());
        starts.zip(self.files.iter().copied())
    }

    /// Returns the division of a tree into subtrees of BLAKE3: the shortest that there are.
    pub fn subtrees(&self) -> Subtrees {
        Subtrees::new(self.files(), SUBTREE_BYTES)
    }

    /// Returns byte `index` of the object.
    pub fn byte(index: usize) -> u8 {
        ((index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8
    }

    /// Returns the object.
    pub fn contents(&self) -> Vec<u8> {
        (0..self.bytes as usize).map(Self::byte).collect()
    }

    /// Returns the listing of a tree.
    pub fn listing(&self) -> Vec<u8> {
        (0..self.listing_bytes as usize).map(|index| !Self::byte(index)).collect()
    }

    /// Returns the algorithm of a push.
    ///
    /// Errors: there is no such algorithm.
    pub fn algorithm(&self) -> Result<Option<Algorithm>, String> {
        let Some(name) = &self.algorithm else { return Ok(None) };
        let is_it = |algorithm: &&Algorithm| algorithm.name() == name;
        match Algorithm::ALL.iter().find(is_it) {
            Some(&algorithm) => Ok(Some(algorithm)),
            None => Err(format!("there is no algorithm {name:?}")),
        }
    }

    /// Checks that a scenario from a file is valid.
    ///
    /// Errors: what is invalid.
    pub fn check(&self) -> Result<(), String> {
        if self.hosts.iter().all(|host| host.joins) != self.serves
            || self.block_bytes == 0
            || self.hosts_per_rack == 0
            || self.chunk_bytes == 0
        {
            return Err(
                "a push needs a host that is named, unless all fetch, and blocks and chunks of bytes"
                    .to_owned()
            );
        }
        if self.serves && (self.stream.is_some() || self.listing_bytes > 0 || self.retries > 0) {
            return Err(
                "what is fetched is no stream, and hosts return to it as new ones".to_owned()
            );
        }
        if let Some(plan) = &self.stream
            && (plan.read_bytes == 0
                || self.retries > 0
                || self.hosts.iter().any(|host| host.joins || host.partial_percent > 0))
        {
            return Err("hosts neither return to a stream nor have a part of it".to_owned());
        }
        let ascend = self.files.windows(2).all(|pair| pair[0] < pair[1]);
        let is_all = self.files.last().is_none_or(|&end| end == self.bytes);
        if !ascend || !is_all || self.files.first() == Some(&0) {
            return Err(
                "files of a tree have contents, and the last ends with the object".to_owned()
            );
        }
        if self.together && (self.files.is_empty() || self.serves || self.rate_min_percent > 0) {
            return Err("what hosts read themselves is a tree, and no host is deferred".to_owned());
        }
        if self.listing_bytes > 0 && self.files.is_empty() {
            return Err("what has a listing is a tree".to_owned());
        }
        if self.hosts.iter().flat_map(|host| &host.kept_files).any(|&file| file >= self.files.len())
        {
            return Err("a host keeps a file that is not in the tree".to_owned());
        }
        self.algorithm()?;
        let machines = self.machines();
        if self.firewalls.iter().any(|[one, other]| one >= other || *other >= machines) {
            return Err(
                "a firewall is between two machines, the one of the lower number first".to_owned()
            );
        }
        for PlannedFault { what, .. } in &self.planned_faults {
            let named = what.machines();
            let needs_host = matches!(what, Fault::HangUp { .. } | Fault::Corrupt { .. });
            if named.iter().any(|&machine| machine >= machines) || needs_host && named == [0] {
                return Err(format!("{what:?} names no machine for this"));
            }
        }
        Ok(())
    }
}

impl fmt::Display for PushScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { hosts, planned_faults, .. } = self;
        let rest = Self { hosts: Vec::new(), planned_faults: Vec::new(), ..self.clone() };
        writeln!(f, "{} hosts; {rest:?}", hosts.len())?;
        for (host, plan) in hosts.iter().enumerate() {
            writeln!(f, "host {host} (machine {}): {plan:?}", host + 1)?;
        }
        planned_faults.iter().try_for_each(|fault| write!(f, "{fault}"))
    }
}
