//! What comes from one member, or goes to one, for a part of an operation.

use std::ops::Range;

use crate::{Call, settings::Settings};

/// What comes from one member for a part.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) from: u32,
    /// Where it belongs in the operation's memory.
    pub(crate) place: Range<u64>,
    /// Pieces that have come and were folded or copied.
    pub(crate) pieces: u64,
    /// All pieces.
    pub(crate) total: u64,
}

impl Incoming {
    pub(crate) fn new(from: u32, place: Range<u64>, call: &Call, settings: &Settings) -> Self {
        let total = settings.pieces(call, place.end - place.start);
        Self { from, place, pieces: 0, total }
    }
}

/// What goes to one member for a part.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) to: u32,
    /// Where it is in the operation's memory.
    pub(crate) place: Range<u64>,
    /// Pieces that were written.
    pub(crate) pieces: u64,
}
