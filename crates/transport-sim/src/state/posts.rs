//! Posts and control words, and the matching of sends and receives.

use transport::{Cause, Completion, EndpointId, ReadLease, Token, WriteLease};

use super::State;
use crate::{
    connection::{Connection, Phase, Side},
    event::Event,
    names::SideId,
    post::{From, Orphan, Source, Target},
    trace::What,
    transfer::Transfer,
};

impl State {
    pub(crate) fn connection(&mut self, of: SideId) -> &mut Connection {
        &mut self.connections[of.connection()]
    }

    /// Returns whether a connection is cut, or still delivers what the last cut has held back.
    pub(crate) fn is_cut(&self, of: SideId) -> bool {
        let cut = &self.connections[of.connection()].cut;
        self.now_ns < cut.until_ns || !cut.held.is_empty()
    }

    pub(crate) fn side(&mut self, id: SideId) -> &mut Side {
        self.connections[id.connection()].side(id)
    }

    /// Makes an endpoint of an unopened side.
    pub(crate) fn open(&mut self, id: SideId, endpoint: EndpointId) {
        let side = self.side(id);
        side.endpoint = endpoint;
        side.phase = Phase::Open;
        let member = side.member;
        let (words, end) = (std::mem::take(&mut side.early_words), side.early_end.take());
        for word in words {
            self.complete(member, Completion::Control { endpoint, word });
        }
        if let Some(cause) = end {
            self.end_side(id, cause);
        }
    }

    pub(crate) fn post_receive(&mut self, id: SideId, into: WriteLease, token: Token) {
        let number = self.next_post_number();
        self.side(id).receives.push_back(Target { into, token, number });
    }

    pub(crate) fn post_send(&mut self, id: SideId, from: ReadLease, immediate: u32, token: Token) {
        self.post_source(id, Source { from: From::Whole(from), token }, immediate);
    }

    pub(super) fn post_source(&mut self, id: SideId, source: Source, immediate: u32) {
        let bytes = source.from.bytes();
        let number = self.next_post_number();
        let peer = self.side(id.peer());
        let posted_bytes = match (peer.phase, peer.receives.front()) {
            (Phase::Closing | Phase::Gone, _) => None,
            (_, None) => Some(None),
            (_, Some(target)) => Some(Some(target.into.bytes())),
        };
        let fault = match posted_bytes {
            Some(None) => Some("a block for which no memory was posted".to_owned()),
            Some(Some(posted)) if posted < bytes => Some(format!(
                "a block of {bytes} bytes, longer than the {posted} bytes posted for it"
            )),
            _ => None,
        };
        if posted_bytes.is_none() || fault.is_some() || self.side(id).broke_protocol {
            self.side(id).orphans.push(Orphan::Send(source));
            if let Some(fault) = fault {
                self.report_violation(id, fault);
            }
            return;
        }
        let Some(target) = self.side(id.peer()).receives.pop_front() else { return };
        let (from, to) = (self.side(id).member, self.side(id.peer()).member);
        self.add_transfer(Transfer::new(id, from, to, source, target, immediate, number));
    }

    /// Breaks the peer's side, after a latency: this side has violated the contract.
    pub(crate) fn report_violation(&mut self, id: SideId, fault: String) {
        if !std::mem::replace(&mut self.side(id).broke_protocol, true) {
            let at_ns = self.in_order_arrival(id, 0);
            self.agenda.plan(at_ns, Event::Break(id.peer(), Cause::Protocol(fault)));
        }
    }

    pub(crate) fn write_control(&mut self, id: SideId, word: &[u8]) {
        let jitter_ns = self.random_up_to(self.config.control_jitter_ns_max);
        let at_ns = self.in_order_arrival(id, jitter_ns);
        self.agenda.plan(at_ns, Event::Word(id.peer(), word.to_vec()));
    }

    /// Returns when something that this side sends now arrives, behind everything sent before.
    pub(crate) fn in_order_arrival(&mut self, id: SideId, extra_ns: u64) -> u64 {
        let latency_ns = self.connection(id).link.latency_ns;
        let member = self.side(id).member;
        let said_ns = self.now_ns.max(self.members[member].stalled_until_ns);
        let at_ns = said_ns.saturating_add(latency_ns).saturating_add(extra_ns);
        let last_ns = &mut self.side(id).last_word_arrival_ns;
        *last_ns = at_ns.max(*last_ns);
        *last_ns
    }

    pub(crate) fn word_arrived(&mut self, id: SideId, word: Vec<u8>) {
        let side = self.side(id);
        let (member, endpoint) = (side.member, side.endpoint);
        match side.phase {
            Phase::Gone => {}
            Phase::Unopened => side.early_words.push(word),
            Phase::Open | Phase::Closing => {
                let from = self.side(id.peer()).member;
                let bytes = word.len() as u64;
                self.totals.words += 1;
                self.note(What::Word { from, to: member, bytes });
                self.complete(member, Completion::Control { endpoint, word });
            }
        }
    }
}
