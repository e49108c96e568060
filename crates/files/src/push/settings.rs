//! What a push is made of, and what it tells.

use std::{net::IpAddr, time::Duration};

use rdmc::{
    Algorithm, BLOCK_BYTES_MAX, CompletionMode, Error, Fabric, Offload, Secret, Window,
    choice::{Choice, Costs, Wish},
};

use crate::SourceError;

/// One receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPlan {
    /// How it is called in reports; unique in a push, and what a calling receiver names itself.
    pub name: String,
    /// Where its copy goes, as a path at that host.
    pub destination: String,
    /// Which rack it is in; the root is in rack [`PushSettings::root_rack`].
    pub rack: u32,
    /// Who connects to whom.
    pub reach: Reach,
}

/// How root and receiver come together.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The receiver calls [`super::Push::control_port`].
    Calls,
    /// The receiver listens at this `host:port`.
    Listens(String),
}

/// What a push is made of.
#[derive(Clone, Debug)]
pub struct PushSettings {
    /// All receivers, in rank order from 1.
    pub hosts: Vec<HostPlan>,
    /// What all members prove to each other that they know.
    pub secret: Secret,
    /// Who sends which block to whom; `None` for what should be fastest ([`rdmc::choice`]).
    pub algorithm: Option<Algorithm>,
    /// The root's rack, for algorithms that need racks.
    pub root_rack: u32,
    /// Length of a block; `None` for what should be fastest.
    pub block_bytes: Option<u64>,
    /// What one link carries, in bits per second, for the choice of these; `None` if nobody knows.
    pub rate_bits_per_second: Option<u64>,
    /// Receives and sends posted ahead; `None` for what suits the block size.
    pub window: Option<Window>,
    /// The network that blocks move over; `None` for the best that all hosts have.
    pub fabric: Option<Fabric>,
    /// Whether the network is to relay blocks by itself; where it cannot, the members' programs do.
    /// Does not change which fabric is taken. See [`rdmc::GroupSettings::offload`].
    pub offload: bool,
    /// How all members wait for completions.
    pub completion: CompletionMode,
    /// TCP connections to each neighbour, 1 to 8.
    pub streams: u8,
    /// Whether all receivers are on this machine, so that only loopback is listened on.
    pub local_only: bool,
    /// Where members reach the root; by default the address that most receivers have called.
    pub advertise: Option<IpAddr>,
    /// How long receivers may take to appear.
    pub start_timeout: Duration,
}

impl PushSettings {
    /// Defaults for these hosts: the fastest way, 30 seconds to appear.
    pub fn new(hosts: Vec<HostPlan>, secret: Secret) -> Self {
        Self {
            hosts,
            secret,
            algorithm: None,
            root_rack: 0,
            block_bytes: None,
            rate_bits_per_second: None,
            window: None,
            fabric: None,
            offload: false,
            completion: CompletionMode::default(),
            streams: 1,
            local_only: false,
            advertise: None,
            start_timeout: Duration::from_secs(30),
        }
    }

    /// How a message of this length is replicated to so many members, the root included.
    pub(super) fn choose(&self, members: usize, bytes: u64, fabric: &Fabric) -> Choice {
        let members = u32::try_from(members).unwrap_or(u32::MAX);
        let costs = match self.rate_bits_per_second {
            None if self.local_only => Costs::of_one_machine(fabric, members),
            rate => Costs::of_fabric(fabric, rate),
        };
        let (algorithm, block_bytes) = (self.algorithm, self.block_bytes);
        Wish { members, message_bytes: bytes, algorithm, block_bytes }.choose(&costs)
    }

    /// How far so many members post ahead with blocks of this length.
    pub(super) fn window(&self, members: usize, block_bytes: u64) -> Window {
        let members = u32::try_from(members).unwrap_or(u32::MAX);
        self.window.unwrap_or_else(|| Window::for_group(block_bytes, members))
    }

    pub(super) fn check(&self, bytes: u64) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::Setting(what));
        if self.hosts.is_empty() {
            return refuse("no host to replicate to".into());
        }
        if let Some(size) = self.block_bytes {
            if !(1..=BLOCK_BYTES_MAX).contains(&size) {
                return refuse(format!("block size {size} is not in 1 to {BLOCK_BYTES_MAX} bytes"));
            }
            if bytes.div_ceil(size) > u64::from(u32::MAX) {
                return refuse(format!(
                    "{bytes} bytes are too many blocks of {size}; use larger ones"
                ));
            }
        }
        if self.window.is_some_and(|window| window.receives == 0 || window.sends == 0) {
            return refuse("a window of 0 would let nothing move; use 1 or more".into());
        }
        if !(1..=8).contains(&self.streams) {
            return refuse(format!("{} streams per neighbour; use 1 to 8", self.streams));
        }
        let mut names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => refuse(format!("host {} is named twice", pair[0])),
            None => Ok(()),
        }
    }
}

/// How far one host is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostState {
    /// It has not appeared.
    Awaited,
    /// It prepares its target.
    Preparing,
    /// It is ready, or receives.
    Ready,
    /// It has all bytes; they are being verified, or wait for the others.
    Received,
    /// A verified copy is there under its name.
    Published,
    /// It has no copy, for this reason.
    Failed(String),
}

/// What a push tells while it runs. Hosts are named by their index in [`PushSettings::hosts`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PushEvent {
    /// A host's state has changed.
    Host {
        /// Which.
        host: usize,
        /// Its new state.
        state: HostState,
    },
    /// A group of this many members, the root included, starts to replicate. Told again, after
    /// which everybody starts from 0, when members were lost.
    Round {
        /// Members.
        members: usize,
    },
    /// How much of the file a host has.
    Progress {
        /// Which.
        host: usize,
        /// Bytes.
        bytes: u64,
    },
    /// Every host that is left has all bytes, and they are being written to disk.
    Publishing,
}

/// Why a push as a whole failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The file cannot be sent, or changed meanwhile.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The library or the system refused.
    #[error(transparent)]
    Library(#[from] Error),
    /// The group failed and nobody is known to be the cause, or it failed too often.
    #[error("replication failed: {0}")]
    Group(String),
    /// It was cancelled by its handle.
    #[error("interrupted")]
    Cancelled,
}

/// How a push ended.
#[derive(Debug)]
pub struct PushReport {
    /// Each host, in the order of [`PushSettings::hosts`].
    pub hosts: Vec<HostReport>,
    /// Members of the last group, the root included.
    pub members: usize,
    /// How blocks travelled, in the last group; `None` if it did not come so far.
    pub choice: Option<Choice>,
    /// The network that was used; `None` if it did not come so far.
    pub fabric: Option<Fabric>,
    /// Whether the network relayed by itself, in the last group; `None` if it did not come so far.
    pub offload: Option<Offload>,
    /// From the start of sending until the last receiver had all bytes, in the last group;
    /// `None` if that never happened.
    pub replication: Option<Duration>,
    /// From the call to the end, with starting, verifying and writing to disk.
    pub total: Duration,
    /// Why nobody has a copy, where one reason covers all.
    pub error: Option<PushError>,
}

/// How a push ended for one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostReport {
    /// Its name.
    pub name: String,
    /// [`HostState::Published`] or [`HostState::Failed`].
    pub state: HostState,
    /// From the start of sending until it had all bytes.
    pub replication: Option<Duration>,
    /// The most memory that its receiver had resident, where it has told.
    pub peak_resident_bytes: Option<u64>,
}

impl PushReport {
    /// How many hosts have a verified copy under its name.
    pub fn published(&self) -> usize {
        self.hosts.iter().filter(|host| host.state == HostState::Published).count()
    }
}
