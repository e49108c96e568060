//! The ways that operations go.

use std::fmt;

use crate::Partners;

/// How the messages of an operation go. [`crate::Settings::way`] chooses one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Way {
    /// Through slots: contributions up the [`crate::ReductionTree`] of this degree (`None`: there are no contributions), and a
    /// message or result down the [`crate::BroadcastTree`].
    Trees {
        /// Of the reduction tree.
        degree: Option<u32>,
    },
    /// Through slots, between pairs of members.
    Exchange(Partners),
    /// In blocks from memory to memory, on the circulant graph.
    Circulant,
    /// In blocks from memory to memory, around all members: see [`crate::RingRounds`].
    Ring,
    /// In blocks from memory to memory, from member to member in the order of ranks.
    Chain,
}

impl Way {
    /// Returns the name; without the degree.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trees { .. } => "trees",
            Self::Exchange(_) => "exchange",
            Self::Circulant => "circulant",
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
