//! One group that replicates a part, from its start until everybody has said how it ended.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rdmc::{Algorithm, Error, Failure, FailureKind, Waited};

use super::{pace::Pace, parts::Part};
use crate::messages::{blamed, join_predicate, predicate};

/// How long survivors of a failed group may take to say so.
const AFTERMATH: Duration = Duration::from_secs(20);
/// How long a member that others blame may take to speak for itself, once they all have spoken.
const LAST_WORD: Duration = Duration::from_secs(2);

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// The root has not joined it; until when it may take to.
    Joining(Duration),
    Running,
    /// Members say how it ended for them, until then; those that are blamed may have less time.
    Failing {
        until: Duration,
    },
}

#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) part: Part,
    algorithm: Algorithm,
    phase: Phase,
    /// When it began.
    pub(super) since: Duration,
    pub(super) pace: Pace,
    /// It was not ended on purpose, so that other groups can take its place.
    pub(super) is_wanted: bool,
    /// Why it is failing, as far as was known at first.
    reason: Option<String>,
    /// Failure of the group at the root, or of joining it: who is to blame, and why.
    own: Option<(Option<u32>, String)>,
    /// The root knows that switches, or what it takes to use them, are the cause.
    is_by_switches: bool,
    /// Hosts whose group has failed, and whom they blame.
    reports: BTreeMap<usize, Option<u32>>,
    /// Hosts that were given up meanwhile, even if they have come back.
    lost: BTreeSet<usize>,
}

/// What is to be done about an attempt that has failed.
pub(super) enum Verdict {
    /// Wait, until [`Attempt::deadline`] at the latest.
    Wait,
    /// These hosts have said nothing; the rest has.
    Over { silent: Vec<usize> },
}

impl Attempt {
    /// `joining_until`: only where the root is the source, and joins itself.
    pub(super) fn new(
        part: Part,
        algorithm: Algorithm,
        now: Duration,
        joining_until: Duration,
    ) -> Self {
        let phase = match part.source {
            None => Phase::Joining(joining_until),
            // Members that cannot join say so.
            Some(_) => Phase::Running,
        };
        let (reports, lost) = (BTreeMap::new(), BTreeSet::new());
        let pace = Pace::new(now);
        Self {
            part,
            algorithm,
            phase,
            since: now,
            pace,
            is_wanted: true,
            reason: None,
            own: None,
            is_by_switches: false,
            reports,
            lost,
        }
    }

    /// Hosts by rank; the root, where it is the source, stands before them.
    pub(super) fn members(&self) -> impl Iterator<Item = usize> + '_ {
        self.part.source.iter().chain(&self.part.hosts).copied()
    }

    /// Hosts that have received all if it succeeds: one that was given up meanwhile may be back, and
    /// have less than it had.
    pub(super) fn receivers_left(&self) -> impl Iterator<Item = usize> + '_ {
        self.part.hosts.iter().copied().filter(|host| !self.lost.contains(host))
    }

    /// All members by rank; `None` is the root.
    pub(super) fn by_rank(&self) -> impl Iterator<Item = Option<usize>> + '_ {
        let root = self.part.source.is_none().then_some(None);
        root.into_iter().chain(self.members().map(Some))
    }

    /// What a member has told of its waiting.
    pub(super) fn heard(&mut self, host: Option<usize>, waited: Vec<Waited>) {
        let rank = self.by_rank().position(|member| member == host);
        if let Some(rank) = rank {
            self.pace.heard(rank as u32, waited);
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
        matches!(self.phase, Phase::Failing { .. })
    }

    /// The group stands, at the root.
    pub(super) fn stands(&mut self, now: Duration) {
        self.phase = Phase::Running;
        self.pace = Pace::new(now);
    }

    /// False if it is failing already.
    pub(super) fn begin_failing(&mut self, now: Duration, reason: &str) -> bool {
        let begins = !self.is_failing();
        if begins {
            self.reason = Some(reason.to_owned());
            self.phase = Phase::Failing { until: now + AFTERMATH };
        }
        begins
    }

    /// Switches copy its blocks.
    pub(super) fn is_in_switch(&self) -> bool {
        self.algorithm == Algorithm::InSwitch
    }

    /// It has failed, not for anything that a member has done.
    pub(super) fn has_failed_by_switches(&self) -> bool {
        self.is_in_switch() && self.is_by_switches
    }

    pub(super) fn failed_here(&mut self, failure: &Failure) {
        self.is_by_switches |= failure.kind == FailureKind::Network;
        // Of a group that the root has given up itself it knows why.
        if self.reason.is_none() {
            self.own.get_or_insert((blamed(failure), predicate(failure)));
        }
    }

    pub(super) fn not_joined_here(&mut self, error: &Error) {
        self.is_by_switches |= matches!(error, Error::InSwitch { .. });
        let member = match error {
            Error::Member { member, .. } => Some(*member),
            _ => None,
        };
        self.own.get_or_insert((member, join_predicate(error)));
    }

    pub(super) fn reported(&mut self, host: usize, member: Option<u32>) {
        self.reports.entry(host).or_insert(member);
    }

    /// A host was given up; false if it is not a member.
    pub(super) fn lose(&mut self, host: usize) -> bool {
        let is_member = self.members().any(|member| member == host);
        is_member && {
            self.lost.insert(host);
            true
        }
    }

    pub(super) fn has_lost(&self) -> bool {
        !self.lost.is_empty()
    }

    /// It can say nothing more of this group, or has said all.
    pub(super) fn has_reported(&self, host: usize) -> bool {
        self.reports.contains_key(&host) || self.lost.contains(&host)
    }

    /// It is a member, and the group has not ended for it.
    pub(super) fn needs(&self, host: usize) -> bool {
        self.members().any(|member| member == host) && !self.has_reported(host)
    }

    /// How many members blame each host. Whoever blames the root is taken to be the one whose
    /// connection to it is broken, since the others could reach it.
    fn votes(&self) -> BTreeMap<usize, usize> {
        let own = self.own.iter().filter_map(|&(member, _)| self.host_of(member?));
        let told = self.reports.iter().filter_map(|(&reporter, &member)| match member {
            Some(0) if self.part.source.is_none() => Some(reporter),
            member => self.host_of(member?),
        });
        let mut votes = BTreeMap::new();
        for host in own.chain(told) {
            *votes.entry(host).or_default() += 1;
        }
        votes
    }

    pub(super) fn most_blamed(&self) -> Option<usize> {
        self.votes().into_iter().max_by_key(|&(_, count)| count).map(|(host, _)| host)
    }

    /// What was known of the failure first.
    pub(super) fn why(&self) -> String {
        let own = self.own.as_ref().map(|(_, detail)| detail);
        own.or(self.reason.as_ref()).cloned().unwrap_or_else(|| "it took too long".into())
    }

    /// When something has to be decided, if nothing is heard before.
    pub(super) fn deadline(&self) -> Option<Duration> {
        match self.phase {
            Phase::Joining(until) | Phase::Failing { until } => Some(until),
            Phase::Running => Some(self.pace.next_look()),
        }
    }

    /// While it fails: whether enough has been heard.
    pub(super) fn judge(&mut self, now: Duration) -> Verdict {
        let silent: Vec<usize> = self.members().filter(|&host| !self.has_reported(host)).collect();
        let votes = self.votes();
        let only_blamed = silent.iter().all(|host| votes.contains_key(host));
        let Phase::Failing { until } = &mut self.phase else { return Verdict::Wait };
        if only_blamed {
            *until = (*until).min(now + LAST_WORD);
        }
        if silent.is_empty() || now >= *until { Verdict::Over { silent } } else { Verdict::Wait }
    }
}
