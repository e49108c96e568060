//! Runs a scenario: advances virtual time, runs members, and injects faults.

use std::time::Duration;

use transport_sim::SimNet;

use super::{
    canary::TeamCanary,
    checks,
    counts::TeamCounts,
    facts::{Facts, Injected, TeamEnd},
    fault::TeamFault,
    member::{Here, Member},
    planted::Planted,
    scenario::TeamScenario,
};
use crate::{
    agenda::Agenda,
    counts::{Basics, Ends, Slowest},
    dice::Dice,
    member_fault::MemberFault,
    node::{Bug, Node},
    options::Options,
    subject::Outcome,
};

/// Distinguishes these random choices from all others of a seed.
const PURPOSE: u64 = 23;

/// A run with more steps does not terminate.
const STEPS_MAX: u64 = 2_000_000;

/// Runs a scenario to its end, or to the first violation. A panic counts as one.
pub(super) fn run(
    scenario: &TeamScenario,
    options: Options<TeamCanary>,
) -> Outcome<TeamCounts, TeamEnd> {
    scenario.network.run(scenario.seed, options.trace_events, |network| {
        scenario.check()?;
        let mut world = World::new(scenario, options, network);
        world.run_to_end();
        Ok(world.end())
    })
}

/// A planned action of a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    /// It joins the team.
    Start,
    /// It polls for completions.
    Look,
    /// It has computed long enough, and calls the next operation.
    Call,
    /// It may have waited for long enough to tell the others.
    Ask,
    /// Its application's patience may be over.
    TimeOut,
}

struct World<'a> {
    scenario: &'a TeamScenario,
    options: Options<TeamCanary>,
    network: &'a SimNet,
    members: Vec<Member<'a>>,
    /// Until when each is stopped; `u64::MAX`: for ever.
    held_until_ns: Vec<u64>,
    agenda: Agenda<Due>,
    facts: Facts<'a>,
    dice: Dice,
    step: u64,
    faults_done: usize,
    /// When the last known disturbance from outside ended.
    disturbed_ns: u64,
    /// How long the run may last from then on.
    bound_ns: u64,
}

impl<'a> World<'a> {
    fn new(scenario: &'a TeamScenario, options: Options<TeamCanary>, network: &'a SimNet) -> Self {
        let member = |(rank, plan): (usize, &super::scenario::TeamMemberPlan)| {
            let planted = options
                .canary
                .map(|canary| -> Box<dyn Bug> { Box::new(Planted::new(canary, scenario, rank)) });
            let node = Node::new(network.member(), plan.clock, plan.batch, planted);
            Member::new(scenario, rank, options.canary, node)
        };
        let mut members: Vec<Member<'_>> =
            scenario.members.iter().enumerate().map(member).collect();
        for one in 0..scenario.size() {
            let links = scenario.settings(one).links();
            for other in links.into_iter().filter(|&other| other > one) {
                let link = scenario.network.link(one, other);
                let (near, far) = network.connect_with(one as usize, other as usize, link);
                members[one as usize].add_link(other, near);
                members[other as usize].add_link(one, far);
            }
        }
        let mut world = Self {
            scenario,
            options,
            network,
            held_until_ns: vec![0; members.len()],
            members,
            agenda: Agenda::default(),
            facts: Facts::new(scenario),
            dice: Dice::new(scenario.seed, PURPOSE),
            step: 0,
            faults_done: 0,
            disturbed_ns: 0,
            bound_ns: scenario.moving_ns(),
        };
        for (rank, plan) in scenario.members.iter().enumerate() {
            if let Some(rate) = plan.rate_bytes_per_s {
                network.set_port_rate(rank, rate);
            }
            world.plan(rank, Due::Start, plan.start_ns);
        }
        world
    }

    fn now_ns(&self) -> u64 {
        self.network.now().as_nanos() as u64
    }

    fn plan(&mut self, rank: usize, due: Due, at_ns: u64) {
        // Nothing may depend on the order within one instant, so it is random.
        let order = self.dice.below(u64::MAX);
        self.agenda.plan(rank, due, at_ns, || order);
    }

    /// Runs until all members that can end have ended, or a check fails.
    fn run_to_end(&mut self) {
        while self.facts.violations.is_empty() && !self.is_over() {
            self.step += 1;
            self.inject_due();
            if !self.advance() && !self.is_over() {
                self.facts.violated(format!("nothing happens any more: {}", self.living()));
            }
            let is_late = self.now_ns() > self.disturbed_ns + self.bound_ns;
            if is_late && !self.is_over() && !self.will_be_disturbed() {
                let bound_us = self.bound_ns / 1_000;
                let living = self.living();
                self.facts.violated(format!("{bound_us} us after the last disturbance: {living}"));
            }
            if self.step > STEPS_MAX {
                self.facts.violated(format!("{STEPS_MAX} steps: {}", self.living()));
            }
        }
    }

    /// Returns whether a member is alive and not stopped for ever.
    fn can_end(&self, rank: usize) -> bool {
        self.members[rank].lives() && self.held_until_ns[rank] < u64::MAX
    }

    fn is_over(&self) -> bool {
        (0..self.members.len()).all(|rank| !self.can_end(rank) || self.members[rank].has_ended())
    }

    /// Returns whether a member has yet to disturb the run by itself.
    fn will_be_disturbed(&self) -> bool {
        let mut planned = self.agenda.planned();
        planned.any(|(rank, due)| self.can_end(rank) && matches!(due, Due::Start | Due::Call))
    }

    fn living(&self) -> String {
        let is_living = |&rank: &usize| self.can_end(rank) && !self.members[rank].has_ended();
        let living: Vec<usize> = (0..self.members.len()).filter(is_living).collect();
        format!("members {living:?} have not ended")
    }

    /// Executes the next step. Returns `false` if there is none.
    fn advance(&mut self) -> bool {
        let reporting = match self.agenda.next_ns() {
            Some(at_ns) => self.network.run_until(Duration::from_nanos(at_ns)),
            None => self.network.step(),
        };
        if let Some(rank) = reporting {
            self.notify(rank);
            return true;
        }
        let has_more = self.agenda.next_ns().is_some();
        let Some((at_ns, rank, due)) = self.agenda.pop() else { return has_more };
        let held_until_ns = self.held_until_ns[rank];
        if held_until_ns <= at_ns {
            self.happen(rank, due);
        } else if held_until_ns < u64::MAX {
            self.plan(rank, due, held_until_ns);
        }
        true
    }

    /// Schedules a poll of a member for which something has completed.
    fn notify(&mut self, rank: usize) {
        let delay_ns_max = self.scenario.members[rank].poll_delay_ns_max;
        let at_ns = self.now_ns() + self.dice.between(0, delay_ns_max);
        if delay_ns_max == 0 && self.held_until_ns[rank] <= at_ns {
            self.with(rank, Member::look);
        } else {
            self.plan(rank, Due::Look, at_ns);
        }
    }

    fn happen(&mut self, rank: usize, due: Due) {
        if matches!(due, Due::Start | Due::Call) {
            self.disturbed_ns = self.disturbed_ns.max(self.now_ns());
        }
        match due {
            Due::Start => self.with(rank, Member::start),
            Due::Look | Due::Call | Due::Ask => self.with(rank, Member::look),
            Due::TimeOut => self.with(rank, Member::time_out_in_time),
        }
    }

    /// Has a member act, then plans what it does next.
    fn with<R>(
        &mut self,
        rank: usize,
        act: impl FnOnce(&mut Member<'a>, &mut Here<'_, 'a>) -> R,
    ) -> R {
        let now_ns = self.now_ns();
        let mut here = Here { now_ns, facts: &mut self.facts, network: self.network };
        let member = &mut self.members[rank];
        let outcome = act(member, &mut here);
        let has_more = member.lives() && member.watch().has_more();
        let (is_waiting, next_call_ns) = (member.is_waiting(), member.next_call_ns(now_ns));
        let timeout_ns = member.timeout_ns();
        if has_more {
            self.plan(rank, Due::Look, now_ns);
        }
        if let Some(at_ns) = next_call_ns {
            self.plan(rank, Due::Call, at_ns);
        }
        if is_waiting {
            // A clock may be slow.
            self.plan(rank, Due::Ask, now_ns + self.scenario.ask_after_ns / 10 * 11 + 1);
        }
        let times_out = self.options.canary != Some(TeamCanary::MissesTimeouts);
        if let Some(at_ns) = timeout_ns.filter(|_| times_out) {
            // An operation that was called later may have an entry that is too early, which costs one poll.
            self.plan(rank, Due::TimeOut, at_ns.max(now_ns));
        }
        outcome
    }

    /// Injects the faults of the current step.
    fn inject_due(&mut self) {
        while let Some(planned) = self.scenario.faults.get(self.faults_done) {
            if planned.step > self.step {
                return;
            }
            self.faults_done += 1;
            self.inject(&planned.what);
        }
    }

    fn inject(&mut self, what: &TeamFault) {
        let now_ns = self.now_ns();
        self.network.remark(|| format!("step {}: {what:?}", self.step));
        let holds_ns = what.holds_ns();
        let over_ns = if holds_ns == u64::MAX { now_ns } else { now_ns + holds_ns };
        if !self.happens(what) {
            return;
        }
        self.facts.faults.push(Injected { at_ns: now_ns, what: what.clone() });
        self.disturbed_ns = self.disturbed_ns.max(over_ns);
        let has_deadline =
            holds_ns > 0 || matches!(what, TeamFault::Leave { .. } | TeamFault::Differ { .. });
        if has_deadline {
            self.bound_ns = self.scenario.deadlines_ns();
        }
    }

    /// Makes a fault happen. Returns `false` if it cannot.
    fn happens(&mut self, what: &TeamFault) -> bool {
        match what {
            TeamFault::Member(fault) => {
                fault.inject(self.network, self.scenario.size());
                if let Some((member, for_ns)) = fault.stops() {
                    self.hold(member, for_ns);
                }
                if let MemberFault::Kill { member } = fault {
                    self.kill(*member as usize);
                }
            }
            TeamFault::Abort { member } => return self.order(*member, Member::abort),
            TeamFault::Drop { member } => {
                let aborts = self.order(*member, Member::abort);
                if aborts {
                    self.kill(*member as usize);
                }
                return aborts;
            }
            TeamFault::Leave { member } => return self.order(*member, Member::leave_early),
            TeamFault::Differ { member, by } => {
                self.members[*member as usize].differ(*by);
            }
            TeamFault::TimeOut { member } => {
                return self.order(*member, Member::time_out);
            }
        }
        true
    }

    /// Has an application do something, unless its member is stopped. Returns whether it did.
    fn order(
        &mut self,
        rank: u32,
        act: impl FnOnce(&mut Member<'a>, &mut Here<'_, 'a>) -> bool,
    ) -> bool {
        let rank = rank as usize;
        self.held_until_ns[rank] <= self.now_ns() && self.with(rank, act)
    }

    fn hold(&mut self, rank: usize, for_ns: Option<u64>) {
        let until_ns = for_ns.map_or(u64::MAX, |for_ns| self.now_ns() + for_ns);
        self.held_until_ns[rank] = self.held_until_ns[rank].max(until_ns);
    }

    fn kill(&mut self, rank: usize) {
        self.network.kill(rank);
        self.members[rank].die();
        self.agenda.forget(rank);
    }

    /// Lets connections close, then checks for leaks and judges the facts.
    fn end(mut self) -> Outcome<TeamCounts, TeamEnd> {
        let ends = self.facts.members.iter().filter_map(|member| Some(member.end.as_ref()?.0));
        let late_ns = ends.max().unwrap_or(0).saturating_sub(self.disturbed_ns);
        // Only runs that reach deadlines can last long.
        let has_deadline = self.bound_ns > self.scenario.moving_ns();
        let lateness = if has_deadline { late_ns as f64 / self.bound_ns as f64 } else { 0.0 };
        let virtual_ns = self.now_ns();
        if self.facts.violations.is_empty() {
            self.check_leaks();
        }
        let blame = checks::judge(&mut self.facts, self.scenario);
        let members = self.facts.members.into_iter();
        let ends: Vec<_> = members.filter_map(|member| Some(member.end?.1)).collect();
        let faults = self.facts.faults.iter().map(|fault| fault.what.kind());
        let counts = TeamCounts {
            basics: Basics::new(self.step, virtual_ns, faults),
            ends: Ends::of(&ends, |failure| failure.kind),
            completed: self.facts.completed,
            slowest: Slowest { part: lateness, seed: self.scenario.seed },
            blame,
        };
        Outcome { violations: self.facts.violations, counts, ends, ..Outcome::default() }
    }

    fn check_leaks(&mut self) {
        while self.network.step().is_some() {}
        for rank in 0..self.members.len() {
            if !self.can_end(rank) {
                continue;
            }
            self.with(rank, Member::look);
            while self.members[rank].watch().has_more() {
                self.with(rank, Member::look);
            }
            let leaks = self.members[rank].watch().leaks();
            if !leaks.is_empty() {
                self.facts.violated(format!("member {rank}: {leaks} at the end"));
            }
        }
    }
}
