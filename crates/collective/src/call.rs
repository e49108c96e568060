//! What a member calls, which all members have to call alike.

use std::fmt;

use crate::{Op, Reduction, Type};

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
    /// As [`Kind::Barrier`], before a member leaves: a kind of its own, so that a member that calls another barrier instead is
    /// named.
    Close,
    /// All contributions, folded, each member's part of the result to that member.
    ReduceScatter,
    /// Each part of the root's message to its member.
    Scatter,
    /// All contributions, one after another by rank, to the root.
    Gather,
}

impl Kind {
    /// All kinds, by their codes from 1 on.
    const ALL: [Self; 9] = [
        Self::Barrier,
        Self::Broadcast,
        Self::Reduce,
        Self::AllReduce,
        Self::AllGather,
        Self::Close,
        Self::ReduceScatter,
        Self::Scatter,
        Self::Gather,
    ];

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
            Self::Close => "close",
            Self::ReduceScatter => "reduce_scatter",
            Self::Scatter => "scatter",
            Self::Gather => "gather",
        }
    }

    /// Returns whether it only waits for all members: nothing is transferred.
    pub(crate) fn is_barrier(self) -> bool {
        matches!(self, Self::Barrier | Self::Close)
    }

    /// Returns whether contributions go up the reduction tree.
    pub(crate) fn goes_up(self) -> bool {
        !matches!(self, Self::Broadcast | Self::Scatter | Self::Gather)
    }

    /// Returns whether contributions are folded.
    pub fn folds(self) -> bool {
        matches!(self, Self::Reduce | Self::AllReduce | Self::ReduceScatter)
    }

    /// Returns whether there is a part for each member, one after another by rank.
    pub fn has_parts(self) -> bool {
        matches!(self, Self::AllGather | Self::ReduceScatter | Self::Scatter | Self::Gather)
    }

    /// Returns whether parts go between the root and the others: only the root has all of them.
    pub fn has_parts_at_root(self) -> bool {
        matches!(self, Self::Scatter | Self::Gather)
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
    /// Length in bytes of the message, of one member's contribution, or, where there are parts ([`Kind::has_parts`]), of one part.
    pub bytes: u64,
    /// What contributions are folded by; `None` where nothing is folded.
    pub folding: Option<Folding>,
}

/// What has to be the same about [`Reduction`]s.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Folding {
    /// The type of the elements; `None` for a function's.
    pub element: Option<Type>,
    /// The operator; `None` for a function.
    pub operator: Option<Op>,
    /// [`crate::Function::id`]; 0 for an operator.
    pub function: u64,
    /// Length in bytes of an element, which is not cut; 1 to 65,535.
    pub element_bytes: u16,
    /// Contributions may be folded in any order.
    pub is_commutative: bool,
}

impl Call {
    /// Returns a call that folds nothing.
    pub fn new(kind: Kind, root: u32, bytes: u64) -> Self {
        Self { kind, root, bytes, folding: None }
    }

    /// Returns a call that folds contributions.
    pub fn folding(kind: Kind, root: u32, bytes: u64, by: &Reduction) -> Self {
        let (element, operator, function) = match by {
            Reduction::Elements(element, op) => (Some(*element), Some(*op), 0),
            Reduction::Function(function) => (None, None, function.id()),
        };
        // A longer element does not fit into a slot, which is checked with the call.
        let element_bytes = u16::try_from(by.element_bytes()).unwrap_or(u16::MAX);
        let is_commutative = by.is_commutative();
        let folding = Some(Folding { element, operator, function, element_bytes, is_commutative });
        Self { kind, root, bytes, folding }
    }

    /// Returns a call that folds contributions if there is something to fold them by.
    pub fn of(kind: Kind, root: u32, bytes: u64, by: Option<&Reduction>) -> Self {
        match by {
            Some(reduction) => Self::folding(kind, root, bytes, reduction),
            None => Self::new(kind, root, bytes),
        }
    }

    /// Returns the length in bytes of the message, of a contribution, or of the parts of all members together.
    pub fn all_bytes(&self, members: u32) -> u64 {
        let parts = if self.kind.has_parts() { members } else { 1 };
        self.bytes.saturating_mul(parts.into())
    }

    /// Returns the length in bytes at whose multiples contents may be cut.
    pub(crate) fn unit_bytes(&self) -> u32 {
        self.folding.map_or(1, |folding| folding.element_bytes.into())
    }

    /// Returns whether contributions may be folded in any order.
    pub(crate) fn is_commutative(&self) -> bool {
        self.folding.is_none_or(|folding| folding.is_commutative)
    }

    /// Returns the first respect in which two calls differ.
    pub fn difference(&self, other: &Self) -> Option<Difference> {
        fn of<T>(call: &Call, part: impl Fn(&Folding) -> Option<T>) -> Option<T> {
            call.folding.as_ref().and_then(part)
        }
        let function = |call: &Call| call.folding.map_or(0, |it| it.function);
        let differences = [
            (self.kind != other.kind, Difference::Kind),
            (self.root != other.root, Difference::Root),
            (self.bytes != other.bytes, Difference::Bytes),
            // Before what only operators have: of a function and an operator, the types differ, too.
            (function(self) != function(other), Difference::Function),
            (of(self, |it| it.element) != of(other, |it| it.element), Difference::Type),
            (of(self, |it| it.operator) != of(other, |it| it.operator), Difference::Operator),
            (self.folding != other.folding, Difference::Function),
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
