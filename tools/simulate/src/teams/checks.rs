//! Checks how a team ended, from the recorded facts alone.

use engine::FailureKind;
use team::Failure;

use super::{
    calls::OtherCall,
    facts::{Facts, Injected, MemberFacts, TeamEnd},
    fault::TeamFault,
    scenario::TeamScenario,
};
use crate::{counts::Blame, member_fault::MemberFault};

/// Checks that success means that everything is complete, and that every failure has a true cause, which spreads.
pub(super) fn judge(facts: &mut Facts<'_>, scenario: &TeamScenario) -> Blame {
    let mut blame = Blame::default();
    let mut wrong = Vec::new();
    for (rank, member) in (0..).zip(&facts.members) {
        match &member.end {
            Some((_, TeamEnd::Closed)) => {
                if let Some(lacking) = lacking(facts, scenario, rank) {
                    wrong.push(format!("the team is closed at member {rank}, but {lacking}"));
                }
            }
            Some((at_ns, TeamEnd::Failed(failure))) => {
                let trial = Trial { facts, scenario, at_ns: *at_ns };
                if let Err(why) = trial.judge(failure, &mut blame) {
                    wrong.push(format!("member {rank}: {failure}; but {why}"));
                }
            }
            None => {}
        }
    }
    wrong.extend(news(facts, scenario));
    wrong.extend(one_fault(facts));
    wrong.extend(named(facts));
    facts.violations.extend(wrong);
    blame
}

/// Returns a member that has not called what a member has at which the team is closed, or has not completed it and is linked
/// to that one, which waits for linked members only. Where a fault changes the calls of all, they may agree.
fn lacking(facts: &Facts<'_>, scenario: &TeamScenario, closed: u32) -> Option<String> {
    let is_other = |member: &&MemberFacts| member.deserted_ns.or(member.differed_ns).is_some();
    if facts.members.iter().filter(is_other).count() > 1 {
        return None;
    }
    let links = scenario.settings(closed).links();
    let closed = &facts.members[closed as usize];
    (0..).zip(&facts.members).find_map(|(rank, member)| {
        let mut both = closed.called.iter().zip(&member.called);
        let other = both.position(|(one, other)| one.call().difference(&other.call()).is_some());
        let completed = member.completed_ns.iter().flatten().count();
        let has = if links.contains(&rank) { completed } else { member.called.len() };
        let all = closed.called.len();
        match other {
            Some(number) => Some(format!("member {rank} called something else as {number}")),
            None => {
                (has < all).then(|| format!("member {rank} has done {has} of {all} operations"))
            }
        }
    })
}

/// Failures of members that nothing has stopped, cut off or killed, with their times.
fn undisturbed<'a>(
    facts: &'a Facts<'_>,
) -> impl Iterator<Item = (u32, u64, &'a Failure, &'a MemberFacts)> {
    let is_stopped = |rank: u32| {
        facts.faults.iter().any(|fault| {
            let stops = fault.what.holds_ns() > 0
                || matches!(
                    fault.what,
                    TeamFault::Member(MemberFault::Kill { .. }) | TeamFault::Drop { .. }
                );
            let is_apart = matches!(fault.what, TeamFault::Member(MemberFault::Partition { .. }));
            is_apart || stops && fault.what.members().contains(&rank)
        })
    };
    (0..).zip(&facts.members).filter(move |(rank, _)| !is_stopped(*rank)).filter_map(
        |(rank, member)| match &member.end {
            Some((at_ns, TeamEnd::Failed(failure))) => Some((rank, *at_ns, failure, member)),
            _ => None,
        },
    )
}

/// A member learns of a failure soon: none finds a cause of its own later. Members that are not linked may learn it by others
/// that a fault has stopped, so it holds for teams in which all are.
fn news(facts: &Facts<'_>, scenario: &TeamScenario) -> Option<String> {
    if scenario.size() > collective::ALL_PAIRS_MAX && facts.faults.len() > 1 {
        return None;
    }
    let (_, first_ns, first, _) = undisturbed(facts).min_by_key(|&(_, at_ns, ..)| at_ns)?;
    let late = undisturbed(facts).find(|&(rank, at_ns, failure, member)| {
        let heard_of_it = member.started_ns.is_some_and(|started_ns| started_ns <= first_ns);
        let is_reset = |fault: &Injected| {
            matches!(&fault.what, TeamFault::Member(MemberFault::Reset { members }) if members.contains(&rank))
        };
        heard_of_it
            && failure.reporter == rank
            && at_ns > first_ns + scenario.news_ns()
            && !facts.faults.iter().any(is_reset)
    });
    let (rank, at_ns, failure, _) = late?;
    let late_us = (at_ns - first_ns) / 1_000;
    Some(format!("member {rank}: {failure}; {late_us} us after it was known that {first}"))
}

/// Where one fault has happened, all members that it has not hit report the same kind of failure.
fn one_fault(facts: &Facts<'_>) -> Option<String> {
    let [fault] = &facts.faults[..] else { return None };
    let is_sure = matches!(
        fault.what,
        TeamFault::Member(MemberFault::Kill { .. } | MemberFault::Reset { .. })
            | TeamFault::Abort { .. }
            | TeamFault::TimeOut { .. }
            | TeamFault::Member(MemberFault::Freeze { for_ns: None, .. })
    );
    let mut all =
        undisturbed(facts).filter(|_| is_sure).map(|(rank, _, failure, _)| (rank, failure));
    let (first, one) = all.next()?;
    let (second, other) = all.find(|(_, failure)| failure.kind != one.kind)?;
    Some(format!("member {first}: {one}, but member {second}: {other}"))
}

/// Where one fault has happened, those that it has not hit name a member that it has hit, or themselves found that it calls
/// something else. A disagreement is found before the timeout, unless a call is only missing or one too many.
fn named(facts: &Facts<'_>) -> Option<String> {
    let [fault] = &facts.faults[..] else { return None };
    let hit = fault.what.members();
    // Once a stop is over, who is waited for changes from moment to moment.
    let over_ns = match fault.what.holds_ns() {
        0 => u64::MAX,
        holds_ns => fault.at_ns.saturating_add(holds_ns),
    };
    let mut in_time = undisturbed(facts).filter(|&(_, at_ns, ..)| at_ns < over_ns);
    let wrong = in_time.find(|(.., failure, _)| match &fault.what {
        // An application that is impatient does not know yet.
        TeamFault::TimeOut { .. } => false,
        TeamFault::Differ { member, by } => {
            let involves = [failure.member, Some(failure.reporter)].contains(&Some(*member));
            let is_found = failure.kind == FailureKind::Application;
            !involves || !is_found && !matches!(by, OtherCall::Extra | OtherCall::Missing)
        }
        // Whoever has left waits for the others in vain.
        TeamFault::Leave { member } if failure.reporter == *member => false,
        // Whoever was stopped has waited long when it goes on.
        TeamFault::Member(
            MemberFault::Freeze { member, .. } | MemberFault::Pause { member, .. },
        ) if failure.reporter == *member => false,
        // Nobody waits for whoever has left, although what it sent last may be held up.
        _ if waited_for_the_end(facts, failure) && hit.iter().all(|&it| has_left(facts, it)) => {
            false
        }
        _ => failure.member.is_none_or(|blamed| !hit.contains(&blamed)),
    });
    wrong.map(|(rank, _, failure, _)| format!("member {rank}: {failure}; but {:?}", fault.what))
}

/// Returns whether the reporter of a failure had left, and waited for the others to leave.
fn waited_for_the_end(facts: &Facts<'_>, failure: &Failure) -> bool {
    let reporter = facts.members.get(failure.reporter as usize);
    reporter.is_some_and(|reporter| matches!(reporter.timed_out, Some((_, None))))
}

fn has_left(facts: &Facts<'_>, rank: u32) -> bool {
    facts.members.get(rank as usize).is_some_and(|member| member.left_ns.is_some())
}

/// One failure at one member.
struct Trial<'a> {
    facts: &'a Facts<'a>,
    scenario: &'a TeamScenario,
    at_ns: u64,
}

impl Trial<'_> {
    fn judge(&self, failure: &Failure, blame: &mut Blame) -> Result<(), String> {
        let members = &self.facts.members;
        let Some(blamed) = failure.member else { return Err("it names no member".to_owned()) };
        let (Some(accused), Some(reporter)) =
            (members.get(blamed as usize), members.get(failure.reporter as usize))
        else {
            return Err("it names members that do not exist".to_owned());
        };
        // The reporter has failed for the same reason. What it knew is told in few words.
        let same = |end: &TeamEnd| match end {
            TeamEnd::Failed(other) => {
                (other.member, other.kind, other.reporter)
                    == (failure.member, failure.kind, failure.reporter)
            }
            TeamEnd::Closed => false,
        };
        if let Some((_, end)) = &reporter.end
            && !same(end)
        {
            return Err(format!("member {} itself reports {end:?}", failure.reporter));
        }
        let until = |at_ns: Option<u64>| at_ns.is_some_and(|at_ns| at_ns <= self.at_ns);
        let is_true = match failure.kind {
            FailureKind::Application => {
                let is_off =
                    |member: &MemberFacts| until(member.differed_ns) || until(member.deserted_ns);
                until(accused.aborted_ns) || is_off(accused) || is_off(reporter)
            }
            FailureKind::Lost => self.explains_loss(failure) || self.explains_silence(failure),
            FailureKind::Silent => self.explains_silence(failure),
            FailureKind::Stalled => self.judge_stall(failure, accused, reporter)?,
            // No member breaks the protocol here.
            _ => false,
        };
        if !is_true {
            return Err("nothing has happened that explains this".to_owned());
        }
        let is_hit = |fault: &Injected| match &fault.what {
            TeamFault::Member(MemberFault::Partition { .. }) => {
                fault.what.separates(blamed, failure.reporter)
            }
            what => what.members().contains(&blamed),
        };
        if reporter.differed_ns.is_some() || self.facts.faults_until(self.at_ns).any(is_hit) {
            blame.exact += 1;
        } else {
            blame.behind += 1;
        }
        Ok(())
    }

    /// Returns whether the other end has died, or the connection was reset.
    fn explains_loss(&self, failure: &Failure) -> bool {
        let (blamed, reporter) = (failure.member.unwrap_or(u32::MAX), failure.reporter);
        self.facts.faults_until(self.at_ns).any(|fault| match &fault.what {
            TeamFault::Member(MemberFault::Kill { member }) | TeamFault::Drop { member } => {
                *member == blamed
            }
            TeamFault::Member(MemberFault::Reset { members }) => {
                members.contains(&blamed) && members.contains(&reporter)
            }
            _ => false,
        })
    }

    /// Returns whether one end of the connection was stopped, or nothing passed it, for longer than the silence timeout.
    fn explains_silence(&self, failure: &Failure) -> bool {
        let (blamed, reporter) = (failure.member.unwrap_or(u32::MAX), failure.reporter);
        let timeout_ns = self.scenario.network.silence_timeout_ms * 1_000_000;
        let is_silent = |what: &TeamFault| {
            !matches!(what, TeamFault::Member(MemberFault::Pause { .. }))
                && what.separates(blamed, reporter)
        };
        self.held_ns(is_silent) >= timeout_ns
    }

    /// Returns whether something was delayed for at least half of the timeout, or a member will never call what the others
    /// wait for. Shorter delays must not fail a team.
    fn explains_stall(&self) -> bool {
        let is_off = |member: &MemberFacts| {
            let at_ns = [member.deserted_ns, member.differed_ns].into_iter().flatten().min();
            at_ns.is_some_and(|at_ns| at_ns <= self.at_ns)
        };
        self.held_ns(|_| true) >= self.scenario.timeout_ns / 2
            || self.facts.members.iter().any(is_off)
    }

    /// Checks that whoever a timeout names was waited for: a fault has hit it, or it has not completed the operation either.
    ///
    /// Errors: it has. Returns whether something explains the timeout.
    fn judge_stall(
        &self,
        failure: &Failure,
        accused: &MemberFacts,
        reporter: &MemberFacts,
    ) -> Result<bool, String> {
        let Some((timed_out_ns, operation)) = reporter.timed_out else {
            return Err("its reporter's application has not timed out".to_owned());
        };
        let blamed = failure.member.unwrap_or(u32::MAX);
        let mut faults = self.facts.faults_until(self.at_ns);
        let is_hit = |fault: &Injected| match fault.what {
            // An application that is impatient does not know yet.
            TeamFault::TimeOut { member } => member == failure.reporter,
            _ => {
                fault.what.members().contains(&blamed)
                    || fault.what.separates(blamed, failure.reporter)
            }
        };
        let done_ns = match operation {
            Some(operation) => accused.completed_ns.get(operation as usize).copied().flatten(),
            None => accused.left_ns,
        };
        // What members tell each other is believed for four intervals.
        let known_ns = 5 * self.scenario.ask_after_ns;
        if done_ns.is_some_and(|at_ns| at_ns + known_ns < timed_out_ns) && !faults.any(is_hit) {
            return Err(format!("member {blamed} was done by then"));
        }
        let is_impatient = |fault: &Injected| matches!(fault.what, TeamFault::TimeOut { member } if member == failure.reporter);
        Ok(self.explains_stall() || self.facts.faults_until(self.at_ns).any(is_impatient))
    }

    /// Returns how long faults of a kind have delayed something so far.
    fn held_ns(&self, is_of_kind: impl Fn(&TeamFault) -> bool) -> u64 {
        let faults = self.facts.faults_until(self.at_ns).filter(|fault| is_of_kind(&fault.what));
        faults.map(|fault| fault.what.holds_ns().min(self.at_ns - fault.at_ns)).sum()
    }
}
