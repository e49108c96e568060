//! The ways that operations go.

use std::fmt;

use crate::Call;

/// How the messages of an operation go. [`crate::Settings::choice`] chooses one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// Through slots: contributions up the [`crate::ReductionTree`] of this degree (`None`: nothing is folded), and a
    /// message or result down the [`crate::BroadcastTree`]; parts along the [`crate::PartTree`].
    Trees {
        /// Of the reduction tree.
        degree: Option<u32>,
    },
    /// Through slots, between pairs of members: see [`crate::Partners`].
    Exchange,
    /// In blocks from memory to memory, on the circulant graph; of a scatter or gather, along the [`crate::PartTree`].
    Circulant,
    /// In blocks from memory to memory, between the root and each other member.
    Direct,
    /// In blocks from memory to memory, on the circulant graph: see [`crate::Halving`].
    Halving,
    /// In blocks from memory to memory, around all members: see [`crate::RingRounds`].
    Ring,
    /// In blocks from memory to memory, from member to member in the order of ranks.
    Chain,
}

impl Way {
    /// Returns whether messages go from memory to memory, and not through slots.
    pub fn is_long(self) -> bool {
        !matches!(self, Self::Trees { .. } | Self::Exchange)
    }

    /// Returns the name; without the degree.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trees { .. } => "trees",
            Self::Exchange => "exchange",
            Self::Circulant => "circulant",
            Self::Direct => "direct",
            Self::Halving => "halving",
            Self::Ring => "ring",
            Self::Chain => "chain",
        }
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())?;
        match self {
            Self::Trees { degree: Some(degree) } => write!(f, " of degree {degree}"),
            _ => Ok(()),
        }
    }
}

/// How an operation goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// The way.
    pub way: Way,
    /// The most bytes of contents in one write: a slot's room, or the length of a block.
    pub block_bytes: u64,
}

impl Choice {
    /// Returns the choice of a way from memory to memory, with the nearest length of blocks that is possible: no element is cut, and
    /// their number fits 32 bits.
    pub fn in_blocks(way: Way, block_bytes: u64, call: &Call) -> Self {
        let unit = u64::from(call.unit_bytes());
        let least = call.bytes.div_ceil(u64::from(u32::MAX)).max(block_bytes);
        Self { way, block_bytes: (least / unit).max(1) * unit }
    }
}
