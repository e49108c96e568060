//! What a push is made of, and what it tells.

use std::{net::IpAddr, time::Duration};

use rdmc::{
    Algorithm, BLOCK_BYTES_DEFAULT, BLOCK_BYTES_MAX, CompletionMode, Error, Fabric, Offload,
    Secret, Window,
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
    /// Who sends which block to whom.
    pub algorithm: Algorithm,
    /// The root's rack, for algorithms that need racks.
    pub root_rack: u32,
    /// Length of a block.
    pub block_bytes: u64,
    /// Receives and sends posted ahead.
    pub window: Window,
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
    /// Defaults for these hosts: binomial pipeline, 30 seconds to appear.
    pub fn new(hosts: Vec<HostPlan>, secret: Secret) -> Self {
        Self {
            hosts,
            secret,
            algorithm: Algorithm::BinomialPipeline,
            root_rack: 0,
            block_bytes: BLOCK_BYTES_DEFAULT,
            window: Window::default(),
            fabric: None,
            offload: false,
            completion: CompletionMode::default(),
            streams: 1,
            local_only: false,
            advertise: None,
            start_timeout: Duration::from_secs(30),
        }
    }

    pub(super) fn check(&self, bytes: u64) -> Result<(), Error> {
        let refuse = |what: String| Err(Error::Setting(what));
        if self.hosts.is_empty() {
            return refuse("no host to replicate to".into());
        }
        if !(1..=BLOCK_BYTES_MAX).contains(&self.block_bytes) {
            let size = self.block_bytes;
            return refuse(format!("block size {size} is not in 1 to {BLOCK_BYTES_MAX} bytes"));
        }
        if bytes.div_ceil(self.block_bytes) > u64::from(u32::MAX) {
            let size = self.block_bytes;
            return refuse(format!("{bytes} bytes are too many blocks of {size}; use larger ones"));
        }
        if self.window.receives == 0 || self.window.sends == 0 {
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
