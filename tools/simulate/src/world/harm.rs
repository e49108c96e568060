//! What a scenario does to members, at its step.

use std::time::Duration;

use transport_sim::Fault;

use super::World;
use crate::{
    actor::{Here, Order},
    book::Done,
    scenario::What,
};

impl World<'_> {
    /// Whatever its step has come for.
    pub(super) fn do_harm(&mut self) {
        while let Some(harm) = self.scenario.harms.get(self.harms_done) {
            if harm.step > self.step {
                return;
            }
            self.harms_done += 1;
            self.harm(&harm.what);
        }
    }

    fn harm(&mut self, what: &What) {
        let now_ns = self.now_ns();
        self.network.remark(|| format!("step {}: {what:?}", self.step));
        self.book.harms.push(Done { at_ns: now_ns, what: what.clone() });
        let over_ns = match what.holds_ns() {
            u64::MAX => now_ns,
            holds_ns => now_ns + holds_ns,
        };
        self.disturbed_ns = self.disturbed_ns.max(over_ns);
        if what.holds_ns() > 0 {
            self.bound_ns = self.scenario.deadlines_ns();
        }
        match what {
            What::Kill { member } => self.kill(*member as usize),
            What::Reset { members: [one, other] } => {
                self.network.inject(Fault::Reset(*one as usize, *other as usize));
            }
            What::Freeze { member, for_ns } => {
                let (member, lasting) = (*member as usize, duration(*for_ns));
                self.network.inject(Fault::Stall { member, lasting });
                self.hold(member, for_ns.map_or(u64::MAX, |for_ns| now_ns + for_ns));
            }
            What::Pause { member, for_ns } => self.hold(*member as usize, now_ns + for_ns),
            What::Partition { members, for_ns } => {
                let lasting = duration(*for_ns);
                let others = (0..self.scenario.size()).filter(|other| !members.contains(other));
                for other in others {
                    for &one in members {
                        let (one, other) = (one as usize, other as usize);
                        self.network.inject(Fault::Cut { one, other, lasting });
                    }
                }
            }
            What::Rate { member, bytes_per_s } => {
                self.network.set_port_rate(*member as usize, *bytes_per_s);
            }
            What::Abort { member, group } => self.order(*member, *group, Order::Abort),
            What::Refuse { member, group } => self.order(*member, *group, Order::Refuse),
            What::Mute { member, group } => self.order(*member, *group, Order::FallSilent),
        }
    }

    /// Tells an application what to do, if it is there to hear it.
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
