//! What a member calls, which all members have to call alike.

use std::fmt;

/// The kinds of operations.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Kind {
    /// No member's call ends before all members have called.
    Barrier,
    /// The root's message to all.
    Broadcast,
    /// All contributions, folded, to the root.
    Reduce,
    /// All contributions, folded, to all.
    AllReduce,
    /// All contributions, one after another by rank, to all.
    AllGather,
}

impl Kind {
    /// All kinds, by their codes from 1 on.
    const ALL: [Self; 5] =
        [Self::Barrier, Self::Broadcast, Self::Reduce, Self::AllReduce, Self::AllGather];

    /// Returns the code by which the kind is transmitted; never 0.
    pub(crate) fn code(self) -> u8 {
        Self::ALL.iter().position(|&kind| kind == self).map_or(0, |index| index as u8 + 1)
    }

    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Returns the name, as in `all_reduce`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Barrier => "barrier",
            Self::Broadcast => "broadcast",
            Self::Reduce => "reduce",
            Self::AllReduce => "all_reduce",
            Self::AllGather => "all_gather",
        }
    }

    /// Returns whether contributions go up the reduction tree.
    pub(crate) fn goes_up(self) -> bool {
        self != Self::Broadcast
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One call of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// What is called.
    pub kind: Kind,
    /// The rank of the root; 0 for kinds that have none.
    pub root: u32,
    /// Length in bytes of the message, or of one member's contribution.
    pub bytes: u64,
    /// The code of the elements' type; 0: bytes that are not folded.
    pub element: u8,
    /// The code of the operator; 0: none, or the function's.
    pub operator: u8,
    /// Identifies the user's function; 0: none.
    pub function: u64,
}

impl Call {
    /// Returns a call that folds nothing.
    pub fn new(kind: Kind, root: u32, bytes: u64) -> Self {
        Self { kind, root, bytes, element: 0, operator: 0, function: 0 }
    }

    /// Returns the first respect in which two calls differ.
    pub fn difference(&self, other: &Self) -> Option<Difference> {
        let differences = [
            (self.kind != other.kind, Difference::Kind),
            (self.root != other.root, Difference::Root),
            (self.bytes != other.bytes, Difference::Bytes),
            (self.element != other.element, Difference::Type),
            (self.operator != other.operator, Difference::Operator),
            (self.function != other.function, Difference::Function),
        ];
        differences.into_iter().find_map(|(differs, what)| differs.then_some(what))
    }
}

/// A respect in which the calls of two members differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Difference {
    /// Other operations.
    Kind,
    /// Other roots.
    Root,
    /// Other lengths.
    Bytes,
    /// Other types of elements.
    Type,
    /// Other operators.
    Operator,
    /// Other functions.
    Function,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Kind => "operation",
            Self::Root => "root",
            Self::Bytes => "length",
            Self::Type => "type",
            Self::Operator => "operator",
            Self::Function => "function",
        })
    }
}
