//! Runs a scenario: advances virtual time, runs members, and injects faults.

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
    counts::{Basics, Ends},
    dice::Dice,
    driver::{Driver, World},
    member_fault::MemberFault,
    node::{Bug, Node},
    subject::{Options, Outcome},
};

/// Distinguishes these random choices from all others of a seed.
const PURPOSE: u64 = 23;

/// Runs a scenario to its end, or to the first violation. A panic counts as one.
pub(super) fn run(
    scenario: &TeamScenario,
    options: Options<TeamCanary>,
) -> Outcome<TeamCounts, TeamEnd> {
    scenario.network.run(scenario.seed, options.trace_events, |network| {
        scenario.check()?;
        let mut world = Members::new(scenario, options, network);
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

struct Members<'a> {
    scenario: &'a TeamScenario,
    options: Options<TeamCanary>,
    driver: Driver<'a, Due, TeamFault>,
    all: Vec<Member<'a>>,
    facts: Facts<'a>,
}

impl<'a> Members<'a> {
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
        let dice = Dice::new(scenario.seed, PURPOSE);
        let (faults, bound_ns) = (&scenario.faults, scenario.moving_ns());
        let driver = Driver::new(network, dice, members.len(), faults, bound_ns);
        let facts = Facts::new(scenario);
        let mut world = Self { scenario, options, driver, all: members, facts };
        for (rank, plan) in scenario.members.iter().enumerate() {
            if let Some(rate) = plan.rate_bytes_per_s {
                network.set_port_rate(rank, rate);
            }
            world.plan(rank, Due::Start, plan.start_ns);
        }
        world
    }

    /// Returns whether a member is alive and not stopped for ever.
    fn can_end(&self, rank: usize) -> bool {
        self.all[rank].lives() && !self.driver.is_held_for_ever(rank)
    }

    fn is_living(&self, rank: usize) -> bool {
        self.can_end(rank) && !self.all[rank].has_ended()
    }

    /// Has a member act, then plans what it does next.
    fn with<R>(
        &mut self,
        rank: usize,
        act: impl FnOnce(&mut Member<'a>, &mut Here<'_, 'a>) -> R,
    ) -> R {
        let now_ns = self.driver.now_ns();
        let mut here = Here { now_ns, facts: &mut self.facts, network: self.driver.network };
        let member = &mut self.all[rank];
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

    /// Makes a fault happen. Returns `false` if it cannot.
    fn happens(&mut self, what: &TeamFault) -> bool {
        match what {
            TeamFault::Member(fault) => {
                fault.inject(self.driver.network, self.scenario.size());
                if let Some((member, for_ns)) = fault.stops() {
                    self.driver.hold(member, for_ns);
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
                self.all[*member as usize].differ(*by);
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
        !self.driver.is_held(rank) && self.with(rank, act)
    }

    fn kill(&mut self, rank: usize) {
        self.driver.network.kill(rank);
        self.all[rank].die();
        self.driver.agenda.forget(rank);
    }

    /// Lets connections close, then checks for leaks and judges the facts.
    fn end(mut self) -> Outcome<TeamCounts, TeamEnd> {
        let ends = self.facts.members.iter().filter_map(|member| Some(member.end.as_ref()?.0));
        let has_deadline = self.driver.bound_ns > self.scenario.moving_ns();
        let seed = self.scenario.seed;
        let slowest = self.driver.slowest(ends.max().unwrap_or(0), has_deadline, seed);
        let virtual_ns = self.driver.now_ns();
        if self.facts.violations.is_empty() {
            self.check_leaks();
        }
        let blame = checks::judge(&mut self.facts, self.scenario);
        let members = self.facts.members.into_iter();
        let ends: Vec<_> = members.filter_map(|member| Some(member.end?.1)).collect();
        let faults = self.facts.faults.iter().map(|fault| fault.what.kind());
        let counts = TeamCounts {
            basics: Basics::new(self.driver.step, virtual_ns, faults),
            ends: Ends::of(&ends, |failure| failure.kind),
            completed: self.facts.completed,
            slowest,
            blame,
        };
        Outcome { violations: self.facts.violations, counts, ends, ..Outcome::default() }
    }

    fn check_leaks(&mut self) {
        while self.driver.network.step().is_some() {}
        for rank in 0..self.all.len() {
            if !self.can_end(rank) {
                continue;
            }
            self.with(rank, Member::look);
            while self.all[rank].watch().has_more() {
                self.with(rank, Member::look);
            }
            let leaks = self.all[rank].watch().leaks();
            if !leaks.is_empty() {
                self.facts.violated(format!("member {rank}: {leaks} at the end"));
            }
        }
    }
}

impl<'a> World<'a> for Members<'a> {
    type Due = Due;
    type Fault = TeamFault;

    fn driver(&mut self) -> &mut Driver<'a, Due, TeamFault> {
        &mut self.driver
    }

    fn violations(&mut self) -> &mut Vec<String> {
        &mut self.facts.violations
    }

    fn is_over(&self) -> bool {
        !(0..self.all.len()).any(|rank| self.is_living(rank))
    }

    fn living(&self) -> String {
        let living = (0..self.all.len()).filter(|&rank| self.is_living(rank));
        format!("members {:?}", living.collect::<Vec<_>>())
    }

    fn will_be_disturbed(&self) -> bool {
        let disturbs = |due| matches!(due, Due::Start | Due::Call);
        self.driver.agenda.planned().any(|(rank, due)| self.can_end(rank) && disturbs(due))
    }

    fn plan(&mut self, rank: usize, due: Due, at_ns: u64) {
        // Nothing may depend on the order within one instant, so it is random.
        let order = self.driver.dice.below(u64::MAX);
        self.driver.agenda.plan(rank, due, at_ns, || order);
    }

    fn notify(&mut self, rank: usize) {
        match self.driver.polls_ns(rank, self.scenario.members[rank].poll_delay_ns_max) {
            Some(at_ns) => self.plan(rank, Due::Look, at_ns),
            None => self.with(rank, Member::look),
        }
    }

    fn happen(&mut self, rank: usize, due: Due) {
        if matches!(due, Due::Start | Due::Call) {
            self.driver.disturb(0);
        }
        match due {
            Due::Start => self.with(rank, Member::start),
            Due::Look | Due::Call | Due::Ask => self.with(rank, Member::look),
            Due::TimeOut => self.with(rank, Member::time_out_in_time),
        }
    }

    fn inject(&mut self, what: &'a TeamFault) {
        let (at_ns, holds_ns) = (self.driver.now_ns(), what.holds_ns());
        if !self.happens(what) {
            return;
        }
        self.facts.faults.push(Injected { at_ns, what: what.clone() });
        self.driver.disturb(holds_ns);
        let has_deadline =
            holds_ns > 0 || matches!(what, TeamFault::Leave { .. } | TeamFault::Differ { .. });
        if has_deadline {
            self.driver.bound_ns = self.scenario.deadlines_ns();
        }
    }
}
