//! A place in an operation's memory, and the pieces of what is there.

use std::ops::Range;

/// Where something is in an operation's memory: in one range, or in two, of which either may be empty. No piece is of both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    pub(crate) first: Range<u64>,
    pub(crate) second: Range<u64>,
}

/// One piece, as long as a slot has room for, or shorter.
pub(crate) struct Piece {
    /// Position in what the place holds.
    pub(crate) offset: u64,
    /// Position in memory.
    pub(crate) at: u64,
    pub(crate) bytes: u32,
}

impl From<Range<u64>> for Place {
    fn from(first: Range<u64>) -> Self {
        Self { second: first.end..first.end, first }
    }
}

impl Place {
    /// Returns the number of pieces of at most this many bytes; at least 1, which may be empty.
    pub(crate) fn pieces(&self, piece_bytes: u64) -> u64 {
        let pieces = |range: &Range<u64>| (range.end - range.start).div_ceil(piece_bytes);
        (pieces(&self.first) + pieces(&self.second)).max(1)
    }

    /// Returns a piece by its index.
    pub(crate) fn piece(&self, index: u64, piece_bytes: u64) -> Piece {
        let before = self.first.end - self.first.start;
        let of_first = before.div_ceil(piece_bytes);
        let (range, before, index) = if index < of_first || self.second.is_empty() {
            (&self.first, 0, index)
        } else {
            (&self.second, before, index - of_first)
        };
        let at = range.start + index * piece_bytes;
        // It fits: a slot has less than 4 GiB.
        let bytes = (range.end - at).min(piece_bytes) as u32;
        Piece { offset: before + index * piece_bytes, at, bytes }
    }
}
