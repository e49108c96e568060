//! One group that replicates a part, from its start until all members have reported its end.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rdmc::{Algorithm, Error, Failure, FailureKind, Waited};

use super::{
    host::Host, pairs::Pairs, parts::Part, rate::GroupRate, settings::PushSettings,
    unjoined::Unjoined,
};
use crate::messages::{Blamed, blamed, join_predicate, predicate, unjoined};

/// How long members of a failed group may take to report.
const REPORT_TIMEOUT: Duration = Duration::from_secs(20);
/// The same for blamed members once all others have reported. A live one reports up to 2 s later than they do: its group
/// waits this long for the counts of members that do not answer (`WAIT_MAX` in crates/engine/src/failed.rs).
const BLAMED_REPORT_TIMEOUT: Duration = Duration::from_secs(3);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The root has not joined yet; with the deadline.
    Joining(Duration),
    Running,
    /// Waits for the members' reports; with the deadline.
    Failing(Duration),
}

#[derive(Debug)]
pub(super) struct PushGroup {
    pub(super) part: Part,
    algorithm: Algorithm,
    phase: Phase,
    /// When it started.
    pub(super) since: Duration,
    pub(super) rate: GroupRate,
    /// Of a stream: up to which place messages were announced to its members.
    pub(super) announced_until: u64,
    /// Of a stream: up to which place messages were sent in it.
    pub(super) sent_until: u64,
    /// Of a stream: the root sends to all hosts itself, up to this place.
    pub(super) direct_until: Option<u64>,
    /// It is a link of a session whose hosts fetch.
    pub(super) is_link: bool,
    /// Of a stream: it is closed once all members have its messages.
    pub(super) is_closing: bool,
    /// Hosts that got other bytes of a stream than those that were sent.
    pub(super) altered: BTreeSet<usize>,
    /// Hosts for which it has closed with success, while others may still write out a stream.
    closed: BTreeSet<usize>,
    /// False if it was aborted to be replaced by other groups.
    pub(super) is_wanted: bool,
    /// The first known reason of its failure.
    reason: Option<String>,
    /// Failure of the group, or of joining it, at the root: the rank to blame, and the reason.
    own: Option<(Option<Blamed>, String)>,
    /// The root's failure shows that switches, or access to them, are the cause.
    is_by_switches: bool,
    /// Hosts that have reported failure, with the rank that each blames.
    reports: BTreeMap<usize, Option<Blamed>>,
    /// From then on members have had all their time to join.
    had_time_at: Duration,
    unjoined: Unjoined,
    /// Hosts that could not join for a reason of their own.
    own_errors: BTreeMap<usize, String>,
    /// The host whose report was the first sign of its failure.
    first_reporter: Option<usize>,
    /// Hosts that were given up meanwhile, even if they have returned.
    lost: BTreeSet<usize>,
}

/// The state of a failed group.
pub(super) enum Verdict {
    /// Reports are missing; wait until [`PushGroup::deadline`] at the latest.
    Wait,
    /// Only these hosts have not reported, and they had their time.
    Over { silent: Vec<usize> },
}

impl PushGroup {
    pub(super) fn new(
        part: Part,
        algorithm: Algorithm,
        hosts: &[Host],
        now: Duration,
        settings: &PushSettings,
    ) -> Self {
        let phase = match part.source {
            None => Phase::Joining(now + settings.join_timeout()),
            // Members that cannot join report it.
            Some(_) => Phase::Running,
        };
        let (reports, lost) = (BTreeMap::new(), BTreeSet::new());
        let slowest_bytes = part.takers().map(|host| hosts[host].bytes).min();
        let rate = GroupRate::new(slowest_bytes.unwrap_or(0), now);
        let sent_until = part.ranges.iter().next().map_or(0, |(start, _)| start);
        Self {
            announced_until: 0,
            sent_until,
            part,
            algorithm,
            phase,
            since: now,
            rate,
            direct_until: None,
            is_link: false,
            is_closing: false,
            altered: BTreeSet::new(),
            closed: BTreeSet::new(),
            is_wanted: true,
            reason: None,
            own: None,
            is_by_switches: false,
            reports,
            had_time_at: now + settings.member_join_timeout(),
            unjoined: Unjoined::default(),
            own_errors: BTreeMap::new(),
            first_reporter: None,
            lost,
        }
    }

    /// Hosts by rank; without the root, which has rank 0 if it is the source.
    pub(super) fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.part.source.iter().chain(&self.part.hosts).copied()
    }

    /// Hosts that have the part if the group succeeds. Not those given up meanwhile: a host that has returned may
    /// have less than before.
    pub(super) fn receivers_left(&self) -> impl Iterator<Item = usize> + '_ {
        self.part.takers().filter(|host| !self.lost.contains(host))
    }

    /// All members by rank; `None` is the root.
    pub(super) fn by_rank(&self) -> impl Iterator<Item = Option<usize>> + '_ {
        let root = self.part.source.is_none().then_some(None);
        root.into_iter().chain(self.members().map(Some))
    }

    pub(super) fn has_member(&self, host: usize) -> bool {
        self.members().any(|member| member == host)
    }

    /// How many bytes of an object of this length its slowest host lacks, as far as is known.
    pub(super) fn left(&self, hosts: &[Host], bytes: u64) -> u64 {
        let has = self.part.takers().map(|host| hosts[host].bytes);
        bytes.saturating_sub(has.min().unwrap_or(bytes))
    }

    /// Each host's share in the delay of the group.
    pub(super) fn shares(&self) -> impl Iterator<Item = (usize, f64)> {
        let shares = self.rate.shares(self.by_rank().count());
        self.by_rank().zip(shares).filter_map(|(member, share)| Some((member?, share)))
    }

    /// A member's report of its waits.
    pub(super) fn set_waited(&mut self, host: Option<usize>, waited: Vec<Waited>) {
        let rank = self.by_rank().position(|member| member == host);
        if let Some(rank) = rank {
            let members = self.by_rank().count();
            self.rate.set_waited(rank as u32, waited, members);
        }
    }

    fn host_of(&self, rank: u32) -> Option<usize> {
        self.by_rank().nth(rank as usize).flatten()
    }

    pub(super) fn is_joining(&self) -> bool {
        matches!(self.phase, Phase::Joining(_))
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running)
    }

    pub(super) fn is_failing(&self) -> bool {
        matches!(self.phase, Phase::Failing(_))
    }

    /// The root has joined.
    pub(super) fn start_running(&mut self, now: Duration) {
        self.phase = Phase::Running;
        self.rate = GroupRate::new(self.rate.window_bytes(), now);
    }

    /// False if it is failing already.
    pub(super) fn begin_failing(&mut self, now: Duration, reason: &str) -> bool {
        let begins = !self.is_failing();
        if begins {
            self.reason = Some(reason.to_owned());
            self.phase = Phase::Failing(now + REPORT_TIMEOUT);
        }
        begins
    }

    /// Switches copy its blocks.
    pub(super) fn is_in_switch(&self) -> bool {
        self.algorithm == Algorithm::InSwitch
    }

    /// Switches caused its failure.
    pub(super) fn has_failed_by_switches(&self) -> bool {
        self.is_in_switch() && self.is_by_switches
    }

    pub(super) fn failed_here(&mut self, failure: &Failure) {
        self.is_by_switches |= failure.kind == FailureKind::Network;
        // Not for a group that the root has aborted itself. Receivers of a switch know from the root alone who has
        // failed, in words that were cut, and their reports may be here first.
        let is_known_here = self.is_in_switch() && failure.kind != FailureKind::Application;
        if self.reason.is_none() || is_known_here {
            self.own.get_or_insert((blamed(failure), predicate(failure)));
        }
    }

    pub(super) fn not_joined_here(&mut self, error: &Error) {
        self.is_by_switches |= matches!(error, Error::InSwitch { .. });
        let blamed = unjoined(error).map(|member| Blamed { member, noticed_by: None });
        self.own.get_or_insert((blamed, join_predicate(error)));
    }

    /// A host reports failure with this reason, and the ranks of those to which it could not connect.
    pub(super) fn reported(
        &mut self,
        host: usize,
        blamed: Option<Blamed>,
        detail: &str,
        unconnected: &[u32],
        now: Duration,
    ) {
        self.reports.entry(host).or_insert(blamed);
        if !self.is_failing() && self.own.is_none() {
            self.first_reporter.get_or_insert(host);
        }
        // Failures of a group that was joined name who has noticed them.
        let alone = blamed.filter(|it| it.noticed_by.is_none()).map(|it| it.member);
        if alone.is_some_and(|rank| self.host_of(rank) == Some(host)) {
            self.own_errors.insert(host, detail.to_owned());
        }
        if now < self.had_time_at {
            return;
        }
        let members: Vec<Option<usize>> = self.by_rank().collect();
        for &rank in unconnected.iter().chain(&alone) {
            if let Some(&other) = members.get(rank as usize) {
                self.unjoined.add(host, other, now);
            }
        }
    }

    /// Whether members that could not connect to each other have reported, and others may still do so.
    pub(super) fn awaits_reports(&self, now: Duration) -> bool {
        let is_early = self.unjoined.until().is_some_and(|until| now < until);
        is_early && !self.is_failing() && !self.members().all(|host| self.has_reported(host))
    }

    /// Why it fails now without a report: the root has not joined in time, or members that could not connect to each other have
    /// reported, and no others will.
    pub(super) fn overdue(&self, now: Duration) -> Option<&'static str> {
        if self.is_failing() {
            return None;
        }
        if self.unjoined.until().is_some() && !self.awaits_reports(now) {
            return Some("members could not connect to each other");
        }
        let is_late = matches!(self.phase, Phase::Joining(until) if now >= until);
        is_late.then_some("it took too long to join")
    }

    /// The members that could not connect to each other.
    pub(super) fn unjoined(&self) -> &Pairs {
        self.unjoined.pairs()
    }

    /// Hosts that could not join for a reason of their own.
    pub(super) fn own_errors(&self) -> &BTreeMap<usize, String> {
        &self.own_errors
    }

    /// The host whose report was the first sign of its failure; none if it failed at the root first.
    pub(super) fn first_reporter(&self) -> Option<usize> {
        self.first_reporter
    }

    /// Marks a host as given up; false if it is not a member.
    pub(super) fn lose(&mut self, host: usize) -> bool {
        let is_member = self.has_member(host);
        if is_member {
            self.lost.insert(host);
        }
        is_member
    }

    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// No further report of this host is expected.
    pub(super) fn has_reported(&self, host: usize) -> bool {
        let has_ended = self.reports.contains_key(&host) || self.closed.contains(&host);
        has_ended || self.lost.contains(&host)
    }

    /// It has closed at a host, which has everything of it, of a stream written out.
    pub(super) fn closed_at(&mut self, host: usize, hosts: &mut [Host]) {
        self.closed.insert(host);
        if self.part.reads {
            hosts[host].has.extend(self.part.ranges.iter());
        }
    }

    /// A host got other bytes of a stream than those that were sent.
    pub(super) fn altered_at(&mut self, host: usize) {
        self.altered.insert(host);
    }

    /// Whether no member needs it any more.
    pub(super) fn has_closed(&self) -> bool {
        !self.is_failing() && self.members().all(|host| self.has_reported(host))
    }

    /// Whether this host is a member for which the group has not ended.
    pub(super) fn needs(&self, host: usize) -> bool {
        self.has_member(host) && !self.has_reported(host)
    }

    /// How many members blame each host. Where the root is blamed, the one that noticed it counts as blamed: its connection
    /// to the root is broken, since the others reach the root. Members that were notified of it report the same.
    fn votes(&self) -> BTreeMap<usize, usize> {
        let own = self.own.iter().filter_map(|&(blamed, _)| self.host_of(blamed?.member));
        let reported = self.reports.iter().filter_map(|(&reporter, &blamed)| match blamed? {
            Blamed { member: 0, noticed_by } if self.part.source.is_none() => {
                noticed_by.map_or(Some(reporter), |rank| self.host_of(rank))
            }
            Blamed { member, .. } => self.host_of(member),
        });
        let mut votes = BTreeMap::new();
        for host in own.chain(reported) {
            *votes.entry(host).or_default() += 1;
        }
        votes
    }

    pub(super) fn most_blamed(&self) -> Option<usize> {
        self.votes().into_iter().max_by_key(|&(_, count)| count).map(|(host, _)| host)
    }

    /// The first known reason of the failure.
    pub(super) fn why(&self) -> String {
        let own = self.own.as_ref().map(|(_, detail)| detail);
        own.or(self.reason.as_ref()).cloned().unwrap_or_else(|| "it took too long".into())
    }

    /// When a decision is due if no report arrives before.
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Failing(until) => Some(until),
            Phase::Joining(until) => Some(self.unjoined.until().map_or(until, |it| it.min(until))),
            // The listing of a tree has no rate that members report, and a link is as fast as the one before it.
            Phase::Running if self.part.is_listing() || self.is_link => self.unjoined.until(),
            Phase::Running => {
                self.unjoined.until().into_iter().chain([self.rate.next_check()]).min()
            }
        }
    }

    /// While it fails: whether enough members have reported.
    pub(super) fn judge(&mut self, now: Duration) -> Verdict {
        let silent: Vec<usize> = self.members().filter(|&host| !self.has_reported(host)).collect();
        let votes = self.votes();
        let only_blamed = silent.iter().all(|host| votes.contains_key(host));
        let Phase::Failing(until) = &mut self.phase else { return Verdict::Wait };
        if only_blamed {
            *until = (*until).min(now + BLAMED_REPORT_TIMEOUT);
        }
        if silent.is_empty() || now >= *until { Verdict::Over { silent } } else { Verdict::Wait }
    }
}
