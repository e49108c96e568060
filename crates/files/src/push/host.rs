//! The root's state of one receiver.

use std::{net::IpAddr, time::Duration};

use super::settings::{HostPlan, HostReport, HostState};
use crate::{changes::Changes, ranges::Ranges};

/// The state of a host; with its deadline in the push's time where there is one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Not connected yet.
    Awaited(Duration),
    /// Lost; expected again from then on.
    Backoff(Duration),
    /// Can start a fabric, and gets the listing of the tree in a group.
    Unlisted,
    /// Starts the fabric for that.
    Opening(Duration),
    /// Can take part in that group.
    Opened,
    /// Prepares its target.
    Preparing(Duration),
    /// The root compares the host's existing data with the source.
    Checking,
    /// Can start a fabric.
    Prepared,
    /// Starts the fabric and reserves space.
    Starting(Duration),
    /// Can take part in groups, or waits for the root's digest.
    Ready,
    /// Compares its copy with the digest.
    Comparing(Duration),
    /// Its copy differs from the source as the root read it.
    Mismatch,
    /// Its copy is equal to the source.
    Verified,
    /// Writes its copy to disk, of a push to all or none.
    Storing(Duration),
    /// Its copy lacks nothing but its name.
    Stored,
    Publishing(Duration),
    Published,
    /// In a dry run: has said what it lacks.
    Examined,
    /// Uses one file system with this other host, which makes the copy.
    Shares(String),
    Failed(String),
    /// Was told to publish its copy; the outcome is unknown.
    Unknown(String),
}

/// What to look at where a host was started, as far as is known, and has not connected.
const STARTED: &str = "if logging in works, does a firewall block its connection to this machine? see --ports and --advertise";

pub struct Host {
    pub plan: HostPlan,
    pub step: Step,
    /// Where other members reach it: the address it connected from, and its context's port.
    pub ip: Option<IpAddr>,
    pub port: u16,
    /// The fabrics that it can use.
    pub fabrics: Vec<String>,
    /// The root's address as this host reached it.
    pub own_ip: Option<IpAddr>,
    /// The ranges of the file that it has for certain.
    pub has: Ranges,
    /// What it had of that before it was sent anything.
    pub kept: Ranges,
    /// A part of that it keeps without a comparison of its contents, so that it does not send it to others.
    pub keeps_unread: bool,
    /// It has published its copy, and sends it to others.
    pub shares: bool,
    /// Its last progress report, for display.
    pub bytes: u64,
    /// Bytes read and written other than received ones.
    pub worked: u64,
    /// When it made progress last.
    pub progressed_at: Duration,
    /// Rounds in which it was blamed for a failed group although it was connected.
    pub failed_rounds: u32,
    /// The last of these rounds.
    pub last_failed_round: u32,
    /// How often it may be lost and return.
    pub retries: u32,
    /// How often it was lost.
    pub start: u32,
    /// It was connected before it was lost.
    pub has_joined: bool,
    /// Why it was lost the last time.
    pub lost_reason: String,
    /// Members to which it could not connect although both had all their time; `None` is the root.
    pub apart_from: Vec<Option<usize>>,
    /// Why it gets its copy by itself after the others: the predicate of a sentence.
    pub apart: Option<String>,
    /// If it was deferred: the rate of its group then, in bytes per second.
    pub deferred_at: Option<u64>,
    /// How often it was a possible straggler.
    pub suspicions: u32,
    /// Its share in the delay of its last group.
    pub waiting_share: Option<f64>,
    pub replication: Option<Duration>,
    /// When it reported its copy, since the start of the push.
    pub published: Option<Duration>,
    /// The last line of output of its command, which has taken a stream.
    pub said: Option<String>,
    /// It was ordered to publish its copy, and has not reported a failure.
    pub may_have_published: bool,
    /// Existing data that was not sent again.
    pub resumed_bytes: u64,
    /// What it had of the source when it was prepared.
    pub changes: Option<Changes>,
    /// It had the complete copy under its name.
    pub was_there: bool,
    /// Data sent again although it had it.
    pub repeated_bytes: u64,
    pub peak_resident_bytes: Option<u64>,
}

impl Host {
    pub fn new(plan: HostPlan, retries: u32, until: Duration) -> Self {
        Self {
            plan,
            step: Step::Awaited(until),
            ip: None,
            port: 0,
            fabrics: Vec::new(),
            own_ip: None,
            has: Ranges::default(),
            kept: Ranges::default(),
            keeps_unread: false,
            shares: false,
            bytes: 0,
            worked: 0,
            progressed_at: Duration::ZERO,
            failed_rounds: 0,
            last_failed_round: 0,
            retries,
            start: 0,
            has_joined: false,
            lost_reason: String::new(),
            apart_from: Vec::new(),
            apart: None,
            deferred_at: None,
            suspicions: 0,
            waiting_share: None,
            replication: None,
            published: None,
            said: None,
            may_have_published: false,
            resumed_bytes: 0,
            changes: None,
            was_there: false,
            repeated_bytes: 0,
            peak_resident_bytes: None,
        }
    }

    /// Whether it gets its copy after the others.
    pub(super) fn is_last(&self) -> bool {
        self.deferred_at.is_some() || !self.apart_from.is_empty()
    }

    /// Counts a round in which it was blamed for a failed group, once: one lost connection may fail several groups.
    pub(super) fn count_failed_round(&mut self, round: u32) {
        if self.last_failed_round != round {
            self.last_failed_round = round;
            self.failed_rounds += 1;
        }
    }

    /// Its state in events and reports.
    pub fn state(&self) -> HostState {
        match &self.step {
            Step::Awaited(_) | Step::Backoff(_) => HostState::Awaited,
            Step::Unlisted | Step::Opening(_) | Step::Opened => HostState::Preparing,
            Step::Preparing(_) | Step::Checking | Step::Prepared | Step::Starting(_) => {
                HostState::Preparing
            }
            Step::Ready if self.replication.is_none() => HostState::Ready,
            Step::Ready
            | Step::Comparing(_)
            | Step::Mismatch
            | Step::Verified
            | Step::Storing(_)
            | Step::Stored
            | Step::Publishing(_) => HostState::Received,
            Step::Published => HostState::Published,
            Step::Examined => HostState::Examined,
            Step::Shares(other) => HostState::Shares(other.clone()),
            Step::Failed(reason) => HostState::Failed(reason.clone()),
            Step::Unknown(reason) => HostState::Unknown(reason.clone()),
        }
    }

    /// It has published or been examined, or leaves the copy to another.
    pub(super) fn is_done(&self) -> bool {
        matches!(self.step, Step::Published | Step::Examined | Step::Shares(_))
    }

    /// It has neither published nor failed, nor been examined, nor leaves the copy to another.
    pub fn is_open(&self) -> bool {
        !self.is_done() && !matches!(self.step, Step::Failed(_) | Step::Unknown(_))
    }

    /// Its last state when it is given up.
    pub(super) fn given_up(&self, reason: &str) -> Step {
        match self.may_have_published {
            true => Step::Unknown(format!("{reason}; it may have published its copy")),
            false => Step::Failed(reason.to_owned()),
        }
    }

    /// It is not ready for groups yet.
    pub fn is_coming(&self) -> bool {
        let unlisted = matches!(self.step, Step::Unlisted | Step::Opening(_) | Step::Opened);
        let coming = matches!(self.step, Step::Preparing(_) | Step::Checking | Step::Prepared);
        unlisted
            || coming
            || matches!(self.step, Step::Awaited(_) | Step::Backoff(_) | Step::Starting(_))
    }

    /// It has published, and others get the object from it.
    pub(super) fn is_sharing(&self) -> bool {
        self.shares && self.step == Step::Published
    }

    /// Others that fetch can get the object from it.
    pub(super) fn may_send(&self) -> bool {
        self.is_ready() || self.is_sharing()
    }

    /// It can be a member of groups.
    pub fn is_ready(&self) -> bool {
        matches!(self.step, Step::Ready | Step::Comparing(_) | Step::Verified)
    }

    /// When its current step times out.
    pub fn deadline(&self) -> Option<Duration> {
        match self.step {
            Step::Awaited(until)
            | Step::Backoff(until)
            | Step::Opening(until)
            | Step::Preparing(until)
            | Step::Starting(until)
            | Step::Comparing(until)
            | Step::Storing(until)
            | Step::Publishing(until) => Some(until),
            _ => None,
        }
    }

    /// What it has not done in time: the predicate of a sentence.
    pub fn lateness(&self, start_timeout: Duration) -> String {
        match self.step {
            Step::Preparing(_) => "did not prepare its target in time".into(),
            Step::Opening(_) => "did not start its fabric in time".into(),
            Step::Starting(_) => "did not reserve space or start its fabric in time".into(),
            Step::Comparing(_) => "did not verify its copy in time".into(),
            Step::Storing(_) => "did not write its copy to disk in time".into(),
            Step::Publishing(_) => "did not confirm in time that its copy is published".into(),
            _ => {
                let (seconds, reason) = (start_timeout.as_secs_f64(), &self.lost_reason);
                match self.has_joined {
                    true => {
                        format!("was lost ({reason}) and did not come back within {seconds} s")
                    }
                    false => format!("did not connect within {seconds} s; {STARTED}"),
                }
            }
        }
    }

    /// Why it is given up that lacks the fabric that others use already: the predicate of a sentence.
    pub(super) fn lack_of(&self, fabric: &str) -> String {
        let own = self.fabrics.join(", ");
        format!(
            "it connected after the others had begun over {fabric}, which it lacks (it has {own}): push to it again, or choose \
             a network that all hosts have, such as --fabric tcp"
        )
    }

    pub fn report(&self) -> HostReport {
        HostReport {
            name: self.plan.name.clone(),
            destination: self.plan.destination.clone(),
            state: if self.is_open() {
                HostState::Failed("not reached".into())
            } else {
                self.state()
            },
            replication: self.replication,
            published: self.published,
            resumed_bytes: self.resumed_bytes,
            changes: self.changes.clone(),
            was_there: self.was_there,
            repeated_bytes: self.repeated_bytes,
            deferred_at: self.deferred_at,
            apart: self.apart.clone(),
            waiting_share: self.waiting_share,
            peak_resident_bytes: self.peak_resident_bytes,
        }
    }
}
