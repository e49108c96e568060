//! One member of a team, with its application: makes calls, waits, times out, leaves, and records what it is told.

use std::{collections::VecDeque, time::Duration};

use team::{Error, Memory, Team};
use transport_sim::{SimLink, SimNet};

use super::{
    calls::{CallKind, CallPlan, FoldPlan, OtherCall},
    canary::TeamCanary,
    facts::{Facts, TeamEnd},
    scenario::{TeamMemberPlan, TeamScenario},
    values::Values,
};
use crate::{
    dice::Dice,
    node::{Node, Watch},
};

/// Distinguishes these random choices from all others of a seed.
const PURPOSE: u64 = 21;

/// Everything around a member.
pub(super) struct Here<'a, 'b> {
    pub(super) now_ns: u64,
    pub(super) facts: &'a mut Facts<'b>,
    pub(super) network: &'a SimNet,
}

/// What a member is doing.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Stage {
    /// It has not joined.
    Absent,
    Calling,
    /// It has left, at this time, and waits for the others.
    Leaving(u64),
    /// It was told how the team ended.
    Over,
}

/// An operation that it has called.
struct UnderWay {
    number: u64,
    called_ns: u64,
    is_lent: bool,
}

/// One member.
pub(super) struct Member<'a> {
    scenario: &'a TeamScenario,
    plan: &'a TeamMemberPlan,
    rank: usize,
    canary: Option<TeamCanary>,
    /// What it needs to join.
    joining: Option<(Node, Vec<(u32, SimLink)>)>,
    /// `None` before it joins and once it is dead.
    team: Option<Team<Node>>,
    watch: Watch,
    stage: Stage,
    /// How many of the planned calls it has made, or left out.
    made: usize,
    under_way: VecDeque<UnderWay>,
    lent: Vec<u8>,
    /// How its next call differs from the plan.
    change: Option<OtherCall>,
    /// Until then it computes.
    computes_until_ns: u64,
    dice: Dice,
}

impl<'a> Member<'a> {
    pub(super) fn new(
        scenario: &'a TeamScenario,
        rank: usize,
        canary: Option<TeamCanary>,
        node: Node,
        watch: Watch,
    ) -> Self {
        Self {
            scenario,
            plan: &scenario.members[rank],
            rank,
            canary,
            joining: Some((node, Vec::new())),
            team: None,
            watch,
            stage: Stage::Absent,
            made: 0,
            under_way: VecDeque::new(),
            lent: Vec::new(),
            change: None,
            computes_until_ns: 0,
            dice: Dice::new(scenario.seed ^ (rank as u64) << 48, PURPOSE),
        }
    }

    /// Gives it a link to another member, before it joins.
    pub(super) fn add_link(&mut self, to: u32, link: SimLink) {
        if let Some((_, links)) = &mut self.joining {
            links.push((to, link));
        }
    }

    /// Returns whether it is alive.
    pub(super) fn lives(&self) -> bool {
        self.joining.is_some() || self.team.is_some()
    }

    /// Returns whether it was told how the team ended, and its links have ended.
    pub(super) fn has_ended(&self) -> bool {
        self.stage == Stage::Over && self.team.as_ref().is_none_or(Team::has_ended)
    }

    pub(super) fn watch(&self) -> &Watch {
        &self.watch
    }

    /// Joins the team.
    pub(super) fn start(&mut self, here: &mut Here<'_, '_>) {
        let Some((node, links)) = self.joining.take() else { return };
        here.facts.members[self.rank].started_ns = Some(here.now_ns);
        match Team::new(node, self.scenario.settings(self.rank as u32), links) {
            Ok(team) => (self.team, self.stage) = (Some(team), Stage::Calling),
            Err(error) => here.facts.violated(format!("member {}: {error}", self.rank)),
        }
        self.compute(here.now_ns);
        self.look(here);
    }

    /// Dies.
    pub(super) fn die(&mut self) {
        (self.joining, self.team) = (None, None);
        self.stage = Stage::Over;
    }

    /// Does what can be done now.
    pub(super) fn look(&mut self, here: &mut Here<'_, '_>) {
        while let Some(team) = &mut self.team {
            team.progress(&mut self.lent, Duration::ZERO);
            if !self.act(here) {
                break;
            }
        }
        let breaches = self.watch.take_breaches();
        let named = |breach| format!("member {}: {breach}", self.rank);
        here.facts.violations.extend(breaches.into_iter().map(named));
    }

    /// Returns when it calls next, if it computes until then.
    pub(super) fn next_call_ns(&self, now_ns: u64) -> Option<u64> {
        let is_computing = self.stage == Stage::Calling && self.computes_until_ns > now_ns;
        is_computing.then_some(self.computes_until_ns)
    }

    /// Returns whether it has to be polled soon to tell the others what it waits for.
    pub(super) fn is_waiting(&self) -> bool {
        self.stage == Stage::Calling && self.team.as_ref().is_some_and(Team::is_waiting)
    }

    /// Returns when its patience is over.
    pub(super) fn timeout_ns(&self) -> Option<u64> {
        let since_ns = match self.stage {
            Stage::Calling => self.under_way.front()?.called_ns,
            Stage::Leaving(since_ns) => since_ns,
            Stage::Absent | Stage::Over => return None,
        };
        Some(since_ns + self.scenario.timeout_ns)
    }

    /// Times out, if it has waited for long enough.
    pub(super) fn time_out_in_time(&mut self, here: &mut Here<'_, '_>) {
        self.look(here);
        if self.timeout_ns().is_none_or(|at_ns| at_ns > here.now_ns) {
            return;
        }
        if self.time_out(here) {
            return;
        }
        // The others do not leave, or the links take long to close.
        self.stage = Stage::Leaving(here.now_ns);
        here.network.remark(|| format!("member {} waits for the others no longer", self.rank));
        here.facts.members[self.rank].timed_out = Some((here.now_ns, None));
        if let Some(team) = &mut self.team {
            team.time_out(Duration::from_nanos(self.scenario.timeout_ns));
        }
        self.look(here);
    }

    /// Waits for its oldest operation no longer. Returns `false` if there is none.
    pub(super) fn time_out(&mut self, here: &mut Here<'_, '_>) -> bool {
        let (Stage::Calling, Some(oldest), Some(team)) =
            (self.stage, self.under_way.front(), &mut self.team)
        else {
            return false;
        };
        here.network.remark(|| format!("member {} times out in {}", self.rank, oldest.number));
        here.facts.members[self.rank].timed_out = Some((here.now_ns, Some(oldest.number)));
        team.time_out(Duration::from_nanos(self.scenario.timeout_ns));
        if team.failure().is_none() {
            here.facts.violated(format!("member {} has timed out and not failed", self.rank));
        }
        self.look(here);
        true
    }

    /// Aborts the team. Does nothing if it is not a member now.
    pub(super) fn abort(&mut self, here: &mut Here<'_, '_>) -> bool {
        let (Stage::Calling | Stage::Leaving(_), Some(team)) = (self.stage, &mut self.team) else {
            return false;
        };
        here.facts.members[self.rank].aborted_ns = Some(here.now_ns);
        team.abort("the application has had enough");
        self.look(here);
        true
    }

    /// Leaves the team whatever is under way. Returns whether it is a member now.
    pub(super) fn leave_early(&mut self, here: &mut Here<'_, '_>) -> bool {
        if self.stage != Stage::Calling {
            return false;
        }
        here.facts.members[self.rank].deserted_ns = Some(here.now_ns);
        self.leave(here);
        // An operation was not complete.
        if self.team.as_ref().is_some_and(|team| team.failure().is_some()) {
            here.facts.members[self.rank].aborted_ns = Some(here.now_ns);
        }
        self.look(here);
        true
    }

    /// Makes another call next time.
    pub(super) fn differ(&mut self, by: OtherCall) {
        self.change = Some(by);
    }

    /// Does one thing that its application does next. Returns `false` if there is none.
    fn act(&mut self, here: &mut Here<'_, '_>) -> bool {
        if self.stage == Stage::Over {
            return false;
        }
        if self.take_complete(here) {
            return true;
        }
        let Some(team) = &mut self.team else { return false };
        if let Some(failure) = team.failure().cloned() {
            here.network.remark(|| format!("member {}: {failure}", self.rank));
            let again = team.start(collective::Kind::Barrier, 0, 0, None, Memory::Lent(&mut []));
            if !matches!(&again, Err(Error::Failed(again)) if *again == failure) {
                here.facts.violated(format!("member {} reports {again:?} later", self.rank));
            }
            here.facts.end(self.rank, here.now_ns, TeamEnd::Failed(failure));
            (self.stage, self.change) = (Stage::Over, None);
            self.under_way.clear();
            return true;
        }
        match self.stage {
            Stage::Calling if self.made <= self.scenario.calls.len() => {
                let is_ready = team.is_ready().unwrap_or(false);
                let is_free = is_ready && self.under_way.len() < self.plan.window;
                is_free && self.computes_until_ns <= here.now_ns && self.call(here)
            }
            Stage::Calling if self.under_way.is_empty() => self.leave(here),
            Stage::Leaving(_) if team.has_ended() => {
                here.facts.end(self.rank, here.now_ns, TeamEnd::Closed);
                self.stage = Stage::Over;
                true
            }
            _ => false,
        }
    }

    /// Takes the memory of operations that are complete. Returns whether there was one.
    fn take_complete(&mut self, here: &mut Here<'_, '_>) -> bool {
        let Some(team) = &mut self.team else { return false };
        let is_complete = |it: &UnderWay| matches!(team.is_complete(it.number), Ok(true));
        let Some(index) = self.under_way.iter().position(is_complete) else { return false };
        let Some(UnderWay { number, called_ns, is_lent }) = self.under_way.remove(index) else {
            return false;
        };
        let rank = self.rank;
        here.network.remark(|| format!("member {rank} has completed {number}"));
        let taken = team.take(number);
        let memory = match (taken, is_lent) {
            (Some(_), true) => std::mem::take(&mut self.lent),
            (Some(memory), false) => memory,
            (None, _) => {
                here.facts.violated(format!("member {rank} has no memory of {number}"));
                return false;
            }
        };
        here.facts.complete(rank, number as usize, memory, called_ns..here.now_ns);
        true
    }

    /// Makes the next call.
    fn call(&mut self, here: &mut Here<'_, '_>) -> bool {
        let planned = |made: usize| self.scenario.call(made as u64);
        let change = self.change.take();
        if change.is_some() {
            here.facts.members[self.rank].differed_ns.get_or_insert(here.now_ns);
        }
        let call = match change {
            None => planned(self.made),
            Some(OtherCall::Extra) => CallPlan::BARRIER,
            Some(OtherCall::Missing) => {
                self.made += 1;
                if self.made > self.scenario.calls.len() {
                    return true;
                }
                planned(self.made)
            }
            Some(change) => planned(self.made).changed(change, self.scenario.size()),
        };
        self.made += usize::from(change != Some(OtherCall::Extra));
        self.start_call(call, here);
        self.compute(here.now_ns);
        true
    }

    fn start_call(&mut self, call: CallPlan, here: &mut Here<'_, '_>) {
        let Some(team) = &mut self.team else { return };
        let rank = self.rank;
        let number = here.facts.members[rank].called.len() as u64;
        here.network.remark(|| format!("member {rank} calls {number}: {:?}", call.call()));
        let by = match (call.kind.fold(), self.canary) {
            (Some(FoldPlan::Function(function)), Some(TeamCanary::FoldsAsTheyCome))
                if self.dice.percent(20) =>
            {
                Some(function.exchanged().into())
            }
            _ => call.reduction().unwrap_or_default(),
        };
        let needed = team.memory_bytes(call.team_kind(), call.root, call.bytes(), by.as_ref());
        let Ok(bytes) = needed else {
            return here.facts.violated(format!("member {rank}: {needed:?} for {call:?}"));
        };
        let mut memory = Values(self.scenario).memory(number, rank as u32, &call, bytes);
        if self.canary == Some(TeamCanary::ShiftsParts)
            && call.kind == CallKind::Scatter
            && self.dice.percent(20)
        {
            // Of a root; other members have a part or nothing.
            let part = (call.bytes() as usize).min(memory.len());
            memory.rotate_left(part);
        }
        let is_long = team.is_long(call.team_kind(), call.bytes(), by.as_ref());
        let is_lent = self.plan.lends && !is_long;
        let memory = if is_lent {
            self.lent = memory;
            Memory::Lent(&mut self.lent)
        } else {
            Memory::Owned(memory)
        };
        let started = team.start(call.team_kind(), call.root, call.bytes(), by, memory);
        here.facts.members[rank].called.push(call);
        match started {
            Ok(started) if started == number => {
                let called_ns = here.now_ns;
                self.under_way.push_back(UnderWay { number, called_ns, is_lent });
            }
            Err(Error::Failed(_)) => {}
            other => here.facts.violated(format!("member {rank}: {other:?} instead of {number}")),
        }
    }

    fn leave(&mut self, here: &mut Here<'_, '_>) -> bool {
        let Some(team) = &mut self.team else { return false };
        here.network.remark(|| format!("member {} leaves", self.rank));
        match team.leave() {
            Ok(()) => {
                here.facts.members[self.rank].left_ns = Some(here.now_ns);
                self.stage = Stage::Leaving(here.now_ns);
            }
            Err(Error::Failed(_)) => {}
            Err(error) => here.facts.violated(format!("member {}: {error}", self.rank)),
        }
        true
    }

    /// Computes before the next call.
    fn compute(&mut self, now_ns: u64) {
        self.computes_until_ns = now_ns + self.dice.between(0, self.plan.compute_ns_max);
    }
}
