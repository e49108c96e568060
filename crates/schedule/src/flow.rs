//! The interface of every algorithm, in virtual ranks where the root is 0.

/// One transfer seen from one of its ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hop {
    pub step: u64,
    /// The other end.
    pub peer: u32,
    pub block: u32,
}

/// An algorithm for a fixed group of at least two members.
///
/// The caller ([`crate::Schedule`]) guarantees that members are in range, that there is at least one block, and
/// that the step given to `send` and `receive` is less than `steps(blocks)`. Member 0 is the root, except in
/// [`crate::racks::Hybrid`] and [`crate::rack_flow::RackFlow`], which work in real ranks.
pub(crate) trait Flow {
    /// How many steps the whole message takes.
    fn steps(&self, blocks: u32) -> u64;

    fn send(&self, member: u32, step: u64, blocks: u32) -> Option<Hop>;

    fn receive(&self, member: u32, step: u64, blocks: u32) -> Option<Hop>;

    /// The member's first send at `from` or later.
    fn next_send(&self, member: u32, from: u64, blocks: u32) -> Option<Hop>;

    /// The member's first receive at `from` or later.
    fn next_receive(&self, member: u32, from: u64, blocks: u32) -> Option<Hop>;

    /// The step at which a member other than the root receives `block`.
    fn received_at(&self, member: u32, block: u32, blocks: u32) -> u64;

    /// The parent of a member other than the root in the tree of announcements.
    fn announcer(&self, member: u32) -> u32;

    /// How many candidates `neighbour` has for this member.
    fn neighbour_candidates(&self, member: u32) -> u32;

    /// The `index`-th candidate; each neighbour appears exactly once, with gaps.
    fn neighbour(&self, member: u32, index: u32) -> Option<u32>;
}

/// Returns the first transfer that `query` finds from step `from` on, trying at most `window`
/// steps.
pub(crate) fn scan(
    from: u64,
    end: u64,
    window: u64,
    query: impl Fn(u64) -> Option<Hop>,
) -> Option<Hop> {
    (from..end.min(from.saturating_add(window))).find_map(query)
}

/// floor(log2 n) for n >= 1.
pub(crate) const fn floor_log2(n: u32) -> u32 {
    n.ilog2()
}

/// ceil(log2 n) for n >= 1.
pub(crate) const fn ceil_log2(n: u32) -> u32 {
    u32::BITS - (n - 1).leading_zeros()
}
