//! Runs a scenario: advances virtual time, carries messages, injects faults, and judges.

use std::{
    cell::RefCell,
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    rc::Rc,
};

use rdmc::{
    Error,
    creation::{
        effects::{Effect, Wire},
        messages::{Message, Request},
    },
};

use super::{
    canary::CreationCanary,
    links::{End, Held, Links, Simulated, name, place},
    node::{Node, address, at, context_at, joining},
    outcome::CreationOutcome,
    scenario::CreationScenario,
    seat::{Seat, SeatState},
};
use crate::{dice::Dice, options::Options};

/// Distinguishes these random choices from all others of a seed.
const PURPOSE: u64 = 41;

/// A run with more steps does not terminate.
const STEPS_MAX: u64 = 500_000;

/// How long it may take until all groups stand, once nothing disturbs them.
const SETTLING_NS: u64 = 60_000_000_000;

/// The pause before a context tries again to connect where nobody listens.
const RETRY_NS: u64 = 50_000_000;

/// What a dead context looks like to one that waits for its answer.
const LOST: &str = "the connection was lost";

/// Runs a scenario to its end, or to the first violation. A panic counts as one.
pub fn run(scenario: &CreationScenario, options: Options<CreationCanary>) -> CreationOutcome {
    let run = || {
        scenario.check()?;
        let mut world = World::new(scenario, options);
        world.run_to_end();
        Ok(world.end())
    };
    let violated =
        |problem| CreationOutcome { violations: vec![problem], ..CreationOutcome::default() };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(problem)) => violated(problem),
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
            violated(format!("panicked: {}", text.unwrap_or_default()))
        }
    }
}

/// What happens at a time. A context's `life` tells it from those before and after it.
#[derive(Clone, Debug)]
enum Event {
    Start { context: usize },
    Die { context: usize },
    Lose,
    Begin { group: usize, rank: u32, life: u32 },
    Wake { context: usize, life: u32 },
    Dial { context: usize, life: u32, dial: u64 },
    Connected { connection: usize, side: usize, dial: Option<u64> },
    Unusable { connection: usize, side: usize, dial: Option<u64> },
    Ended { connection: usize, side: usize },
    Deliver { connection: usize, side: usize, message: Message },
    Placed { context: usize, life: u32, ask: u64, link: u64 },
    Answered { context: usize, life: u32, dial: u64, answer: Result<u64, String> },
    Closed(End),
}

/// A connection that is being made.
struct Dialing {
    target: usize,
    until_ns: u64,
    shares: bool,
    request: Request,
}

/// A request for a link with connections of its own: where it is, and who waits for it.
struct Asked {
    target: usize,
    dialer: (usize, u32, u64),
}

/// A shared connection.
struct Connection {
    contexts: [(usize, u32); 2],
    is_broken: bool,
    /// When what is sent now arrives at each side, at the earliest.
    in_order_ns: [u64; 2],
}

struct World<'a> {
    scenario: &'a CreationScenario,
    options: Options<CreationCanary>,
    dice: Dice,
    now_ns: u64,
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    events: Vec<Option<Event>>,
    nodes: Vec<Option<Node>>,
    lives: Vec<u32>,
    links: Rc<RefCell<Links>>,
    connections: Vec<Connection>,
    dials: BTreeMap<(usize, u32, u64), Dialing>,
    asked: BTreeMap<u64, Asked>,
    asks: u64,
    seats: Vec<Vec<Seat>>,
    /// The last planned disturbance that is known.
    disturbed_ns: u64,
    outcome: CreationOutcome,
    trace: Vec<String>,
}

impl<'a> World<'a> {
    fn new(scenario: &'a CreationScenario, options: Options<CreationCanary>) -> Self {
        let seats = scenario.groups.iter();
        let mut world = Self {
            scenario,
            options,
            dice: Dice::new(scenario.seed, PURPOSE),
            now_ns: 0,
            heap: BinaryHeap::new(),
            events: Vec::new(),
            nodes: scenario.contexts.iter().map(|_| None).collect(),
            lives: vec![0; scenario.contexts.len()],
            links: Rc::default(),
            connections: Vec::new(),
            dials: BTreeMap::new(),
            asked: BTreeMap::new(),
            asks: 0,
            seats: seats
                .map(|group| group.seats.iter().map(|plan| Seat::new(plan.clone())).collect())
                .collect(),
            disturbed_ns: 0,
            outcome: CreationOutcome::default(),
            trace: Vec::new(),
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
        self.heap.push(Reverse((at_ns.max(self.now_ns), order, self.events.len())));
        self.events.push(Some(event));
    }

    /// Returns when something arrives that is sent now.
    fn arrival(&mut self) -> u64 {
        self.now_ns + self.scenario.latency_ns + self.dice.between(0, self.scenario.jitter_ns)
    }

    /// Returns when something arrives at a side of a connection behind all that was sent before.
    fn arrival_at(&mut self, connection: usize, side: usize) -> u64 {
        let at_ns = self.arrival();
        let in_order = &mut self.connections[connection].in_order_ns[side];
        *in_order = at_ns.max(*in_order + 1);
        *in_order
    }

    fn violation(&mut self, text: String) {
        self.outcome.violations.push(format!("{} ns: {text}", self.now_ns));
    }

    fn note(&mut self, what: impl fmt::Display) {
        if self.options.trace_events > 0 {
            self.trace.push(format!("{:>14} {what}\n", self.now_ns));
        }
    }

    fn is(&self, canary: CreationCanary) -> bool {
        self.options.canary == Some(canary)
    }

    /// Runs until all groups stand after the last disturbance, or a check fails.
    fn run_to_end(&mut self) {
        while self.outcome.violations.is_empty() {
            if self.now_ns >= self.disturbed_ns && (0..self.seats.len()).all(|it| self.stands(it)) {
                return;
            }
            let Some(Reverse((at_ns, _, index))) = self.heap.pop() else {
                return self.violation("nothing is left to do, and groups do not stand".into());
            };
            self.outcome.steps += 1;
            self.now_ns = at_ns;
            if self.outcome.steps > STEPS_MAX || at_ns > self.disturbed_ns + SETTLING_NS {
                let standing = (0..self.seats.len()).filter(|&it| !self.stands(it));
                let groups: Vec<usize> = standing.map(|it| it + 1).collect();
                return self.violation(format!("groups {groups:?} do not stand"));
            }
            if let Some(event) = self.events[index].take() {
                self.note(format_args!("{event:?}"));
                self.happen(event);
            }
            self.settle();
        }
    }

    /// Returns whether a group stands at all members, and all of its links lead to each other.
    fn stands(&self, group: usize) -> bool {
        let (plan, seats) = (&self.scenario.groups[group], &self.seats[group]);
        (0..seats.len() as u32).all(|rank| {
            let is_standing = matches!(seats[rank as usize].state, SeatState::Standing(_));
            is_standing
                && plan.neighbours(rank).into_iter().all(|other| {
                    let near = seats[rank as usize].link_to(other);
                    let far = seats[other as usize].link_to(rank);
                    near.zip(far).is_some_and(|(near, far)| near.end.other() == far.end)
                })
        })
    }

    fn happen(&mut self, event: Event) {
        let now = at(self.now_ns);
        match event {
            Event::Start { context } => self.start(context),
            Event::Die { context } => self.die(context),
            Event::Lose => {
                let whole =
                    (0..self.connections.len()).filter(|&it| !self.connections[it].is_broken);
                let whole: Vec<usize> = whole.collect();
                if !whole.is_empty() {
                    let connection = self.dice.pick(&whole);
                    self.lose(connection);
                }
            }
            Event::Begin { group, rank, life } => self.begin(group, rank, life),
            Event::Wake { context, life } => {
                if !self.is(CreationCanary::MissesTimeouts)
                    && let Some(node) = self.node(context, life)
                {
                    node.act(|creations, channels| creations.handle_timeout(channels, now));
                }
            }
            Event::Dial { context, life, dial } => self.dial((context, life, dial)),
            Event::Connected { connection, side, dial } => {
                let [(context, life), (peer, _)] = self.ends(connection, side);
                if self.connections[connection].is_broken {
                    // Its loss is noticed behind.
                    let at_ns = self.arrival();
                    self.plan(at_ns, Event::Ended { connection, side });
                }
                if let Some(node) = self.node(context, life) {
                    node.act(|creations, channels| {
                        channels.0.borrow_mut().usable.insert((connection, side));
                        let id = name(connection, side);
                        creations.connected(channels, now, id, address(peer), dial);
                    });
                }
            }
            Event::Unusable { connection, side, dial } => {
                let [(context, life), (peer, _)] = self.ends(connection, side);
                if let Some(node) = self.node(context, life) {
                    node.act(|creations, channels| {
                        creations.unusable(channels, now, address(peer), dial, "no room");
                    });
                }
                self.lose(connection);
            }
            Event::Ended { connection, side } => self.ended(connection, side),
            Event::Deliver { connection, side, message } => {
                let [(context, life), _] = self.ends(connection, side);
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

    /// Returns the contexts at this side of a connection, and at the other one.
    fn ends(&self, connection: usize, side: usize) -> [(usize, u32); 2] {
        let contexts = self.connections[connection].contexts;
        [contexts[side], contexts[1 - side]]
    }

    fn node(&mut self, context: usize, life: u32) -> Option<&mut Node> {
        self.nodes[context].as_mut().filter(|node| node.life == life)
    }

    fn start(&mut self, context: usize) {
        self.lives[context] += 1;
        let life = self.lives[context];
        self.nodes[context] = Some(Node::new(context, life, &self.links));
        for (group, plan) in self.scenario.groups.iter().enumerate() {
            if let Some(rank) = plan.members.iter().position(|&it| it == context) {
                let at_ns = plan.seats[rank].start_ns.max(self.now_ns);
                self.plan(at_ns, Event::Begin { group, rank: rank as u32, life });
            }
        }
    }

    fn die(&mut self, context: usize) {
        self.outcome.faults += 1;
        let Some(node) = self.nodes[context].take() else { return };
        for (group, plan) in self.scenario.groups.iter().enumerate() {
            if let Some(rank) = plan.members.iter().position(|&it| it == context) {
                self.seats[group][rank].state = SeatState::Idle;
            }
        }
        let of_it = (0..self.connections.len()).filter(|&connection| {
            let connection = &self.connections[connection];
            !connection.is_broken && connection.contexts.contains(&(context, node.life))
        });
        for connection in of_it.collect::<Vec<_>>() {
            self.lose(connection);
        }
        self.dials.retain(|dial, _| (dial.0, dial.1) != (context, node.life));
        let waiting: Vec<u64> =
            self.asked.iter().filter(|(_, it)| it.target == context).map(|(&ask, _)| ask).collect();
        for ask in waiting {
            self.answer(ask, Err(LOST.into()));
        }
    }

    fn begin(&mut self, group: usize, rank: u32, life: u32) {
        let plan = &self.scenario.groups[group];
        let context = plan.members[rank as usize];
        if self.nodes[context].as_ref().is_none_or(|node| node.life != life) {
            return;
        }
        self.outcome.attempts += 1;
        let (number, now) = (group as u64 + 1, at(self.now_ns));
        let (timeout_ns, differs) = self.seats[group][rank as usize].begin(self.now_ns);
        let joining = joining(number, plan, rank, differs);
        let node = self.node(context, life).expect("it runs");
        let begun =
            node.act(|creations, channels| creations.begin(channels, now, joining, at(timeout_ns)));
        if let Err(error) = begun {
            self.violation(format!("member {rank} of group {number} cannot begin: {error}"));
        }
    }

    /// A connection that is being made has come to the other context, if that listens.
    fn dial(&mut self, of: (usize, u32, u64)) {
        let Some(dialing) = self.dials.get(&of) else { return };
        let (context, life, dial) = of;
        let (target, until_ns) = (dialing.target, dialing.until_ns);
        let Some(node) = &self.nodes[target] else {
            if self.now_ns + RETRY_NS < until_ns {
                return self.plan(self.now_ns + RETRY_NS, Event::Dial { context, life, dial });
            }
            return self.answered(of, Err("cannot connect".into()));
        };
        if dialing.shares {
            let contexts = [(context, life), (target, node.life)];
            return self.share(contexts, dial);
        }
        let (ask, request) = (self.asks, dialing.request.clone());
        self.asks += 1;
        self.asked.insert(ask, Asked { target, dialer: of });
        let (now, peer) = (at(self.now_ns), address(context));
        if let Some(node) = &mut self.nodes[target] {
            node.act(|creations, channels| creations.requested(channels, now, ask, peer, request));
        }
    }

    /// Makes a shared connection.
    fn share(&mut self, contexts: [(usize, u32); 2], dial: u64) {
        let connection = self.connections.len();
        let in_order_ns = [self.arrival(), self.arrival()];
        self.connections.push(Connection { contexts, is_broken: false, in_order_ns });
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
        if std::mem::replace(&mut self.connections[connection].is_broken, true) {
            return;
        }
        self.outcome.faults += 1;
        for side in 0..2 {
            let at_ns = self.arrival_at(connection, side);
            self.disturb(at_ns, Event::Ended { connection, side });
        }
    }

    fn ended(&mut self, connection: usize, side: usize) {
        let [(context, life), _] = self.ends(connection, side);
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
    fn answered(&mut self, of: (usize, u32, u64), answer: Result<u64, String>) {
        let (context, life, dial) = of;
        let is_wanted = self.dials.remove(&of).is_some();
        let links = Rc::clone(&self.links);
        let held = answer
            .map(|link| Held::take(End::Own { link, side: 0 }, &links).expect("its number is new"));
        let now = at(self.now_ns);
        let Some(node) = self.node(context, life).filter(|_| is_wanted) else { return };
        node.act(|creations, channels| match held {
            Ok(held) => creations.linked(channels, now, dial, held),
            Err(cause) => {
                let error = Error::Member { member: u32::MAX, address: address(context), cause };
                creations.not_connected(channels, now, dial, error);
            }
        });
    }

    /// Answers a request for a link with connections of its own.
    fn answer(&mut self, ask: u64, answer: Result<(), String>) {
        let Some(Asked { target, dialer: (context, life, dial) }) = self.asked.remove(&ask) else {
            return;
        };
        let (placed_ns, answered_ns) = (self.arrival(), self.arrival());
        if answer.is_ok()
            && let Some(node) = &self.nodes[target]
        {
            let life = node.life;
            self.plan(placed_ns, Event::Placed { context: target, life, ask, link: ask });
        }
        let answer = answer.map(|()| ask);
        self.plan(answered_ns, Event::Answered { context, life, dial, answer });
    }

    /// Applications notice that links of their groups have ended, and begin again.
    fn break_groups(&mut self, is_over: impl Fn(End) -> bool) {
        for group in 0..self.seats.len() {
            for rank in 0..self.seats[group].len() {
                let SeatState::Standing(links) = &self.seats[group][rank].state else { continue };
                if links.iter().any(|(_, held)| is_over(held.end)) {
                    self.outcome.broken += 1;
                    self.leave(group, rank);
                }
            }
        }
    }

    /// Ends the group of a member, which creates it again soon.
    fn leave(&mut self, group: usize, rank: usize) {
        let state = std::mem::replace(&mut self.seats[group][rank].state, SeatState::Idle);
        if self.is(CreationCanary::KeepsChannels) {
            std::mem::forget(state);
        } else {
            drop(state);
        }
        let life = self.lives[self.scenario.groups[group].members[rank]];
        // Members that begin again at once could fail each other in turns for ever.
        let round_ns = self.scenario.latency_ns + self.scenario.jitter_ns;
        let pause_ns = round_ns << self.seats[group][rank].attempts.min(8);
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
                    if self.connections[connection].is_broken {
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
                let (life, due_ns) = (node.life, due.as_nanos() as u64);
                if due_ns <= self.now_ns && !self.is(CreationCanary::MissesTimeouts) {
                    self.note(format_args!("context {context} is due at {due_ns}"));
                }
                self.wake(context, life, due_ns);
            }
        }
        self.check_deadlines();
    }

    fn wake(&mut self, context: usize, life: u32, due_ns: u64) {
        let is_planned = |event: &Option<Event>| matches!(event, Some(Event::Wake { context: its, life: of }) if (*its, *of) == (context, life));
        let at_ns = due_ns.max(self.now_ns);
        let planned = self
            .heap
            .iter()
            .any(|Reverse((when, _, index))| *when <= at_ns && is_planned(&self.events[*index]));
        if !planned {
            self.plan(at_ns, Event::Wake { context, life });
        }
    }

    fn carry_out(&mut self, context: usize, life: u32, effect: Effect<Simulated>) {
        match effect {
            Effect::Connect { dial, address, patience, shares, request, .. } => {
                let patience_ns = patience.as_nanos().min(u128::from(u64::MAX / 2)) as u64;
                let until_ns = self.now_ns + patience_ns;
                let target = context_at(address);
                self.dials
                    .insert((context, life, dial), Dialing { target, until_ns, shares, request });
                let at_ns = self.arrival() + 2 * self.scenario.latency_ns;
                self.plan(at_ns, Event::Dial { context, life, dial });
            }
            Effect::Interrupt { dial } => drop(self.dials.remove(&(context, life, dial))),
            Effect::Send { connection, message } => self.send(place(connection), message),
            Effect::Answer { ask, answer, .. } => self.answer(ask, answer),
            Effect::End { number, outcome } => self.created(number, context, outcome),
        }
    }

    fn send(&mut self, (connection, side): (usize, usize), mut message: Message) {
        if self.connections[connection].is_broken {
            return;
        }
        match &mut message {
            Message::Accepts { .. }
                if self.is(CreationCanary::LosesAnswers) && self.dice.percent(30) =>
            {
                return;
            }
            Message::Accepts { channel } if self.is(CreationCanary::AnswersAnother) => {
                *channel += 2;
            }
            Message::Withdraws { .. } if self.is(CreationCanary::ForgetsWithdrawals) => return,
            Message::Asks { request, .. } if self.is(CreationCanary::ForgetsAttempts) => {
                (request.context, request.attempt) = (0, 1);
            }
            _ => {}
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
        let Some(rank) = plan.members.iter().position(|&it| it == context) else {
            return self.violation(format!("context {context} is no member of group {number}"));
        };
        self.note(format_args!(
            "member {rank} of group {number}: {:?}",
            outcome.as_ref().map(Vec::len)
        ));
        let SeatState::Creating { until_ns } = self.seats[group][rank].state else {
            return self.violation(format!("member {rank} of group {number} creates nothing"));
        };
        if self.seats[group][rank].is_restless() || outcome.is_err() {
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
                let is_over = links.iter().any(|(_, held)| self.is_over(held.end));
                self.seats[group][rank].state = SeatState::Standing(links);
                if is_over {
                    self.outcome.broken += 1;
                    self.leave(group, rank);
                }
            }
            Err(error) => {
                if let Some(problem) = self.judge(group, until_ns, &error) {
                    self.violation(format!("member {rank} of group {number}: {error}: {problem}"));
                }
                self.leave(group, rank);
            }
        }
    }

    /// Returns whether the holder of an end knows that the link is no more.
    fn is_over(&self, end: End) -> bool {
        let links = self.links.borrow();
        links.closed.contains(&end)
            || matches!(end, End::Channel { connection, side, .. } if !links.usable.contains(&(connection, side)))
    }

    /// Returns what is wrong with an error.
    fn judge(&mut self, group: usize, until_ns: u64, error: &Error) -> Option<&'static str> {
        let seats = &self.scenario.groups[group].seats;
        match error {
            Error::Timeout { .. } => {
                self.outcome.timeouts += 1;
                return (self.now_ns < until_ns).then_some("it was too early");
            }
            Error::Member { cause, .. } if cause.contains("different settings") => {
                self.outcome.refused += 1;
                return seats.iter().all(|seat| seat.differs == 0).then_some("they are equal");
            }
            Error::Member { cause, .. } if cause == "cannot connect" => {
                self.outcome.timeouts += 1;
                return (self.now_ns + RETRY_NS < until_ns).then_some("it was too early");
            }
            Error::Member { cause, .. } if cause == LOST => {
                self.outcome.refused += 1;
                return (self.outcome.faults == 0).then_some("nothing was lost");
            }
            Error::Transport(text) if text.starts_with("link to member") => {
                self.outcome.refused += 1;
                return self.scenario.unusable.is_empty().then_some("all can be used");
            }
            _ => {}
        }
        Some("there is no reason")
    }

    /// Every creation ends in time.
    fn check_deadlines(&mut self) {
        let now_ns = self.now_ns;
        let is_late = |seat: &Seat| matches!(seat.state, SeatState::Creating { until_ns } if until_ns < now_ns);
        let late = self.seats.iter().position(|seats| seats.iter().any(is_late));
        if let Some(group) = late {
            self.violation(format!("a creation of group {} misses its deadline", group + 1));
        }
    }

    /// Ends all groups, and checks that nothing is left.
    fn end(mut self) -> CreationOutcome {
        self.outcome.groups = (0..self.seats.len()).filter(|&it| self.stands(it)).count() as u64;
        self.outcome.virtual_ns = self.now_ns;
        if self.outcome.violations.is_empty() {
            self.seats.clear();
            let held: Vec<End> = self.links.borrow().held.iter().copied().collect();
            if !held.is_empty() {
                self.violation(format!("these were not given back: {held:?}"));
            }
        }
        let first = self.trace.len().saturating_sub(self.options.trace_events);
        self.outcome.trace = self.trace.split_off(first).concat();
        self.outcome
    }
}
