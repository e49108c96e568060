//! What a push is made of, and what it tells.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use plan::choice::{Choice, Costs, Wish};
use rdmc::{
    Algorithm, BLOCK_BYTES_MAX, CompletionMode, Error, Fabric, Offload, Protection, Secret, Window,
    bootstrap::Credentials,
};

use crate::{
    SourceError,
    control::{FAILURE_DEADLINE, check_failure_deadline, silence},
    messages::JOIN_TIMEOUT,
    push::switch_control::SwitchControl,
};

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

/// How receivers are let in that come by themselves.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Where the root waits for them.
    pub listen: SocketAddr,
    /// Where their copies go, as a path at that host; `{host}` stands for its name.
    pub destination: String,
}

impl Admission {
    pub(super) fn plan(&self, name: String, rack: u32) -> HostPlan {
        let destination = self.destination.replace("{host}", &name);
        HostPlan { name, destination, rack, reach: Reach::Calls }
    }
}

/// What a push is made of.
#[derive(Clone, Debug)]
pub struct PushSettings {
    /// All receivers, in rank order from 1.
    pub hosts: Vec<HostPlan>,
    /// What all members of this session prove to each other that they know. Receivers that call
    /// need it to be let in; those that listen are told.
    pub secret: Secret,
    /// What this host and receivers that listen prove to each other; not needed without any.
    pub credentials: Option<Credentials>,
    /// Who sends which block to whom; `None` for what should be fastest ([`plan::choice`]). With
    /// [`Algorithm::InSwitch`] switches copy what the root sends, and blocks move over TCP otherwise;
    /// where that cannot be done, or fails, members relay ([`PushEvent::FellBack`]).
    pub algorithm: Option<Algorithm>,
    /// What puts groups into switches, for [`Algorithm::InSwitch`].
    pub switches: SwitchControl,
    /// The root's rack, for algorithms that need racks.
    pub root_rack: u32,
    /// Length of a block; `None` for what should be fastest.
    pub block_bytes: Option<u64>,
    /// What one link carries, in bits per second, for the choice of these; `None` if nobody knows.
    pub rate_bits_per_second: Option<u64>,
    /// What links of this rate let through at once, for the same choice ([`Costs::burst_bytes`]).
    pub burst_bytes: u64,
    /// Receives and sends posted ahead; `None` for what suits the block size.
    pub window: Option<Window>,
    /// The network that blocks move over; `None` for the best that all hosts have.
    pub fabric: Option<Fabric>,
    /// Whether the network is to relay blocks by itself; where it cannot, the members' programs do.
    /// Does not change which fabric is taken. See [`rdmc::GroupSettings::offload`].
    pub offload: bool,
    /// How all members wait for completions.
    pub completion: CompletionMode,
    /// How blocks are protected on their way. Only the fabric tcp encrypts, so that one is taken
    /// then; the file's name and attributes are encrypted in any case.
    pub protection: Protection,
    /// TCP connections to each neighbour, 1 to 8.
    pub streams: u8,
    /// Whether all receivers are on this machine, so that only loopback is listened on.
    pub local_only: bool,
    /// Where members reach the root; by default the address that most receivers have called.
    pub advertise: Option<IpAddr>,
    /// How long receivers may take to appear.
    pub start_timeout: Duration,
    /// After how long without a sign of life a host is lost, 200 ms to an hour: its neighbours
    /// notice it then, at the latest, and tell the others; the root's own connection to it waits
    /// three seconds longer. Connections that break are noticed at once. Applies to all members.
    pub failure_deadline: Duration,
    /// How often each host may be lost and come back ([`PushEvent::Retry`]).
    pub retries: u32,
    /// Whether receivers are let in that are not among `hosts`; they prove who they are by
    /// `credentials`.
    pub admission: Option<Admission>,
    /// How fast a group of hosts has to come forward, in bytes per second, so that a host that holds
    /// the others up is not set aside until they have all ([`PushEvent::SetAside`]).
    pub rate_min: Option<u64>,
}

impl PushSettings {
    /// Defaults for these hosts: the fastest way, 30 seconds to appear.
    pub fn new(hosts: Vec<HostPlan>, secret: Secret) -> Self {
        Self {
            hosts,
            secret,
            credentials: None,
            algorithm: None,
            switches: SwitchControl::default(),
            root_rack: 0,
            block_bytes: None,
            rate_bits_per_second: None,
            burst_bytes: 0,
            window: None,
            fabric: None,
            offload: false,
            completion: CompletionMode::default(),
            protection: Protection::default(),
            streams: 1,
            local_only: false,
            advertise: None,
            start_timeout: Duration::from_secs(30),
            failure_deadline: FAILURE_DEADLINE,
            retries: 0,
            admission: None,
            rate_min: None,
        }
    }

    /// How a message of this length is replicated to so many members, the root included.
    pub(super) fn choose(
        &self,
        algorithm: Option<Algorithm>,
        members: usize,
        bytes: u64,
        fabric: &Fabric,
    ) -> Choice {
        let members = u32::try_from(members).unwrap_or(u32::MAX);
        let costs = match self.rate_bits_per_second {
            None if self.local_only => Costs::of_one_machine(fabric, members),
            rate => {
                let burst_bytes = self.burst_bytes;
                Costs { burst_bytes, ..Costs::of_fabric(fabric, rate) }
            }
        };
        let block_bytes = self.block_bytes;
        Wish { members, message_bytes: bytes, algorithm, block_bytes }.choose(&costs)
    }

    /// How long the root waits for a group, so that its members are first to say what is wrong.
    pub(super) fn join_timeout(&self) -> Duration {
        JOIN_TIMEOUT + silence(self.failure_deadline)
    }

    /// How far so many members post ahead with blocks of this length.
    pub(super) fn window(&self, members: usize, block_bytes: u64) -> Window {
        let members = u32::try_from(members).unwrap_or(u32::MAX);
        self.window.unwrap_or_else(|| Window::for_group(block_bytes, members))
    }

    pub(super) fn check(&self, bytes: u64) -> Result<(), PushError> {
        let refuse = |what: String| Err(PushError::Setting(what));
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
        if self.algorithm == Some(Algorithm::InSwitch) {
            self.check_in_switch()?;
        }
        check_failure_deadline(self.failure_deadline).map_err(PushError::Setting)?;
        if !(1..=8).contains(&self.streams) {
            return refuse(format!("{} streams per neighbour; use 1 to 8", self.streams));
        }
        let listening = self.hosts.iter().find(|host| matches!(host.reach, Reach::Listens(_)));
        if let (Some(host), None) = (listening, &self.credentials) {
            return refuse(format!("{} listens, and there are no credentials for it", host.name));
        }
        if self.admission.is_some() && self.credentials.is_none() {
            return refuse("receivers that join need credentials, and there are none".into());
        }
        let mut names: Vec<&str> = self.hosts.iter().map(|host| host.name.as_str()).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => refuse(format!("host {} is named twice", pair[0])),
            None => Ok(()),
        }
    }
}

impl PushSettings {
    /// Whether switches can be asked to copy.
    fn check_in_switch(&self) -> Result<(), PushError> {
        let refuse = |what: &str| Err(PushError::Setting(what.to_owned()));
        if !self.switches.is_some() {
            return refuse(
                "the algorithm in-switch needs to be told of switches that copy, and was not; use \
                 auto to let the receivers relay",
            );
        }
        if self.fabric.as_ref().is_some_and(|fabric| *fabric != Fabric::Tcp) {
            return refuse("the algorithm in-switch goes with the fabric tcp alone");
        }
        if self.protection == Protection::Encrypt {
            return refuse("blocks that switches copy cannot be encrypted; use another algorithm");
        }
        Ok(())
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
    /// It was told to publish its copy, and for this reason nothing was heard of it since: a copy
    /// that is there is whole and verified, but may be missing.
    Unknown(String),
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
    /// A host has come that was not among [`PushSettings::hosts`]; it is in the report as well.
    Joined {
        /// Its index.
        host: usize,
        /// What it calls itself.
        name: String,
    },
    /// Groups start to replicate what is missing, the largest with so many members, the root
    /// included. Told again when members were lost or have come later.
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
    /// A host was lost, for this reason, and is expected again: whoever starts receivers has to
    /// start it anew.
    Retry {
        /// Which.
        host: usize,
        /// How often it was lost so far.
        start: u32,
        /// What has happened.
        reason: String,
    },
    /// A host held the others up, below [`PushSettings::rate_min`]: it gets its copy after them.
    SetAside {
        /// Which.
        host: usize,
        /// How fast they were.
        bytes_per_second: u64,
    },
    /// Switches were to copy ([`Algorithm::InSwitch`]), and cannot, for this reason: members relay
    /// what is missing. Told once.
    FellBack {
        /// Which switch or member, and what happened.
        reason: String,
    },
    /// The first copies that are whole are being written to disk.
    Publishing,
    /// The push ends early, and waits a little for hosts that publish just now to say how that went.
    /// Cancelled once more, it does not.
    Stopping {
        /// How many.
        publishing: usize,
    },
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
    /// A setting of the push is out of range, or does not go with another; says what would do.
    #[error("{0}")]
    Setting(String),
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
    /// Why members relayed although switches were to copy: [`PushEvent::FellBack`].
    pub fell_back: Option<String>,
    /// From the start of sending until the last receiver had all bytes; `None` if that never
    /// happened.
    pub replication: Option<Duration>,
    /// From the call to the end, with starting, verifying and writing to disk.
    pub total: Duration,
    /// Why the push ended early, where one reason covers all hosts without a copy.
    pub error: Option<PushError>,
}

/// How a push ended for one host.
#[derive(Clone, PartialEq, Debug)]
pub struct HostReport {
    /// Its name.
    pub name: String,
    /// [`HostState::Published`], [`HostState::Failed`] or [`HostState::Unknown`].
    pub state: HostState,
    /// From the start of sending until it had all bytes.
    pub replication: Option<Duration>,
    /// How much of the file it had of an earlier session, or in a file of that name.
    pub resumed_bytes: u64,
    /// It had the whole copy under its name: it was verified, and stays the file that it was.
    pub was_there: bool,
    /// How much was sent to it again although it had it, after others were lost.
    pub repeated_bytes: u64,
    /// It was set aside when the others were no faster than this because of it, in bytes per second.
    pub set_aside: Option<u64>,
    /// Its share in what held its last group up, 0 to 1, all members together 1 (the root included);
    /// none of groups that were over within a second. See [`plan::slowness`].
    pub waiting_share: Option<f64>,
    /// The most memory that its receiver had resident, where it has told.
    pub peak_resident_bytes: Option<u64>,
}

impl PushReport {
    /// How many hosts have a verified copy under its name.
    pub fn published(&self) -> usize {
        self.hosts.iter().filter(|host| host.state == HostState::Published).count()
    }
}
