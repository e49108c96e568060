//! Transfers of blocks through ports, and their arrival.

use transport::Completion;

use super::State;
use crate::{
    config::Jitter,
    connection::Phase,
    event::Event,
    names::{SideId, TransferId},
    post::{Orphan, Target},
    trace::What,
    transfer::{Stage, Transfer},
};

/// Returns how long this many bytes take.
pub(super) fn lasting_ns(bytes: u64, rate_bytes_per_s: u64) -> u64 {
    let exact = (u128::from(bytes) * 1_000_000_000).div_ceil(u128::from(rate_bytes_per_s.max(1)));
    u64::try_from(exact).unwrap_or(u64::MAX)
}

impl State {
    /// Queues a transfer at its ports.
    pub(crate) fn add_transfer(&mut self, transfer: Transfer) {
        let slot = self.free_slots.pop().unwrap_or_else(|| {
            self.transfers.push(None);
            self.transfers.len() - 1
        });
        let (side, member) = (transfer.side, transfer.from_member);
        self.transfers[slot] = Some(transfer);
        self.side(side).outgoing.push_back(slot);
        if self.shared().is_some() {
            self.send_part(member);
        } else {
            self.wait_at_ports(slot);
        }
    }

    /// Returns the transfer in a slot that is in use.
    pub(crate) fn transfer(&self, slot: usize) -> &Transfer {
        self.transfers[slot].as_ref().expect("slots in queues are taken")
    }

    pub(super) fn lookup(&self, id: TransferId) -> Option<&Transfer> {
        self.transfers[id.slot]
            .as_ref()
            .filter(|it| (it.number, it.attempt) == (id.number, id.attempt))
    }

    fn take_transfer(&mut self, slot: usize) -> Option<Transfer> {
        let transfer = self.transfers[slot].take()?;
        self.free_slots.push(slot);
        Some(transfer)
    }

    /// Returns how long a block of this transfer occupies the ports if it starts now.
    fn passing_ns(&mut self, slot: usize) -> u64 {
        let transfer = self.transfer(slot);
        let (bytes, side) = (transfer.bytes, transfer.side);
        let port_rates = [transfer.from_member, transfer.to_member]
            .map(|member| self.members[member].rate_bytes_per_s);
        let link_rate = self.connection(side).link.rate_bytes_per_s;
        let rate = link_rate.min(port_rates[0]).min(port_rates[1]).max(1);
        let block_ns = lasting_ns(bytes, rate);
        block_ns.saturating_add(self.extra_ns(block_ns))
    }

    /// Draws for how much longer a block occupies its ports than its bytes do.
    pub(super) fn extra_ns(&mut self, block_ns: u64) -> u64 {
        let jitter_ns_max = match self.config.block_jitter {
            Jitter::None => 0,
            Jitter::Ns(ns) => ns,
            Jitter::BlockTimes(times) => (block_ns as f64 * times) as u64,
        };
        self.random_up_to(jitter_ns_max) + self.config.block_overhead_ns
    }

    /// Assigns both ports to the transfer.
    pub(crate) fn start_transfer(&mut self, slot: usize) {
        let passing_ns = self.passing_ns(slot);
        let transfer = self.transfers[slot].as_mut().expect("slots in queues are taken");
        transfer.stage = Stage::Passing;
        let id = TransferId { slot, number: transfer.number, attempt: transfer.attempt };
        let (from, to, bytes) = (transfer.from_member, transfer.to_member, transfer.bytes);
        self.members[from].totals.transmit_busy_ns += passing_ns;
        self.members[to].totals.receive_busy_ns += passing_ns;
        self.note(What::Start { from, to, bytes });
        self.agenda.plan(self.now_ns.saturating_add(passing_ns), Event::Passed(id));
        self.plan_begin(id, passing_ns);
    }

    /// Frees the ports after the last byte; the block arrives a latency later.
    pub(crate) fn transfer_passed(&mut self, id: TransferId) {
        let Some(transfer) = self.lookup(id) else { return };
        let (from, to, side) = (transfer.from_member, transfer.to_member, transfer.side);
        for member in [from, to] {
            if self.is_held_up(member) {
                return self.hold(member, Event::Passed(id));
            }
        }
        if self.transfer(id.slot).stage == Stage::Passing {
            self.leave_ports(from, to);
        }
        if self.follows(id.slot) {
            return;
        }
        let carry_bytes = self.config.carry_bytes;
        let transfer = self.transfers[id.slot].as_mut().expect("just seen");
        transfer.stage = Stage::Flying;
        transfer.copy_rest(carry_bytes);
        let Some(source) = transfer.source.take() else { return };
        let token = source.token;
        drop(source);
        let endpoint = self.side(side).endpoint;
        self.fire(from, (endpoint, token));
        self.complete(from, Completion::Sent { endpoint, token });
        let jitter_ns = self.random_up_to(self.config.delivery_jitter_ns_max);
        let delay_ns = self.connection(side).link.latency_ns.saturating_add(jitter_ns);
        let at_ns = self.now_ns.saturating_add(delay_ns);
        let last_ns = &mut self.side(side).last_block_arrival_ns;
        *last_ns = at_ns.max(*last_ns);
        if self.side(side).phase == Phase::Closing {
            self.send_bye(side);
        }
        if delay_ns == 0 {
            self.transfer_arrived(id);
        } else {
            self.agenda.plan(at_ns, Event::Arrived(id));
        }
    }

    /// Completes the receive.
    pub(crate) fn transfer_arrived(&mut self, id: TransferId) {
        let Some(to) = self.lookup(id).map(|transfer| transfer.to_member) else { return };
        let side = self.transfer(id.slot).side;
        if self.is_cut(side) {
            return self.connection(side).cut.held.push(Event::Arrived(id));
        }
        if self.is_held_up(to) {
            return self.hold(to, Event::Arrived(id));
        }
        let Some(transfer) = self.take_transfer(id.slot) else { return };
        let Transfer { side, target, bytes, immediate, from_member, given_up, .. } = transfer;
        self.side(side).outgoing.retain(|&slot| slot != id.slot);
        let Target { mut into, token, .. } = target;
        into.advance(bytes as usize - given_up);
        drop(into);
        self.totals.blocks += 1;
        self.totals.bytes += bytes;
        self.members[to].totals.bytes_received += bytes;
        self.members[from_member].totals.bytes_sent += bytes;
        self.note(What::Arrive { from: from_member, to, bytes });
        let endpoint = self.side(side.peer()).endpoint;
        self.fire(to, (endpoint, token));
        self.complete(to, Completion::Received { endpoint, token, bytes, immediate });
        self.go_on(to);
    }

    /// Removes a transfer from its ports, and returns its halves to the sides, to be cancelled.
    pub(crate) fn abort_transfer(&mut self, slot: usize) {
        let Some(transfer) = self.transfers[slot].as_ref() else { return };
        let (from, to) = (transfer.from_member, transfer.to_member);
        match transfer.stage {
            _ if self.shared().is_some() => {}
            Stage::Waiting => self.leave_queues(slot, from, to),
            Stage::Passing => self.leave_ports(from, to),
            Stage::Following | Stage::Flying => {}
        }
        let Some(Transfer { side, source, target, .. }) = self.take_transfer(slot) else { return };
        self.side(side).outgoing.retain(|&other| other != slot);
        self.side(side.peer()).orphans.push(Orphan::Receive(target));
        if let Some(source) = source {
            self.side(side).orphans.push(Orphan::Send(source));
        }
    }

    /// Restarts this side's transfer from its beginning after a cut; other transfers may use the
    /// ports meanwhile.
    pub(crate) fn restart_transfers(&mut self, side: SideId) {
        if self.shared().is_some() {
            // What is on its way is held back.
            return;
        }
        for slot in self.side(side).outgoing.clone() {
            let Some(transfer) = self.transfers[slot].as_mut() else { continue };
            let stage = transfer.stage;
            if !matches!(stage, Stage::Passing | Stage::Following) {
                continue;
            }
            transfer.stage = Stage::Waiting;
            transfer.attempt += 1;
            let (from, to) = (transfer.from_member, transfer.to_member);
            if stage == Stage::Passing {
                self.leave_ports(from, to);
            }
            self.wait_at_ports(slot);
        }
    }

    pub(crate) fn is_waiting(&self, slot: usize) -> bool {
        self.transfer(slot).stage == Stage::Waiting
    }

    pub(crate) fn is_flying(&self, slot: usize) -> bool {
        self.transfer(slot).stage == Stage::Flying
    }
}
