//! What comes from one member, or goes to one, through slots.

use crate::{
    Call,
    place::{Piece, Place},
    settings::Settings,
};

/// The pieces that come from one member, or go to one, in one phase of an operation.
#[derive(Clone, Debug)]
pub(crate) struct Pieces {
    /// The other member.
    pub(crate) peer: u32,
    /// Where they are in the operation's memory.
    place: Place,
    piece_bytes: u64,
    /// How many were written; or have come, and were folded or copied.
    pub(crate) done: u64,
    pub(crate) total: u64,
}

impl Pieces {
    pub(crate) fn new(
        peer: u32,
        place: impl Into<Place>,
        call: &Call,
        settings: &Settings,
    ) -> Self {
        let (place, piece_bytes) = (place.into(), settings.piece_bytes(call));
        Self { peer, total: place.pieces(piece_bytes), place, piece_bytes, done: 0 }
    }

    /// Returns the next piece; there is one unless all are done.
    pub(crate) fn next(&self) -> Piece {
        self.place.piece(self.done, self.piece_bytes)
    }

    pub(crate) fn are_done(&self) -> bool {
        self.done == self.total
    }
}
