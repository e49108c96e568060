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
}

impl Transfer {
    pub(crate) fn new(
        (side, from_member): (SideId, usize),
        to_member: usize,
        source: Source,
        target: Target,
        immediate: u32,
        number: u64,
    ) -> Self {
        let bytes = source.from.bytes() as u64;
        let stage = Stage::Waiting;
        let source = Some(source);
        let attempt = 0;
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
        }
    }
}
