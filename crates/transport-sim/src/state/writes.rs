//! One-sided writes. They leave a side, or a member, one after another at the rate of its port,
//! independently of blocks: since they are small, they neither wait for ports nor occupy them.

use transport::{Cause, Completion, PeerMemory, PostError};

use super::State;
use crate::{
    config::Placement,
    connection::Phase,
    event::Event,
    names::SideId,
    trace::What,
    write::{Arrival, Part, PostedWrite},
};

/// At how many instants bytes of one write become visible, where they do so in parts.
const PARTS: usize = 8;

impl State {
    pub(crate) fn expose(
        &mut self,
        id: SideId,
        key: u32,
        memory: PeerMemory,
    ) -> Result<(), PostError> {
        let exposed = &mut self.side(id).exposed;
        if exposed.contains_key(&key) {
            return Err(PostError::System(format!("key {key} is in use")));
        }
        exposed.insert(key, memory);
        Ok(())
    }

    pub(crate) fn post_write(&mut self, id: SideId, write: PostedWrite) {
        let member = self.side(id).member;
        let rate = self.members[member].rate_bytes_per_s.max(1);
        let exact_ns = (write.from.bytes() as u128 * 1_000_000_000).div_ceil(u128::from(rate));
        let mut time_ns = u64::try_from(exact_ns).unwrap_or(u64::MAX);
        let mut begin_ns = self.side(id).last_write_left_ns.max(self.now_ns);
        if let Some(overhead_ns) = self.config.write_overhead_ns {
            time_ns = time_ns.saturating_add(overhead_ns);
            begin_ns = begin_ns.max(self.members[member].last_write_left_ns);
        }
        let at_ns = begin_ns.saturating_add(time_ns);
        self.members[member].last_write_left_ns = at_ns;
        let side = self.side(id);
        side.last_write_left_ns = at_ns;
        side.writes.push_back(write);
        self.agenda.plan(at_ns, Event::WriteLeft(id));
    }

    /// Completes the send; the bytes arrive a latency later, behind those that left earlier.
    pub(crate) fn write_left(&mut self, id: SideId) {
        // The write may have been cancelled.
        let Some(write) = self.side(id).writes.pop_front() else { return };
        let PostedWrite { from, token, key, offset, immediate } = write;
        let arrival = Arrival { contents: from.to_vec().into(), key, offset, immediate };
        drop(from);
        let jitter_ns = self.random_up_to(self.config.control_jitter_ns_max);
        let latency_ns = self.connection(id).link.latency_ns;
        let at_ns = self.now_ns.saturating_add(latency_ns).saturating_add(jitter_ns);
        let side = self.side(id);
        let (member, endpoint) = (side.member, side.endpoint);
        let mut at_ns = side.last_write_arrival_ns.max(at_ns);
        if let Some(placement) = self.config.write_placement {
            self.plan_parts(id.peer(), &arrival, at_ns, placement);
            at_ns = at_ns.saturating_add(placement.lasting_ns);
        }
        self.side(id).last_write_arrival_ns = at_ns;
        self.agenda.plan(at_ns, Event::Write(id.peer(), arrival));
        self.complete(member, Completion::Sent { endpoint, token });
    }

    /// Plans when which bytes of a write become visible.
    fn plan_parts(&mut self, id: SideId, arrival: &Arrival, at_ns: u64, placement: Placement) {
        let mut units = arrival.units(placement.whole_words);
        if !placement.in_order {
            for last in (1..units.len()).rev() {
                let other = self.random_up_to(last as u64) as usize;
                units.swap(last, other);
            }
        }
        let mut sorted = |count: usize, max: u64| {
            let mut drawn: Vec<u64> = (0..count).map(|_| self.random_up_to(max)).collect();
            drawn.sort_unstable();
            drawn
        };
        let mut ends = sorted(PARTS - 1, units.len() as u64);
        ends.push(units.len() as u64);
        let times = sorted(PARTS, placement.lasting_ns);
        let mut taken = 0;
        for (end, after_ns) in ends.into_iter().zip(times) {
            let units = units[taken..end as usize].to_vec();
            taken = end as usize;
            let part = Part { of: arrival.clone(), units };
            self.agenda.plan(at_ns.saturating_add(after_ns), Event::Placed(id, part));
        }
    }

    pub(crate) fn part_placed(&mut self, id: SideId, part: &Part) {
        let side = self.side(id);
        if !matches!(side.phase, Phase::Closing | Phase::Gone) {
            part.place(side.exposed.get(&part.of.key));
        }
    }

    /// Reports a write. Its bytes are placed now, unless its parts have been.
    pub(crate) fn write_arrived(&mut self, id: SideId, arrival: &Arrival) {
        let in_parts = self.config.write_placement.is_some();
        let side = self.side(id);
        if matches!(side.phase, Phase::Closing | Phase::Gone) {
            return;
        }
        let (member, endpoint) = (side.member, side.endpoint);
        let (bytes, immediate) = (arrival.contents.len() as u64, arrival.immediate);
        let memory = side.exposed.get(&arrival.key);
        let placed = if in_parts { arrival.check(memory) } else { arrival.place(memory) };
        if let Err(why) = placed {
            return self.end_side(id, Cause::Protocol(why));
        }
        let from = self.side(id.peer()).member;
        self.totals.writes += 1;
        self.note(What::Write { from, to: member, bytes });
        if let Some(immediate) = immediate {
            self.complete(member, Completion::Written { endpoint, immediate });
        }
    }
}
