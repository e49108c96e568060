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
    counts::{Basics, End, Ends},
    dice::Dice,
    driver::{Driver, World},
    faults::InjectedFault,
    member_fault::MemberFault,
    node::{Bug, MemberEngine, Node, Watch},
    subject::{Options, Outcome},
};

/// Distinguishes these random choices from all others of a seed.
const PURPOSE: u64 = 4;

/// Runs a scenario to its end, or to the first violation. A panic counts as one.
pub(super) fn run(
    scenario: &Scenario,
    options: Options<Canary>,
) -> Outcome<GroupCounts, End<Failure>> {
    scenario.network.run(scenario.seed, options.trace_events, |network| {
        let mut world = Groups::new(scenario, options, network)?;
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
}

struct Groups<'a> {
    scenario: &'a Scenario,
    options: Options<Canary>,
    driver: Driver<'a, Due, Fault>,
    members: Vec<Member>,
    book: Book,
}

impl<'a> Groups<'a> {
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
        let dice = Dice::new(scenario.seed, PURPOSE);
        let (faults, bound_ns) = (&scenario.faults, scenario.moving_ns());
        let driver = Driver::new(network, dice, members.len(), faults, bound_ns);
        let mut world = Self { scenario, options, driver, members, book: Book::new(scenario) };
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

    fn start(&mut self, rank: usize, group: usize) {
        self.driver.disturb(0);
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
        let next_ns = self.driver.now_ns() + self.scenario.members[rank].beside_ns;
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
                let at_ns = self.driver.now_ns() + group.start_ns;
                match group.start_ns {
                    0 => self.start(rank, index),
                    _ => self.plan(rank, Due::Start(index), at_ns),
                }
            }
        }
    }

    fn plan_next(&mut self, rank: usize) {
        let now_ns = self.driver.now_ns();
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
        let now_ns = self.driver.now_ns();
        let Member { engine: Some(engine), applications, .. } = &mut self.members[rank] else {
            return;
        };
        let mut here = Here {
            engine,
            now_ns,
            canary: self.options.canary,
            book: &mut self.book,
            network: self.driver.network,
        };
        act(&mut applications[group], &mut here);
    }

    /// Returns whether a member is alive and not stopped for ever.
    fn can_end(&self, rank: usize) -> bool {
        self.members[rank].engine.is_some() && !self.driver.is_held_for_ever(rank)
    }

    /// Lets connections close, then checks for leaks.
    fn end(mut self) -> Outcome<GroupCounts, End<Failure>> {
        let ends = self.book.groups.iter().flat_map(|group| &group.members);
        let last_ns = ends.filter_map(|member| Some(member.end.as_ref()?.0)).max();
        let has_deadline = self.book.faults.iter().any(|done| done.what.holds_ns() > 0);
        let seed = self.scenario.seed;
        let slowest = self.driver.slowest(last_ns.unwrap_or(0), has_deadline, seed);
        let virtual_ns = self.driver.now_ns();
        if self.book.violations.is_empty() {
            while self.driver.network.step().is_some() {}
            for rank in 0..self.members.len() {
                let has_more = |member: &Member| member.engine.is_some() && member.watch.has_more();
                self.look(rank);
                while has_more(&self.members[rank]) {
                    self.look(rank);
                }
            }
            for (rank, member) in self.members.iter().enumerate() {
                let leaks = member.watch.leaks();
                if self.can_end(rank) && !leaks.is_empty() {
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
            if self.options.trace_events > 0 { self.driver.network.trace() } else { String::new() };
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
            basics: Basics::new(self.driver.step, virtual_ns, faults),
            ends: Ends::of(&ends, |failure| failure.kind),
            slowest,
            blame,
            reported,
        };
        Outcome { violations: self.book.violations, trace, counts, ends, ..Outcome::default() }
    }

    /// Passes an order to an application, if its member runs and it has not ended.
    fn order(&mut self, rank: u32, group: usize, order: Order) {
        let rank = rank as usize;
        let member = &self.members[rank];
        let runs = member.engine.is_some() && !self.driver.is_held(rank);
        if !runs || !member.has_started[group] || member.applications[group].has_ended() {
            return;
        }
        self.act(rank, group, |it, here| it.obey(order, here));
        self.look(rank);
    }

    fn kill(&mut self, rank: usize) {
        self.driver.network.kill(rank);
        let member = &mut self.members[rank];
        if member.engine.take().is_some() {
            self.driver.agenda.forget(rank);
            member.applications.iter_mut().for_each(|it| it.finish(&mut self.book));
        }
    }
}

impl<'a> World<'a> for Groups<'a> {
    type Due = Due;
    type Fault = Fault;

    fn driver(&mut self) -> &mut Driver<'a, Due, Fault> {
        &mut self.driver
    }

    fn violations(&mut self) -> &mut Vec<String> {
        &mut self.book.violations
    }

    fn is_over(&self) -> bool {
        let mut members = self.members.iter().enumerate();
        members.all(|(rank, member)| !self.can_end(rank) || member.has_ended())
    }

    fn living(&self) -> String {
        let living = |(rank, member): (usize, &Member)| {
            let applications = member.applications.iter().enumerate();
            let groups: Vec<usize> =
                applications.filter(|(_, it)| !it.has_ended()).map(|(index, _)| index).collect();
            (self.can_end(rank) && !groups.is_empty())
                .then(|| format!("member {rank} in groups {groups:?}"))
        };
        let all: Vec<String> = self.members.iter().enumerate().filter_map(living).collect();
        all.join(", ")
    }

    fn will_be_disturbed(&self) -> bool {
        let disturbs = |due| matches!(due, Due::Start(_) | Due::Wake);
        self.driver.agenda.planned().any(|(rank, due)| self.can_end(rank) && disturbs(due))
    }

    fn plan(&mut self, rank: usize, due: Due, at_ns: u64) {
        // Nothing may depend on the order within one instant, so it is random.
        let Driver { agenda, dice, .. } = &mut self.driver;
        agenda.plan(rank, due, at_ns, || dice.below(u64::MAX));
    }

    fn notify(&mut self, rank: usize) {
        self.with_started(rank, |it, here| it.look_around(here));
        match self.driver.polls_ns(rank, self.scenario.members[rank].poll_delay_ns_max) {
            Some(at_ns) => self.plan(rank, Due::Look, at_ns),
            None => self.look(rank),
        }
    }

    fn happen(&mut self, rank: usize, due: Due) {
        match due {
            Due::Start(group) => self.start(rank, group),
            Due::Look | Due::Deadline => self.look(rank),
            Due::Beside => self.create_beside(rank),
            Due::Wake => {
                self.driver.disturb(0);
                self.with_started(rank, |it, here| {
                    if it.next_wake_ns().is_some_and(|at_ns| at_ns <= here.now_ns) {
                        it.wake(here);
                    }
                });
                self.look(rank);
            }
        }
    }

    fn inject(&mut self, what: &'a Fault) {
        let at_ns = self.driver.now_ns();
        self.book.faults.push(InjectedFault { at_ns, what: what.clone() });
        self.driver.disturb(what.holds_ns());
        if what.holds_ns() > 0 {
            self.driver.bound_ns = self.scenario.deadlines_ns();
        }
        match what {
            Fault::Member(fault) => {
                fault.inject(self.driver.network, self.scenario.size());
                if let Some((member, for_ns)) = fault.stops() {
                    self.driver.hold(member, for_ns);
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
        }
    }

    fn has_ended(&self) -> bool {
        self.applications.iter().all(|it| it.has_ended())
    }
}
