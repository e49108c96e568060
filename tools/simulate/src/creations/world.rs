//! Runs a scenario: advances virtual time, carries messages, injects faults, and judges.

use std::{cell::RefCell, rc::Rc};

use rdmc::{
    Error,
    creation::{
        choice::RootChoice,
        effects::{Effect, Wire},
        joining::Joining,
        messages::Message,
    },
};

use super::{
    canary::CreationCanary,
    connections::Connections,
    counts::CreationCounts,
    dials::{Dialer, Dialing, Dials},
    event::{Answer, Event},
    links::{End, Held, Links, Simulated, name, place},
    node::{Node, address, at, choice, context_at, links, question},
    scenario::CreationScenario,
    seat::SeatState,
    seats::Seats,
    verdict::{LOST, REFUSED, RETRY_NS, judge},
};
use crate::{
    counts::Most,
    dice::Dice,
    queue::Queue,
    subject::{Options, Outcome},
    trace::Trace,
};

/// Distinguishes these random choices from all others of a seed.
const PURPOSE: u64 = 41;

/// A run with more steps does not terminate.
const STEPS_MAX: u64 = 500_000;

/// How long it may take until all groups stand, once nothing disturbs them.
const SETTLING_NS: u64 = 60_000_000_000;

/// Runs a scenario to its end, or to the first violation. A panic counts as one.
pub(super) fn run(
    scenario: &CreationScenario,
    options: Options<CreationCanary>,
) -> Outcome<CreationCounts> {
    Outcome::of(|| {
        scenario.check()?;
        let mut world = World::new(scenario, options);
        world.run_to_end();
        Ok(world.end())
    })
}

struct World<'a> {
    scenario: &'a CreationScenario,
    options: Options<CreationCanary>,
    dice: Dice,
    now_ns: u64,
    agenda: Queue<u64, Event>,
    nodes: Vec<Option<Node>>,
    lives: Vec<u32>,
    links: Rc<RefCell<Links>>,
    connections: Connections,
    dials: Dials,
    seats: Seats<'a>,
    /// The last planned disturbance that is known.
    disturbed_ns: u64,
    violations: Vec<String>,
    counts: CreationCounts,
    trace: Trace,
}

impl<'a> World<'a> {
    fn new(scenario: &'a CreationScenario, options: Options<CreationCanary>) -> Self {
        let mut world = Self {
            scenario,
            options,
            dice: Dice::new(scenario.seed, PURPOSE),
            now_ns: 0,
            agenda: Queue::default(),
            nodes: scenario.contexts.iter().map(|_| None).collect(),
            lives: vec![0; scenario.contexts.len()],
            links: Rc::default(),
            connections: Connections::default(),
            dials: Dials::default(),
            seats: Seats::new(scenario),
            disturbed_ns: 0,
            violations: Vec::new(),
            counts: CreationCounts::default(),
            trace: Trace::new(options.trace_events),
        };
        for (context, plan) in scenario.contexts.iter().enumerate() {
            world.disturb(plan.start_ns, Event::Start { context });
            if let Some(death) = plan.death {
                world.disturb(death.at_ns, Event::Die { context });
                world.disturb(death.at_ns + death.pause_ns, Event::Start { context });
            }
        }
        for &loss_ns in &scenario.losses_ns {
            world.disturb(loss_ns, Event::Lose);
        }
        for seat in scenario.groups.iter().flat_map(|group| &group.seats) {
            world.disturbed_ns = world.disturbed_ns.max(seat.start_ns);
        }
        world
    }

    /// Plans something that disturbs.
    fn disturb(&mut self, at_ns: u64, event: Event) {
        self.disturbed_ns = self.disturbed_ns.max(at_ns);
        self.plan(at_ns, event);
    }

    fn plan(&mut self, at_ns: u64, event: Event) {
        // Nothing may depend on the order within one instant, so it is random.
        let order = self.dice.below(u64::MAX);
        self.agenda.plan(at_ns.max(self.now_ns), order, event);
    }

    /// Returns when something arrives that is sent now.
    fn arrival(&mut self) -> u64 {
        self.now_ns + self.scenario.latency_ns + self.dice.between(0, self.scenario.jitter_ns)
    }

    /// Returns when something arrives at a side of a connection behind all that was sent before.
    fn arrival_at(&mut self, connection: usize, side: usize) -> u64 {
        let at_ns = self.arrival();
        self.connections.arrival(connection, side, at_ns)
    }

    fn violation(&mut self, text: String) {
        self.violations.push(format!("{} ns: {text}", self.now_ns));
    }

    fn is(&self, canary: CreationCanary) -> bool {
        self.options.canary == Some(canary)
    }

    /// Runs until all groups stand after the last disturbance, or a check fails.
    fn run_to_end(&mut self) {
        while self.violations.is_empty() {
            if self.now_ns >= self.disturbed_ns && self.seats.unfinished().is_empty() {
                return;
            }
            let Some((at_ns, order, event)) = self.agenda.pop() else {
                return self.violation("nothing is left to do, and groups do not stand".into());
            };
            self.counts.steps += 1;
            self.now_ns = at_ns;
            if self.counts.steps > STEPS_MAX || at_ns > self.disturbed_ns + SETTLING_NS {
                let groups = self.seats.unfinished();
                return self.violation(format!("groups {groups:?}, from 0, do not stand"));
            }
            self.trace.digest(&[at_ns, order]);
            self.trace.note(|| format!("{at_ns:>14} {event:?}"));
            self.happen(event);
            self.settle();
        }
    }

    fn happen(&mut self, event: Event) {
        let now = at(self.now_ns);
        match event {
            Event::Start { context } => self.start(context),
            Event::Die { context } => self.die(context),
            Event::Lose => {
                let whole = self.connections.whole(None);
                if !whole.is_empty() {
                    let connection = self.dice.pick(&whole);
                    self.lose(connection);
                }
            }
            Event::Begin { group, rank, life } => self.begin(group, rank, life),
            Event::Link { group, context, life, choice } => {
                self.link(group, context, life, choice);
            }
            Event::Wake { context, life } => {
                if !self.is(CreationCanary::MissesTimeouts)
                    && let Some(node) = self.node(context, life)
                {
                    node.act(|creations, channels| {
                        creations.handle_timeout(channels, now, |_| None)
                    });
                }
            }
            Event::Dial { context, life, dial } => self.dial((context, life, dial)),
            Event::Connected { connection, side, dial } => {
                let [(context, life), (peer, _)] = self.connections.ends(connection, side);
                if let Some(node) = self.node(context, life) {
                    node.act(|creations, channels| {
                        channels.0.borrow_mut().usable.insert((connection, side));
                        let id = name(connection, side);
                        let (peer, ip) = (address(peer), address(peer).ip());
                        creations.connected(channels, now, id, peer, ip, dial);
                    });
                }
            }
            Event::Unusable { connection, side, dial } => {
                let [(context, life), (peer, _)] = self.connections.ends(connection, side);
                if let Some(node) = self.node(context, life) {
                    node.act(|creations, channels| {
                        creations.unusable(channels, now, address(peer), dial, "no room");
                    });
                }
                self.lose(connection);
            }
            Event::Ended { connection, side } => self.ended(connection, side),
            Event::Deliver { connection, side, message } => {
                let [(context, life), _] = self.connections.ends(connection, side);
                let is_usable = self.links.borrow().usable.contains(&(connection, side));
                if is_usable && let Some(node) = self.node(context, life) {
                    node.act(|creations, channels| {
                        creations.on_message(channels, now, name(connection, side), message);
                    });
                }
            }
            Event::Placed { context, life, ask, link } => {
                let end = End::Own { link, side: 1 };
                let held = Held::take(end, &self.links).expect("its number is new");
                if let Some(node) = self.node(context, life) {
                    node.act(|creations, channels| creations.placed(channels, now, ask, held));
                }
            }
            Event::Answered { context, life, dial, answer } => {
                self.answered((context, life, dial), answer);
            }
            Event::Closed(end) => {
                self.links.borrow_mut().closed.insert(end);
                self.break_groups(|held| held == end);
            }
        }
    }

    fn node(&mut self, context: usize, life: u32) -> Option<&mut Node> {
        self.nodes[context].as_mut().filter(|node| node.life == life)
    }

    fn start(&mut self, context: usize) {
        self.lives[context] += 1;
        let life = self.lives[context];
        self.nodes[context] = Some(Node::new(context, life, &self.links));
        for (group, rank) in self.seats.of(context) {
            let start_ns = self.scenario.groups[group].seats[rank].start_ns;
            self.plan(start_ns, Event::Begin { group, rank: rank as u32, life });
        }
    }

    fn die(&mut self, context: usize) {
        self.counts.faults += 1;
        let Some(node) = self.nodes[context].take() else { return };
        for (group, rank) in self.seats.of(context) {
            self.seats.all[group][rank].state = SeatState::Idle;
        }
        for connection in self.connections.whole(Some((context, node.life))) {
            self.lose(connection);
        }
        self.dials.end_all((context, node.life));
        for ask in self.dials.asked_at(context) {
            self.answer(ask, Err(LOST.into()));
        }
    }

    fn begin(&mut self, group: usize, rank: u32, life: u32) {
        let plan = &self.scenario.groups[group];
        let context = plan.members[rank as usize];
        if self.nodes[context].as_ref().is_none_or(|node| node.life != life) {
            return;
        }
        self.counts.attempts += 1;
        let number = group as u64 + 1;
        let (timeout_ns, differs) = self.seats.all[group][rank as usize].begin(self.now_ns);
        let joining = question(number, plan, rank)
            .unwrap_or_else(|| links(number, plan, rank, choice(differs)));
        if let Some(node) = self.node(context, life) {
            // Its last group of this number has ended.
            node.creations.forget(number);
        }
        self.step(context, life, joining, timeout_ns);
    }

    /// Begins a step of a creation.
    fn step(&mut self, context: usize, life: u32, joining: Joining, left_ns: u64) {
        let (number, rank, now) = (joining.number, joining.rank, at(self.now_ns));
        let Some(node) = self.node(context, life) else { return };
        let begun =
            node.act(|creations, channels| creations.begin(channels, now, joining, at(left_ns)));
        if let Err(error) = begun {
            self.violation(format!("member {rank} of group {number} cannot begin: {error}"));
        }
    }

    /// A member that knows what the root has chosen goes on to the second step.
    fn link(&mut self, group: usize, context: usize, life: u32, choice: RootChoice) {
        if let Ok((rank, until_ns)) = self.seats.creating(group, context) {
            let plan = &self.scenario.groups[group];
            let joining = links(group as u64 + 1, plan, rank as u32, choice);
            self.step(context, life, joining, until_ns - self.now_ns);
        }
    }

    /// A member has learned what the root has chosen, which its application notices soon.
    fn chosen(&mut self, group: usize, context: usize, life: u32, choice: RootChoice) {
        let until_ns = match self.seats.creating(group, context) {
            Ok((_, until_ns)) => until_ns,
            Err(problem) => return self.violation(problem),
        };
        let longest_ns = self.scenario.jitter_ns.min(until_ns.saturating_sub(self.now_ns));
        let at_ns = self.now_ns + self.dice.below(longest_ns + 1);
        self.plan(at_ns, Event::Link { group, context, life, choice });
    }

    /// A connection that is being made has come to the other context, if that listens.
    fn dial(&mut self, of: Dialer) {
        let Some(dialing) = self.dials.get(of) else { return };
        let (context, life, dial) = of;
        let (target, until_ns) = (dialing.target, dialing.until_ns);
        let Some(node) = &self.nodes[target] else {
            if self.now_ns + RETRY_NS < until_ns {
                return self.plan(self.now_ns + RETRY_NS, Event::Dial { context, life, dial });
            }
            return self.answered(of, Err(REFUSED.into()));
        };
        if dialing.shares {
            let contexts = [(context, life), (target, node.life)];
            return self.share(contexts, dial);
        }
        let asks = dialing.asks.clone();
        let ask = self.dials.ask(target, of);
        let (now, peer) = (at(self.now_ns), address(context));
        if let Some(node) = &mut self.nodes[target] {
            node.act(|creations, channels| creations.requested(channels, now, ask, peer, asks));
        }
    }

    /// Makes a shared connection.
    fn share(&mut self, contexts: [(usize, u32); 2], dial: u64) {
        let connection = self.connections.next();
        let in_order_ns = [self.arrival(), self.arrival()];
        self.connections.add(contexts, in_order_ns);
        let broken = self.scenario.unusable.contains(&(connection as u64));
        let broken = broken.then(|| self.dice.below(2) as usize);
        for (side, dial) in [(0, Some(dial)), (1, None)] {
            let event = match broken {
                Some(broken) if broken == side => Event::Unusable { connection, side, dial },
                _ => Event::Connected { connection, side, dial },
            };
            self.plan(in_order_ns[side], event);
        }
        if broken.is_some() {
            self.disturbed_ns = self.disturbed_ns.max(self.now_ns);
        }
    }

    /// A connection is lost: both ends notice it at some time.
    fn lose(&mut self, connection: usize) {
        if !self.connections.sever(connection) {
            return;
        }
        self.counts.faults += 1;
        for side in 0..2 {
            let at_ns = self.arrival_at(connection, side);
            self.disturb(at_ns, Event::Ended { connection, side });
        }
    }

    fn ended(&mut self, connection: usize, side: usize) {
        let [(context, life), _] = self.connections.ends(connection, side);
        let was_usable = self.links.borrow_mut().usable.remove(&(connection, side));
        let now = at(self.now_ns);
        if was_usable
            && !self.is(CreationCanary::MissesEnds)
            && let Some(node) = self.node(context, life)
        {
            let id = name(connection, side);
            node.act(|creations, channels| creations.disconnected(channels, now, id, Some(LOST)));
        }
        self.break_groups(|held| held.is_on(connection, side));
    }

    /// The other context has answered a request, or a connection to it was not made.
    fn answered(&mut self, of: Dialer, answer: Result<Answer, String>) {
        let (context, life, dial) = of;
        let is_wanted = self.dials.end(of);
        let links = Rc::clone(&self.links);
        let take =
            |link| Held::take(End::Own { link, side: 0 }, &links).expect("its number is new");
        let now = at(self.now_ns);
        let Some(node) = self.node(context, life).filter(|_| is_wanted) else {
            // The link is closed at once.
            if let Ok(Answer::Link(link)) = answer {
                drop(take(link));
            }
            return;
        };
        node.act(|creations, channels| match answer {
            Ok(Answer::Link(link)) => creations.linked(channels, now, dial, take(link)),
            Ok(Answer::Choice(choice)) => creations.chosen(channels, now, dial, choice),
            Err(cause) => {
                let error = Error::Member { member: u32::MAX, address: address(context), cause };
                creations.not_connected(channels, now, dial, error);
            }
        });
    }

    /// Answers what was asked on a connection of its own; by a link unless by a choice.
    fn answer(&mut self, ask: u64, answer: Result<Option<RootChoice>, String>) {
        let Some((target, (context, life, dial))) = self.dials.take(ask) else {
            return;
        };
        if self.node(context, life).is_none() {
            // The system has known of the end of that connection since its context died.
            self.links.borrow_mut().closed.insert(End::Own { link: ask, side: 1 });
        }
        let (placed_ns, answered_ns) = (self.arrival(), self.arrival());
        if answer == Ok(None)
            && let Some(node) = &self.nodes[target]
        {
            let life = node.life;
            self.plan(placed_ns, Event::Placed { context: target, life, ask, link: ask });
        }
        let answer = answer.map(|choice| choice.map_or(Answer::Link(ask), Answer::Choice));
        self.plan(answered_ns, Event::Answered { context, life, dial, answer });
    }

    /// Applications notice that links of their groups have ended, and begin again.
    fn break_groups(&mut self, is_over: impl Fn(End) -> bool) {
        for group in 0..self.seats.all.len() {
            for rank in 0..self.seats.all[group].len() {
                let SeatState::Standing(links) = &self.seats.all[group][rank].state else {
                    continue;
                };
                if links.iter().any(|(_, held)| is_over(held.end)) {
                    self.counts.broken += 1;
                    self.leave(group, rank);
                }
            }
        }
    }

    /// Ends the group of a member, which creates it again soon.
    fn leave(&mut self, group: usize, rank: usize) {
        let state = std::mem::replace(&mut self.seats.all[group][rank].state, SeatState::Idle);
        if self.is(CreationCanary::KeepsChannels) {
            std::mem::forget(state);
        } else {
            drop(state);
        }
        let life = self.lives[self.scenario.groups[group].members[rank]];
        // Members that begin again at once could fail each other in turns for ever.
        let round_ns = self.scenario.latency_ns + self.scenario.jitter_ns;
        let pause_ns = round_ns << self.seats.all[group][rank].attempts.min(8);
        let at_ns = self.now_ns + 1 + self.dice.below(pause_ns);
        self.plan(at_ns, Event::Begin { group, rank: rank as u32, life });
    }

    /// Carries out what contexts ask for, reports what was given back, and plans when they wake up.
    fn settle(&mut self) {
        for context in 0..self.nodes.len() {
            while let Some(node) = &mut self.nodes[context]
                && let Some(effect) = node.creations.next_effect()
            {
                let life = node.life;
                self.carry_out(context, life, effect);
            }
        }
        let given_back = std::mem::take(&mut self.links.borrow_mut().given_back);
        for end in given_back {
            let at_ns = match end {
                End::Channel { connection, side, .. } => {
                    if self.connections.is_broken(connection) {
                        continue;
                    }
                    self.arrival_at(connection, 1 - side)
                }
                End::Own { .. } => self.arrival(),
            };
            self.plan(at_ns, Event::Closed(end.other()));
        }
        for context in 0..self.nodes.len() {
            if let Some(node) = &self.nodes[context]
                && let Some(due) = node.creations.poll_timeout()
            {
                let (life, at_ns) = (node.life, self.now_ns.max(due.as_nanos() as u64));
                if !self.agenda.until(at_ns).any(|event| event.wakes(context, life)) {
                    self.plan(at_ns, Event::Wake { context, life });
                }
            }
        }
        self.check_deadlines();
    }

    fn carry_out(&mut self, context: usize, life: u32, effect: Effect<Simulated>) {
        match effect {
            Effect::Connect { dial, address, timeout, shares, asks, .. } => {
                let timeout_ns = timeout.as_nanos().min(u128::from(u64::MAX / 2)) as u64;
                let until_ns = self.now_ns + timeout_ns;
                let target = context_at(address);
                let dialing = Dialing { target, until_ns, shares, asks };
                self.dials.begin((context, life, dial), dialing);
                let at_ns = self.arrival() + 2 * self.scenario.latency_ns;
                self.plan(at_ns, Event::Dial { context, life, dial });
            }
            Effect::Interrupt { dial } => drop(self.dials.end((context, life, dial))),
            Effect::Send { connection, message } => {
                let (connection, side) = place(connection);
                self.send(connection, side, message);
            }
            Effect::Answer { ask, answer, .. } => self.answer(ask, answer),
            Effect::Chosen { number, choice } => {
                self.chosen(number as usize - 1, context, life, choice);
            }
            Effect::End { number, outcome } => self.created(number, context, outcome),
        }
    }

    fn send(&mut self, connection: usize, side: usize, mut message: Message) {
        if self.connections.is_broken(connection) {
            return;
        }
        let canary = self.options.canary;
        if canary.is_some_and(|canary| !canary.passes(&mut message, &mut self.dice)) {
            return;
        }
        let side = 1 - side;
        let at_ns = self.arrival_at(connection, side);
        self.plan(at_ns, Event::Deliver { connection, side, message });
    }

    /// A creation has ended at a member.
    fn created(
        &mut self,
        number: u64,
        context: usize,
        outcome: Result<Vec<(u32, Wire<Simulated>)>, Error>,
    ) {
        let group = number as usize - 1;
        let plan = &self.scenario.groups[group];
        let (rank, until_ns) = match self.seats.creating(group, context) {
            Ok(creating) => creating,
            Err(problem) => return self.violation(problem),
        };
        let is_ok = outcome.is_ok();
        self.trace.note(|| format!("{:>14} group {number}, member {rank}: {is_ok}", self.now_ns));
        if self.seats.all[group][rank].is_restless() || outcome.is_err() {
            self.disturbed_ns = self.disturbed_ns.max(self.now_ns);
        }
        match outcome {
            Ok(links) => {
                let links = links.into_iter().map(|(rank, wire)| match wire {
                    Wire::Shared(held) | Wire::Own(held) => (rank, held),
                });
                let mut links: Vec<(u32, Held)> = links.collect();
                links.sort_by_key(|(rank, _)| *rank);
                if links.iter().map(|(rank, _)| *rank).ne(plan.neighbours(rank as u32)) {
                    self.violation(format!("member {rank} of group {number} has other links"));
                }
                let is_over = links.iter().any(|(_, held)| self.links.borrow().is_over(held.end));
                self.seats.all[group][rank].state = SeatState::Standing(links);
                if is_over {
                    self.counts.broken += 1;
                    self.leave(group, rank);
                }
            }
            Err(error) => {
                let left_ns = until_ns.saturating_sub(self.now_ns);
                if let Some(problem) =
                    judge(self.scenario, &mut self.counts, group, left_ns, &error)
                {
                    self.violation(format!("member {rank} of group {number}: {error}: {problem}"));
                }
                self.leave(group, rank);
            }
        }
    }

    /// Every creation ends in time.
    fn check_deadlines(&mut self) {
        if let Some(group) = self.seats.late(self.now_ns) {
            self.violation(format!("a creation of group {} misses its deadline", group + 1));
        }
    }

    /// Ends all groups, and checks that nothing is left.
    fn end(mut self) -> Outcome<CreationCounts> {
        self.counts.groups = (self.seats.all.len() - self.seats.unfinished().len()) as u64;
        self.counts.virtual_ns = self.now_ns;
        self.counts.most = Most { value: self.counts.attempts, seed: self.scenario.seed };
        if self.violations.is_empty() {
            self.seats.all.clear();
            let held: Vec<End> = self.links.borrow().held.iter().copied().collect();
            if !held.is_empty() {
                self.violation(format!("these were not given back: {held:?}"));
            }
        }
        self.trace.outcome(self.violations, self.counts)
    }
}
