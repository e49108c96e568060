//! Folds floating point of 16 bits.

use half::{bf16, f16, slice::HalfFloatSliceExt};

use crate::{op::Op, pairwise::pairwise};

/// `op` must not be a bitwise operator.
pub(crate) fn fold_f16(op: Op, acc: &mut [u8], other: &[u8]) {
    const INFINITY: u16 = f16::INFINITY.to_bits();
    match op {
        Op::Sum => widened_f16(acc, other, |a, b| a + b),
        Op::Prod => widened_f16(acc, other, |a, b| a * b),
        Op::Min => pairwise(acc, other, least::<INFINITY>),
        Op::Max => pairwise(acc, other, greatest::<INFINITY>),
        Op::Band | Op::Bor | Op::Bxor => unreachable!("refused by Op::check"),
    }
}

/// `op` must not be a bitwise operator.
pub(crate) fn fold_bf16(op: Op, acc: &mut [u8], other: &[u8]) {
    const INFINITY: u16 = bf16::INFINITY.to_bits();
    match op {
        Op::Sum => pairwise(acc, other, |a, b| narrow_bf16(widen_bf16(a) + widen_bf16(b))),
        Op::Prod => pairwise(acc, other, |a, b| narrow_bf16(widen_bf16(a) * widen_bf16(b))),
        Op::Min => pairwise(acc, other, least::<INFINITY>),
        Op::Max => pairwise(acc, other, greatest::<INFINITY>),
        Op::Band | Op::Bor | Op::Bxor => unreachable!("refused by Op::check"),
    }
}

/// Combines in `f32`, a piece of the slices at a time: conversions of whole slices use the processor's instructions, and
/// choose them once for each slice. Conversions of single elements would choose for each, and be six times slower.
#[inline(always)]
fn widened_f16(acc: &mut [u8], other: &[u8], combine: impl Fn(f32, f32) -> f32) {
    /// Elements in a piece; measured: 32 take half as long again, and 512 more than 128.
    const PIECE: usize = 128;
    /// Narrowed, it is the positive quiet NaN without payload, too.
    const NAN: f32 = f32::from_bits(0x7fc0_0000);
    let mut aligned = [f16::ZERO; PIECE];
    let mut left = [0.0; PIECE];
    let mut right = [0.0; PIECE];
    for (acc, other) in acc.chunks_mut(2 * PIECE).zip(other.chunks(2 * PIECE)) {
        let elements = acc.len() / 2;
        let (aligned, left, right) =
            (&mut aligned[..elements], &mut left[..elements], &mut right[..elements]);
        load(aligned, acc);
        aligned.convert_to_f32_slice(left);
        load(aligned, other);
        aligned.convert_to_f32_slice(right);
        for (left, right) in left.iter_mut().zip(&*right) {
            let combined = combine(*left, *right);
            *left = if combined.is_nan() { NAN } else { combined };
        }
        aligned.convert_from_f32_slice(left);
        for (bytes, element) in acc.as_chunks_mut().0.iter_mut().zip(aligned) {
            *bytes = element.to_ne_bytes();
        }
    }
}

#[inline(always)]
fn load(aligned: &mut [f16], bytes: &[u8]) {
    for (element, bytes) in aligned.iter_mut().zip(bytes.as_chunks().0) {
        *element = f16::from_ne_bytes(*bytes);
    }
}

#[inline(always)]
fn widen_bf16(bytes: [u8; 2]) -> f32 {
    f32::from_bits(u32::from(u16::from_ne_bytes(bytes)) << 16)
}

/// Rounds to the nearest, ties to even: a little less than half a unit is added, and one more where the unit is odd; a carry
/// goes into the exponent, up to infinity. Twice as fast as [`bf16::from_f32`], as the compiler makes less of its branches.
#[inline(always)]
fn narrow_bf16(value: f32) -> [u8; 2] {
    const NAN: u32 = 0x7fc0_0000;
    let bits = value.to_bits();
    let odd = (bits >> 16) & 1;
    let rounded = if value.is_nan() { NAN } else { bits.wrapping_add(0x7fff + odd) };
    ((rounded >> 16) as u16).to_ne_bytes()
}

/// Returns the lesser: NaN if either is, and -0.0 is less than +0.0. No conversion is needed.
#[inline(always)]
fn least<const INFINITY: u16>(a: [u8; 2], b: [u8; 2]) -> [u8; 2] {
    let (a, b) = (u16::from_ne_bytes(a), u16::from_ne_bytes(b));
    let least = bits(ordered(a).min(ordered(b)));
    or_nan::<INFINITY>(a, b, least).to_ne_bytes()
}

/// Returns the greater: NaN if either is, and +0.0 is greater than -0.0. No conversion is needed.
#[inline(always)]
fn greatest<const INFINITY: u16>(a: [u8; 2], b: [u8; 2]) -> [u8; 2] {
    let (a, b) = (u16::from_ne_bytes(a), u16::from_ne_bytes(b));
    let greatest = bits(ordered(a).max(ordered(b)));
    or_nan::<INFINITY>(a, b, greatest).to_ne_bytes()
}

/// Returns `otherwise`, or if `a` or `b` is NaN (greater than infinity without the sign) the positive quiet NaN without
/// payload: infinity with the highest bit of the fraction.
#[inline(always)]
fn or_nan<const INFINITY: u16>(a: u16, b: u16, otherwise: u16) -> u16 {
    let highest = INFINITY & INFINITY.wrapping_neg();
    let is_nan = |bits: u16| (bits & 0x7fff) as i16 > INFINITY as i16;
    if is_nan(a) | is_nan(b) { INFINITY | highest >> 1 } else { otherwise }
}

/// Maps bits to integers in the order of the values, -0.0 before +0.0: all but the sign are inverted where it is set.
#[inline(always)]
fn ordered(bits: u16) -> i16 {
    let bits = bits as i16;
    bits ^ (bits >> 15 & 0x7fff)
}

/// Maps [`ordered`] integers back to bits.
#[inline(always)]
fn bits(ordered: i16) -> u16 {
    (ordered ^ (ordered >> 15 & 0x7fff)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All bits in the order of values; zeros are two values here.
    #[test]
    fn order_is_that_of_values() {
        for all in [f16::INFINITY.to_bits(), bf16::INFINITY.to_bits()] {
            let mut ascending: Vec<u16> = (0x8000..=0x8000 | all).rev().collect();
            ascending.extend(0..=all);
            assert!(ascending.windows(2).all(|pair| ordered(pair[0]) < ordered(pair[1])));
        }
        assert!((0..=u16::MAX).all(|of| bits(ordered(of)) == of));
    }

    #[test]
    fn bf16_is_widened_and_narrowed_as_in_half() {
        for of in 0..=u16::MAX {
            let (widened, expected) = (widen_bf16(of.to_ne_bytes()), bf16::from_bits(of).to_f32());
            assert!(
                widened.to_bits() == expected.to_bits() || widened.is_nan() && expected.is_nan()
            );
            // Around each value and around the ties beside it.
            for low in [0, 1, 0x7fff, 0x8000, 0x8001, 0xffff] {
                let value = f32::from_bits(u32::from(of) << 16 | low);
                let narrowed = bf16::from_ne_bytes(narrow_bf16(value));
                let expected = bf16::from_f32(value);
                assert!(
                    narrowed.to_bits() == expected.to_bits()
                        || narrowed.is_nan() && expected.is_nan(),
                    "{value:e} ({:#x})",
                    value.to_bits()
                );
            }
        }
    }
}
