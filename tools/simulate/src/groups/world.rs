//! Runs a scenario: advances virtual time, runs members, and injects faults.

use std::{collections::BTreeMap, time::Duration};

use engine::{Counters, Engine, Event, Failure};
use transport_sim::{SimLink, SimNet};

use super::{
    application::{Application, Here, Order},
    beside::Beside,
    book::Book,
    canary::{Canary, Planted},
    checks,
    counts::GroupCounts,
    scenario::{Fault, Scenario},
};
use crate::{
    agenda::Agenda,
    counts::{Basics, End, Ends, Slowest},
    dice::Dice,
    faults::InjectedFault,
    member_fault::MemberFault,
    node::{Bug, MemberEngine, Node, Watch},
    options::Options,
    subject::Outcome,
};

/// Distinguishes these random choices from all others of a seed.
const PURPOSE: u64 = 4;

/// A run with more steps does not terminate.
const STEPS_MAX: u64 = 2_000_000;

/// Runs a scenario to its end, or to the first violation. A panic counts as one.
pub(super) fn run(
    scenario: &Scenario,
    options: Options<Canary>,
) -> Outcome<GroupCounts, End<Failure>> {
    scenario.network.run(scenario.seed, options.trace_events, |network| {
        let mut world = World::new(scenario, options, network)?;
        world.run_to_end();
        Ok(world.end())
    })
}

/// A scheduled action of a member.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    /// Creates the group of this index.
    Start(usize),
    /// Polls for completions.
    Look,
    /// A deadline of its engine has come.
    Deadline,
    /// A wake-up time of one of its applications has come.
    Wake,
    /// A group of one member is created beside the others.
    Beside,
}

struct Member {
    engine: Option<MemberEngine>,
    watch: Watch,
    /// Links by index of the group, until it is created.
    links: Vec<Vec<(u32, SimLink)>>,
    applications: Vec<Application>,
    /// Groups of one member that come and go.
    beside: Beside,
    /// Whether each group, by index, has been started.
    has_started: Vec<bool>,
    /// Index of the last group that was created with a number.
    current: BTreeMap<u64, usize>,
    /// The member is stopped until this time; `u64::MAX`: for ever.
    held_until_ns: u64,
}

struct World<'a> {
    scenario: &'a Scenario,
    options: Options<Canary>,
    network: &'a SimNet,
    members: Vec<Member>,
    agenda: Agenda<Due>,
    book: Book,
    dice: Dice,
    step: u64,
    faults_done: usize,
    /// When the last known disturbance from outside ended.
    disturbed_ns: u64,
    /// How long the run may last from then on.
    bound_ns: u64,
}

impl<'a> World<'a> {
    fn new(
        scenario: &'a Scenario,
        options: Options<Canary>,
        network: &'a SimNet,
    ) -> Result<Self, String> {
        scenario.check()?;
        let mut members: Vec<Member> = (0..scenario.size())
            .map(|rank| Member::new(scenario, options, network, rank))
            .collect();
        for (rank, plan) in scenario.members.iter().enumerate() {
            if let Some(rate) = plan.rate_bytes_per_s {
                network.set_port_rate(rank, rate);
            }
        }
        for group in 0..scenario.groups.len() {
            for one in 0..scenario.size() {
                let neighbours = scenario.settings(group, one)?.neighbours();
                for other in neighbours.into_iter().filter(|&other| other > one) {
                    let link = scenario.network.link(one, other);
                    let (near, far) = network.connect_with(one as usize, other as usize, link);
                    members[one as usize].links[group].push((other, near));
                    members[other as usize].links[group].push((one, far));
                }
            }
        }
        let mut world = Self {
            scenario,
            options,
            network,
            members,
            agenda: Agenda::default(),
            book: Book::new(scenario),
            dice: Dice::new(scenario.seed, PURPOSE),
            step: 0,
            faults_done: 0,
            disturbed_ns: 0,
            bound_ns: scenario.moving_ns(),
        };
        for (rank, plan) in scenario.members.iter().enumerate() {
            if plan.beside_ns > 0 {
                world.plan(rank, Due::Beside, plan.start_ns + plan.beside_ns);
            }
            for (index, group) in scenario.groups.iter().enumerate() {
                if group.after.is_none() {
                    world.plan(rank, Due::Start(index), plan.start_ns + group.start_ns);
                }
            }
        }
        Ok(world)
    }

    fn now_ns(&self) -> u64 {
        self.network.now().as_nanos() as u64
    }

    fn plan(&mut self, rank: usize, due: Due, at_ns: u64) {
        // Nothing may depend on the order within one instant, so it is random.
        self.agenda.plan(rank, due, at_ns, || self.dice.below(u64::MAX));
    }

    /// Runs until all members that can end have ended, or a check fails.
    fn run_to_end(&mut self) {
        while self.book.violations.is_empty() && !self.is_over() {
            self.step += 1;
            self.inject_due();
            if !self.advance() && !self.is_over() {
                self.book.violated(format!("nothing happens any more: {}", self.describe_living()));
            }
            let is_late = self.now_ns() > self.disturbed_ns + self.bound_ns;
            if is_late && !self.is_over() && !self.is_something_planned() {
                let bound_us = self.bound_ns / 1_000;
                self.book.violated(format!(
                    "{bound_us} us after the last disturbance: {}",
                    self.describe_living()
                ));
            }
            if self.step > STEPS_MAX {
                self.book.violated(format!("{STEPS_MAX} steps: {}", self.describe_living()));
            }
        }
    }

    /// Returns whether a member has yet to disturb the run by itself.
    fn is_something_planned(&self) -> bool {
        let disturbs = |due| matches!(due, Due::Start(_) | Due::Wake);
        let mut planned = self.agenda.planned();
        planned.any(|(rank, due)| self.members[rank].can_end() && disturbs(due))
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
        let held_until_ns = self.members[rank].held_until_ns;
        if held_until_ns > at_ns {
            if held_until_ns < u64::MAX {
                self.plan(rank, due, held_until_ns);
            }
            return true;
        }
        self.happen(rank, due);
        true
    }

    /// Schedules a poll of a member for which something has completed.
    fn notify(&mut self, rank: usize) {
        self.with_started(rank, |it, here| it.look_around(here));
        let delay_ns_max = self.scenario.members[rank].poll_delay_ns_max;
        let at_ns = self.now_ns() + self.dice.between(0, delay_ns_max);
        if delay_ns_max == 0 && self.members[rank].held_until_ns <= at_ns {
            self.look(rank);
        } else {
            self.plan(rank, Due::Look, at_ns);
        }
    }

    fn happen(&mut self, rank: usize, due: Due) {
        match due {
            Due::Start(group) => self.start(rank, group),
            Due::Look | Due::Deadline => self.look(rank),
            Due::Beside => self.create_beside(rank),
            Due::Wake => {
                self.disturbed_ns = self.disturbed_ns.max(self.now_ns());
                self.with_started(rank, |it, here| {
                    if it.next_wake_ns().is_some_and(|at_ns| at_ns <= here.now_ns) {
                        it.wake(here);
                    }
                });
                self.look(rank);
            }
        }
    }

    fn start(&mut self, rank: usize, group: usize) {
        self.disturbed_ns = self.disturbed_ns.max(self.now_ns());
        let member = &mut self.members[rank];
        let Some(engine) = &mut member.engine else { return };
        member.has_started[group] = true;
        let links = std::mem::take(&mut member.links[group]);
        member.current.insert(self.scenario.groups[group].number, group);
        let created = match self.scenario.settings(group, rank as u32) {
            Ok(settings) => engine.create(settings, links).map_err(|error| error.to_string()),
            Err(problem) => Err(problem),
        };
        if let Err(problem) = created {
            self.book.violated(format!("member {rank}, group {group}: {problem}"));
        }
        self.look(rank);
    }

    /// Creates the next group of one member, unless all others have ended here.
    fn create_beside(&mut self, rank: usize) {
        let member = &mut self.members[rank];
        let Some(engine) = &mut member.engine else { return };
        if member.applications.iter().all(|it| it.has_ended()) {
            return;
        }
        let stall_timeout = self.scenario.groups[0].stall_timeout();
        if let Err(problem) = member.beside.create_next(engine, stall_timeout) {
            self.book.violated(format!("member {rank}, groups of one member: {problem}"));
        }
        let next_ns = self.now_ns() + self.scenario.members[rank].beside_ns;
        self.plan(rank, Due::Beside, next_ns);
        self.look(rank);
    }

    /// Runs a member until it has nothing left to do now.
    fn look(&mut self, rank: usize) {
        let mut events = Vec::new();
        // Answers to events may cause further events.
        loop {
            let Some(engine) = &mut self.members[rank].engine else { return };
            engine.progress(Duration::ZERO, &mut events);
            if events.is_empty() {
                break;
            }
            for event in events.drain(..) {
                self.deliver(rank, event);
            }
        }
        let breaches = self.members[rank].watch.take_breaches();
        let named = |breach| format!("member {rank}: {breach}");
        self.book.violations.extend(breaches.into_iter().map(named));
        self.start_followers(rank);
        self.plan_next(rank);
    }

    /// Starts groups that follow others which have ended here.
    fn start_followers(&mut self, rank: usize) {
        for (index, group) in self.scenario.groups.iter().enumerate() {
            let member = &self.members[rank];
            let is_next = group.after.is_some_and(|after| member.applications[after].has_ended());
            if is_next && !member.has_started[index] {
                let at_ns = self.now_ns() + group.start_ns;
                match group.start_ns {
                    0 => self.start(rank, index),
                    _ => self.plan(rank, Due::Start(index), at_ns),
                }
            }
        }
    }

    fn plan_next(&mut self, rank: usize) {
        let now_ns = self.now_ns();
        let member = &self.members[rank];
        let deadline = member.engine.as_ref().and_then(MemberEngine::next_deadline);
        let clock = self.scenario.members[rank].clock;
        let started =
            member.applications.iter().zip(&member.has_started).filter(|(_, started)| **started);
        let wake_ns = started.filter_map(|(it, _)| it.next_wake_ns()).min();
        let has_more = member.watch.has_more();
        if let Some(deadline) =
            deadline.filter(|_| self.options.canary != Some(Canary::MissesDeadlines))
        {
            // The earlier entry may be too early, which costs one poll.
            self.plan(rank, Due::Deadline, clock.virtual_ns(deadline).max(now_ns));
        }
        if let Some(at_ns) = wake_ns {
            self.plan(rank, Due::Wake, at_ns.max(now_ns));
        }
        if has_more {
            self.plan(rank, Due::Look, now_ns);
        }
    }

    fn deliver(&mut self, rank: usize, event: Event) {
        if Beside::has(&event) {
            return;
        }
        match self.members[rank].current.get(&event.group()).copied() {
            Some(index) => self.act(rank, index, |it, here| it.event(event, here)),
            None => self.book.violated(format!("member {rank}: {event:?} of no group")),
        }
    }

    fn with_started(&mut self, rank: usize, mut act: impl FnMut(&mut Application, &mut Here<'_>)) {
        for group in 0..self.scenario.groups.len() {
            if self.members[rank].has_started[group] {
                self.act(rank, group, &mut act);
            }
        }
    }

    /// Has a member act in a group, unless it has died.
    fn act(
        &mut self,
        rank: usize,
        group: usize,
        act: impl FnOnce(&mut Application, &mut Here<'_>),
    ) {
        let now_ns = self.now_ns();
        let Member { engine: Some(engine), applications, .. } = &mut self.members[rank] else {
            return;
        };
        let mut here = Here {
            engine,
            now_ns,
            canary: self.options.canary,
            book: &mut self.book,
            network: self.network,
        };
        act(&mut applications[group], &mut here);
    }

    /// Returns whether all groups have ended that can end.
    fn is_over(&self) -> bool {
        self.members.iter().all(|member| !member.can_end() || member.has_ended())
    }

    fn describe_living(&self) -> String {
        let living = |(rank, member): (usize, &Member)| {
            let applications = member.applications.iter().enumerate();
            let groups: Vec<usize> =
                applications.filter(|(_, it)| !it.has_ended()).map(|(index, _)| index).collect();
            (member.can_end() && !groups.is_empty())
                .then(|| format!("member {rank} in groups {groups:?}"))
        };
        let all: Vec<String> = self.members.iter().enumerate().filter_map(living).collect();
        format!("{} have not ended", all.join(", "))
    }

    /// Lets connections close, then checks for leaks.
    fn end(mut self) -> Outcome<GroupCounts, End<Failure>> {
        let ends = self.book.groups.iter().flat_map(|group| &group.members);
        let last_ns = ends.filter_map(|member| Some(member.end.as_ref()?.0)).max();
        let late_ns = last_ns.unwrap_or(0).saturating_sub(self.disturbed_ns);
        // Only runs that reach deadlines can last long.
        let has_deadline = self.book.faults.iter().any(|done| done.what.holds_ns() > 0);
        let lateness = if has_deadline { late_ns as f64 / self.bound_ns as f64 } else { 0.0 };
        let virtual_ns = self.now_ns();
        if self.book.violations.is_empty() {
            while self.network.step().is_some() {}
            for rank in 0..self.members.len() {
                let has_more = |member: &Member| member.engine.is_some() && member.watch.has_more();
                self.look(rank);
                while has_more(&self.members[rank]) {
                    self.look(rank);
                }
            }
            for (rank, member) in self.members.iter().enumerate() {
                let leaks = member.watch.leaks();
                if member.can_end() && !leaks.is_empty() {
                    self.book.violated(format!("member {rank}: {leaks} at the end"));
                }
            }
        }
        let mut members = self.book.groups.iter().flat_map(|group| &group.members);
        let is_calm =
            self.book.faults.is_empty() && members.all(|member| member.in_use_ns.is_none());
        if is_calm && self.book.violations.is_empty() {
            let engines = self.members.iter().filter_map(|member| member.engine.as_ref());
            let counters: Vec<Counters> = engines.map(MemberEngine::counters).collect();
            checks::nothing_twice(&mut self.book, self.scenario, &counters);
        }
        let trace =
            if self.options.trace_events > 0 { self.network.trace() } else { String::new() };
        for member in &mut self.members {
            if member.engine.take().is_some() && self.book.violations.is_empty() {
                member.applications.iter_mut().for_each(|it| it.finish(&mut self.book));
            }
        }
        let blame = checks::failures(&mut self.book, self.scenario);
        let reported = checks::counts(&mut self.book, self.scenario);
        let members = self.book.groups.iter().flat_map(|group| &group.members);
        let ends: Vec<_> = members.filter_map(|member| Some(member.end.clone()?.1)).collect();
        let faults = self.book.faults.iter().map(|fault| fault.what.kind());
        let counts = GroupCounts {
            basics: Basics::new(self.step, virtual_ns, faults),
            ends: Ends::of(&ends, |failure| failure.kind),
            slowest: Slowest { part: lateness, seed: self.scenario.seed },
            blame,
            reported,
        };
        Outcome { violations: self.book.violations, trace, counts, ends, ..Outcome::default() }
    }

    /// Injects the faults of the current step.
    fn inject_due(&mut self) {
        while let Some(fault) = self.scenario.faults.get(self.faults_done) {
            if fault.step > self.step {
                return;
            }
            self.faults_done += 1;
            self.inject(&fault.what);
        }
    }

    fn inject(&mut self, what: &Fault) {
        let now_ns = self.now_ns();
        self.network.remark(|| format!("step {}: {what:?}", self.step));
        self.book.faults.push(InjectedFault { at_ns: now_ns, what: what.clone() });
        let over_ns = match what.holds_ns() {
            u64::MAX => now_ns,
            holds_ns => now_ns + holds_ns,
        };
        self.disturbed_ns = self.disturbed_ns.max(over_ns);
        if what.holds_ns() > 0 {
            self.bound_ns = self.scenario.deadlines_ns();
        }
        match what {
            Fault::Member(fault) => {
                fault.inject(self.network, self.scenario.size());
                if let Some((member, for_ns)) = fault.stops() {
                    self.hold(member, for_ns.map_or(u64::MAX, |for_ns| now_ns + for_ns));
                }
                if let MemberFault::Kill { member } = fault {
                    self.kill(*member as usize);
                }
            }
            Fault::Corrupt { member } => self.members[*member as usize].watch.corrupt_next(),
            Fault::Abort { member, group } => self.order(*member, *group, Order::Abort),
            Fault::Refuse { member, group } => self.order(*member, *group, Order::Refuse),
            Fault::Mute { member, group } => self.order(*member, *group, Order::FallSilent),
        }
    }

    /// Passes an order to an application, if its member runs and it has not ended.
    fn order(&mut self, rank: u32, group: usize, order: Order) {
        let (rank, now_ns) = (rank as usize, self.now_ns());
        let member = &self.members[rank];
        let runs = member.engine.is_some() && member.held_until_ns <= now_ns;
        if !runs || !member.has_started[group] || member.applications[group].has_ended() {
            return;
        }
        self.act(rank, group, |it, here| it.obey(order, here));
        self.look(rank);
    }

    fn hold(&mut self, rank: usize, until_ns: u64) {
        let held = &mut self.members[rank].held_until_ns;
        *held = until_ns.max(*held);
    }

    fn kill(&mut self, rank: usize) {
        self.network.kill(rank);
        let member = &mut self.members[rank];
        if member.engine.take().is_some() {
            self.agenda.forget(rank);
            member.applications.iter_mut().for_each(|it| it.finish(&mut self.book));
        }
    }
}

impl Member {
    fn new(scenario: &Scenario, options: Options<Canary>, network: &SimNet, rank: u32) -> Self {
        let plan = &scenario.members[rank as usize];
        let planted = options.canary.map(|canary| -> Box<dyn Bug> {
            Box::new(Planted::new(canary, scenario.size(), scenario.seed, rank))
        });
        let (node, watch) = Node::new(network.member(), plan.clock, plan.batch, planted);
        let groups = 0..scenario.groups.len();
        let application = |group| Application::new(scenario, group, rank);
        Self {
            engine: Some(Engine::new(node)),
            watch,
            links: groups.clone().map(|_| Vec::new()).collect(),
            applications: groups.map(application).collect(),
            beside: Beside::default(),
            has_started: vec![false; scenario.groups.len()],
            current: BTreeMap::new(),
            held_until_ns: 0,
        }
    }

    /// Returns whether the member is alive and not stopped for ever.
    fn can_end(&self) -> bool {
        self.engine.is_some() && self.held_until_ns < u64::MAX
    }

    fn has_ended(&self) -> bool {
        self.applications.iter().all(|it| it.has_ended())
    }
}
