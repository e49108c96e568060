//! Settings, events and reports of a push.

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use plan::{
    choice::{Choice, ChoiceRequest},
    costs::Costs,
};
use rdmc::{
    Algorithm, BLOCK_BYTES_MAX, CompletionMode, Error, Fabric, Offload, Protection, RATE_MAX_LEAST,
    Secret, Window,
};
use session::Credentials;

use super::host_tokens::HostTokens;
use crate::{
    SourceError,
    changes::Changes,
    control::{FAILURE_DEADLINE, check_failure_deadline, silence},
    group_terms::{GroupTerms, HOSTS_MAX},
    messages::JOIN_TIMEOUT,
    ports::PortRange,
    switch_control::SwitchControl,
};

/// The least that receivers may take to join a group: systems send the first packet of a connection again after 1 s and 3 s.
const JOIN_TIMEOUT_LEAST: Duration = Duration::from_secs(4);
/// How long reports of receivers that could not join a group may be on their way.
const REPORT_TIME: Duration = Duration::from_secs(3);

/// With a link of 1 Gbit/s an eighth of a second: a group is made in much less.
const SHARE_BYTES_MIN: u64 = 16 << 20;

/// What the root's link carries in less time than hosts need for a further group.
const LISTINGS_BYTES_MAX: u64 = 64 << 20;

/// One receiver.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostPlan {
    /// Its name in reports and in the receiver's first message; unique in a push.
    pub name: String,
    /// Path of the copy at that host.
    pub destination: String,
    /// Its rack; the root is in rack [`PushSettings::root_rack`].
    pub rack: u32,
    /// Which end connects.
    pub reach: Reach,
}

/// How root and receiver connect.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reach {
    /// The receiver connects to [`super::Push::control_port`].
    Calls,
    /// The receiver listens at this `host:port`.
    Listens(String),
}

/// Admission of receivers that ask to join.
#[derive(Clone, Debug)]
pub struct Admission {
    /// Where the root listens for them.
    pub listen: SocketAddr,
    /// Path of their copies at each host; `{host}` stands for its name.
    pub destination: String,
}

impl Admission {
    pub(super) fn plan(&self, name: String, rack: u32) -> HostPlan {
        let destination = self.destination.replace("{host}", &name);
        HostPlan { name, destination, rack, reach: Reach::Calls }
    }
}

/// Settings of a push, a stream, or a session of an application.
#[derive(Clone, Debug)]
pub struct PushSettings {
    /// All receivers, in rank order from 1.
    pub hosts: Vec<HostPlan>,
    /// Authenticates the members of this session to each other. Receivers that connect to the root have it from
    /// their launcher; the root sends it to those that listen.
    pub secret: Secret,
    /// Tells receivers that connect to the root apart; `None`: any holder of the secret may connect as any host.
    pub tokens: Option<HostTokens>,
    /// Authenticates this host and receivers that listen or join; not needed without any.
    pub credentials: Option<Credentials>,
    /// Who sends which block to whom; `None` for the fastest by [`plan::choice`]. With [`Algorithm::InSwitch`]
    /// switches copy what the root sends, and other blocks move over TCP; if switches cannot, or fail, members
    /// relay ([`PushEvent::FellBack`]).
    pub algorithm: Option<Algorithm>,
    /// Access to switches, for [`Algorithm::InSwitch`].
    pub switches: SwitchControl,
    /// The root's rack. Where hosts are in several racks, the algorithm is chosen by that too.
    pub root_rack: u32,
    /// Length of a block; `None` for the fastest.
    pub block_bytes: Option<u64>,
    /// Rate of a link in bits per second, for these choices; `None` for that of this host's link, as far as it is known
    /// ([`Fabric::link_rate`]).
    pub rate_bits_per_second: Option<u64>,
    /// Burst of links limited by a token bucket, for these choices ([`Costs::burst_bytes`]).
    pub burst_bytes: u64,
    /// How many times more a rack's hosts can send than its uplink carries, for these choices where hosts are in several
    /// racks; `None` for [`plan::costs::OVERSUBSCRIPTION_DEFAULT`].
    pub oversubscription: Option<f64>,
    /// Receives and sends posted ahead; `None` for the default for the block size.
    pub window: Option<Window>,
    /// The network for blocks; `None` for the best that all hosts have.
    pub fabric: Option<Fabric>,
    /// Whether the network relays blocks by itself where it can. Does not influence the choice of the fabric. See
    /// [`rdmc::GroupSettings::offload`].
    pub offload: bool,
    /// How all members wait for completions.
    pub completion: CompletionMode,
    /// How blocks are protected in transit: see [`rdmc::ContextSettings::protection`]. [`Protection::Encrypt`] implies the fabric
    /// tcp. The file's name and attributes are always encrypted.
    pub protection: Option<Protection>,
    /// TCP connections to each neighbour, 1 to 8.
    pub streams: u8,
    /// Whether all receivers are on this machine; then the root listens on loopback only.
    pub local_only: bool,
    /// Where members reach the root; by default the address that most receivers connected to.
    pub advertise: Option<IpAddr>,
    /// How long receivers may take to connect. Half of it, at most 15 s, is what they may take to connect to each other.
    pub start_timeout: Duration,
    /// The TCP ports at which the root and all receivers listen for this push, each at one that is free there; `None` for those that
    /// the system chooses.
    pub ports: Option<PortRange>,
    /// How long a host may be silent before it is lost, 200 ms to an hour. Its neighbours detect that and notify the
    /// others; the root's control connection waits three seconds longer. Broken connections are detected at once.
    /// Applies to all members.
    pub failure_deadline: Duration,
    /// How often each host may be lost and return ([`PushEvent::Retry`]).
    pub retries: u32,
    /// Listings of trees that all hosts together would get this many bytes of are relayed, as the tree itself is, instead of being
    /// sent to each.
    pub listings_bytes_max: u64,
    /// Names of hosts that have the object already: if they have it, each of them and the root send shares of it at the same time, so
    /// that the root's link is not the limit. Not with [`PushSettings::rate_min`] or [`Algorithm::InSwitch`].
    pub source_hosts: Vec<String>,
    /// The least length of such a share.
    pub share_bytes_min: u64,
    /// Admits receivers that are not among `hosts`; they authenticate by `credentials`.
    pub admission: Option<Admission>,
    /// The least rate of a group in bytes per second. Below it the host that delays the others is deferred until
    /// they have everything ([`PushEvent::Deferred`]).
    pub rate_min: Option<u64>,
    /// The most bytes per second that each member sends, and the most that it receives, the root
    /// included; see [`rdmc::ContextSettings::rate_max`]. Implies the fabric tcp, and counts as the rate of a link for
    /// the choice of algorithm and block size if it is lower. Not with [`Algorithm::InSwitch`].
    pub rate_max: Option<u64>,
    /// Nothing is sent: hosts only report what they lack, and write nothing.
    pub dry_run: bool,
    /// Hosts publish their copies only when every host has one that is verified and on disk (docs/decisions/all-or-none.md). The
    /// first host that is given up before that ends the push ([`PushError::NotAll`]). Not with [`PushSettings::admission`].
    pub all_or_none: bool,
}

impl PushSettings {
    /// Defaults for these hosts: the fastest algorithm and block size, 30 seconds to connect.
    pub fn new(hosts: Vec<HostPlan>, secret: Secret) -> Self {
        Self {
            hosts,
            secret,
            tokens: None,
            credentials: None,
            algorithm: None,
            switches: SwitchControl::default(),
            root_rack: 0,
            block_bytes: None,
            rate_bits_per_second: None,
            burst_bytes: 0,
            oversubscription: None,
            window: None,
            fabric: None,
            offload: false,
            completion: CompletionMode::default(),
            protection: None,
            streams: 1,
            local_only: false,
            advertise: None,
            start_timeout: Duration::from_secs(30),
            ports: None,
            failure_deadline: FAILURE_DEADLINE,
            retries: 0,
            listings_bytes_max: LISTINGS_BYTES_MAX,
            source_hosts: Vec::new(),
            share_bytes_min: SHARE_BYTES_MIN,
            admission: None,
            rate_min: None,
            rate_max: None,
            dry_run: false,
            all_or_none: false,
        }
    }

    /// Algorithm and block size for a message of this length to members in these racks, the root's first. `own`: the address
    /// at which members reach this host.
    pub fn choose(
        &self,
        algorithm: Option<Algorithm>,
        racks: &[u32],
        bytes: u64,
        fabric: &Fabric,
        own: IpAddr,
    ) -> Choice {
        let members = u32::try_from(racks.len()).unwrap_or(u32::MAX);
        let mut costs = match self.rate_bits_per_second {
            None if self.local_only => fabric.costs_of_one_machine(members, Fabric::this_machine()),
            rate => {
                let burst_bytes = self.burst_bytes;
                let rate = rate.or_else(|| fabric.link_rate(own));
                Costs { burst_bytes, ..fabric.costs_between_hosts(rate) }
            }
        };
        if let Some(rate) = self.rate_max {
            costs.rate_bytes_per_second = costs.rate_bytes_per_second.min(rate as f64);
        }
        if let Some(times) = self.oversubscription {
            costs.oversubscription = times;
        }
        let block_bytes = self.block_bytes;
        ChoiceRequest { members, racks, message_bytes: bytes, algorithm, block_bytes }
            .choose(&costs)
    }

    /// How long receivers may take to join a group: so short that one that others cannot reach is found within
    /// [`PushSettings::start_timeout`].
    pub fn member_join_timeout(&self) -> Duration {
        (self.start_timeout / 2).clamp(JOIN_TIMEOUT_LEAST, JOIN_TIMEOUT)
    }

    /// The same at the root: longer, so that receivers report first, who know which of them cannot reach each other.
    pub fn root_join_timeout(&self) -> Duration {
        self.member_join_timeout() + REPORT_TIME
    }

    /// How long the root waits for a group: longer than all members, so that they report the cause first.
    pub fn join_timeout(&self) -> Duration {
        self.root_join_timeout() + silence(self.failure_deadline)
    }

    /// What is sent to rank 0 about a group of the members with these addresses, in these racks, in which one message follows
    /// another.
    pub fn group_terms(
        &self,
        number: u64,
        choice: &Choice,
        addresses: Vec<SocketAddr>,
        racks: Vec<u32>,
    ) -> GroupTerms {
        let members = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
        let window = self.window.unwrap_or_else(|| Window::for_group(choice.block_bytes, members));
        GroupTerms {
            number,
            rank: 0,
            addresses,
            racks,
            algorithm: choice.algorithm.code(),
            block_bytes: choice.block_bytes,
            window_receives: window.receives,
            window_sends: window.sends,
            messages_in_flight: 1,
            offload: self.offload,
        }
    }

    pub(super) fn check(&self, bytes: u64) -> Result<(), PushError> {
        if self.hosts.is_empty() {
            return Err(PushError::Setting("no host to replicate to".into()));
        }
        self.check_values(bytes)
    }

    /// The same for a session whose hosts come later.
    pub(super) fn check_values(&self, bytes: u64) -> Result<(), PushError> {
        let refuse = |what: String| Err(PushError::Setting(what));
        if self.hosts.len() > HOSTS_MAX {
            let hosts = self.hosts.len();
            return refuse(format!("{hosts} hosts; a push has at most {HOSTS_MAX}"));
        }
        if let Some(size) = self.block_bytes {
            if !(1..=BLOCK_BYTES_MAX).contains(&size) {
                return refuse(format!("block size {size} is not in 1 to {BLOCK_BYTES_MAX} bytes"));
            }
            if bytes.div_ceil(size) > u64::from(u32::MAX) {
                return refuse(format!(
                    "{bytes} bytes make too many blocks of {size}; use larger blocks"
                ));
            }
        }
        if self.window.is_some_and(|window| window.receives == 0 || window.sends == 0) {
            return refuse("a window of 0 permits no transfers; use 1 or more".into());
        }
        if self.algorithm == Some(Algorithm::InSwitch) {
            self.check_in_switch()?;
        }
        if let Some(rate) = self.rate_max.filter(|&rate| rate < RATE_MAX_LEAST) {
            return refuse(format!(
                "a rate limit of {rate} bytes per second; use {RATE_MAX_LEAST} (1 Mbit/s) or more"
            ));
        }
        if let (Some(least), Some(most)) = (self.rate_min, self.rate_max)
            && least >= most
        {
            return refuse(format!(
                "the minimum of {least} bytes per second is above the limit of {most}; use a lower minimum"
            ));
        }
        check_failure_deadline(self.failure_deadline).map_err(PushError::Setting)?;
        if !(1..=8).contains(&self.streams) {
            return refuse(format!("{} streams per neighbour; use 1 to 8", self.streams));
        }
        let is_host = |name: &&String| self.hosts.iter().any(|host| host.name == **name);
        if let Some(name) = self.source_hosts.iter().find(|name| !is_host(name)) {
            return refuse(format!(
                "{name} is to send a share, and is none of the hosts of this push"
            ));
        }
        if !self.source_hosts.is_empty() && self.rate_min.is_some() {
            return refuse(
                "with source hosts there is no minimum rate: leave one of them out".into(),
            );
        }
        let listening = self.hosts.iter().find(|host| matches!(host.reach, Reach::Listens(_)));
        if let (Some(host), None) = (listening, &self.credentials) {
            return refuse(format!(
                "{} listens, which needs credentials; there are none",
                host.name
            ));
        }
        if self.admission.is_some() && self.all_or_none {
            return refuse(
                "all hosts of a push to all or none are known at its start: none can join".into(),
            );
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

    fn check_in_switch(&self) -> Result<(), PushError> {
        let refuse = |what: &str| Err(PushError::Setting(what.to_owned()));
        if !self.switches.is_some() {
            return refuse(
                "the algorithm in-switch needs switches that copy; use auto to let the receivers relay",
            );
        }
        if self.fabric.as_ref().is_some_and(|fabric| *fabric != Fabric::Tcp) {
            return refuse("the algorithm in-switch works with the fabric tcp only");
        }
        if !self.source_hosts.is_empty() {
            return refuse(
                "switches copy what the root sends: leave out source hosts or in-switch",
            );
        }
        if self.rate_max.is_some() {
            return refuse("the rate of in-switch blocks cannot be limited; use another algorithm");
        }
        if self.protection == Some(Protection::Encrypt) {
            return refuse("in-switch blocks cannot be encrypted; use another algorithm");
        }
        Ok(())
    }
}

/// The state of one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum HostState {
    /// Not connected yet.
    Awaited,
    /// Prepares its target.
    Preparing,
    /// Ready to receive, or receiving.
    Ready,
    /// Has all bytes, which are being verified or wait for the others.
    Received,
    /// Has a verified copy under its name.
    Published,
    /// In a dry run: has said what it lacks.
    Examined,
    /// Uses one file system with this other host, which makes the copy for both.
    Shares(String),
    /// Has no copy, for this reason.
    Failed(String),
    /// Was told to publish its copy and did not confirm, for this reason. It has a complete, verified copy or none.
    Unknown(String),
}

impl HostState {
    /// Whether the host has a verified copy under its name, maybe that of another host.
    pub fn has_copy(&self) -> bool {
        matches!(self, Self::Published | Self::Shares(_))
    }

    /// Whether the host has a copy of its own, or would get one in a dry run.
    pub fn has_result(&self) -> bool {
        matches!(self, Self::Published | Self::Examined)
    }
}

/// Events of a running push. Hosts are identified by their index in [`PushSettings::hosts`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PushEvent {
    /// A host's state has changed.
    Host {
        /// Its index in [`PushSettings::hosts`].
        host: usize,
        /// Its new state.
        state: HostState,
    },
    /// A host that is not among [`PushSettings::hosts`] was admitted; it is in the report as well.
    Joined {
        /// Its index.
        host: usize,
        /// Its name.
        name: String,
    },
    /// A host that has fetched its copy has left the session.
    Left {
        /// Its index.
        host: usize,
    },
    /// Groups start to replicate what is missing; again after members were lost or became ready later.
    Round {
        /// Members of the largest group, the root included.
        members: usize,
    },
    /// How much of the file a host has.
    Progress {
        /// Its index in [`PushSettings::hosts`].
        host: usize,
        /// Bytes of the object that it has.
        bytes: u64,
    },
    /// A host was lost, for this reason, and is expected again: the application that started its receiver has to
    /// start it again.
    Retry {
        /// Its index in [`PushSettings::hosts`].
        host: usize,
        /// How often it was lost so far.
        start: u32,
        /// The reason, for messages.
        reason: String,
    },
    /// A host slowed the others below [`PushSettings::rate_min`]: it gets its copy after them.
    Deferred {
        /// Its index in [`PushSettings::hosts`].
        host: usize,
        /// The rate of its group.
        bytes_per_second: u64,
    },
    /// Switches cannot copy ([`Algorithm::InSwitch`]); members relay what is missing. Happens at most once.
    FellBack {
        /// Which switch or member, and what happened.
        reason: String,
    },
    /// Bytes of a stream that a host received are not those that were sent: a relay or a link changed them. They were not
    /// written out, and are sent again.
    Altered {
        /// Its index in [`PushSettings::hosts`].
        host: usize,
        /// Where they begin in the stream.
        at: u64,
    },
    /// The first complete copies are being written to disk.
    Publishing,
    /// The push ends early and waits a short time for hosts that are publishing; cancelling again ends that wait.
    Stopping {
        /// How many hosts.
        publishing: usize,
    },
}

/// Why a push as a whole failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PushError {
    /// The file cannot be sent, or has changed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The library or the system refused.
    #[error(transparent)]
    Library(#[from] Error),
    /// A setting of the push is out of range, or does not go with another; says what would do.
    #[error("{0}")]
    Setting(String),
    /// Groups failed repeatedly without a host that explains it.
    #[error("replication failed: {0}")]
    Group(String),
    /// Of a push to all or none a host was given up, so that no host publishes its copy.
    #[error("no host publishes its copy, since {host} has none: {reason}")]
    NotAll {
        /// The name of that host.
        host: String,
        /// Why it was given up.
        reason: String,
    },
    /// The input of a stream cannot be read.
    #[error("cannot read the input: {0}")]
    Input(std::io::Error),
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
    /// Algorithm and block size of the last group, if there was one.
    pub choice: Option<Choice>,
    /// The network that was used; `None` if none was chosen.
    pub fabric: Option<Fabric>,
    /// This machine's address at which most hosts reached it; `None` if none did.
    pub address: Option<IpAddr>,
    /// Whether the network relayed by itself in the last group, if there was one.
    pub offload: Option<Offload>,
    /// Why members relayed instead of switches: [`PushEvent::FellBack`].
    pub fell_back: Option<String>,
    /// From the start of sending until the last receiver had all bytes; `None` if none had.
    pub replication: Option<Duration>,
    /// The whole push, including start, verification and writing to disk.
    pub total: Duration,
    /// Why the push ended early, if one reason covers all hosts without a copy.
    pub error: Option<PushError>,
}

/// How a push ended for one host.
#[derive(Clone, PartialEq, Debug)]
pub struct HostReport {
    /// Its name.
    pub name: String,
    /// [`HostState::Published`], [`HostState::Failed`], [`HostState::Unknown`], [`HostState::Examined`], or
    /// [`HostState::Shares`] where that host has published.
    pub state: HostState,
    /// The path of its copy, or of the directory that copies go into, as it was asked for.
    pub destination: String,
    /// From the start of sending until it had all bytes.
    pub replication: Option<Duration>,
    /// From the start of the push until it reported its copy; `None` if it has not, or leaves the copy to another host.
    pub published: Option<Duration>,
    /// Bytes that it had from an earlier session, or in a file of that name, and that were not sent.
    pub resumed_bytes: u64,
    /// What it had of the source at the start; `None` if it has not said so. In a push that resumes another, what that had
    /// received is not there.
    pub changes: Option<Changes>,
    /// It had the complete copy under its name, which was verified and stays the same file.
    pub was_there: bool,
    /// Bytes that were sent to it again although it had them, after others were lost.
    pub repeated_bytes: u64,
    /// If it was deferred: the rate of its group then, in bytes per second.
    pub deferred_at: Option<u64>,
    /// If it got its copy by itself after the others: which of them it could not connect to. The predicate of a sentence.
    pub apart: Option<String>,
    /// Its share in the delay of its last group; all members together 1, the root included. `None` for groups
    /// shorter than a second. See [`plan::slowness`].
    pub waiting_share: Option<f64>,
    /// Peak resident memory of its receiver, if reported.
    pub peak_resident_bytes: Option<u64>,
}

impl PushReport {
    /// How many hosts have said what they lack, in a dry run.
    pub fn examined(&self) -> usize {
        self.hosts.iter().filter(|host| host.state == HostState::Examined).count()
    }

    /// When the last host that has a copy reported it, since the start of the push; `None` if none has.
    pub fn last_published(&self) -> Option<Duration> {
        self.hosts.iter().filter_map(|host| host.published).max()
    }

    /// How many hosts have a verified copy under its name.
    pub fn published(&self) -> usize {
        self.hosts.iter().filter(|host| host.state.has_copy()).count()
    }
}
