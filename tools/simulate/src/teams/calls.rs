//! Calls of a team's operations as plain data.

use collective::{Call, Function, Kind, Op, Reduction, Type};
use serde::{Deserialize, Serialize};

/// One operation, as all members are to call it.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CallPlan {
    /// What is called.
    pub kind: CallKind,
    /// The root, if the kind has one; otherwise 0.
    pub root: u32,
    /// How many elements the message, a contribution or a member's part has; elements that are not folded have one byte.
    pub elements: u64,
}

/// The kinds of operations.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum CallKind {
    /// No data.
    Barrier,
    /// The root's message.
    Broadcast,
    /// All contributions side by side.
    AllGather,
    /// All contributions, folded, to the root.
    Reduce(FoldPlan),
    /// All contributions, folded, to all.
    AllReduce(FoldPlan),
    /// All contributions, folded, a part to each.
    ReduceScatter(FoldPlan),
    /// The parts of the root's message.
    Scatter,
    /// All contributions side by side, to the root.
    Gather,
}

/// How contributions are folded.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub enum FoldPlan {
    /// By an operator on elements of a type.
    Operator {
        /// Name of the type.
        element: String,
        /// Name of the operator.
        op: String,
        /// Whether the result is the same in any order of folding. Otherwise, with sums and products of floating point, it is
        /// only compared between members.
        is_exact: bool,
    },
    /// By a function.
    Function(FunctionPlan),
}

/// Functions that are associative and do not commute.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum FunctionPlan {
    /// Products of matrices of 2 x 2 bytes, modulo 256.
    Matrices,
    /// Composition of x -> a x + b, two numbers of 8 bytes, modulo 2^64.
    Affine,
    /// The right operand, of 3 bytes.
    Last,
}

/// How a call differs from what the others call.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub enum OtherCall {
    /// Another kind.
    Kind,
    /// Another root; another kind where there is none.
    Root,
    /// Another length; another kind where there is none.
    Length,
    /// Folded by something else; another kind where nothing is folded.
    Folding,
    /// A barrier before it.
    Extra,
    /// It is left out.
    Missing,
}

impl OtherCall {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Kind, Self::Root, Self::Length, Self::Folding, Self::Extra, Self::Missing];
}

impl CallKind {
    /// Returns how contributions are folded, if they are.
    pub(super) fn fold(&self) -> Option<&FoldPlan> {
        match self {
            Self::Reduce(plan) | Self::AllReduce(plan) | Self::ReduceScatter(plan) => Some(plan),
            Self::Barrier | Self::Broadcast | Self::AllGather | Self::Scatter | Self::Gather => {
                None
            }
        }
    }

    /// Returns whether there is a root.
    pub(super) fn has_root(&self) -> bool {
        matches!(self, Self::Broadcast | Self::Reduce(_) | Self::Scatter | Self::Gather)
    }
}

impl CallPlan {
    /// A barrier.
    pub const BARRIER: Self = Self { kind: CallKind::Barrier, root: 0, elements: 0 };

    /// Returns how contributions are folded, if they are.
    ///
    /// Errors: there is no such type or operator, or they do not go together.
    pub fn reduction(&self) -> Result<Option<Reduction>, String> {
        self.kind.fold().map(FoldPlan::reduction).transpose()
    }

    /// Returns the length of the message, of a contribution or of a part in bytes.
    pub fn bytes(&self) -> u64 {
        let element_bytes = match self.reduction() {
            Ok(Some(by)) => by.element_bytes() as u64,
            _ => 1,
        };
        self.elements * element_bytes
    }

    /// Returns the length of the operation's memory in bytes, at a root that alone has all parts.
    pub fn memory_bytes(&self, members: u32) -> u64 {
        self.call().all_bytes(members)
    }

    /// Returns what is called, in the form in which members compare it.
    pub fn call(&self) -> Call {
        match self.reduction() {
            Ok(Some(by)) => Call::folding(self.team_kind(), self.root, self.bytes(), &by),
            _ => Call::new(self.team_kind(), self.root, self.bytes()),
        }
    }

    /// Returns the kind in the form of the library.
    pub fn team_kind(&self) -> Kind {
        match self.kind {
            CallKind::Barrier => Kind::Barrier,
            CallKind::Broadcast => Kind::Broadcast,
            CallKind::AllGather => Kind::AllGather,
            CallKind::Reduce(_) => Kind::Reduce,
            CallKind::AllReduce(_) => Kind::AllReduce,
            CallKind::ReduceScatter(_) => Kind::ReduceScatter,
            CallKind::Scatter => Kind::Scatter,
            CallKind::Gather => Kind::Gather,
        }
    }

    /// Returns a call that differs from this one. `Extra` and `Missing` are changes of the list, not of a call.
    pub(super) fn changed(&self, change: OtherCall, members: u32) -> Self {
        let has_root = self.kind.has_root();
        let mut other = self.clone();
        match (change, &mut other.kind) {
            (OtherCall::Root, _) if has_root && members > 1 => {
                other.root = (self.root + 1) % members;
            }
            (OtherCall::Length, kind) if *kind != CallKind::Barrier => other.elements += 1,
            (
                OtherCall::Folding,
                CallKind::Reduce(plan) | CallKind::AllReduce(plan) | CallKind::ReduceScatter(plan),
            ) => *plan = plan.other(),
            (_, CallKind::Barrier) => (other.kind, other.elements) = (CallKind::Broadcast, 8),
            _ => other = Self::BARRIER,
        }
        other
    }

    /// Checks a call from a file.
    ///
    /// Errors: what is invalid.
    pub(super) fn check(&self, members: u32, room_bytes: u64) -> Result<(), String> {
        let element_bytes = self.reduction()?.map_or(1, |by| by.element_bytes() as u64);
        if self.root >= members || element_bytes > room_bytes {
            return Err(format!("{self:?} names no member, or its elements are longer than slots"));
        }
        Ok(())
    }
}

impl FoldPlan {
    /// Returns what folds contributions.
    ///
    /// Errors: as [`CallPlan::reduction`].
    pub(super) fn reduction(&self) -> Result<Reduction, String> {
        let (element, op) = match self {
            Self::Function(function) => return Ok(function.function().into()),
            Self::Operator { element, op, .. } => (element.parse::<Type>(), op.parse::<Op>()),
        };
        let element = element.map_err(|error| error.to_string())?;
        let op = op.map_err(|error| error.to_string())?;
        Reduction::new(element, op).map_err(|error| error.to_string())
    }

    /// Returns another that can stand in its place.
    fn other(&self) -> Self {
        match self {
            Self::Function(FunctionPlan::Matrices) => Self::Function(FunctionPlan::Affine),
            Self::Function(_) => Self::Function(FunctionPlan::Matrices),
            Self::Operator { element, op, .. } => {
                let op = if op == "min" { "max" } else { "min" };
                Self::Operator { element: element.clone(), op: op.into(), is_exact: true }
            }
        }
    }
}

impl FunctionPlan {
    /// All functions.
    pub const ALL: [Self; 3] = [Self::Matrices, Self::Affine, Self::Last];

    /// Combines one element, `left`, with another.
    pub(super) fn combine(self, left: &mut [u8], right: &[u8]) {
        match self {
            Self::Matrices => {
                let product = |row: usize, column: usize| {
                    let term = |at: usize| left[2 * row + at].wrapping_mul(right[2 * at + column]);
                    term(0).wrapping_add(term(1))
                };
                let product = [product(0, 0), product(0, 1), product(1, 0), product(1, 1)];
                left.copy_from_slice(&product);
            }
            Self::Affine => {
                let number = |bytes: &[u8], at: usize| {
                    u64::from_le_bytes(bytes[8 * at..][..8].try_into().expect("8 bytes"))
                };
                let (a, b) = (number(left, 0), number(left, 1));
                let (c, d) = (number(right, 0), number(right, 1));
                left[..8].copy_from_slice(&a.wrapping_mul(c).to_le_bytes());
                left[8..].copy_from_slice(&a.wrapping_mul(d).wrapping_add(b).to_le_bytes());
            }
            Self::Last => left.copy_from_slice(right),
        }
    }

    pub(super) fn element_bytes(self) -> usize {
        match self {
            Self::Matrices => 4,
            Self::Affine => 16,
            Self::Last => 3,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Matrices => "matrices",
            Self::Affine => "affine",
            Self::Last => "last",
        }
    }

    fn function(self) -> Function {
        self.function_by(move |left, right| self.combine(left, right))
    }

    /// Returns the function with the operands of each combination exchanged, under the same name.
    pub(super) fn exchanged(self) -> Function {
        self.function_by(move |left, right| {
            let mut exchanged = right.to_vec();
            self.combine(&mut exchanged, left);
            left.copy_from_slice(&exchanged);
        })
    }

    fn function_by(self, combine: impl Fn(&mut [u8], &[u8]) + Send + Sync + 'static) -> Function {
        let bytes = self.element_bytes();
        let all = move |left: &mut [u8], right: &[u8]| {
            let pairs = left.chunks_exact_mut(bytes).zip(right.chunks_exact(bytes));
            pairs.for_each(|(left, right)| combine(left, right));
        };
        Function::new(self.name(), bytes, all).expect("the name and the length are valid")
    }
}
