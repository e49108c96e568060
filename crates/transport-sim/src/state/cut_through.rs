//! Blocks that are sent on while they arrive.

use transport::{ArrivingRead, Completion, Token};

use super::State;
use crate::{
    event::Event,
    names::{SideId, TransferId},
    post::{From, Source},
    transfer::Stage,
};

impl State {
    pub(crate) fn post_cut_through_send(
        &mut self,
        id: SideId,
        from: ArrivingRead,
        immediate: u32,
        token: Token,
    ) {
        self.post_source(id, Source { from: From::Arriving(from), token }, immediate);
    }

    /// Plans when the first bytes of a block that has just started arrive, if its receive is followed.
    pub(super) fn plan_begin(&mut self, id: TransferId, passing_ns: u64) {
        let Some(part_bytes) = self.config.cut_through_bytes else { return };
        let transfer = self.transfer(id.slot);
        let (bytes, side) = (transfer.bytes, transfer.side);
        if part_bytes >= bytes || !transfer.target.into.is_followed() {
            return;
        }
        let part_ns = part_of(passing_ns, part_bytes, bytes);
        let latency_ns = self.connection(side).link.latency_ns;
        let at_ns = self.now_ns.saturating_add(part_ns).saturating_add(latency_ns);
        self.agenda.plan(at_ns, Event::Begun(id));
    }

    /// Reports the first bytes of a block, unless all of it has arrived.
    pub(super) fn transfer_begun(&mut self, id: TransferId) {
        let Some(to) = self.lookup(id).map(|transfer| transfer.to_member) else { return };
        let side = self.transfer(id.slot).side;
        if self.is_cut(side) {
            return self.connection(side).cut.held.push(Event::Begun(id));
        }
        if self.is_held_up(to) {
            return self.hold(to, Event::Begun(id));
        }
        let part_bytes = self.config.cut_through_bytes.unwrap_or(0) as usize;
        let carry_bytes = self.config.carry_bytes;
        let Some(transfer) = self.transfers[id.slot].as_mut() else { return };
        if !transfer.begin(part_bytes, carry_bytes) {
            return;
        }
        let (token, immediate) = (transfer.target.token, transfer.immediate);
        let endpoint = self.side(side.peer()).endpoint;
        self.complete(to, Completion::Arriving { endpoint, token, immediate });
    }

    /// Returns whether a transfer that has passed its ports has to wait for the rest of its block.
    pub(super) fn follows(&mut self, slot: usize) -> bool {
        let Some(transfer) = self.transfers[slot].as_mut() else { return false };
        let is_whole = transfer.source.as_ref().is_none_or(|source| source.from.is_whole());
        if !is_whole {
            transfer.stage = Stage::Following;
        }
        !is_whole
    }

    /// Lets transfers go on that have waited for a block that has just arrived at this member: its last
    /// part takes as long as another.
    pub(super) fn go_on(&mut self, member: usize) {
        let Some(part_bytes) = self.config.cut_through_bytes else { return };
        for side in self.members[member].sides.clone() {
            for slot in self.side(side).outgoing.clone() {
                let Some(transfer) = &self.transfers[slot] else { continue };
                let is_whole =
                    transfer.source.as_ref().is_some_and(|source| source.from.is_whole());
                if transfer.stage != Stage::Following || !is_whole {
                    continue;
                }
                let (number, attempt) = (transfer.number, transfer.attempt);
                let rate = self.members[member].rate_bytes_per_s;
                let part_ns = part_of(1_000_000_000, part_bytes, rate);
                let id = TransferId { slot, number, attempt };
                self.agenda.plan(self.now_ns.saturating_add(part_ns), Event::Passed(id));
            }
        }
    }

    /// Returns whether a transfer sends a block that has not arrived as a whole.
    pub(super) fn is_following(&self, slot: usize) -> bool {
        self.transfer(slot).source.as_ref().is_some_and(|source| !source.from.is_whole())
    }
}

/// Returns the share of a time that a part of something takes.
fn part_of(time_ns: u64, part: u64, whole: u64) -> u64 {
    let share = u128::from(time_ns) * u128::from(part) / u128::from(whole.max(1));
    u64::try_from(share).unwrap_or(u64::MAX)
}
