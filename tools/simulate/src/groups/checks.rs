//! Checks how groups ended, from the recorded facts alone.

use rdmc::{Algorithm, Counters, Failure, FailureKind, SmallMessages};

use super::{
    book::Book,
    scenario::{Fault, Scenario},
};
use crate::{
    counts::{Blame, End, counts},
    faults::InjectedFault,
    member_fault::MemberFault,
};

/// Checks, when a group has ended at a member, that what this end implies for all other members is
/// true.
pub fn ended(book: &mut Book, group: usize, rank: u32) {
    let facts = &book.groups[group];
    let violation = match &facts.members[rank as usize].end {
        Some((_, End::Closed)) => {
            let all = facts.sent.len() as u64;
            let lacking = facts.members.iter().position(|member| member.completed < all);
            lacking.map(|lacking| {
                let has = facts.members[lacking].completed;
                format!("is closed, but member {lacking} has {has} of {all} messages")
            })
        }
        Some((_, End::Failed(Failure { delivered, .. }))) => {
            let (in_place, lacking) = facts.in_place();
            (*delivered > in_place).then(|| {
                format!("reports {delivered} messages at all, but member {lacking} has {in_place}")
            })
        }
        None => None,
    };
    if let Some(violation) = violation {
        book.violated(format!("group {group} at member {rank} {violation}"));
    }
}

counts! {
    /// How exact the counts of messages at all members were after failures.
    pub struct Reported {
        /// How many members reported the number that was true at the end.
        pub exact: u64,
        /// How many members reported less.
        pub below: u64,
        /// How many groups there were in which all members had to report the true number.
        pub had_to_be_exact: u64,
    }
}

/// Checks counts. Where an application has failed a group and no fault was injected, and every
/// member has reported before any could have reached its deadline for the count, all counts must be
/// exact.
pub fn counts(book: &mut Book, scenario: &Scenario) -> Reported {
    let mut counts = Reported::default();
    let mut wrong = Vec::new();
    for (index, group) in book.groups.iter().enumerate() {
        let (in_place, _) = group.in_place();
        let failures = group.members.iter().filter_map(|member| match &member.end {
            Some((at_ns, End::Failed(failure))) => Some((*at_ns, failure)),
            _ => None,
        });
        let failures: Vec<(u64, &Failure)> = failures.collect();
        let exact = failures.iter().filter(|(_, failure)| failure.delivered == in_place).count();
        counts.exact += exact as u64;
        counts.below += (failures.len() - exact) as u64;
        let Some(since_ns) = group.members.iter().filter_map(|member| member.aborted_ns).min()
        else {
            continue;
        };
        // A clock may be fast.
        let until_ns = since_ns + scenario.groups[index].count_timeout_ns() / 10 * 9;
        let is_by_application = |&(at_ns, failure): &(u64, &Failure)| {
            at_ns < until_ns && failure.kind == FailureKind::Application
        };
        let only_applications = book.faults.iter().all(|fault| fault.what.is_of_application());
        if !only_applications
            || failures.len() < group.members.len()
            || !failures.iter().all(is_by_application)
        {
            continue;
        }
        counts.had_to_be_exact += 1;
        if exact < failures.len() {
            wrong.push(format!("group {index}: {in_place} messages are at all, but {failures:?}"));
        }
    }
    book.violations.extend(wrong);
    counts
}

/// Checks, for runs without faults, that every receiver has got every block and every small message
/// once.
pub fn nothing_twice(book: &mut Book, scenario: &Scenario, counters: &[Counters]) {
    let (size, members_max) = (scenario.size(), SmallMessages::default().members_max);
    for (rank, counters) in (0..).zip(counters) {
        let (mut blocks, mut small) = (0, 0);
        for (plan, group) in scenario.groups.iter().zip(&book.groups) {
            // Where switches copy, all messages are transferred the same way.
            let are_written = plan.algorithm != Algorithm::InSwitch.name();
            let has_room = are_written && (2..=members_max).contains(&size);
            let limit = plan.small.filter(|_| has_room && !plan.verify);
            for &bytes in group.sent.iter().filter(|_| rank != plan.root) {
                if limit.is_some_and(|(_, bytes_max)| bytes <= bytes_max as usize) {
                    small += 1;
                } else {
                    blocks += (bytes as u64).div_ceil(plan.block_bytes).max(1);
                }
            }
        }
        let got = (counters.blocks_received, counters.small_received);
        if got != (blocks, small) {
            book.violated(format!(
                "member {rank} has got {got:?} blocks and small messages instead of {:?}",
                (blocks, small)
            ));
        }
    }
}

/// Checks that every failure has a true cause, and is the same at the member that is named as its
/// reporter.
pub fn failures(book: &mut Book, scenario: &Scenario) -> Blame {
    let mut blame = Blame::default();
    let mut wrong = Vec::new();
    for (index, group) in book.groups.iter().enumerate() {
        for (rank, member) in group.members.iter().enumerate() {
            let Some((at_ns, End::Failed(failure))) = &member.end else { continue };
            let judged = Trial { book, scenario, index, at_ns: *at_ns }.judge(failure, &mut blame);
            if let Err(why) = judged {
                wrong.push(format!("member {rank}: {failure}; but {why}"));
            }
        }
    }
    book.violations.extend(wrong);
    blame
}

type Injected = InjectedFault<Fault>;

/// One failure at one member.
struct Trial<'a> {
    book: &'a Book,
    scenario: &'a Scenario,
    /// Index of the group.
    index: usize,
    at_ns: u64,
}

impl Trial<'_> {
    fn judge(&self, failure: &Failure, blame: &mut Blame) -> Result<(), String> {
        let group = &self.book.groups[self.index];
        if failure.group != self.scenario.groups[self.index].number {
            return Err("it is another group's".to_owned());
        }
        let Some(blamed) = failure.member else { return Err("it names no member".to_owned()) };
        let (Some(accused), Some(reporter)) =
            (group.members.get(blamed as usize), group.members.get(failure.reporter as usize))
        else {
            return Err("it names members that do not exist".to_owned());
        };
        // The reporter's group has failed for the same reason.
        let same = |end: &End<Failure>| match end {
            End::Failed(other) => {
                (other.member, other.kind, other.reporter)
                    == (failure.member, failure.kind, failure.reporter)
            }
            End::Closed => false,
        };
        if let Some((_, end)) = &reporter.end
            && !same(end)
        {
            return Err(format!("member {} itself reports {end:?}", failure.reporter));
        }
        let faults: Vec<&Injected> = self.book.faults_until(self.at_ns).collect();
        let is_true = match failure.kind {
            FailureKind::Application => accused.aborted_ns.is_some_and(|at| at <= self.at_ns),
            FailureKind::Lost => faults.iter().any(|fault| {
                explains_loss(&fault.what, failure) || self.explains_silence(fault, failure)
            }),
            FailureKind::Silent => faults.iter().any(|fault| self.explains_silence(fault, failure)),
            FailureKind::Stalled => self.explains_stall(&faults),
            FailureKind::Differs => {
                faults.iter().any(|fault| matches!(fault.what, Fault::Corrupt { .. }))
            }
            FailureKind::Memory => accused.in_use_ns.is_some_and(|at| at <= self.at_ns),
            // No member breaks the protocol here.
            _ => false,
        };
        if !is_true {
            return Err("nothing has happened that explains this".to_owned());
        }
        // A failure may name either of two members that a partition separates.
        let is_apart = |what: &Fault| match what {
            Fault::Member(partition @ MemberFault::Partition { .. }) => {
                partition.separates(blamed, failure.reporter)
            }
            _ => what.members().contains(&blamed),
        };
        if faults.iter().any(|fault| is_apart(&fault.what))
            || accused.aborted_ns.is_some()
            || accused.in_use_ns.is_some()
        {
            blame.exact += 1;
        } else {
            blame.behind += 1;
        }
        Ok(())
    }

    /// Returns whether this fault explains silence: one end of the connection was stopped, or
    /// nothing passed it, for longer than the silence timeout.
    fn explains_silence(&self, fault: &Injected, failure: &Failure) -> bool {
        let (blamed, reporter) = (failure.member.unwrap_or(u32::MAX), failure.reporter);
        let is_silent = match &fault.what {
            Fault::Member(MemberFault::Pause { .. }) => false,
            Fault::Member(fault) => fault.separates(blamed, reporter),
            _ => false,
        };
        let timeout_ns = self.scenario.network.silence_timeout_ms * 1_000_000;
        is_silent
            && self.is_held_for(fault, timeout_ns, |other| other.what.kind() == fault.what.kind())
    }

    /// Returns whether these faults explain a stall: they delayed something for at least half of
    /// the stall timeout. Shorter delays must not fail a group.
    fn explains_stall(&self, faults: &[&Injected]) -> bool {
        let limit_ns = self.scenario.groups[self.index].stall_timeout_ms * 1_000_000 / 2;
        faults
            .iter()
            .any(|fault| fault.what.holds_ns() > 0 && self.is_held_for(fault, limit_ns, |_| true))
    }

    /// Returns whether this fault, together with similar ones, has delayed something for this long.
    fn is_held_for(
        &self,
        fault: &Injected,
        limit_ns: u64,
        like: impl Fn(&Injected) -> bool,
    ) -> bool {
        let held = |fault: &Injected| fault.what.holds_ns().min(self.at_ns - fault.at_ns);
        let all: u64 =
            self.book.faults_until(self.at_ns).filter(|other| like(other)).map(held).sum();
        held(fault) > 0 && all >= limit_ns
    }
}

/// Returns whether this fault explains a lost connection: its other end died, it was reset, or the
/// other end closed it for silence while this member was stopped.
fn explains_loss(what: &Fault, failure: &Failure) -> bool {
    let (blamed, reporter) = (failure.member.unwrap_or(u32::MAX), failure.reporter);
    match what {
        Fault::Member(MemberFault::Kill { member }) => *member == blamed,
        Fault::Member(MemberFault::Reset { members }) => {
            members.contains(&blamed) && members.contains(&reporter)
        }
        _ => false,
    }
}
