//! How a reduction combines contributions.

use crate::{FoldError, Function, Op, Type, Unsupported, fold};

/// An operator on elements of a type, or a function of the user's.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reduction {
    /// An operator.
    Elements(Type, Op),
    /// A function.
    Function(Function),
}

impl Reduction {
    /// Returns the reduction by an operator.
    ///
    /// # Errors
    /// The operator does not work on the type.
    pub fn new(element: Type, op: Op) -> Result<Self, Unsupported> {
        op.check(element).map(|()| Self::Elements(element, op))
    }

    /// Returns the length of an element in bytes.
    pub fn element_bytes(&self) -> usize {
        match self {
            Self::Elements(element, _) => element.bytes(),
            Self::Function(function) => function.element_bytes(),
        }
    }

    /// Returns whether contributions may be folded in any order.
    pub fn is_commutative(&self) -> bool {
        match self {
            Self::Elements(..) => true,
            Self::Function(function) => function.is_commutative(),
        }
    }

    /// Folds `other` into `acc`, the left operand: see [`fold`](fold()) and [`Function::fold`].
    ///
    /// # Errors
    /// The lengths differ or cut an element; `acc` is then unchanged.
    pub fn fold(&self, acc: &mut [u8], other: &[u8]) -> Result<(), FoldError> {
        match self {
            Self::Elements(element, op) => fold(*element, *op, acc, other),
            Self::Function(function) => function.fold(acc, other),
        }
    }
}

impl From<Function> for Reduction {
    fn from(function: Function) -> Self {
        Self::Function(function)
    }
}
