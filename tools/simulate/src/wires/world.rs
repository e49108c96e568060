//! Advances virtual time, injects faults, and judges a run of the wire.

use std::{cell::RefCell, rc::Rc};

use super::{
    application::Phase,
    canary::WireCanary,
    counts::WireCounts,
    due::Due,
    end::{Brought, End},
    facts::{ChannelEnd, Facts},
    fault::WireFault,
    pipe::{Pipe, Wire},
    scenario::{ENDS, WireScenario},
};
use crate::{
    counts::Basics,
    dice::Dice,
    queue::Queue,
    subject::{Options, Outcome},
};

/// Distinguishes the random choices of streams from all others of a seed, each with a number behind it.
const PURPOSE_OF_STREAMS: u64 = 1 << 32;

/// A run with more steps does not end.
const STEPS_MAX: u64 = 3_000_000;

/// Runs a scenario to its end, or to the first violation. A panic counts as one.
pub(super) fn run(scenario: &WireScenario, options: Options<WireCanary>) -> Outcome<WireCounts> {
    Outcome::of(|| {
        scenario.check()?;
        let mut world = World::new(scenario, options);
        world.run_to_end();
        Ok(world.end())
    })
}

struct World<'a> {
    scenario: &'a WireScenario,
    ends: [End<'a>; 2],
    /// By connections.
    wires: Vec<Vec<Rc<RefCell<Wire>>>>,
    /// The ends of their streams that no end uses yet.
    pipes: Vec<[Vec<Pipe>; 2]>,
    agenda: Queue<Due, ()>,
    facts: Facts<'a>,
    canary: Option<WireCanary>,
    /// When each end polls next; `u64::MAX`: not until something happens.
    polls_ns: [u64; 2],
    /// Until when each end is stopped.
    paused_until_ns: [u64; 2],
    step: u64,
    /// By when everything has to have ended.
    bound_ns: u64,
}

impl<'a> World<'a> {
    fn new(scenario: &'a WireScenario, options: Options<WireCanary>) -> Self {
        let mut streams = 0;
        let mut wires_of = |count: usize| -> Vec<Rc<RefCell<Wire>>> {
            let wires = (0..count).map(|_| {
                streams += 1;
                let dice = Dice::new(scenario.seed, PURPOSE_OF_STREAMS + streams);
                let mut wire = Wire::new(&scenario.network, dice);
                wire.repeats = options.canary == Some(WireCanary::RepeatsBytes);
                Rc::new(RefCell::new(wire))
            });
            wires.collect()
        };
        let wires: Vec<_> = scenario.connections.iter().map(|it| wires_of(it.streams)).collect();
        let pipes = wires.iter().map(|wires| {
            let (one, other) =
                wires.iter().map(Wire::ends).map(|[one, other]| (one, other)).unzip();
            [one, other]
        });
        let mut world = Self {
            scenario,
            ends: ENDS.map(|end| End::new(end, scenario, options.canary)),
            pipes: pipes.collect(),
            wires,
            agenda: Queue::default(),
            facts: Facts::new(scenario, options.trace_events),
            canary: options.canary,
            polls_ns: [u64::MAX; 2],
            paused_until_ns: [0; 2],
            step: 0,
            bound_ns: scenario.last_ns() + 2 * scenario.ending_ns(),
        };
        world.plan_all();
        world
    }

    /// Plans what the scenario has planned.
    fn plan_all(&mut self) {
        for (connection, plan) in self.scenario.connections.iter().enumerate() {
            let began_ns = plan.start_ns[0].max(plan.start_ns[1]);
            for end in ENDS {
                self.plan(plan.start_ns[end], Due::Connect { connection, end });
            }
            for (channel, plan) in plan.channels.iter().enumerate() {
                if self.scenario.connections[connection].is_shared {
                    self.plan(began_ns.max(plan.at_ns), Due::Ask { connection, channel });
                }
                for end in ENDS {
                    if let Some(at_ns) = plan.closes_ns[end] {
                        self.plan(at_ns, Due::Close { connection, channel, end });
                    }
                }
            }
            for (message, plan) in plan.messages.iter().enumerate() {
                self.plan(began_ns.max(plan.at_ns), Due::Send { connection, message });
            }
        }
        for (number, fault) in self.scenario.faults.iter().enumerate() {
            self.plan(fault.at_ns, Due::Fault { number });
        }
        let patience_ns = self.scenario.last_ns() + self.scenario.ending_ns();
        self.plan(patience_ns, Due::LosePatience);
    }

    fn plan(&mut self, at_ns: u64, due: Due) {
        self.agenda.plan(at_ns, due, ());
    }

    fn run_to_end(&mut self) {
        while self.facts.violations.is_empty() && !self.is_over() {
            self.step += 1;
            let Some(at_ns) = self.next_ns() else {
                self.facts.violated("nothing happens any more".into());
                return;
            };
            self.facts.now_ns = self.facts.now_ns.max(at_ns);
            self.advance();
            if self.facts.now_ns > self.bound_ns || self.step > STEPS_MAX {
                let ns = self.facts.now_ns;
                let left = self.left();
                self.facts.violated(format!("after {ns} ns, {} steps: {left}", self.step));
            }
        }
    }

    /// Returns whether all connections of living ends have ended, and none begins.
    fn is_over(&self) -> bool {
        let connections = 0..self.scenario.connections.len();
        let last_ns = self.scenario.last_ns();
        self.facts.now_ns >= last_ns
            && self.ends.iter().all(|end| {
                !end.lives() || connections.clone().all(|connection| end.has_ended(connection))
            })
    }

    fn left(&self) -> String {
        let all = (0..self.scenario.connections.len())
            .flat_map(|connection| ENDS.map(|end| (end, connection)));
        let left = all.filter(|&(end, connection)| {
            self.ends[end].lives() && !self.ends[end].has_ended(connection)
        });
        let left: Vec<String> = left
            .map(|(end, connection)| format!("connection {connection} has not ended at {end}"))
            .collect();
        left.join(", ")
    }

    fn next_ns(&self) -> Option<u64> {
        let wires = self.wires.iter().flatten().filter_map(|wire| wire.borrow().next_ns());
        let polls = self.polls_ns.into_iter().filter(|&at_ns| at_ns < u64::MAX);
        wires.chain(polls).chain(self.agenda.next_ns()).min()
    }

    /// Executes what is due now.
    fn advance(&mut self) {
        let now_ns = self.facts.now_ns;
        if self.canary == Some(WireCanary::SwapsBytes) && self.facts.dice.percent(2) {
            self.wires.iter().flatten().for_each(|wire| wire.borrow_mut().lines[0].swap());
        }
        self.wires.iter().flatten().for_each(|wire| wire.borrow_mut().advance(now_ns));
        while self.agenda.next_ns().is_some_and(|at_ns| at_ns <= now_ns)
            && let Some((_, due, ())) = self.agenda.pop()
        {
            self.happen(due);
        }
        for end in ENDS {
            if self.polls_ns[end] <= now_ns {
                self.poll(end);
            }
        }
        // What an end reads makes room for the other one.
        for end in ENDS {
            if self.ends[end].has_news() {
                let delay_ns =
                    self.facts.dice.between(0, self.scenario.ends[end].poll_delay_ns_max);
                self.poll_by(end, now_ns + delay_ns);
            }
        }
    }

    /// An end that is stopped polls when it goes on.
    fn poll_by(&mut self, end: usize, at_ns: u64) {
        if self.ends[end].lives() {
            let at_ns = at_ns.max(self.paused_until_ns[end]);
            self.polls_ns[end] = self.polls_ns[end].min(at_ns);
        }
    }

    fn poll(&mut self, end: usize) {
        self.polls_ns[end] = u64::MAX;
        let now_ns = self.facts.now_ns;
        if self.paused_until_ns[end] > now_ns {
            self.poll_by(end, now_ns);
            return;
        }
        let has_more = self.ends[end].poll(&mut self.facts);
        let peer = &self.ends[1 - end];
        let closes: Vec<bool> = (0..self.scenario.connections.len())
            .map(|it| peer.application(it, 0).is_some_and(|it| it.phase != Phase::Open))
            .collect();
        self.ends[end].check_quiet(&closes, &mut self.facts);
        for it in std::mem::take(&mut self.ends[end].brought) {
            self.bring(end, it);
        }
        if has_more {
            let pause_ns = self.facts.dice.between(0, 5_000);
            self.poll_by(end, now_ns + 1 + pause_ns);
        }
        if let Some(at_ns) = self.ends[end].poll_timeout() {
            let delay_ns = self.facts.dice.between(0, self.scenario.ends[end].poll_delay_ns_max);
            self.poll_by(end, at_ns.max(now_ns + 1) + delay_ns);
        }
    }

    fn bring(&mut self, end: usize, brought: Brought) {
        match brought {
            Brought::Asked { connection, channel } => {
                let plan = &self.scenario.connections[connection].channels[channel];
                let at_ns = self.facts.now_ns + plan.answer_ns;
                self.plan(at_ns, Due::Answer { connection, channel });
            }
            Brought::Ended { connection, channel, end: how } => {
                self.judge(connection, channel, end, &how);
            }
        }
    }

    fn judge(&mut self, connection: usize, channel: usize, end: usize, how: &ChannelEnd) {
        let plan = &self.scenario.connections[connection].channels[channel];
        let [own, other] = [end, 1 - end].map(|it| self.ends[it].application(connection, channel));
        let has_closed = plan.is_refused || other.is_some_and(|it| it.phase != Phase::Open);
        let was_idle = self.ends[1 - end].was_idle(connection);
        let is_done = own.is_some_and(|it| it.is_done());
        self.facts.judge((connection, channel, end), how, has_closed, was_idle);
        if self.facts.has_to_be_complete(connection, channel) {
            self.facts.counts.complete += u64::from(end == 0);
            if !is_done {
                self.facts.violated(format!(
                    "connection {connection}, channel {channel}, end {end}: not everything has come, and nothing was disturbed"
                ));
            }
        }
    }

    fn happen(&mut self, due: Due) {
        if let Some(end) = self.end_of(due)
            && self.paused_until_ns[end] > self.facts.now_ns
        {
            return self.plan(self.paused_until_ns[end], due);
        }
        let (ends, facts, plans) = (&mut self.ends, &mut self.facts, &self.scenario.connections);
        let end = match due {
            Due::Connect { connection, end } => {
                let pipes = std::mem::take(&mut self.pipes[connection][end]);
                ends[end].connect(connection, pipes, &self.wires[connection], facts);
                end
            }
            Due::Ask { connection, channel } => {
                let end = plans[connection].channels[channel].asked_by;
                ends[end].ask(connection, channel, facts);
                end
            }
            Due::Answer { connection, channel } => {
                let end = 1 - plans[connection].channels[channel].asked_by;
                ends[end].answer(connection, channel, facts);
                end
            }
            Due::Send { connection, message } => {
                let end = plans[connection].messages[message].from;
                ends[end].send_planned(connection, message, facts);
                end
            }
            Due::Close { connection, channel, end } => {
                ends[end].close(Some((connection, channel)), facts);
                end
            }
            Due::LosePatience => {
                for end in ends.iter_mut() {
                    end.close(None, facts);
                    end.give_up_requests(facts);
                }
                return ENDS.into_iter().for_each(|end| self.wake(end));
            }
            Due::Fault { number } => return self.inject(number),
        };
        self.wake(end);
    }

    /// Returns the end whose application does something; it does it once that end goes on if it is stopped.
    fn end_of(&self, due: Due) -> Option<usize> {
        let plans = &self.scenario.connections;
        match due {
            Due::Connect { end, .. } | Due::Close { end, .. } => Some(end),
            Due::Ask { connection, channel } => Some(plans[connection].channels[channel].asked_by),
            Due::Answer { connection, channel } => {
                Some(1 - plans[connection].channels[channel].asked_by)
            }
            Due::Send { connection, message } => Some(plans[connection].messages[message].from),
            Due::Fault { .. } | Due::LosePatience => None,
        }
    }

    fn wake(&mut self, end: usize) {
        self.poll_by(end, self.facts.now_ns);
    }

    fn inject(&mut self, number: usize) {
        let what = &self.scenario.faults[number].what;
        let now_ns = self.facts.now_ns;
        self.facts.disturb(what);
        match *what {
            WireFault::Reset { connection, stream } => {
                self.wires[connection][stream].borrow_mut().reset();
            }
            WireFault::Stall { connection, stream, from, for_ns } => {
                let until_ns = for_ns.map_or(u64::MAX, |for_ns| now_ns + for_ns);
                for (number, wire) in self.wires[connection].iter().enumerate() {
                    for end in ENDS {
                        if stream.is_none_or(|it| it == number) && from.is_none_or(|it| it == end) {
                            wire.borrow_mut().lines[end].stall(until_ns);
                        }
                    }
                }
            }
            WireFault::Alter { connection, stream, from, at, bit } => {
                self.wires[connection][stream].borrow_mut().lines[from].alter(at, 1 << bit);
            }
            WireFault::Pause { end, for_ns } => {
                let until_ns = now_ns + for_ns;
                self.paused_until_ns[end] = self.paused_until_ns[end].max(until_ns);
                self.ends[end].stop(self.paused_until_ns[end], now_ns);
                self.wake(end);
            }
            WireFault::Kill { end } => {
                self.ends[end].die();
                self.polls_ns[end] = u64::MAX;
                self.pipes.iter_mut().for_each(|pipes| pipes[end].clear());
            }
            WireFault::BreakOff { end, connection } => {
                self.ends[end].break_off(connection);
                self.wake(end);
            }
        }
    }

    /// Checks that everything was handed back.
    fn end(mut self) -> Outcome<WireCounts> {
        if self.facts.violations.is_empty() {
            for end in &mut self.ends {
                let applications = std::mem::take(&mut end.applications);
                applications.into_iter().for_each(|it| it.check_memory(&mut self.facts));
            }
        }
        let Facts { violations, counts, faults, now_ns, trace, .. } = self.facts;
        let counts = WireCounts { basics: Basics::new(self.step, now_ns, faults), ..counts };
        trace.outcome(violations, counts)
    }
}
