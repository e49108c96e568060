//! Sends that the simulated network card starts by itself once other operations are done.

use transport::{Completion, FutureRead, PostError, Token, WriteLease};

use super::State;
use crate::{
    connection::Phase,
    names::SideId,
    post::{From, Orphan, Source, Target},
    transfer::Transfer,
    trigger::{Name, Trigger, Waiting},
};

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
        self.members[member].triggers.arm((endpoint, token));
        Ok(())
    }

    pub(crate) fn post_offloaded_send(
        &mut self,
        id: SideId,
        from: FutureRead,
        immediate: u32,
        token: Token,
        after: &[Name],
    ) -> Result<(), PostError> {
        let (member, endpoint) = (self.side(id).member, self.side(id).endpoint);
        let number = self.next_post_number();
        let triggers = &mut self.members[member].triggers;
        let (mut missing, mut cancelled) = (0, false);
        for name in after {
            match triggers.known.get(name) {
                Some(Trigger::Armed(_)) => missing += 1,
                Some(Trigger::Fired) => {}
                Some(Trigger::Cancelled) => cancelled = true,
                None => {
                    let what = format!("operation {:?} of {:?} is not known", name.1, name.0);
                    return Err(PostError::System(what));
                }
            }
        }
        if missing == 0 && !cancelled {
            // Checked first: a refused post must not change anything.
            from.read_now().map_err(|error| PostError::System(error.to_string()))?;
        }
        triggers.arm((endpoint, token));
        let send = Waiting { side: id, from, immediate, token, missing };
        if cancelled {
            drop(send);
            self.cancel(member, (endpoint, token));
        } else if missing == 0 {
            self.start_offloaded(send);
        } else {
            for name in after {
                if let Some(Trigger::Armed(waiting)) = triggers.known.get_mut(name) {
                    waiting.push(number);
                }
            }
            triggers.waiting.insert(number, send);
        }
        Ok(())
    }

    /// Marks an operation as done: sends that wait for nothing else start, whether the member polls
    /// or not.
    pub(crate) fn fire(&mut self, member: usize, name: Name) {
        let triggers = &mut self.members[member].triggers;
        let mut ready = Vec::new();
        for number in triggers.settle(name, Trigger::Fired) {
            let Some(send) = triggers.waiting.get_mut(&number) else { continue };
            send.missing -= 1;
            if send.missing == 0 {
                ready.extend(triggers.waiting.remove(&number));
            }
        }
        ready.into_iter().for_each(|send| self.start_offloaded(send));
    }

    /// Reports a post as cancelled, and all posts that wait for it.
    pub(crate) fn cancel(&mut self, member: usize, name: Name) {
        let mut cancelled = vec![name];
        while let Some(name) = cancelled.pop() {
            let (endpoint, token) = name;
            self.complete(member, Completion::Cancelled { endpoint, token });
            let triggers = &mut self.members[member].triggers;
            let waiting = triggers.settle(name, Trigger::Cancelled);
            let sends: Vec<Waiting> =
                waiting.iter().filter_map(|number| triggers.waiting.remove(number)).collect();
            for Waiting { side, token, .. } in sends {
                cancelled.push((self.side(side).endpoint, token));
            }
        }
    }

    fn start_offloaded(&mut self, send: Waiting) {
        let Waiting { side: id, from, immediate, token, .. } = send;
        let (member, endpoint) = (self.side(id).member, self.side(id).endpoint);
        let lease = from.read_now();
        drop(from);
        let Ok(lease) = lease else {
            // The received block is being overwritten, so it cannot be relayed.
            return self.cancel(member, (endpoint, token));
        };
        let bytes = lease.bytes();
        let source = Source { from: From::Whole(lease), token };
        let peer = self.side(id.peer());
        let fault = match peer.offloaded.get(&immediate).map(|target| target.into.bytes()) {
            _ if matches!(peer.phase, Phase::Closing | Phase::Gone) => None,
            None => Some(format!("a block for which no memory was posted (immediate {immediate})")),
            Some(posted) if posted < bytes => Some(format!(
                "a block of {bytes} bytes, longer than the {posted} bytes posted for it"
            )),
            Some(_) => None,
        };
        let is_wrong = fault.is_some() || self.side(id).broke_protocol;
        let peer = self.side(id.peer());
        let to = peer.member;
        let target = if is_wrong { None } else { peer.offloaded.remove(&immediate) };
        match target {
            Some(target) => {
                let number = self.next_post_number();
                let transfer = Transfer::new(id, member, to, source, target, immediate, number);
                self.add_transfer(transfer);
            }
            None => {
                self.side(id).orphans.push(Orphan::Send(source));
                if let Some(fault) = fault {
                    self.report_violation(id, fault);
                }
            }
        }
    }
}
