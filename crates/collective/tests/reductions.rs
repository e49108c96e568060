//! Whole reductions: contributions folded along the trees, however a tree groups them.

use collective::{Function, Op, ReductionTree, Type, bytes_of, fold};
use proptest::prelude::*;

const MEMBERS_MAX: u32 = 64;

/// Folds as members do: each into its own contribution what its children send, in their order, once.
fn along(
    tree: &ReductionTree,
    rank: u32,
    own: &[Vec<u8>],
    fold: &impl Fn(&mut [u8], &[u8]),
) -> Vec<u8> {
    let mut acc = own[rank as usize].clone();
    for (_, child) in tree.children(rank) {
        fold(&mut acc, &along(tree, child, own, fold));
    }
    acc
}

/// Folds step by step, as messages arrive in time, and returns what rank 0 has.
fn in_steps(tree: &ReductionTree, own: &[Vec<u8>], fold: &impl Fn(&mut [u8], &[u8])) -> Vec<u8> {
    let mut values = own.to_vec();
    for step in 0..tree.steps() {
        for rank in 0..own.len() as u32 {
            for (_, child) in tree.children(rank).filter(|&(at, _)| at == step) {
                let sent = std::mem::take(&mut values[child as usize]);
                fold(&mut values[rank as usize], &sent);
            }
        }
    }
    values.swap_remove(0)
}

fn sequentially(own: &[Vec<u8>], fold: &impl Fn(&mut [u8], &[u8])) -> Vec<u8> {
    let mut acc = own[0].clone();
    own[1..].iter().for_each(|other| fold(&mut acc, other));
    acc
}

fn trees() -> impl Iterator<Item = (u32, ReductionTree)> {
    (1..=MEMBERS_MAX)
        .flat_map(|members| (1..members.max(2)).map(move |degree| (members, degree)))
        .map(|(members, degree)| (members, ReductionTree::new(members, degree)))
}

fn words<const N: usize>(bytes: &[u8]) -> [u32; N] {
    let (words, _) = bytes.as_chunks();
    std::array::from_fn(|i| u32::from_ne_bytes(words[i]))
}

/// Affine maps x -> a x + b modulo 2^32, the left one applied first: 8 bytes.
fn affine_maps() -> Function {
    Function::new("affine maps", 8, |acc, other| {
        for (acc, other) in acc.chunks_mut(8).zip(other.chunks(8)) {
            let ([a, b], [c, d]) = (words(acc), words(other));
            acc.copy_from_slice(bytes_of(&[a.wrapping_mul(c), b.wrapping_mul(c).wrapping_add(d)]));
        }
    })
    .expect("a valid function")
}

/// Products of 2 by 2 matrices modulo 2^32: 16 bytes.
fn matrices() -> Function {
    Function::new("matrices", 16, |acc, other| {
        for (acc, other) in acc.chunks_mut(16).zip(other.chunks(16)) {
            let ([a, b, c, d], [e, f, g, h]) = (words(acc), words(other));
            let dot =
                |a: u32, b: u32, c: u32, d: u32| a.wrapping_mul(b).wrapping_add(c.wrapping_mul(d));
            let product = [dot(a, e, b, g), dot(a, f, b, h), dot(c, e, d, g), dot(c, f, d, h)];
            acc.copy_from_slice(bytes_of(&product));
        }
    })
    .expect("a valid function")
}

/// Different words for each member, without a pattern: every second of four is even and the others odd, so that maps and
/// matrices can be inverted, and their products keep all that went in.
fn contributions(members: u32, words: u32) -> Vec<Vec<u8>> {
    let word = |at: u32| {
        let any = (at + 1).wrapping_mul(0x9e37_79b9).rotate_left(at % 32);
        if at % 4 == 1 { any & !1 } else { any | 1 }
    };
    let own = |rank: u32| (0..words).flat_map(move |i| word(rank * words + i).to_ne_bytes());
    (0..members).map(|rank| own(rank).collect()).collect()
}

#[test]
fn functions_need_not_commute() {
    for function in [affine_maps(), matrices()] {
        let fold =
            |acc: &mut [u8], other: &[u8]| function.fold(acc, other).expect("valid operands");
        // Three affine maps or six matrices.
        let all = contributions(MEMBERS_MAX, 24);
        let reversed = |own: &[Vec<u8>]| own.iter().rev().cloned().collect::<Vec<_>>();
        for (members, tree) in trees() {
            let own = &all[..members as usize];
            let expected = sequentially(own, &fold);
            assert_eq!(along(&tree, 0, own, &fold), expected, "{}, {tree:?}", function.name());
            assert_eq!(in_steps(&tree, own, &fold), expected, "{}, {tree:?}", function.name());
            let differs = sequentially(&reversed(own), &fold) != expected;
            assert_eq!(differs, members > 1, "the test notices a wrong order");
        }
    }
}

fn sum_f32(acc: &mut [u8], other: &[u8]) {
    fold(Type::F32, Op::Sum, acc, other).expect("valid operands");
}

/// Numbers of very different size, so that sums depend on the grouping.
fn floats(members: u32) -> Vec<Vec<u8>> {
    let float = |rank: u32, i: u32| {
        let word = (rank * 16 + i + 1).wrapping_mul(0x9e37_79b9);
        ((word % 2001) as f32 - 1000.0) * 10_f32.powi((word >> 16) as i32 % 7)
    };
    let own = |rank: u32| (0..16).map(|i| float(rank, i)).collect::<Vec<_>>();
    (0..members).map(|rank| bytes_of(&own(rank)).to_vec()).collect()
}

/// Sums of floating point depend on the degree, but for one degree on nothing else: all members take the same bits.
#[test]
fn one_degree_gives_one_sum() {
    let all = floats(MEMBERS_MAX);
    for members in 1..=MEMBERS_MAX {
        let own = &all[..members as usize];
        let sums: Vec<_> = (1..members.max(2))
            .map(|degree| {
                let tree = ReductionTree::new(members, degree);
                let sum = along(&tree, 0, own, &sum_f32);
                assert_eq!(in_steps(&tree, own, &sum_f32), sum, "{tree:?}");
                sum
            })
            .collect();
        // The greatest degree is a star, where rank 0 folds all in order.
        assert_eq!(sums.last(), Some(&sequentially(own, &sum_f32)));
        assert_eq!(sums.iter().any(|sum| *sum != sums[0]), members > 3, "{members} members");
    }
}

/// Where integers are combined, and least and greatest of all types, to the bit.
fn associative() -> impl Strategy<Value = (Type, Op)> {
    let all = Type::ALL.into_iter().flat_map(|element| Op::ALL.map(|op| (element, op)));
    let associative =
        all.filter(|&(element, op)| element.is_integer() || matches!(op, Op::Min | Op::Max));
    prop::sample::select(associative.collect::<Vec<_>>())
}

proptest! {
    #[test]
    fn grouping_and_order_do_not_matter(
        (element, op) in associative(),
        mut own in prop::collection::vec(prop::array::uniform32(any::<u8>()), 2..40),
        degree in 1_u32..40,
        rotation in 0_usize..40,
    ) {
        let fold = |acc: &mut [u8], other: &[u8]| fold(element, op, acc, other).expect("valid operands");
        let vectors = |own: &[[u8; 32]]| own.iter().map(|own| own.to_vec()).collect::<Vec<_>>();
        let expected = sequentially(&vectors(&own), &fold);
        let tree = ReductionTree::new(own.len() as u32, degree);
        prop_assert_eq!(&along(&tree, 0, &vectors(&own), &fold), &expected);
        // A ring begins at another member for each part.
        let rotation = rotation % own.len();
        own.rotate_left(rotation);
        prop_assert_eq!(&sequentially(&vectors(&own), &fold), &expected);
    }
}
