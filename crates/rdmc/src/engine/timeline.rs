//! What happens when, for whoever listens to it: events of the target `rdmc::timeline` at level TRACE.

/// What a member does with a block.
#[derive(Clone, Copy)]
pub(super) enum Step {
    /// Memory for one more block is posted, and its source told.
    Grant,
    /// A send is posted.
    Send,
    /// A block has come.
    Received,
    /// The first block is being copied to where it belongs.
    Copy,
    Copied,
}

impl Step {
    /// Costs next to nothing while nobody listens. `block` is 0 where it is not known.
    pub(super) fn trace(self, group: u64, peer: u32, block: u32) {
        let step = match self {
            Self::Grant => "grant",
            Self::Send => "send",
            Self::Received => "received",
            Self::Copy => "copy",
            Self::Copied => "copied",
        };
        tracing::trace!(target: "rdmc::timeline", group, peer, block, step);
    }
}
