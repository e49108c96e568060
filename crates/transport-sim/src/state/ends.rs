//! How a connection ends: closing and breaking, and what is reported.

use transport::{Cause, Completion};

use super::State;
use crate::{
    connection::Phase, event::Event, names::SideId, post::Orphan, trace::What, write::PostedWrite,
};

impl State {
    /// Starts an ordered close. Transfers that occupy ports are completed, unless their block has not
    /// arrived as a whole.
    pub(crate) fn close(&mut self, id: SideId) {
        let side = self.side(id);
        if side.phase != Phase::Open {
            return;
        }
        side.phase = Phase::Closing;
        let incoming = self.side(id.peer()).outgoing.clone();
        incoming.into_iter().for_each(|slot| self.abort_transfer(slot));
        let outgoing = self.side(id).outgoing.clone();
        let mut is_passing = false;
        for slot in outgoing {
            if self.is_waiting(slot) || self.is_following(slot) {
                self.abort_transfer(slot);
            } else {
                is_passing |= !self.is_flying(slot);
            }
        }
        self.cancel_posts(id);
        if !is_passing {
            self.send_bye(id);
        }
        let drain_ns = self.config.drain_timeout_ms.saturating_mul(1_000_000);
        let at_ns = self.now_ns.saturating_add(drain_ns);
        self.agenda.plan(at_ns, Event::BreakLocally(id, Cause::Lost("drain timeout".into())));
    }

    /// Sends the end of this side, behind everything that it has sent before.
    pub(crate) fn send_bye(&mut self, id: SideId) {
        let side = self.side(id);
        let last_ns = side.last_block_arrival_ns.max(side.last_write_arrival_ns);
        let at_ns = self.in_order_arrival(id, 0).max(last_ns);
        self.agenda.plan(at_ns, Event::Bye(id.peer()));
    }

    pub(crate) fn bye_arrived(&mut self, id: SideId) {
        self.end_side(id, Cause::ClosedByPeer);
    }

    /// Ends a side: cancels its posts, reports the end, and notifies the peer. A closing side
    /// ends as closed, whatever the cause.
    pub(crate) fn end_side(&mut self, id: SideId, cause: Cause) {
        let side = self.side(id);
        let (phase, member, endpoint) = (side.phase, side.member, side.endpoint);
        match phase {
            Phase::Gone => return,
            Phase::Unopened if side.early_end.is_some() => return,
            Phase::Unopened => side.early_end = Some(cause),
            Phase::Open | Phase::Closing => {
                side.phase = Phase::Gone;
                self.abandon_transfers(id);
                self.cancel_posts(id);
                let peer = self.side(id.peer()).member;
                let end = if phase == Phase::Closing {
                    Completion::Closed { endpoint }
                } else {
                    Completion::Broken { endpoint, cause }
                };
                self.note(What::End { member, peer, end: end.clone() });
                self.complete(member, end);
            }
        }
        let last_words = if phase == Phase::Closing {
            Cause::ClosedByPeer
        } else {
            Cause::Lost("the peer has dropped the connection".into())
        };
        let at_ns = self.in_order_arrival(id, 0);
        self.agenda.plan(at_ns, Event::Break(id.peer(), last_words));
    }

    /// Ends a side, and notifies only the peer, after `detection_ns`.
    pub(crate) fn vanish(&mut self, id: SideId, detection_ns: u64) {
        let side = self.side(id);
        if side.phase == Phase::Gone {
            return;
        }
        side.phase = Phase::Gone;
        self.abandon_transfers(id);
        let side = self.side(id);
        side.receives.clear();
        side.offloaded.clear();
        side.orphans.clear();
        side.writes.clear();
        side.exposed.clear();
        let at_ns = self.now_ns.saturating_add(detection_ns);
        let cause = Cause::Lost("the peer has died".into());
        self.agenda.plan(at_ns, Event::Break(id.peer(), cause));
    }

    /// Cancels what uses this side's memory. What has left it already still arrives.
    fn abandon_transfers(&mut self, id: SideId) {
        let outgoing = self.side(id).outgoing.clone();
        for slot in outgoing {
            if !self.is_flying(slot) {
                self.abort_transfer(slot);
            }
        }
        let incoming = self.side(id.peer()).outgoing.clone();
        incoming.into_iter().for_each(|slot| self.abort_transfer(slot));
    }

    /// Cancels all posts that are not matched any more.
    fn cancel_posts(&mut self, id: SideId) {
        let side = self.side(id);
        let (member, endpoint) = (side.member, side.endpoint);
        let receives = std::mem::take(&mut side.receives);
        let offloaded = std::mem::take(&mut side.offloaded);
        let orphans = std::mem::take(&mut side.orphans);
        let writes = std::mem::take(&mut side.writes);
        side.exposed.clear();
        let triggered = self.members[member].triggers.disarm(id);
        let tokens: Vec<_> = orphans
            .into_iter()
            .map(Orphan::into_token)
            .chain(receives.into_iter().map(|target| target.token))
            .chain(offloaded.into_values().map(|target| target.token))
            .chain(triggered)
            .chain(writes.into_iter().map(PostedWrite::into_token))
            .collect();
        for token in tokens {
            self.cancel(member, (endpoint, token));
        }
    }
}
