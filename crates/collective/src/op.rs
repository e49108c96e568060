//! The operators of reductions.

use std::{fmt, str::FromStr};

use crate::types::{Type, names};

/// How a reduction combines two elements. [`fold`](crate::fold) defines overflow, NaN, signed zeros and rounding.
///
/// All operators are commutative, and on integers also associative. Floating-point sums and products are not associative:
/// the result depends on the order in which members are folded.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
#[non_exhaustive]
pub enum Op {
    /// The sum.
    Sum,
    /// The product.
    Prod,
    /// The minimum.
    Min,
    /// The maximum.
    Max,
    /// Bitwise AND of integers.
    Band,
    /// Bitwise OR of integers.
    Bor,
    /// Bitwise XOR of integers.
    Bxor,
}

impl Op {
    /// Every operator, in the order of their codes.
    pub const ALL: [Self; 7] =
        [Self::Sum, Self::Prod, Self::Min, Self::Max, Self::Band, Self::Bor, Self::Bxor];

    /// Checks that this operator supports an element type: bitwise operators need integers.
    ///
    /// # Errors
    /// If the operator does not support the type.
    pub const fn check(self, element: Type) -> Result<(), Unsupported> {
        match self {
            Self::Band | Self::Bor | Self::Bxor if !element.is_integer() => {
                Err(Unsupported { op: self, element })
            }
            _ => Ok(()),
        }
    }

    /// Returns the number that identifies this operator in the protocol: 1 to 7, never 0, never reused.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Sum => 1,
            Self::Prod => 2,
            Self::Min => 3,
            Self::Max => 4,
            Self::Band => 5,
            Self::Bor => 6,
            Self::Bxor => 7,
        }
    }

    /// Returns the operator with this [`code`](Self::code), or `None` if no operator has this code.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|op| op.code() == code)
    }

    /// Returns the name in lower case, as it is displayed and parsed.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Min => "min",
            Self::Max => "max",
            Self::Band => "band",
            Self::Bor => "bor",
            Self::Bxor => "bxor",
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Op {
    type Err = UnknownOp;

    fn from_str(name: &str) -> Result<Self, UnknownOp> {
        Self::ALL.into_iter().find(|op| op.name() == name).ok_or(UnknownOp)
    }
}

/// The error for an unknown name of an [`Op`]; displayed with the list of valid names.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("unknown operator; choose one of {}", names(&Op::ALL))]
pub struct UnknownOp;

/// The error for an operator that does not support a type; displayed with the types that it supports.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{op} does not work on {element}, only on {}", names(&types_of(*op)))]
pub struct Unsupported {
    /// The operator.
    pub op: Op,
    /// The type of the elements.
    pub element: Type,
}

fn types_of(op: Op) -> Vec<Type> {
    Type::ALL.into_iter().filter(|&element| op.check(element).is_ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_round_trip() {
        for op in Op::ALL {
            assert_eq!(op.to_string().parse(), Ok(op));
            assert_eq!(Op::from_code(op.code()), Some(op));
        }
        assert_eq!((0..=u8::MAX).filter_map(Op::from_code).count(), Op::ALL.len());
        assert_eq!(Op::from_code(0), None);
    }

    #[test]
    fn errors_name_what_works() {
        assert_eq!(
            "avg".parse::<Op>().unwrap_err().to_string(),
            "unknown operator; choose one of sum, prod, min, max, band, bor, bxor"
        );
        assert_eq!(
            Op::Bxor.check(Type::Bf16).unwrap_err().to_string(),
            "bxor does not work on bf16, only on u8, u16, u32, u64, i8, i16, i32, i64"
        );
    }

    #[test]
    fn only_bitwise_operators_refuse_types() {
        let refused = |op: Op| Type::ALL.len() - types_of(op).len();
        assert_eq!(Op::ALL.map(refused), [0, 0, 0, 0, 4, 4, 4]);
    }
}
