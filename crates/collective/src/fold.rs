//! Folds one contribution into another, element by element.

use crate::{
    half_precision::{fold_bf16, fold_f16},
    op::{Op, Unsupported},
    pairwise::pairwise,
    types::Type,
};

/// Replaces each element of `acc` by its combination with the element of `other`: acc = acc `op` other.
///
/// `acc` is the left operand, which comes from lower ranks. Both slices contain elements in the host's byte order and may
/// have any alignment.
///
/// - *Integers* wrap.
/// - *Sums and products of `f16` and `bf16`* are computed in `f32` and rounded to nearest, ties to even, at each fold.
///   Since `f32` has more than twice the precision, the result is correctly rounded.
/// - *Minimum and maximum* of floating-point numbers are NaN if either operand is NaN; -0.0 is less than +0.0.
/// - *NaN*, from any operator, is always the positive quiet NaN without payload. Which of two NaN operands a processor
///   returns depends on their order, which compilers may change.
///
/// The result therefore does not depend on which operand is left, on addresses, or on how a vector is split into calls.
///
/// # Errors
/// If the operator does not support the type, the lengths differ, or the length is not a multiple of the element's. `acc`
/// is then unchanged.
pub fn fold(element: Type, op: Op, acc: &mut [u8], other: &[u8]) -> Result<(), FoldError> {
    op.check(element)?;
    check_lengths(element.bytes(), acc, other)?;
    match element {
        Type::U8 => fold_u8(op, acc, other),
        Type::U16 => fold_u16(op, acc, other),
        Type::U32 => fold_u32(op, acc, other),
        Type::U64 => fold_u64(op, acc, other),
        Type::I8 => fold_i8(op, acc, other),
        Type::I16 => fold_i16(op, acc, other),
        Type::I32 => fold_i32(op, acc, other),
        Type::I64 => fold_i64(op, acc, other),
        Type::F16 => fold_f16(op, acc, other),
        Type::Bf16 => fold_bf16(op, acc, other),
        Type::F32 => fold_f32(op, acc, other),
        Type::F64 => fold_f64(op, acc, other),
    }
    Ok(())
}

/// Why two slices cannot be folded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FoldError {
    /// The operator does not support the type.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
    /// The lengths differ.
    #[error("{other} bytes cannot be folded into {acc}")]
    Lengths {
        /// The length of the left operand in bytes.
        acc: usize,
        /// The length of the right operand in bytes.
        other: usize,
    },
    /// The length is not a multiple of an element's.
    #[error("{bytes} bytes are not a whole number of elements of {element_bytes} bytes")]
    Cut {
        /// The length of each operand in bytes.
        bytes: usize,
        /// The length of an element in bytes.
        element_bytes: usize,
    },
}

/// `element_bytes` is at least 1.
pub(crate) fn check_lengths(
    element_bytes: usize,
    acc: &[u8],
    other: &[u8],
) -> Result<(), FoldError> {
    if acc.len() != other.len() {
        return Err(FoldError::Lengths { acc: acc.len(), other: other.len() });
    }
    if !acc.len().is_multiple_of(element_bytes) {
        return Err(FoldError::Cut { bytes: acc.len(), element_bytes });
    }
    Ok(())
}

macro_rules! fold_integers {
    ($($name:ident: $integer:ident),*) => {$(
        fn $name(op: Op, acc: &mut [u8], other: &[u8]) {
            let of = $integer::from_ne_bytes;
            match op {
                Op::Sum => pairwise(acc, other, |a, b| of(a).wrapping_add(of(b)).to_ne_bytes()),
                Op::Prod => pairwise(acc, other, |a, b| of(a).wrapping_mul(of(b)).to_ne_bytes()),
                Op::Min => pairwise(acc, other, |a, b| of(a).min(of(b)).to_ne_bytes()),
                Op::Max => pairwise(acc, other, |a, b| of(a).max(of(b)).to_ne_bytes()),
                Op::Band => pairwise(acc, other, |a, b| (of(a) & of(b)).to_ne_bytes()),
                Op::Bor => pairwise(acc, other, |a, b| (of(a) | of(b)).to_ne_bytes()),
                Op::Bxor => pairwise(acc, other, |a, b| (of(a) ^ of(b)).to_ne_bytes()),
            }
        }
    )*};
}

fold_integers! {
    fold_u8: u8, fold_u16: u16, fold_u32: u32, fold_u64: u64, fold_i8: i8, fold_i16: i16, fold_i32: i32, fold_i64: i64
}

macro_rules! fold_floats {
    ($($name:ident: $float:ident, $nan:literal);*) => {$(
        fn $name(op: Op, acc: &mut [u8], other: &[u8]) {
            const NAN: $float = $float::from_bits($nan);
            let of = $float::from_ne_bytes;
            let one_nan = |value: $float| if value.is_nan() { NAN } else { value };
            // Equal operands have equal bits, unless both are zeros: then the signs are combined.
            let least = |a: $float, b: $float| match (a < b, b < a, a == b) {
                (true, ..) => a,
                (_, true, _) => b,
                (.., true) => $float::from_bits(a.to_bits() | b.to_bits()),
                _ => NAN,
            };
            let greatest = |a: $float, b: $float| match (a > b, b > a, a == b) {
                (true, ..) => a,
                (_, true, _) => b,
                (.., true) => $float::from_bits(a.to_bits() & b.to_bits()),
                _ => NAN,
            };
            match op {
                Op::Sum => pairwise(acc, other, |a, b| one_nan(of(a) + of(b)).to_ne_bytes()),
                Op::Prod => pairwise(acc, other, |a, b| one_nan(of(a) * of(b)).to_ne_bytes()),
                Op::Min => pairwise(acc, other, |a, b| least(of(a), of(b)).to_ne_bytes()),
                Op::Max => pairwise(acc, other, |a, b| greatest(of(a), of(b)).to_ne_bytes()),
                Op::Band | Op::Bor | Op::Bxor => unreachable!("refused by Op::check"),
            }
        }
    )*};
}

fold_floats! { fold_f32: f32, 0x7fc0_0000; fold_f64: f64, 0x7ff8_0000_0000_0000 }
