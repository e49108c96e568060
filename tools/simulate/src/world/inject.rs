//! What a scenario does to members, at its step.

use std::time::Duration;

use transport_sim::Fault as LinkFault;

use super::World;
use crate::{
    actor::{Here, Order},
    book::Done,
    scenario::Fault,
};

impl World<'_> {
    /// Injects the faults whose step has come.
    pub(super) fn inject_due(&mut self) {
        while let Some(fault) = self.scenario.faults.get(self.faults_done) {
            if fault.step > self.step {
                return;
            }
            self.faults_done += 1;
            self.inject(&fault.what);
        }
    }

    fn inject(&mut self, what: &Fault) {
        let now_ns = self.now_ns();
        self.network.remark(|| format!("step {}: {what:?}", self.step));
        self.book.faults.push(Done { at_ns: now_ns, what: what.clone() });
        let over_ns = match what.holds_ns() {
            u64::MAX => now_ns,
            holds_ns => now_ns + holds_ns,
        };
        self.disturbed_ns = self.disturbed_ns.max(over_ns);
        if what.holds_ns() > 0 {
            self.bound_ns = self.scenario.deadlines_ns();
        }
        match what {
            Fault::Kill { member } => self.kill(*member as usize),
            Fault::Reset { members: [one, other] } => {
                self.network.inject(LinkFault::Reset(*one as usize, *other as usize));
            }
            Fault::Freeze { member, for_ns } => {
                let (member, lasting) = (*member as usize, duration(*for_ns));
                self.network.inject(LinkFault::Stall { member, lasting });
                self.hold(member, for_ns.map_or(u64::MAX, |for_ns| now_ns + for_ns));
            }
            Fault::Pause { member, for_ns } => self.hold(*member as usize, now_ns + for_ns),
            Fault::Partition { members, for_ns } => {
                let lasting = duration(*for_ns);
                let others = (0..self.scenario.size()).filter(|other| !members.contains(other));
                for other in others {
                    for &one in members {
                        let (one, other) = (one as usize, other as usize);
                        self.network.inject(LinkFault::Cut { one, other, lasting });
                    }
                }
            }
            Fault::Rate { member, bytes_per_s } => {
                self.network.set_port_rate(*member as usize, *bytes_per_s);
            }
            Fault::Abort { member, group } => self.order(*member, *group, Order::Abort),
            Fault::Refuse { member, group } => self.order(*member, *group, Order::Refuse),
            Fault::Mute { member, group } => self.order(*member, *group, Order::FallSilent),
        }
    }

    /// Passes an order to an application, if it runs and has not ended.
    fn order(&mut self, rank: u32, group: usize, order: Order) {
        let (rank, now_ns) = (rank as usize, self.now_ns());
        let member = &mut self.members[rank];
        let Some(engine) = &mut member.engine else { return };
        let actor = &mut member.actors[group];
        if !member.has_started[group] || member.held_until_ns > now_ns || actor.has_ended() {
            return;
        }
        let mut here = Here { engine, now_ns, book: &mut self.book, network: self.network };
        actor.obey(order, &mut here);
        self.look(rank);
    }

    fn hold(&mut self, rank: usize, until_ns: u64) {
        let held = &mut self.members[rank].held_until_ns;
        *held = until_ns.max(*held);
    }

    fn kill(&mut self, rank: usize) {
        self.network.kill(rank);
        let member = &mut self.members[rank];
        if member.engine.take().is_some() {
            member.planned.clear();
            member.actors.iter_mut().for_each(|actor| actor.finish(&mut self.book));
        }
    }
}

/// `None` is for ever.
fn duration(for_ns: Option<u64>) -> Duration {
    for_ns.map_or(Duration::MAX, Duration::from_nanos)
}
