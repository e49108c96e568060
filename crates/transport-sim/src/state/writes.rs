//! One-sided writes. They leave a side one after another at the rate of its port, independently of
//! blocks: since they are small, they neither wait for ports nor occupy them.

use transport::{Cause, Completion, PeerMemory, PostError};

use super::State;
use crate::{
    connection::Phase,
    event::Event,
    names::SideId,
    trace::What,
    write::{Arrival, PostedWrite},
};

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
        let now_ns = self.now_ns;
        let side = self.side(id);
        let begin_ns = side.last_write_left_ns.max(now_ns);
        side.last_write_left_ns =
            begin_ns.saturating_add(u64::try_from(exact_ns).unwrap_or(u64::MAX));
        let at_ns = side.last_write_left_ns;
        side.writes.push_back(write);
        self.agenda.plan(at_ns, Event::WriteLeft(id));
    }

    /// Completes the send; the bytes arrive a latency later, not before those that left earlier.
    pub(crate) fn write_left(&mut self, id: SideId) {
        // The write may have been cancelled.
        let Some(write) = self.side(id).writes.pop_front() else { return };
        let PostedWrite { from, token, key, offset, immediate } = write;
        let arrival = Arrival { contents: from.to_vec(), key, offset, immediate };
        drop(from);
        let jitter_ns = self.random_up_to(self.config.control_jitter_ns_max);
        let latency_ns = self.connection(id).link.latency_ns;
        let at_ns = self.now_ns.saturating_add(latency_ns).saturating_add(jitter_ns);
        let side = self.side(id);
        side.last_write_arrival_ns = side.last_write_arrival_ns.max(at_ns);
        let (at_ns, member, endpoint) = (side.last_write_arrival_ns, side.member, side.endpoint);
        self.agenda.plan(at_ns, Event::Write(id.peer(), arrival));
        self.complete(member, Completion::Sent { endpoint, token });
    }

    pub(crate) fn write_arrived(&mut self, id: SideId, arrival: Arrival) {
        let side = self.side(id);
        if matches!(side.phase, Phase::Closing | Phase::Gone) {
            return;
        }
        let (member, endpoint) = (side.member, side.endpoint);
        let (bytes, immediate) = (arrival.contents.len() as u64, arrival.immediate);
        if let Err(why) = arrival.place(side.exposed.get(&arrival.key)) {
            return self.end_side(id, Cause::Protocol(why));
        }
        let from = self.side(id.peer()).member;
        self.totals.writes += 1;
        self.note(What::Write { from, to: member, bytes });
        self.complete(member, Completion::Written { endpoint, immediate });
    }
}
