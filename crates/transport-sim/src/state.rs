//! The whole network: members, time, and the next event. The handling of each event is in the files
//! of `state`.

mod cut_through;
mod ends;
mod faults;
mod ports;
mod posts;
mod shared_ports;
mod transfers;
mod triggers;
mod writes;

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::AtomicBool},
};

use rand_chacha::{
    ChaCha8Rng,
    rand_core::{Rng, SeedableRng},
};
use transport::{Completion, EndpointId};

use crate::{
    config::{LinkConfig, SimConfig},
    connection::Connection,
    event::{Agenda, Event},
    names::{SideId, TransferId},
    port::{Port, Way},
    trace::{Trace, What},
    transfer::Transfer,
    trigger::Triggers,
};

/// Totals of a network so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct SimTotals {
    /// Blocks that have arrived.
    pub blocks: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Control words that have arrived.
    pub words: u64,
    /// One-sided writes that have arrived.
    pub writes: u64,
    /// Events computed.
    pub events: u64,
}

/// Totals of one member so far.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct MemberTotals {
    /// Bytes of its blocks that have arrived at others.
    pub bytes_sent: u64,
    /// Bytes of blocks that have arrived at it.
    pub bytes_received: u64,
    /// How long its transmit port was assigned to transfers, including those that are not finished.
    pub transmit_busy_ns: u64,
    /// How long its receive port was assigned to transfers, including those that are not finished.
    pub receive_busy_ns: u64,
}

pub(crate) struct State {
    pub(crate) config: SimConfig,
    pub(crate) now_ns: u64,
    pub(crate) agenda: Agenda,
    pub(crate) members: Vec<Member>,
    pub(crate) connections: Vec<Connection>,
    pub(crate) transfers: Vec<Option<Transfer>>,
    pub(crate) free_slots: Vec<usize>,
    /// Ports at which a transfer may start at the end of this instant.
    pub(crate) freed: Vec<(usize, Way)>,
    pub(crate) trace: Trace,
    pub(crate) totals: SimTotals,
    random: ChaCha8Rng,
    posts: u64,
    /// Members with something to report that [`crate::SimNet::step`] has not returned yet.
    reporting: VecDeque<usize>,
}

pub(crate) struct Member {
    pub(crate) alive: bool,
    pub(crate) rate_bytes_per_s: u64,
    /// When the last of its writes has left, if they leave one after another.
    pub(crate) last_write_left_ns: u64,
    pub(crate) transmit: Port,
    pub(crate) receive: Port,
    /// Shared ports: which of its sides has sent a part last.
    pub(crate) turn: usize,
    /// Shared ports: parts that wait for the receive port, or pass it.
    pub(crate) coming: VecDeque<(TransferId, SideId, u64)>,
    pub(crate) completions: Vec<Completion>,
    /// Sides by the number of their endpoint.
    pub(crate) endpoints: Vec<SideId>,
    /// All its sides, opened or not.
    pub(crate) sides: Vec<SideId>,
    pub(crate) woken: Arc<AtomicBool>,
    pub(crate) stalled_since_ns: u64,
    pub(crate) stalled_until_ns: u64,
    /// Events that arrived while the member was stalled.
    pub(crate) held: Vec<Event>,
    pub(crate) triggers: Triggers,
    pub(crate) totals: MemberTotals,
    reporting: bool,
}

impl State {
    pub(crate) fn new(config: SimConfig, seed: u64) -> Self {
        Self {
            trace: Trace::new(seed, config.trace_events),
            config,
            now_ns: 0,
            agenda: Agenda::default(),
            members: Vec::new(),
            connections: Vec::new(),
            transfers: Vec::new(),
            free_slots: Vec::new(),
            freed: Vec::new(),
            totals: SimTotals::default(),
            random: ChaCha8Rng::seed_from_u64(seed),
            posts: 0,
            reporting: VecDeque::new(),
        }
    }

    pub(crate) fn add_member(&mut self) -> usize {
        self.members.push(Member {
            alive: true,
            rate_bytes_per_s: self.config.port_rate_bytes_per_s,
            last_write_left_ns: 0,
            transmit: Port::default(),
            receive: Port::default(),
            turn: 0,
            coming: VecDeque::new(),
            completions: Vec::new(),
            endpoints: Vec::new(),
            sides: Vec::new(),
            woken: Arc::default(),
            stalled_since_ns: 0,
            stalled_until_ns: 0,
            held: Vec::new(),
            triggers: Triggers::default(),
            totals: MemberTotals::default(),
            reporting: false,
        });
        self.members.len() - 1
    }

    pub(crate) fn connect(&mut self, members: [usize; 2], link: LinkConfig) -> [SideId; 2] {
        self.connections.push(Connection::new(members, link));
        let sides = SideId::pair(self.connections.len() - 1);
        for (member, side) in members.into_iter().zip(sides) {
            self.members[member].sides.push(side);
        }
        sides
    }

    /// Makes an endpoint of a side that has not been opened.
    pub(crate) fn open_endpoint(&mut self, member: usize, side: SideId) -> EndpointId {
        let endpoints = &mut self.members[member].endpoints;
        endpoints.push(side);
        let endpoint = EndpointId(endpoints.len() as u64 - 1);
        self.open(side, endpoint);
        endpoint
    }

    /// Draws a time uniformly between 0 and `max_ns`. Draws no random number if that is 0.
    pub(crate) fn random_up_to(&mut self, max_ns: u64) -> u64 {
        if max_ns == 0 {
            return 0;
        }
        // The high half of the product: its bias is at most 2^-64 times the range.
        let product = u128::from(self.random.next_u64()) * (u128::from(max_ns) + 1);
        (product >> 64) as u64
    }

    pub(crate) fn next_post_number(&mut self) -> u64 {
        self.posts += 1;
        self.posts
    }

    pub(crate) fn note(&mut self, what: What) {
        self.trace.note(self.now_ns, what);
    }

    pub(crate) fn complete(&mut self, member: usize, completion: Completion) {
        let state = &mut self.members[member];
        if !state.alive {
            return;
        }
        state.completions.push(completion);
        if !std::mem::replace(&mut state.reporting, true) {
            self.reporting.push_back(member);
        }
    }

    /// Returns the next member that has something to report and was not returned since it last had
    /// nothing.
    pub(crate) fn next_reporting(&mut self) -> Option<usize> {
        while let Some(member) = self.reporting.pop_front() {
            self.members[member].reporting = false;
            if !self.members[member].completions.is_empty() {
                return Some(member);
            }
        }
        None
    }

    pub(crate) fn is_anybody_reporting(&self) -> bool {
        self.reporting.iter().any(|&member| !self.members[member].completions.is_empty())
    }

    /// Computes the next event, if it is not later than `until_ns`. Returns whether there was one.
    pub(crate) fn advance(&mut self, until_ns: u64) -> bool {
        if self.agenda.next_at_ns().is_none_or(|at_ns| at_ns > until_ns) {
            return false;
        }
        let Some((at_ns, event)) = self.agenda.pop() else { return false };
        debug_assert!(at_ns >= self.now_ns, "time goes forward");
        self.now_ns = at_ns;
        self.totals.events += 1;
        self.happen(event);
        true
    }

    pub(crate) fn happen(&mut self, event: Event) {
        match event {
            Event::PartCame { side, .. }
            | Event::Word(side, _)
            | Event::Placed(side, _)
            | Event::Write(side, _)
            | Event::Bye(side)
            | Event::Break(side, _)
                if self.is_cut(side) =>
            {
                self.connection(side).cut.held.push(event);
            }
            event => self.reach(event),
        }
    }

    /// Handles an event that no cut holds back, unless the member is stalled.
    pub(crate) fn reach(&mut self, event: Event) {
        match event {
            Event::Word(side, _)
            | Event::WriteLeft(side)
            | Event::Placed(side, _)
            | Event::Write(side, _)
            | Event::Bye(side)
            | Event::Break(side, _)
            | Event::BreakLocally(side, _)
                if self.is_side_held_up(side) =>
            {
                let member = self.side(side).member;
                self.hold(member, event);
            }
            Event::Begun(id) => self.transfer_begun(id),
            Event::Passed(id) => self.transfer_passed(id),
            Event::Arrived(id) => self.transfer_arrived(id),
            Event::PartLeft { id, member, bytes } => self.part_left(id, member, bytes),
            Event::PartCame { id, side, bytes } => self.part_came(id, side, bytes),
            Event::PartRead { member } => self.part_read(member),
            Event::Word(side, word) => self.word_arrived(side, word),
            Event::WriteLeft(side) => self.write_left(side),
            Event::Placed(side, part) => self.part_placed(side, &part),
            Event::Write(side, arrival) => self.write_arrived(side, &arrival),
            Event::Bye(side) => self.bye_arrived(side),
            Event::Break(side, cause) | Event::BreakLocally(side, cause) => {
                self.end_side(side, cause)
            }
            Event::Fault(fault) => self.inject(fault),
            Event::Resume(member) => self.resume(member),
            Event::Silence { member, stalled_since_ns } => {
                self.report_silence(member, stalled_since_ns);
            }
            Event::Heal(side) => self.heal(side),
            Event::CutSilence { side, since_ns } => self.report_cut_silence(side, since_ns),
            Event::Arbitrate => self.arbitrate(),
        }
    }

    /// Returns whether a member is stalled, or has not yet handled the events of its last stall.
    pub(crate) fn is_held_up(&self, member: usize) -> bool {
        let member = &self.members[member];
        self.now_ns < member.stalled_until_ns || !member.held.is_empty()
    }

    fn is_side_held_up(&mut self, side: SideId) -> bool {
        let member = self.side(side).member;
        self.is_held_up(member)
    }

    /// Keeps an event until the member's stall is over.
    pub(crate) fn hold(&mut self, member: usize, event: Event) {
        self.members[member].held.push(event);
    }
}
