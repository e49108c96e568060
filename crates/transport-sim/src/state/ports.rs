//! Assignment of free ports to transfers: the arbitration rule of the crate's documentation.

use super::State;
use crate::{
    event::Event,
    port::{Port, Way},
};

impl State {
    fn port(&mut self, member: usize, way: Way) -> &mut Port {
        let member = &mut self.members[member];
        match way {
            Way::Transmit => &mut member.transmit,
            Way::Receive => &mut member.receive,
        }
    }

    fn is_free(&self, member: usize, way: Way) -> bool {
        let state = &self.members[member];
        let port = match way {
            Way::Transmit => &state.transmit,
            Way::Receive => &state.receive,
        };
        !port.busy && !self.is_held_up(member)
    }

    /// Marks a port at which a transfer may start at the end of this instant.
    pub(crate) fn note_freed(&mut self, member: usize, way: Way) {
        let port = self.port(member, way);
        if port.waiting.is_empty() || std::mem::replace(&mut port.freed, true) {
            return;
        }
        if self.freed.is_empty() {
            self.agenda.plan(self.now_ns, Event::Arbitrate);
        }
        self.freed.push((member, way));
    }

    /// Adds a new transfer to the queues of its ports.
    pub(crate) fn wait_at_ports(&mut self, slot: usize) {
        let transfer = self.transfer(slot);
        let (from, to) = (transfer.from_member, transfer.to_member);
        let receive_number = transfer.target.number;
        // Sends are queued in the order in which they are posted; their receives may have been
        // posted in another order.
        let receives = &self.members[to].receive.waiting;
        let place =
            receives.partition_point(|&other| self.transfer(other).target.number < receive_number);
        self.members[to].receive.waiting.insert(place, slot);
        let number = self.transfer(slot).number;
        let sends = &self.members[from].transmit.waiting;
        let place = sends.partition_point(|&other| self.transfer(other).number < number);
        self.members[from].transmit.waiting.insert(place, slot);
        self.note_freed(from, Way::Transmit);
    }

    /// Removes a waiting transfer from the queues.
    pub(crate) fn leave_queues(&mut self, slot: usize, from: usize, to: usize) {
        for (member, way) in [(from, Way::Transmit), (to, Way::Receive)] {
            let waiting = &mut self.port(member, way).waiting;
            if let Some(place) = waiting.iter().position(|&other| other == slot) {
                waiting.remove(place);
            }
        }
    }

    /// Frees the ports of a transfer that has finished or was aborted.
    pub(crate) fn leave_ports(&mut self, from: usize, to: usize) {
        for (member, way) in [(from, Way::Transmit), (to, Way::Receive)] {
            self.port(member, way).busy = false;
            self.note_freed(member, way);
        }
    }

    /// Returns the transfer that this port prefers: its first one whose other end is free, too.
    fn preferred(&self, member: usize, way: Way) -> Option<usize> {
        if !self.is_free(member, way) {
            return None;
        }
        let member = &self.members[member];
        let can_start = |&slot: &usize| {
            let transfer = self.transfer(slot);
            let is_other_free = match way {
                Way::Transmit => self.is_free(transfer.to_member, Way::Receive),
                Way::Receive => self.is_free(transfer.from_member, Way::Transmit),
            };
            is_other_free && !self.is_cut(transfer.side)
        };
        match way {
            Way::Transmit => member.transmit.waiting.iter().copied().find(can_start),
            Way::Receive => member.receive.waiting.iter().copied().find(can_start),
        }
    }

    /// Starts all transfers that can start. Only ports that were freed, or that have a new waiting
    /// transfer, need to be checked: at all others one end of each waiting transfer was busy after
    /// the last time, and still is.
    pub(crate) fn arbitrate(&mut self) {
        let freed = std::mem::take(&mut self.freed);
        for &(member, way) in &freed {
            self.port(member, way).freed = false;
            while let Some(slot) = self.preferred(member, way) {
                let agreed = self.agree(slot, way);
                self.occupy_ports(agreed);
            }
        }
        // No port was freed meanwhile: transfers only start here. This keeps the allocation.
        self.freed = freed;
        self.freed.clear();
    }

    /// Follows preferences from `slot`, which the `way` port prefers, to a transfer that both its
    /// ends prefer, or around a circle, of which the transfer that was posted first is chosen.
    fn agree(&self, slot: usize, way: Way) -> usize {
        let mut path = vec![slot];
        let mut asking = way;
        loop {
            let current = path[path.len() - 1];
            let transfer = self.transfer(current);
            let answer = match asking {
                Way::Transmit => self.preferred(transfer.to_member, Way::Receive),
                Way::Receive => self.preferred(transfer.from_member, Way::Transmit),
            };
            match answer {
                // An end without a startable transfer would not have been preferred by the other.
                None => return current,
                Some(next) if next == current => return current,
                Some(next) => {
                    if let Some(begin) = path.iter().position(|&other| other == next) {
                        let first = path[begin..].iter().copied();
                        return first
                            .min_by_key(|&slot| self.transfer(slot).number)
                            .unwrap_or(current);
                    }
                    path.push(next);
                }
            }
            asking = match asking {
                Way::Transmit => Way::Receive,
                Way::Receive => Way::Transmit,
            };
        }
    }

    fn occupy_ports(&mut self, slot: usize) {
        let transfer = self.transfer(slot);
        let (from, to) = (transfer.from_member, transfer.to_member);
        self.leave_queues(slot, from, to);
        self.members[from].transmit.busy = true;
        self.members[to].receive.busy = true;
        self.start_transfer(slot);
    }
}
