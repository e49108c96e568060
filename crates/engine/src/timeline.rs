//! The timeline of a group: events of the tracing target `rdmc::timeline` at level TRACE, described
//! in the documentation of the crate `rdmc`. Without a subscriber they cost next to nothing.

use relay::{Part, ReceiveId, Relay, SendId, Wait};
use tracing::Level;

use crate::order::Due;

/// The fields of an event that are known.
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

    /// Returns the fields of an open send.
    pub(crate) fn of_send(relay: &Relay, peer: u32, id: SendId, bytes: Option<u64>) -> Self {
        Self { post: Some(id.0), bytes, ..Self::of(peer) }.part(relay.open_send(id))
    }

    /// Returns the fields of a receive. `came`: length and immediate of the block that has arrived.
    pub(crate) fn of_receive(
        relay: &Relay,
        peer: u32,
        id: ReceiveId,
        came: Option<(u64, u32)>,
    ) -> Self {
        let mut facts = Self { post: Some(id.0), ..Self::of(peer) }.part(relay.receive(id));
        if let Some((bytes, immediate)) = came {
            // A block that arrives before its announcement is identified by its immediate.
            facts = Self { block: facts.block.or(Some(immediate)), ..facts.bytes(bytes) };
        }
        facts
    }

    pub(crate) fn message(self, number: u64) -> Self {
        Self { message: Some(number), ..self }
    }

    pub(crate) fn bytes(self, bytes: u64) -> Self {
        Self { bytes: Some(bytes), ..self }
    }

    pub(crate) fn post(self, post: u64) -> Self {
        Self { post: Some(post), ..self }
    }

    fn part(self, part: Option<Part>) -> Self {
        let Some(Part { message, transfer }) = part else { return self };
        let (step, block) = (Some(transfer.step), Some(transfer.block));
        Self { message: Some(message), step, block, ..self }
    }
}

/// The timeline of one group at one member.
pub(crate) struct Timeline {
    group: u64,
    member: u32,
    /// The wait that was last recorded.
    waiting: Option<Wait>,
}

impl Timeline {
    pub(crate) fn new(group: u64, member: u32) -> Self {
        Self { group, member, waiting: None }
    }

    /// Records that `what` happens now. Costs next to nothing without a subscriber.
    pub(crate) fn note(&self, what: &'static str, facts: impl FnOnce() -> Facts) {
        if !tracing::enabled!(target: "rdmc::timeline", Level::TRACE) {
            return;
        }
        let (group, member) = (self.group, self.member);
        let Facts { peer, message, step, block, bytes, post } = facts();
        tracing::trace!(
            target: "rdmc::timeline",
            what, group, member, peer, message, step, block, bytes, post
        );
    }

    /// Records when this member starts to wait before it can send on, and when it no longer does.
    pub(crate) fn note_wait(&mut self, relay: &Relay) {
        if !tracing::enabled!(target: "rdmc::timeline", Level::TRACE) {
            return;
        }
        let wait = relay.sends_wait_for();
        if wait == std::mem::replace(&mut self.waiting, wait) {
            return;
        }
        let (what, facts) = match wait {
            Some(Wait::Block { source, part }) => ("waits_for_block", Facts::of(source).part(part)),
            Some(Wait::Credit(part)) => {
                ("waits_for_credit", Facts::of(part.transfer.target).part(Some(part)))
            }
            Some(Wait::Memory { message }) => {
                ("waits_for_memory", Facts::default().message(message))
            }
            // While a send is open, sending is not blocked.
            Some(Wait::Send(_)) | None => ("waits_no_more", Facts::default()),
        };
        self.note(what, || facts);
    }

    /// Records an event that is about to be reported.
    pub(crate) fn note_due(&self, due: &Due) {
        let (what, number, bytes) = match *due {
            Due::Incoming { message, bytes } => ("incoming", message, Some(bytes)),
            Due::Received { message } => ("whole", message, None),
            Due::Complete { message } => ("complete", message, None),
        };
        self.note(what, || Facts { bytes, ..Facts::default().message(number) });
    }
}
