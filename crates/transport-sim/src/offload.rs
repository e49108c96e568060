//! Sends that the simulated network card starts by itself, when a receive holds its block.

use std::collections::HashMap;

use transport::{Completion, EndpointId, FutureRead, PostError, Token, WriteLease};

use crate::{
    connection::{Orphan, Phase, SideId},
    state::State,
    transfer::{Source, Target, Transfer},
};

/// An offloaded receive, as the member that posted it names it.
pub(crate) type ReceiveName = (EndpointId, Token);

/// A send that waits for a receive.
pub(crate) struct Triggered {
    pub(crate) side: SideId,
    pub(crate) from: FutureRead,
    immediate: u32,
    pub(crate) token: Token,
}

/// How far an offloaded receive is.
pub(crate) enum Trigger {
    /// Its block is not here; these sends wait for it, in posting order.
    Armed(Vec<Triggered>),
    /// It holds its block.
    Fired,
    Cancelled,
}

/// A member's offloaded receives, until the poll after the one that reported them.
#[derive(Default)]
pub(crate) struct Triggers {
    known: HashMap<ReceiveName, Trigger>,
    /// Not armed any more, and not reported yet.
    settled: Vec<ReceiveName>,
    /// Reported by the last poll.
    reported: Vec<ReceiveName>,
}

impl Triggers {
    /// What the last poll reported has been seen; what has settled since is about to be reported.
    pub(crate) fn note_poll(&mut self) {
        for name in std::mem::replace(&mut self.reported, std::mem::take(&mut self.settled)) {
            // The name may be in use again.
            if !matches!(self.known.get(&name), Some(Trigger::Armed(_))) {
                self.known.remove(&name);
            }
        }
    }

    fn settle(&mut self, name: ReceiveName, outcome: Trigger) -> Vec<Triggered> {
        let Some(trigger @ Trigger::Armed(_)) = self.known.get_mut(&name) else {
            return Vec::new();
        };
        let before = std::mem::replace(trigger, outcome);
        self.settled.push(name);
        match before {
            Trigger::Armed(sends) => sends,
            Trigger::Fired | Trigger::Cancelled => Vec::new(),
        }
    }

    /// Takes out the sends of one side: it ends.
    pub(crate) fn disarm(&mut self, side: SideId) -> Vec<Triggered> {
        let mut sends = Vec::new();
        for trigger in self.known.values_mut() {
            if let Trigger::Armed(waiting) = trigger {
                sends.extend(waiting.extract_if(.., |send| send.side == side));
            }
        }
        // A map has no order of its own, and the same run must be the same again.
        sends.sort_unstable_by_key(|send| send.token);
        sends
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

impl State {
    pub(crate) fn post_offloaded_receive(
        &mut self,
        id: SideId,
        into: WriteLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        if self.side(id).offloaded.contains_key(&immediate) {
            let what = format!("immediate {immediate} is in use by another offloaded receive");
            return Err(PostError::System(what));
        }
        let number = self.next_post_number();
        let side = self.side(id);
        side.offloaded.insert(immediate, Target { into, token, number });
        let (member, endpoint) = (side.member, side.endpoint);
        let triggers = &mut self.members[member].triggers;
        triggers.known.insert((endpoint, token), Trigger::Armed(Vec::new()));
        Ok(())
    }

    pub(crate) fn post_offloaded_send(
        &mut self,
        id: SideId,
        from: FutureRead,
        immediate: u32,
        token: Token,
        after: Option<ReceiveName>,
    ) -> Result<(), PostError> {
        let (member, endpoint) = (self.side(id).member, self.side(id).endpoint);
        let send = Triggered { side: id, from, immediate, token };
        let Some(name) = after else {
            // Not started yet: a refusal must leave nothing behind.
            send.from.read_now().map_err(|error| PostError::System(error.to_string()))?;
            self.start_offloaded(send);
            return Ok(());
        };
        match self.members[member].triggers.known.get_mut(&name) {
            Some(Trigger::Armed(waiting)) => waiting.push(send),
            Some(Trigger::Fired) => self.start_offloaded(send),
            Some(Trigger::Cancelled) => {
                drop(send);
                self.complete(member, Completion::Cancelled { endpoint, token });
            }
            None => {
                let what = format!("receive {:?} of {:?} is not known", name.1, name.0);
                return Err(PostError::System(what));
            }
        }
        Ok(())
    }

    /// The receive holds its block: whatever waits for that starts, whether the member polls or
    /// not.
    pub(crate) fn fire(&mut self, member: usize, name: ReceiveName) {
        for send in self.members[member].triggers.settle(name, Trigger::Fired) {
            self.start_offloaded(send);
        }
    }

    /// The receive will never hold a block; nor is anything sent of what waits for it.
    pub(crate) fn cancel_dependents(&mut self, member: usize, name: ReceiveName) {
        for send in self.members[member].triggers.settle(name, Trigger::Cancelled) {
            let Triggered { side, from, token, .. } = send;
            drop(from);
            let endpoint = self.side(side).endpoint;
            self.complete(member, Completion::Cancelled { endpoint, token });
        }
    }

    fn start_offloaded(&mut self, send: Triggered) {
        let Triggered { side: id, from, immediate, token } = send;
        let (member, endpoint) = (self.side(id).member, self.side(id).endpoint);
        let Ok(lease) = from.read_now() else {
            // Somebody else writes to what has arrived: it is not the block any more.
            drop(from);
            return self.complete(member, Completion::Cancelled { endpoint, token });
        };
        drop(from);
        let bytes = lease.bytes();
        let source = Source { from: lease, token };
        let peer = self.side(id.peer());
        let fault = match peer.offloaded.get(&immediate).map(|target| target.into.bytes()) {
            _ if matches!(peer.phase, Phase::Closing | Phase::Gone) => None,
            None => Some(format!("a block for which no memory was posted (immediate {immediate})")),
            Some(posted) if posted < bytes => Some(format!(
                "a block of {bytes} bytes, longer than the {posted} bytes posted for it"
            )),
            Some(_) => None,
        };
        let is_wrong = fault.is_some() || self.side(id).in_disgrace;
        let peer = self.side(id.peer());
        let target = if is_wrong { None } else { peer.offloaded.remove(&immediate) };
        match target {
            Some(target) => {
                let peer = peer.member;
                let number = self.next_post_number();
                let transfer = Transfer::new((id, member), peer, source, target, immediate, number);
                let slot = self.add_transfer(transfer);
                self.side(id).outgoing.push_back(slot);
            }
            None => {
                self.side(id).orphans.push(Orphan::Send(source));
                if let Some(fault) = fault {
                    self.disgrace(id, fault);
                }
            }
        }
    }
}
