//! Ports that serve all transfers at once, part by part, as links do that several connections share.

use transport::Completion;

use super::{State, transfers::lasting_ns};
use crate::{
    config::Ports,
    connection::Phase,
    event::Event,
    names::{SideId, TransferId},
    transfer::Stage,
};

impl State {
    /// Returns the length of a part and how many of a connection may be under way, if ports are shared.
    pub(super) fn shared(&self) -> Option<(u64, u32)> {
        match self.config.ports {
            Ports::InOrder => None,
            Ports::Shared { part_bytes, parts_under_way } => {
                Some((part_bytes.max(1), parts_under_way.max(1)))
            }
        }
    }

    /// Lets a member send the next part, of its connections in turn, if its port is free.
    pub(super) fn send_part(&mut self, member: usize) {
        let Some((part_bytes, under_way_max)) = self.shared() else { return };
        if self.members[member].transmit.busy || self.is_held_up(member) {
            return;
        }
        let count = self.members[member].sides.len();
        for turn in 1..=count {
            let index = (self.members[member].turn + turn) % count;
            let side = self.members[member].sides[index];
            if self.is_cut(side) || self.side(side).under_way >= under_way_max {
                continue;
            }
            let Some((id, bytes)) = self.next_part(side, part_bytes) else { continue };
            self.members[member].turn = index;
            self.members[member].transmit.busy = true;
            let lasting_ns = self.part_ns(id.slot, bytes);
            self.members[member].totals.transmit_busy_ns += lasting_ns;
            let at_ns = self.now_ns.saturating_add(lasting_ns);
            return self.agenda.plan(at_ns, Event::PartLeft { id, member, bytes });
        }
    }

    /// Returns the part that a side sends next: of the first block of which not all has left.
    fn next_part(&mut self, side: SideId, part_bytes: u64) -> Option<(TransferId, u64)> {
        let outgoing = self.side(side).outgoing.clone();
        let unsent = |slot: &&usize| {
            self.transfers[**slot].as_ref().is_some_and(|transfer| transfer.source.is_some())
        };
        let slot = *outgoing.iter().find(unsent)?;
        let transfer = self.transfers[slot].as_mut()?;
        let bytes = part_bytes.min(transfer.bytes - transfer.left);
        let here = transfer.source.as_ref()?.from.contents().len() as u64;
        if here < transfer.left + bytes {
            return None;
        }
        transfer.stage = Stage::Passing;
        let (number, attempt) = (transfer.number, transfer.attempt);
        Some((TransferId { slot, number, attempt }, bytes))
    }

    /// Returns how long a part occupies its source's port; the first one starts late by what is drawn
    /// for its block.
    fn part_ns(&mut self, slot: usize, bytes: u64) -> u64 {
        let transfer = self.transfer(slot);
        let (side, is_first, whole) = (transfer.side, transfer.left == 0, transfer.bytes);
        let port_rate = self.members[transfer.from_member].rate_bytes_per_s;
        let rate = port_rate.min(self.connection(side).link.rate_bytes_per_s);
        let exact_ns = lasting_ns(bytes, rate);
        if !is_first {
            return exact_ns;
        }
        let extra_ns = self.extra_ns(lasting_ns(whole, rate));
        exact_ns.saturating_add(extra_ns)
    }

    /// A part has left its source's port.
    pub(super) fn part_left(&mut self, id: TransferId, member: usize, bytes: u64) {
        if self.is_held_up(member) {
            return self.hold(member, Event::PartLeft { id, member, bytes });
        }
        self.members[member].transmit.busy = false;
        self.count_part(id, bytes);
        self.send_part(member);
    }

    fn count_part(&mut self, id: TransferId, bytes: u64) {
        if self.lookup(id).is_none() {
            return;
        }
        let carry_bytes = self.config.carry_bytes;
        let Some(transfer) = self.transfers[id.slot].as_mut() else { return };
        let (side, from) = (transfer.side, transfer.from_member);
        transfer.copy_part(bytes as usize, carry_bytes);
        transfer.left += bytes;
        let is_sent = transfer.left == transfer.bytes;
        let source = transfer.source.take_if(|_| is_sent);
        if is_sent {
            transfer.stage = Stage::Flying;
        }
        let jitter_ns = self.random_up_to(self.config.delivery_jitter_ns_max);
        let delay_ns = self.connection(side).link.latency_ns.saturating_add(jitter_ns);
        self.side(side).under_way += 1;
        let now_ns = self.now_ns;
        let last_ns = &mut self.side(side).last_block_arrival_ns;
        *last_ns = now_ns.saturating_add(delay_ns).max(*last_ns);
        let at_ns = *last_ns;
        self.agenda.plan(at_ns, Event::PartCame { id, side, bytes });
        if let Some(source) = source {
            let token = source.token;
            drop(source);
            let endpoint = self.side(side).endpoint;
            self.fire(from, (endpoint, token));
            self.complete(from, Completion::Sent { endpoint, token });
            if self.side(side).phase == Phase::Closing {
                self.send_bye(side);
            }
        }
    }

    /// A part waits for its target's port.
    pub(super) fn part_came(&mut self, id: TransferId, side: SideId, bytes: u64) {
        let to = self.side(side.peer()).member;
        self.members[to].coming.push_back((id, side, bytes));
        self.read_part(to);
    }

    fn read_part(&mut self, member: usize) {
        let state = &mut self.members[member];
        let Some(&(_, side, bytes)) = state.coming.front().filter(|_| !state.receive.busy) else {
            return;
        };
        let link_rate = self.connection(side).link.rate_bytes_per_s;
        let state = &mut self.members[member];
        let lasting_ns = lasting_ns(bytes, state.rate_bytes_per_s.min(link_rate));
        state.receive.busy = true;
        state.totals.receive_busy_ns += lasting_ns;
        self.agenda.plan(self.now_ns.saturating_add(lasting_ns), Event::PartRead { member });
    }

    /// A part has passed its target's port.
    pub(super) fn part_read(&mut self, member: usize) {
        if self.is_held_up(member) {
            return self.hold(member, Event::PartRead { member });
        }
        let state = &mut self.members[member];
        state.receive.busy = false;
        if let Some((id, side, bytes)) = state.coming.pop_front() {
            let side_state = self.side(side);
            side_state.under_way = side_state.under_way.saturating_sub(1);
            let from = side_state.member;
            self.take_part(id, bytes);
            self.send_part(from);
        }
        self.read_part(member);
        // What has come may be sent on.
        self.send_part(member);
    }

    fn take_part(&mut self, id: TransferId, bytes: u64) {
        if self.lookup(id).is_none() {
            return;
        }
        let can_follow = self.config.cut_through_bytes.is_some();
        let Some(transfer) = self.transfers[id.slot].as_mut() else { return };
        transfer.come += bytes;
        if transfer.come == transfer.bytes {
            return self.transfer_arrived(id);
        }
        let is_first = transfer.given_up == 0;
        transfer.give_up(bytes as usize);
        if is_first && can_follow && transfer.target.into.is_followed() {
            let (to, side) = (transfer.to_member, transfer.side);
            let (token, immediate) = (transfer.target.token, transfer.immediate);
            let endpoint = self.side(side.peer()).endpoint;
            self.complete(to, Completion::Arriving { endpoint, token, immediate });
        }
    }
}
