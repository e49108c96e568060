//! The recorded facts of a run, which the checks judge, and what is checked at once: results.

use std::ops::Range;

use team::Failure;

use super::{
    calls::{CallKind, CallPlan},
    fault::TeamFault,
    scenario::TeamScenario,
    values::Values,
};
use crate::{counts::End, faults::InjectedFault};

/// How a team ends at a member.
pub(super) type TeamEnd = End<Failure>;

/// An injected fault.
pub(super) type Injected = InjectedFault<TeamFault>;

/// Facts of one member.
#[derive(Clone, Default, Debug)]
pub(super) struct MemberFacts {
    pub(super) started_ns: Option<u64>,
    /// What it has called, by number.
    pub(super) called: Vec<CallPlan>,
    /// When each was complete.
    pub(super) completed_ns: Vec<Option<u64>>,
    /// When its application aborted the team, or left it within an operation.
    pub(super) aborted_ns: Option<u64>,
    /// When its application left the team before its last call.
    pub(super) deserted_ns: Option<u64>,
    /// When it left, early or not.
    pub(super) left_ns: Option<u64>,
    /// When it called something else than the others the first time.
    pub(super) differed_ns: Option<u64>,
    /// When its application waited no longer, and for which operation; `None`: for the others to leave.
    pub(super) timed_out: Option<(u64, Option<u64>)>,
    pub(super) end: Option<(u64, TeamEnd)>,
}

/// All facts of one run.
pub(super) struct Facts<'a> {
    scenario: &'a TeamScenario,
    pub(super) members: Vec<MemberFacts>,
    pub(super) faults: Vec<Injected>,
    /// Violations. The first ends the run.
    pub(super) violations: Vec<String>,
    /// Operations that were complete at members.
    pub(super) completed: u64,
    /// Results by number, once known; that of an operation which cannot be predicted is the first member's.
    results: Vec<Option<Vec<u8>>>,
}

impl<'a> Facts<'a> {
    pub(super) fn new(scenario: &'a TeamScenario) -> Self {
        Self {
            scenario,
            members: vec![MemberFacts::default(); scenario.members.len()],
            faults: Vec::new(),
            violations: Vec::new(),
            completed: 0,
            results: Vec::new(),
        }
    }

    pub(super) fn violated(&mut self, what: impl Into<String>) {
        self.violations.push(what.into());
    }

    /// Returns the faults that were injected until a moment.
    pub(super) fn faults_until(&self, at_ns: u64) -> impl Iterator<Item = &Injected> {
        self.faults.iter().filter(move |fault| fault.at_ns <= at_ns)
    }

    /// Returns whether a member has called this operation as all are to call it.
    pub(super) fn is_as_planned(&self, rank: usize, number: usize) -> bool {
        let planned = self.scenario.call(number as u64).call();
        let called = self.members[rank].called.get(number);
        let is_planned = number <= self.scenario.calls.len();
        is_planned && called.is_some_and(|called| called.call().difference(&planned).is_none())
    }

    /// Records that an operation is complete at a member, which was under way for this time, and checks the result, and that its
    /// application has not waited longer than it does.
    pub(super) fn complete(
        &mut self,
        rank: usize,
        number: usize,
        memory: Vec<u8>,
        time_ns: Range<u64>,
    ) {
        self.completed += 1;
        let facts = &mut self.members[rank];
        facts.completed_ns.resize(facts.called.len(), None);
        facts.completed_ns[number] = Some(time_ns.end);
        let stops = |fault: &Injected| {
            fault.what.holds_ns() > 0 && fault.what.members().contains(&(rank as u32))
        };
        let waited_ns = time_ns.end - time_ns.start;
        if waited_ns > self.scenario.timeout_ns && !self.faults.iter().any(stops) {
            let waited_us = waited_ns / 1_000;
            self.violated(format!("member {rank} has waited for {number} for {waited_us} us"));
        }
        if !self.is_as_planned(rank, number) {
            return;
        }
        let call = self.scenario.call(number as u64);
        let waits_for_all = match call.kind {
            CallKind::Broadcast | CallKind::Scatter => false,
            CallKind::Reduce(_) | CallKind::Gather => rank as u32 == call.root,
            CallKind::Barrier
            | CallKind::AllGather
            | CallKind::AllReduce(_)
            | CallKind::ReduceScatter(_) => true,
        };
        let missing = self.members.iter().position(|member| member.called.len() <= number);
        if let Some(missing) = missing.filter(|_| waits_for_all) {
            self.violated(format!(
                "operation {number} is complete at member {rank} and not called by member {missing}"
            ));
        }
        let is_at_root = matches!(call.kind, CallKind::Reduce(_) | CallKind::Gather);
        if !is_at_root || rank as u32 == call.root {
            self.compare(rank, number, &call, memory);
        }
    }

    fn compare(&mut self, rank: usize, number: usize, call: &CallPlan, memory: Vec<u8>) {
        if self.results.len() <= number {
            self.results.resize(number + 1, None);
        }
        let result = &mut self.results[number];
        if result.is_none() {
            *result = Values(self.scenario).result(number as u64, call);
        }
        if result.is_none() && matches!(call.kind, CallKind::ReduceScatter(_)) {
            // Only this member knows its part.
            return;
        }
        let result = result.get_or_insert_with(|| memory.clone());
        let (place, expected) = Values::part_of(rank as u32, call, result);
        let memory = memory.get(place).unwrap_or_default();
        if expected == memory {
            return;
        }
        let first = expected.iter().zip(memory).position(|(one, other)| one != other);
        self.violations.push(format!(
            "operation {number} ({:?}) has a wrong result at member {rank}: {} of {} bytes, the first difference at {first:?}",
            call.kind,
            memory.len(),
            expected.len()
        ));
    }

    /// Records the end at a member.
    pub(super) fn end(&mut self, rank: usize, now_ns: u64, end: TeamEnd) {
        self.members[rank].end = Some((now_ns, end));
    }
}
