//! How bytes of a write appear in exposed memory.

/// What a transport vouches for about the bytes of a peer's write in exposed memory, as its owner
/// sees them before the write is reported. The default vouches for nothing.
///
/// To be read by [`crate::PeerMemory::load_byte`] and [`crate::PeerMemory::load_word`]: their order
/// is then that of the loads.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Visibility {
    /// The bytes of one write become visible in ascending order of their addresses: a reader that sees
    /// the last one sees all.
    pub in_order: bool,
    /// Eight bytes of a write at an address that is a multiple of eight become visible at once.
    pub whole_words: bool,
    /// Bytes may become visible before [`crate::Transport::poll`] could report the write, as where an
    /// adapter places them. Elsewhere looking for them gains nothing.
    pub early: bool,
}
