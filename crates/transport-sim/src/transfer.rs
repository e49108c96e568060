//! A block in transit: a send and the receive that it fills.

use crate::{
    names::SideId,
    post::{Source, Target},
};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Waits until both ports are free.
    Waiting,
    /// Occupies both ports.
    Passing,
    /// Has left the ports, and waits for the rest of the block, which it sends while it arrives.
    Following,
    /// Has left the ports; the send has completed.
    Flying,
}

pub(crate) struct Transfer {
    /// The side that sends.
    pub(crate) side: SideId,
    pub(crate) from_member: usize,
    pub(crate) to_member: usize,
    /// `None` once the send has completed.
    pub(crate) source: Option<Source>,
    pub(crate) target: Target,
    pub(crate) bytes: u64,
    pub(crate) immediate: u32,
    /// Increases with each posted send.
    pub(crate) number: u64,
    /// How often a cut has interrupted it.
    pub(crate) attempt: u32,
    pub(crate) stage: Stage,
    /// How many bytes the target has given up before the rest: they can be read there.
    pub(crate) given_up: usize,
    /// Shared ports: how many bytes have left the source's port, and how many have passed the target's.
    pub(crate) left: u64,
    pub(crate) come: u64,
}

impl Transfer {
    pub(crate) fn new(
        side: SideId,
        from_member: usize,
        to_member: usize,
        source: Source,
        target: Target,
        immediate: u32,
        number: u64,
    ) -> Self {
        let bytes = source.from.bytes() as u64;
        let stage = Stage::Waiting;
        let source = Some(source);
        let (attempt, given_up) = (0, 0);
        Self {
            side,
            from_member,
            to_member,
            source,
            target,
            bytes,
            immediate,
            number,
            attempt,
            stage,
            given_up,
            left: 0,
            come: 0,
        }
    }

    /// Copies what has come to the source, at most its first `bytes` bytes, and lets it be read at the
    /// target. Returns whether there was any.
    pub(crate) fn begin(&mut self, bytes: usize, carry_bytes: bool) -> bool {
        let Some(source) = &self.source else { return false };
        let first = source.from.contents();
        let bytes = bytes.min(first.len());
        if self.given_up > 0 || bytes == 0 {
            return false;
        }
        if carry_bytes {
            self.target.into[..bytes].copy_from_slice(&first[..bytes]);
        }
        self.target.into.advance(bytes);
        self.given_up = bytes;
        true
    }

    /// Copies the rest, which can be read at the target once the block has arrived there.
    pub(crate) fn copy_rest(&mut self, carry_bytes: bool) {
        let (Some(source), true) = (&self.source, carry_bytes) else { return };
        let rest = &source.from.contents()[self.given_up..];
        self.target.into[..rest.len()].copy_from_slice(rest);
    }

    /// Copies the next part, which can be read at the target once it is given up there.
    pub(crate) fn copy_part(&mut self, bytes: usize, carry_bytes: bool) {
        let (Some(source), true) = (&self.source, carry_bytes) else { return };
        let from = self.left as usize;
        let into = &mut self.target.into[from - self.given_up..][..bytes];
        into.copy_from_slice(&source.from.contents()[from..from + bytes]);
    }

    /// Lets more of the target be read.
    pub(crate) fn give_up(&mut self, bytes: usize) {
        self.target.into.advance(bytes);
        self.given_up += bytes;
    }
}
