//! What happens when, for whoever listens to it: events of the target `rdmc::timeline` at level
//! TRACE, described in the crate's documentation. Nothing is computed while nobody listens.

use relay::{ReceiveId, SendId, Wait};
use tracing::Level;

use crate::{group::Group, order::Due};

/// What an event is about, as far as it is known.
#[derive(Clone, Copy, Default)]
pub(crate) struct Facts {
    peer: Option<u32>,
    message: Option<u64>,
    step: Option<u64>,
    block: Option<u32>,
    bytes: Option<u64>,
    post: Option<u64>,
}

impl Facts {
    pub(crate) fn of(peer: impl Into<Option<u32>>) -> Self {
        Self { peer: peer.into(), ..Self::default() }
    }

    pub(crate) fn message(self, number: u64) -> Self {
        Self { message: Some(number), ..self }
    }

    /// The message that the relay calls so.
    pub(crate) fn relayed(self, group: &Group, message: u64) -> Self {
        Self { message: group.order.number_of(message), ..self }
    }

    pub(crate) fn bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    pub(crate) fn post(self, post: u64) -> Self {
        Self { post: Some(post), ..self }
    }

    fn transfer(self, transfer: Option<schedule::Transfer>) -> Self {
        let (step, block) = transfer.map(|it| (it.step, it.block)).unzip();
        Self { step, block, ..self }
    }
}

impl Group {
    /// Tells that `what` happens now. Costs next to nothing while nobody listens.
    pub(crate) fn note(&self, what: &'static str, facts: impl FnOnce(&Self) -> Facts) {
        if !tracing::enabled!(target: "rdmc::timeline", Level::TRACE) {
            return;
        }
        let (group, member) = (self.settings.number, self.settings.rank);
        let Facts { peer, message, step, block, bytes, post } = facts(self);
        tracing::trace!(
            target: "rdmc::timeline",
            what, group, member, peer, message, step, block, bytes, post
        );
    }

    pub(crate) fn note_send(
        &self,
        what: &'static str,
        peer: u32,
        id: SendId,
        bytes: impl Into<Option<u64>>,
    ) {
        self.note(what, |group| {
            let facts = Facts { post: Some(id.0), bytes: bytes.into(), ..Facts::of(peer) };
            match group.relay.open_send(id) {
                Some((message, transfer)) => facts.relayed(group, message).transfer(Some(transfer)),
                None => facts,
            }
        });
    }

    /// `came`: length and immediate of the block that has come.
    pub(crate) fn note_receive(
        &self,
        what: &'static str,
        peer: u32,
        id: ReceiveId,
        came: Option<(u64, u32)>,
    ) {
        self.note(what, |group| {
            let mut facts = Facts { post: Some(id.0), ..Facts::of(peer) };
            if let Some((message, transfer)) = group.relay.receive(id) {
                facts = facts.relayed(group, message).transfer(transfer);
            }
            if let Some((bytes, immediate)) = came {
                // Before its announcement a block tells itself which it is.
                facts = Facts { block: facts.block.or(Some(immediate)), ..facts.bytes(bytes) };
            }
            facts
        });
    }

    /// Tells when this member starts to wait before it can send on, and when it no longer does.
    pub(crate) fn note_wait(&mut self) {
        if !tracing::enabled!(target: "rdmc::timeline", Level::TRACE) {
            return;
        }
        let wait = self.relay.sends_wait_for();
        if wait == std::mem::replace(&mut self.waiting, wait) {
            return;
        }
        let (what, peer, message, transfer) = match wait {
            Some(Wait::Block { source, message, transfer }) => {
                ("waits_for_block", Some(source), Some(message), transfer)
            }
            Some(Wait::Credit { target, message, transfer }) => {
                ("waits_for_credit", Some(target), Some(message), Some(transfer))
            }
            Some(Wait::Memory { message }) => ("waits_for_memory", None, Some(message), None),
            // While something is being sent, that is what it waits for.
            Some(Wait::Send { .. }) | None => ("waits_no_more", None, None, None),
        };
        self.note(what, |group| {
            let facts = Facts::of(peer).transfer(transfer);
            message.map_or(facts, |message| facts.relayed(group, message))
        });
    }

    /// Tells what the application is about to hear.
    pub(crate) fn note_due(&self, due: &Due) {
        let (what, number, bytes) = match *due {
            Due::Incoming { message, bytes } => ("incoming", message, Some(bytes)),
            Due::Received { message } => ("whole", message, None),
            Due::Complete { message } => ("complete", message, None),
        };
        self.note(what, |_| Facts { bytes, ..Facts::default().message(number) });
    }
}
