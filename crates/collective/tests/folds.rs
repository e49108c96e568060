//! Folds of two contributions: every type and operator against a model of single elements.

use collective::{
    Element, FoldError, Op, Type, Unsupported, bf16, bytes_of, bytes_of_mut, elements_of_mut, f16,
    fold,
};
use proptest::prelude::*;

/// What an element is for the model: its bits, lowest byte first in a `u64`.
fn bits(element: Type, bytes: &[u8]) -> u64 {
    match element.bytes() {
        1 => bytes[0].into(),
        2 => u16::from_ne_bytes(bytes.try_into().unwrap()).into(),
        4 => u32::from_ne_bytes(bytes.try_into().unwrap()).into(),
        _ => u64::from_ne_bytes(bytes.try_into().unwrap()),
    }
}

/// The value of an integer's bits.
fn integer(element: Type, bits: u64) -> i128 {
    let unused = 64 - 8 * element.bytes() as u32;
    if element.name().starts_with('i') {
        (((bits << unused) as i64) >> unused).into()
    } else {
        bits.into()
    }
}

fn integer_model(element: Type, op: Op, a: u64, b: u64) -> u64 {
    let (a, b) = (integer(element, a), integer(element, b));
    let exact = match op {
        Op::Sum => a + b,
        Op::Prod => a.wrapping_mul(b),
        Op::Min => a.min(b),
        Op::Max => a.max(b),
        Op::Band => a & b,
        Op::Bor => a | b,
        Op::Bxor => a ^ b,
        _ => panic!("{op} has no model"),
    };
    exact as u64 & (u64::MAX >> (64 - 8 * element.bytes() as u32))
}

/// The value of floating point's bits, exactly.
fn float(element: Type, bits: u64) -> f64 {
    match element {
        Type::F16 => f16::from_bits(bits as u16).to_f64(),
        Type::Bf16 => bf16::from_bits(bits as u16).to_f64(),
        Type::F32 => f32::from_bits(bits as u32).into(),
        _ => f64::from_bits(bits),
    }
}

/// The bits of the only NaN that `fold` returns.
fn nan(element: Type) -> u64 {
    match element {
        Type::F16 => 0x7e00,
        Type::Bf16 => 0x7fc0,
        Type::F32 => 0x7fc0_0000,
        _ => 0x7ff8_0000_0000_0000,
    }
}

fn float_model(element: Type, op: Op, a: u64, b: u64) -> u64 {
    let (left, right) = (float(element, a), float(element, b));
    if left.is_nan() || right.is_nan() {
        return nan(element);
    }
    let of_f32 = |combine: fn(f32, f32) -> f32| {
        let combined = combine(left as f32, right as f32);
        match element {
            Type::F16 => f16::from_f32_const(combined).to_bits().into(),
            Type::Bf16 => bf16::from_f32_const(combined).to_bits().into(),
            _ => combined.to_bits().into(),
        }
    };
    let result = match (op, element) {
        (Op::Min, _) => return if left.total_cmp(&right).is_lt() { a } else { b },
        (Op::Max, _) => return if left.total_cmp(&right).is_gt() { a } else { b },
        (Op::Sum, Type::F64) => (left + right).to_bits(),
        (Op::Prod, Type::F64) => (left * right).to_bits(),
        (Op::Sum, _) => of_f32(|a, b| a + b),
        (Op::Prod, _) => of_f32(|a, b| a * b),
        _ => panic!("{op} has no model"),
    };
    if float(element, result).is_nan() { nan(element) } else { result }
}

/// Folds, and compares each element with the model. Slices have no particular alignment.
fn check(element: Type, op: Op, acc: &[u8], other: &[u8]) {
    let mut folded = acc.to_vec();
    fold(element, op, &mut folded, other).expect("valid operands");
    let elements = |bytes: &[u8]| -> Vec<u64> {
        bytes.chunks(element.bytes()).map(|bytes| bits(element, bytes)).collect()
    };
    let model = if element.is_integer() { integer_model } else { float_model };
    for ((&a, &b), folded) in elements(acc).iter().zip(&elements(other)).zip(elements(&folded)) {
        let expected = model(element, op, a, b);
        assert_eq!(
            folded, expected,
            "{op} of {element}: {a:#x}, {b:#x}; {folded:#x}, not {expected:#x}"
        );
    }
}

fn valid() -> impl Iterator<Item = (Type, Op)> {
    Type::ALL
        .into_iter()
        .flat_map(|element| Op::ALL.map(|op| (element, op)))
        .filter(|(element, op)| op.check(*element).is_ok())
}

/// Bits with which something may go wrong: limits, zeros, infinities, NaN of both signs and both kinds, subnormals, ties.
fn edges(element: Type) -> Vec<u64> {
    let all = u64::MAX >> (64 - 8 * element.bytes() as u32);
    let sign = all ^ (all >> 1);
    let mut edges = vec![0, 1, 2, 3, all >> 1, all >> 2, all, all / 3];
    if !element.is_integer() {
        let infinity = (nan(element) << 1) & nan(element);
        let one = infinity >> 1 & infinity;
        edges.extend([infinity - 1, infinity, infinity + 1, nan(element), nan(element) + 1]);
        edges.extend([one, one + 1, one - 1, one >> 1, infinity & infinity.wrapping_neg()]);
    }
    edges.iter().flat_map(|edge| [edge & all, (edge ^ sign) & all]).collect()
}

fn bytes_from(element: Type, elements: impl IntoIterator<Item = u64>) -> Vec<u8> {
    let of = |bits: u64| match element.bytes() {
        1 => vec![bits as u8],
        2 => (bits as u16).to_ne_bytes().to_vec(),
        4 => (bits as u32).to_ne_bytes().to_vec(),
        _ => bits.to_ne_bytes().to_vec(),
    };
    elements.into_iter().flat_map(of).collect()
}

#[test]
fn every_pair_of_edges() {
    for (element, op) in valid() {
        let edges = edges(element);
        let lefts = edges.iter().flat_map(|&left| edges.iter().map(move |_| left));
        let rights = edges.iter().flat_map(|_| edges.iter().copied());
        check(element, op, &bytes_from(element, lefts), &bytes_from(element, rights));
    }
}

#[test]
fn every_pair_of_bytes() {
    let lefts: Vec<u8> = (0..=u8::MAX).flat_map(|left| [left; 256]).collect();
    let rights: Vec<u8> = (0..256).flat_map(|_| 0..=u8::MAX).collect();
    for (element, op) in valid().filter(|(element, _)| element.bytes() == 1) {
        check(element, op, &lefts, &rights);
    }
}

#[test]
fn every_half_beside_edges() {
    for (element, op) in valid().filter(|(element, _)| matches!(element, Type::F16 | Type::Bf16)) {
        let all = bytes_from(element, 0..=u16::MAX.into());
        for edge in edges(element) {
            let edge = bytes_from(element, (0..=u16::MAX).map(|_| edge));
            check(element, op, &all, &edge);
        }
    }
}

/// Signed zeros and NaN as the documentation of `fold` has them, in figures that do not come from the model.
#[test]
fn zeros_and_nan() {
    fn folded<E: Element>(op: Op, mut acc: [E; 1], other: [E; 1]) -> E {
        fold(E::TYPE, op, bytes_of_mut(&mut acc), bytes_of(&other)).expect("valid operands");
        acc[0]
    }
    for (left, right) in [([0.0_f32], [-0.0]), ([-0.0], [0.0])] {
        assert_eq!(folded(Op::Min, left, right).to_bits(), 1 << 31);
        assert_eq!(folded(Op::Max, left, right).to_bits(), 0);
        let (left, right) = (left.map(f16::from_f32), right.map(f16::from_f32));
        assert_eq!(folded(Op::Min, left, right).to_bits(), 0x8000);
        assert_eq!(folded(Op::Max, left, right).to_bits(), 0);
    }
    let payload = f64::from_bits(0xfff0_0000_0000_0001);
    for (left, right) in [([payload], [1.0]), ([f64::INFINITY], [payload])] {
        assert_eq!(folded(Op::Min, left, right).to_bits(), 0x7ff8_0000_0000_0000);
        assert_eq!(folded(Op::Max, left, right).to_bits(), 0x7ff8_0000_0000_0000);
        assert_eq!(folded(Op::Sum, left, right).to_bits(), 0x7ff8_0000_0000_0000);
        assert_eq!(folded(Op::Prod, left, right).to_bits(), 0x7ff8_0000_0000_0000);
    }
    assert_eq!(folded(Op::Sum, [f32::NEG_INFINITY], [f32::INFINITY]).to_bits(), 0x7fc0_0000);
    assert_eq!(folded(Op::Prod, [f16::NEG_INFINITY], [f16::ZERO]).to_bits(), 0x7e00);
    let negative_nan = [bf16::from_bits(0xff81)];
    assert_eq!(folded(Op::Max, negative_nan, [bf16::INFINITY]).to_bits(), 0x7fc0);
    assert_eq!(folded(Op::Sum, [f16::MAX], [f16::MAX]), f16::INFINITY);
    // 2048 + 1 lies between two: to the even one; 2050 + 1 likewise, upwards.
    let half = |value| [f16::from_f32(value)];
    assert_eq!(folded(Op::Sum, half(2048.0), half(1.0)), f16::from_f32(2048.0));
    assert_eq!(folded(Op::Sum, half(2050.0), half(1.0)), f16::from_f32(2052.0));
    assert_eq!(folded(Op::Sum, [bf16::from_f32(256.0)], [bf16::from_f32(1.0)]).to_f32(), 256.0);
    assert_eq!((folded(Op::Sum, [i8::MAX], [1]), folded(Op::Prod, [200_u8], [2])), (i8::MIN, 144));
}

/// Returns whether `rounded` is the nearest number of its format to an exact value, and even where two are equally near.
fn is_nearest(rounded: u16, exact: f64, value: impl Fn(u16) -> f64) -> bool {
    let distance = |bits: u16| (value(bits) - exact).abs();
    let magnitude = rounded & 0x7fff;
    let beside =
        [magnitude.saturating_sub(1), magnitude + 1].map(|beside| beside | rounded & 0x8000);
    beside.into_iter().filter(|&beside| value(beside).is_finite() && beside != rounded).all(
        |beside| {
            let (near, far) = (distance(rounded), distance(beside));
            near < far || near == far && rounded.is_multiple_of(2)
        },
    )
}

#[test]
fn refused_operands_leave_the_left_one() {
    let mut acc = [7_u8; 6];
    let refused =
        |element, op, acc: &mut [u8], other: &[u8]| fold(element, op, acc, other).unwrap_err();
    assert_eq!(
        refused(Type::U8, Op::Sum, &mut acc, &[1; 5]),
        FoldError::Lengths { acc: 6, other: 5 }
    );
    let error = refused(Type::F32, Op::Sum, &mut acc, &[1; 6]);
    assert_eq!(error, FoldError::Cut { bytes: 6, element_bytes: 4 });
    assert_eq!(error.to_string(), "6 bytes are not a whole number of elements of 4 bytes");
    let error = refused(Type::F16, Op::Bor, &mut acc, &[1; 6]);
    assert_eq!(error, FoldError::Unsupported(Unsupported { op: Op::Bor, element: Type::F16 }));
    assert_eq!(acc, [7; 6]);
    for (element, op) in valid() {
        assert_eq!(fold(element, op, &mut [], &[]), Ok(()));
    }
}

fn type_and_op() -> impl Strategy<Value = (Type, Op)> {
    prop::sample::select(valid().collect::<Vec<_>>())
}

/// Operands of one length in elements, and where in a buffer each begins.
fn operands() -> impl Strategy<Value = (Type, Op, [Vec<u8>; 2], [usize; 2])> {
    (type_and_op(), 0_usize..300, [0_usize..9, 0..9]).prop_flat_map(
        |((element, op), length, from)| {
            let bits = prop_oneof![3 => any::<u64>(), 1 => prop::sample::select(edges(element))];
            let operand = prop::collection::vec(bits, length)
                .prop_map(move |elements| bytes_from(element, elements));
            (Just(element), Just(op), [operand.clone(), operand], Just(from))
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn folds_are_those_of_single_elements((element, op, [acc, other], from) in operands()) {
        let buffers = [&acc, &other].map(|operand| [&[0; 9][..], operand].concat());
        let unaligned = |of: usize| {
            let mut buffer = buffers[of].clone();
            buffer.rotate_left(from[of]);
            buffer
        };
        let (left, right) = (unaligned(0), unaligned(1));
        let place = |of: usize| 9 - from[of]..9 - from[of] + acc.len();
        check(element, op, &left[place(0)], &right[place(1)]);

        // In place: the same bytes as in a buffer of their own, and none beside them.
        let mut whole = acc.clone();
        fold(element, op, &mut whole, &other).expect("valid operands");
        let mut within = left.clone();
        fold(element, op, &mut within[place(0)], &right[place(1)]).expect("valid operands");
        let mut expected = left;
        expected[place(0)].copy_from_slice(&whole);
        prop_assert_eq!(within, expected);
    }

    #[test]
    fn pieces_are_folded_as_the_whole((element, op, [acc, other], [piece, _]) in operands()) {
        let mut whole = acc.clone();
        fold(element, op, &mut whole, &other).expect("valid operands");
        let mut pieces = acc;
        let bytes = (piece + 1) * element.bytes();
        for (acc, other) in pieces.chunks_mut(bytes).zip(other.chunks(bytes)) {
            fold(element, op, acc, other).expect("valid operands");
        }
        prop_assert_eq!(pieces, whole);
    }

    #[test]
    fn operands_can_be_exchanged((element, op, [acc, other], _) in operands()) {
        let folded = |mut acc: Vec<u8>, other: &[u8]| {
            fold(element, op, &mut acc, other).expect("valid operands");
            acc
        };
        prop_assert_eq!(folded(acc.clone(), &other), folded(other, &acc));
    }

    /// Values of 2^-12 to 2^3, whose sums and products are exact in `f64` and finite, are rounded once, to the nearest.
    #[test]
    fn halves_are_rounded_to_the_nearest(of in prop::collection::vec(0x0c00_u16..0x4800, 2), signs in any::<[bool; 2]>()) {
        let signed = [0, 1].map(|i| of[i] | if signs[i] { 0x8000 } else { 0 });
        let [left, right] = signed.map(|bits| f16::from_bits(bits).to_f64());
        for (op, exact) in [(Op::Sum, left + right), (Op::Prod, left * right)] {
            let mut acc = signed[0].to_ne_bytes();
            fold(Type::F16, op, &mut acc, &signed[1].to_ne_bytes()).expect("valid operands");
            let value = |bits| f16::from_bits(bits).to_f64();
            prop_assert!(is_nearest(u16::from_ne_bytes(acc), exact, value), "{op} of {left:e} and {right:e}");
        }
        // The same exponents around 1 for bf16: 2^-15 to 2^16.
        let signed = [0, 1].map(|i| ((of[i] & 0x7ff) + 0x3800) | if signs[i] { 0x8000 } else { 0 });
        let [left, right] = signed.map(|bits| bf16::from_bits(bits).to_f64());
        for (op, exact) in [(Op::Sum, left + right), (Op::Prod, left * right)] {
            let mut acc = signed[0].to_ne_bytes();
            fold(Type::Bf16, op, &mut acc, &signed[1].to_ne_bytes()).expect("valid operands");
            let value = |bits| bf16::from_bits(bits).to_f64();
            prop_assert!(is_nearest(u16::from_ne_bytes(acc), exact, value), "{op} of {left:e} and {right:e}");
        }
    }
}

#[test]
fn typed_slices_are_folded_in_place() {
    let mut acc = [1_u32, 2, u32::MAX];
    fold(u32::TYPE, Op::Sum, bytes_of_mut(&mut acc), bytes_of(&[1_u32, 2, 3]))
        .expect("valid operands");
    assert_eq!(acc, [2, 4, 2]);
    let words = bytes_of_mut(&mut acc);
    assert_eq!(elements_of_mut::<i32>(words), Some(&mut [2, 4, 2][..]));
}
