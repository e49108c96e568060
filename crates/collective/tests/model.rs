//! The cost models: what the paper concludes from them (section 6), and where its printed equation cannot say so.

use collective::{
    ReductionTree,
    model::{
        Bounds, InvalidWriteCosts, PAPER_BLOCK_BYTES, WriteCosts, allreduce_us, best_degree,
        best_degree_of, broadcast_hop_us, broadcast_us, degrees, reduce_us, two_sided_us,
    },
};
use proptest::prelude::*;

const PAPER: &WriteCosts = &WriteCosts::PAPER;

/// Numbers of members of the paper's figures 11 to 14.
const MEMBERS: [u32; 5] = [4, 8, 16, 512, 1024];

fn is_near(value: f64, expected: f64, within: f64) -> bool {
    (value - expected).abs() <= within
}

fn worst_us(members: u32, degree: u32, bytes: u64) -> f64 {
    reduce_us(members, degree, bytes, PAPER).worst_us
}

fn fastest(members: u32, us: impl Fn(u32) -> f64) -> u32 {
    degrees(members).min_by(|&a, &b| us(a).total_cmp(&us(b))).expect("1 at least")
}

fn best_case_degree(members: u32, bytes: u64) -> u32 {
    fastest(members, |degree| reduce_us(members, degree, bytes, PAPER).best_us)
}

/// The sum over the steps of a time that depends on the number of senders, and two copies.
fn sum_us(members: u32, degree: u32, bytes: u64, step_us: impl Fn(f64) -> f64) -> f64 {
    let tree = ReductionTree::new(members, degree);
    let steps_us: f64 = (0..tree.steps()).map(|step| step_us(tree.senders(step).into())).sum();
    2.0 * PAPER.copy_us_per_byte * bytes as f64 + steps_us
}

/// The one equation that section 5.2 prints, "for very long messages".
fn printed_us(members: u32, degree: u32, bytes: u64) -> f64 {
    sum_us(members, degree, bytes, |senders| {
        2.0 * (PAPER.dma_start_us + PAPER.adapter_us)
            + PAPER.library_us
            + PAPER.post_us
            + PAPER.transmit_us_per_byte * bytes as f64 * senders
    })
}

/// A worst case in which nothing overlaps, not even transmission and adapter.
fn serial_us(members: u32, degree: u32, bytes: u64) -> f64 {
    let adapter_us = PAPER.dma_start_us + PAPER.adapter_us;
    sum_us(members, degree, bytes, |senders| {
        PAPER.library_us
            + PAPER.post_us
            + adapter_us
            + senders * (adapter_us + PAPER.transmit_us_per_byte * bytes as f64)
    })
}

#[test]
fn hop_of_a_broadcast() {
    assert!(is_near(broadcast_hop_us(4, PAPER_BLOCK_BYTES, PAPER), 9.0, 0.01));
    // 1.3 + 0.6 + 2 (2 + 1.52) + 3,072 * 2 * 0.0027 + 4,096 * 0.01 + 2 blocks of 8.3.
    let acknowledged = WriteCosts { acknowledge_us: 8.3, ..*PAPER };
    let hop_us = broadcast_hop_us(4096, PAPER_BLOCK_BYTES, &acknowledged);
    assert!(is_near(hop_us, 8.94 + 16.5888 + 40.96 + 16.6, 1e-9), "{hop_us}");
    assert_eq!(
        broadcast_hop_us(0, 1, &acknowledged),
        broadcast_hop_us(0, 9, &acknowledged),
        "an empty message is a block"
    );
    assert_eq!(broadcast_us(16, 4, 3072, PAPER), 4.0 * broadcast_hop_us(4, 3072, PAPER));
    assert_eq!(broadcast_us(17, 4, 3072, PAPER), 5.0 * broadcast_hop_us(4, 3072, PAPER));
    assert_eq!(broadcast_us(1, 4, 3072, PAPER), 0.0);
}

/// Section 6.1.1, by block sizes with the flag.
#[test]
fn block_sizes_of_a_broadcast() {
    let acknowledged = |us| WriteCosts { acknowledge_us: us, ..*PAPER };
    let best = |bytes, costs: &WriteCosts| {
        let hop_us = |&size: &u64| broadcast_hop_us(bytes, size - 1, costs);
        let sizes = [1025, 2049, 3073, 4097];
        sizes.into_iter().min_by(|a, b| hop_us(a).total_cmp(&hop_us(b))).expect("four")
    };
    for bytes in [4, 64, 1024] {
        let one = broadcast_hop_us(bytes, 1024, &acknowledged(8.3));
        assert_eq!(one, broadcast_hop_us(bytes, 3072, &acknowledged(8.3)), "one block of any size");
    }
    let blocks = |bytes, size: u64| {
        let of = |us| broadcast_hop_us(bytes, size - 1, &acknowledged(us));
        of(1.0) - of(0.0)
    };
    assert!(is_near(blocks(4096, 1025), 4.0, 1e-9) && is_near(blocks(4096, 4097), 1.0, 1e-9));
    // The paper's best size for 4,608 B, 3,073 B, needs acknowledgements that cost more than a copy of 2 * 1,024 B.
    assert_eq!(best(4608, &acknowledged(8.3)), 3073);
    assert_eq!(best(4608, &acknowledged(5.6)), 3073);
    assert_eq!(best(4608, &acknowledged(5.5)), 2049);
    assert_eq!(best(4608, PAPER), 1025);
}

#[test]
fn best_case_is_the_printed_equation_where_transmission_takes_longest() {
    for members in MEMBERS {
        for degree in degrees(members) {
            for bytes in [200, 351, 352, 1024, 4096, 5120] {
                let Bounds { best_us, worst_us } = reduce_us(members, degree, bytes, PAPER);
                let printed_us = printed_us(members, degree, bytes);
                assert!(is_near(best_us, printed_us, 1e-6), "{members} {degree} {bytes}");
                let is_transmission = bytes >= 352;
                assert!(!is_transmission || is_near(worst_us, printed_us, 1e-6), "{bytes}");
            }
            assert!(reduce_us(members, degree, 4, PAPER).best_us >= printed_us(members, degree, 4));
        }
    }
}

/// Of short messages the printed equation says the opposite of the paper's section 6.2, so it cannot be all of the model.
#[test]
fn printed_equation_favours_the_largest_degree_for_few_bytes() {
    for (degree, us) in [(1, 35.9), (3, 18.1), (7, 18.2), (15, 9.6)] {
        assert!(is_near(printed_us(16, degree, 4), us, 0.05), "degree {degree}");
    }
    assert_eq!(fastest(16, |degree| printed_us(16, degree, 4)), 15);
    assert_eq!(best_degree(16, 4, PAPER), 3);
}

/// Without any overlap, degree 3 would be best for very short messages only; the paper has it up to 1,024 B in the worst
/// case, too.
#[test]
fn worst_case_without_overlap_ends_degree_three_too_early() {
    for (degree, us) in [(1, 35.9), (3, 32.2), (7, 39.3), (15, 58.8)] {
        assert!(is_near(serial_us(16, degree, 4), us, 0.05), "degree {degree}");
        assert!(is_near(worst_us(16, degree, 4) / us, 1.0, 0.01), "nearly the same for 4 B");
    }
    assert_eq!(fastest(16, |degree| serial_us(16, degree, 189)), 3);
    assert_eq!(fastest(16, |degree| serial_us(16, degree, 191)), 1);
    for (members, bytes) in MEMBERS.map(|members| (members, 512)) {
        assert!(worst_us(members, 3, bytes) < serial_us(members, 3, bytes));
    }
}

/// Section 6.2 and figure 11: degree 3 for short messages, degree 1 for long ones. The paper measures the boundary at
/// 1,024 B; in the model it is where `Tt = 2 (Ts + Tn) + Tm + Td`, at 894 B for any number of members.
#[test]
fn degree_three_for_short_messages_and_one_for_long_ones() {
    for members in MEMBERS {
        for bytes in [0, 4, 64, 350, 512, 893] {
            assert_eq!(best_degree(members, bytes, PAPER), 3, "{members} members, {bytes} B");
        }
        for bytes in [895, 1025, 4096, 5000, 1 << 40] {
            assert_eq!(best_degree(members, bytes, PAPER), 1, "{members} members, {bytes} B");
            assert_eq!(best_case_degree(members, bytes), 1, "{members} members, {bytes} B");
        }
        assert_eq!(best_case_degree(members, 893), 3);
    }
    for bytes in 0..894 {
        let best_us = |members, degree| reduce_us(members, degree, bytes, PAPER).best_us;
        for members in [4, 16, 1024] {
            assert_eq!(best_case_degree(members, bytes), 3, "{members} members, {bytes} B");
        }
        // 512 is an odd power of 2, as 8 is: one step fewer with degree 7, which hardly helps.
        let degree = best_case_degree(512, bytes);
        assert_eq!(degree, if (107..224).contains(&bytes) { 7 } else { 3 }, "{bytes} B");
        assert!(best_us(512, 3) < 1.03 * best_us(512, degree), "{bytes} B");
    }
}

/// Section 6.2.1: "slightly improved" for very short messages.
#[test]
fn degree_seven_is_slightly_ahead_for_eight_members_at_best() {
    assert_eq!(best_case_degree(8, 4), 7);
    let best_us = |degree| reduce_us(8, degree, 4, PAPER).best_us;
    assert!((0.95..1.0).contains(&(best_us(7) / best_us(3))), "{}", best_us(7) / best_us(3));
    assert!(worst_us(8, 7, 4) > worst_us(8, 3, 4));
    assert_eq!(best_case_degree(8, 512), 3);
}

/// Gain of an allreduce of the best degree over two-sided messages, in percent.
fn gain(members: u32, bytes: u64, of_two_us: f64) -> Bounds {
    let degree = best_degree(members, bytes, PAPER);
    let us = allreduce_us(members, degree, bytes, PAPER_BLOCK_BYTES, PAPER);
    let percent = |us| 100.0 * (1.0 - us / two_sided_us(members, of_two_us));
    Bounds { best_us: percent(us.best_us), worst_us: percent(us.worst_us) }
}

/// Sections 6.2.1 and 6.2.2. The paper does not print the time of two members; the one that gives 40 % for 512 members in
/// the best case gives the other gains, too.
#[test]
fn gains_of_an_allreduce() {
    let of_two_us = allreduce_us(512, 3, 4, PAPER_BLOCK_BYTES, PAPER).best_us / 9.0 / 0.6;
    assert!(is_near(of_two_us, 26.3, 0.05), "{of_two_us}");
    let (many, more) = (gain(512, 4, of_two_us), gain(1024, 4, of_two_us));
    assert_eq!([many.best_us, many.worst_us, more.best_us].map(f64::round), [40.0, 35.0, 41.0]);
    // Measured with 16 members: 38 %, between the cases.
    let few = gain(16, 4, of_two_us);
    assert!(few.worst_us < 38.0 && 38.0 < few.best_us, "{few:?}");

    // 4 KB: degree 1, whose cases are one, as the paper's 14 % are for both; the same with 1,024 members.
    let bounds = allreduce_us(512, 1, 4096, PAPER_BLOCK_BYTES, PAPER);
    assert_eq!(bounds.best_us, bounds.worst_us);
    let of_two_us = bounds.best_us / 9.0 / 0.86;
    assert!(is_near(gain(1024, 4096, of_two_us).worst_us, 14.0, 0.5));
    // Degree 1 beyond the boundary costs less than degree 3 in every figure.
    assert!(MEMBERS.iter().all(|&members| worst_us(members, 1, 4096) < worst_us(members, 3, 4096)));
}

/// Figures 9 and 10: the gains of a broadcast do not depend on the number of members.
#[test]
fn gains_of_a_broadcast() {
    for (bytes, percent) in [(4, 16.0), (4096, 21.0)] {
        let us = |members| broadcast_us(members, bytes, PAPER_BLOCK_BYTES, PAPER);
        let of_two_us = us(512) / 9.0 / (1.0 - percent / 100.0);
        let gain = 100.0 * (1.0 - us(1024) / two_sided_us(1024, of_two_us));
        assert!(is_near(gain, percent, 1e-6), "{gain}");
    }
}

#[test]
fn degrees_are_those_of_the_paper() {
    let all = |members| degrees(members).collect::<Vec<_>>();
    assert_eq!(all(16), [1, 3, 7, 15]);
    assert_eq!(
        (all(1), all(2), all(3), all(4), all(15)),
        (vec![1], vec![1], vec![1], vec![1, 3], vec![1, 3, 7])
    );
    assert_eq!(all(u32::MAX).len(), 31);
    assert_eq!(all(u32::MAX).last(), Some(&(u32::MAX >> 1)));
    assert_eq!(best_degree(1, 4, PAPER), 1);
    assert_eq!(best_degree_of([], 16, 4, PAPER), None);
    assert_eq!(best_degree_of([15, 7, 1], 16, 4, PAPER), Some(1));
    // Of equals the smallest, in any order: with two members all degrees are one step of one sender.
    assert_eq!(best_degree_of([7, 2, 3], 2, 4, PAPER), Some(2));
    // Nine members are two full steps of degree 2, which the paper does not consider.
    assert_eq!(best_degree_of(1..9, 9, 4, PAPER), Some(2));
    assert_eq!(best_degree(9, 4, PAPER), 3);
}

#[test]
fn folds_count_once_a_step_at_best_and_per_sender_at_worst() {
    let folding = WriteCosts { fold_us_per_byte: 0.001, ..*PAPER };
    let added = |degree| {
        let (with, without) =
            (reduce_us(16, degree, 1000, &folding), reduce_us(16, degree, 1000, PAPER));
        (with.best_us - without.best_us, with.worst_us - without.worst_us)
    };
    for (degree, best_us, worst_us) in [(1, 4.0, 4.0), (3, 2.0, 6.0), (15, 1.0, 15.0)] {
        let (best, worst) = added(degree);
        assert!(is_near(best, best_us, 1e-9) && is_near(worst, worst_us, 1e-9), "degree {degree}");
    }
    // Folds longer than transmission are what each contribution waits for.
    let slow = WriteCosts { fold_us_per_byte: 0.1, ..*PAPER };
    let us = reduce_us(4, 3, 1000, &slow).best_us;
    assert!(is_near(us, 5.4 + 8.94 + 10.0 + 2.0 * 100.0 + 100.0, 1e-9), "{us}");
}

#[test]
fn parameters_as_text() {
    assert_eq!(
        WriteCosts::PAPER.to_string(),
        "Tt=0.01,Tc=0.0027,Ts=2,Tn=1.52,Td=0.6,Tm=1.3,Ta=0,To=0,Tw=0,Mc=1"
    );
    let fitted: WriteCosts = "To=0.5, Tt=1e-4".parse().expect("costs");
    let expected = WriteCosts { transmit_us_per_byte: 1e-4, fold_us_per_byte: 0.5, ..*PAPER };
    assert_eq!(fitted, expected);
    let error = |text: &str| text.parse::<WriteCosts>().expect_err(text);
    assert_eq!(error("Tx=1"), InvalidWriteCosts::Unknown("Tx=1".into()));
    assert_eq!(error(""), InvalidWriteCosts::Unknown(String::new()));
    assert_eq!(error("Tt=1,Tt=1"), InvalidWriteCosts::Twice("Tt"));
    for value in ["", "-1", "NaN", "inf", "2us"] {
        let expected = InvalidWriteCosts::Value { symbol: "Ts", value: value.to_owned() };
        assert_eq!(error(&format!("Tt=1,Ts={value}")), expected);
    }
}

fn any_costs() -> impl Strategy<Value = WriteCosts> {
    (prop::array::uniform4(0.0..0.1_f64), prop::array::uniform4(0.0..10.0_f64)).prop_map(
        |(per_byte, us)| WriteCosts {
            transmit_us_per_byte: per_byte[0],
            copy_us_per_byte: per_byte[1],
            fold_us_per_byte: per_byte[2],
            acknowledge_us: per_byte[3],
            dma_start_us: us[0],
            adapter_us: us[1],
            post_us: us[2],
            library_us: us[3],
            ..WriteCosts::PAPER
        },
    )
}

proptest! {
    #[test]
    fn any_network(
        costs in any_costs(),
        members in 1_u32..70_000,
        degree in 1_u32..100,
        bytes in 0_u64..100_000,
    ) {
        let us = |bytes| reduce_us(members, degree, bytes, &costs);
        let (now, longer) = (us(bytes), us(bytes + 1));
        let rounding = 1.0 + 1e-12;
        prop_assert!(0.0 <= now.best_us && now.best_us <= now.worst_us * rounding);
        prop_assert!(now.best_us <= longer.best_us && now.worst_us <= longer.worst_us);
        let best = best_degree(members, bytes, &costs);
        prop_assert!(degrees(members).any(|degree| degree == best));
        let least_us = reduce_us(members, best, bytes, &costs).worst_us;
        for degree in degrees(members) {
            prop_assert!(least_us <= reduce_us(members, degree, bytes, &costs).worst_us);
        }
        let text = costs.to_string();
        prop_assert_eq!(text.parse::<WriteCosts>(), Ok(costs));
    }
}
