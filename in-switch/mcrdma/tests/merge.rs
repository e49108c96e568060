//! Merging: the paper's examples, and where the rules differ from it.

use std::net::IpAddr;

use mcrdma::{
    AHEAD_MAX, HOLD_NS, LAG_MAX, Merged, Merger, Merging, PACE_NS, PACED, SILENCE_NS, Source,
};
use proptest::prelude::*;
use roce::{Aeth, Mac, NakCode, Serial, Syndrome};

const NAK: Syndrome = Syndrome::Nak(NakCode::Sequence);
const ACK: Syndrome = Syndrome::Ack(31);

fn member(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

fn merging(members: u8, first: u32) -> Merging {
    let source = |number| Source { address: member(number), psn_offset: 0, ports: Vec::new() };
    Merging {
        psn_first: Serial::new(first),
        virtual_address: IpAddr::from([10, 9, 9, 9]),
        virtual_mac: Some(Mac([2, 0, 0, 0, 0, 9])),
        members: (1..=members).map(source).collect(),
        all_notifications: false,
    }
}

fn aeth(syndrome: Syndrome, msn: u32) -> Aeth {
    Aeth { syndrome, msn: Serial::new(msn) }
}

/// Three members that have acknowledged up to these packets, and ten times as many messages.
fn three(acks: [u32; 3]) -> Merger {
    let mut merger = Merger::new(&merging(3, 1));
    for (number, ack) in (1..).zip(acks) {
        merger.answer(0, member(number), Serial::new(ack), aeth(ACK, 10 * ack));
    }
    merger
}

fn forward(syndrome: Syndrome, psn: u32, msn: u32) -> Merged {
    Merged::Forward { psn: Serial::new(psn), aeth: aeth(syndrome, msn) }
}

fn answer(merger: &mut Merger, from: u8, syndrome: Syndrome, psn: u32) -> Merged {
    merger.answer(0, member(from), Serial::new(psn), aeth(syndrome, 10 * psn))
}

#[test]
fn the_papers_examples_are_merged_as_published() {
    // Section IV-C: records 4, 2, 5 and an ACK of 4 from the second.
    assert_eq!(answer(&mut three([4, 2, 5]), 2, ACK, 4), forward(ACK, 4, 40));
    // Records 1, 2, 5 and a NAK of 4 from the second: min{3, 1, 2, 5} + 1.
    assert_eq!(answer(&mut three([1, 2, 5]), 2, NAK, 4), forward(NAK, 2, 10));
}

#[test]
fn an_ack_that_advances_the_group_is_forwarded_though_it_is_not_the_smallest() {
    // The group moves from 2 to 4, with what the first has completed.
    assert_eq!(answer(&mut three([4, 2, 5]), 2, ACK, 9), forward(ACK, 4, 40));
}

#[test]
fn reordered_answers_never_move_the_group_back() {
    let mut merger = three([4, 4, 4]);
    assert_eq!(answer(&mut merger, 1, ACK, 2), Merged::Suppress);
    assert_eq!(answer(&mut merger, 1, NAK, 2), Merged::Suppress);
    answer(&mut merger, 2, ACK, 9);
    answer(&mut merger, 3, ACK, 9);
    assert_eq!(answer(&mut merger, 1, ACK, 9), forward(ACK, 9, 90));
}

#[test]
fn numbers_are_compared_across_the_wrap() {
    let mut merger = Merger::new(&merging(2, Serial::COUNT - 2));
    let last = Serial::COUNT - 1;
    assert_eq!(answer(&mut merger, 1, ACK, 1), Merged::Suppress);
    let forwarded = merger.answer(0, member(2), Serial::new(last), aeth(ACK, 3));
    assert_eq!(forwarded, forward(ACK, last, 3));
    assert_eq!(answer(&mut merger, 2, ACK, 0), forward(ACK, 0, 3));
}

#[test]
fn a_repeated_ack_of_the_slowest_member_is_forwarded() {
    // The sender retransmits because the last answer was lost.
    let mut merger = three([4, 4, 9]);
    assert_eq!(answer(&mut merger, 1, ACK, 4), forward(ACK, 4, 40));
    assert_eq!(answer(&mut merger, 3, ACK, 9), Merged::Suppress);
}

#[test]
fn naks_of_the_same_loss_are_forwarded_once() {
    let mut merger = three([4, 4, 9]);
    let mut nak =
        |from, psn, now_ns| merger.answer(now_ns, member(from), Serial::new(psn), aeth(NAK, 40));
    assert_eq!(nak(1, 5, 0), forward(NAK, 5, 40));
    assert_eq!(nak(2, 5, 1000), Merged::Suppress);
    assert_eq!(nak(3, 10, 2000), Merged::Suppress);
    assert_eq!(nak(2, 5, HOLD_NS), forward(NAK, 5, 40));
}

#[test]
fn a_held_nak_is_forwarded_once_the_group_reaches_its_number() {
    let mut merger = three([4, 4, 9]);
    assert_eq!(answer(&mut merger, 1, NAK, 5), forward(NAK, 5, 40));
    // The third misses its next packet, too, and will not repeat its NAK.
    assert_eq!(answer(&mut merger, 3, NAK, 10), Merged::Suppress);
    assert_eq!(answer(&mut merger, 1, ACK, 12), Merged::Suppress);
    assert_eq!(answer(&mut merger, 2, ACK, 12), forward(NAK, 10, 90));
    // What it has received since is not sent again.
    let mut merger = three([4, 4, 9]);
    answer(&mut merger, 1, NAK, 5);
    answer(&mut merger, 3, NAK, 10);
    answer(&mut merger, 3, ACK, 12);
    answer(&mut merger, 1, ACK, 12);
    assert_eq!(answer(&mut merger, 2, ACK, 12), forward(ACK, 12, 120));
}

/// It goes back to the slower member's number, which is earlier, and sends what the faster one lacks with the rest.
#[test]
fn a_loss_at_a_faster_member_makes_the_sender_go_back_once() {
    let mut merger = three([4, 4, 9]);
    assert_eq!(answer(&mut merger, 3, NAK, 10), forward(NAK, 5, 40));
    // The slower ones have what was on its way to them, before the other gets its packet again.
    assert_eq!(answer(&mut merger, 1, ACK, 12), Merged::Suppress);
    assert_eq!(answer(&mut merger, 2, ACK, 12), forward(ACK, 9, 90));
    assert_eq!(answer(&mut merger, 3, ACK, 12), forward(ACK, 12, 120));
}

#[test]
fn rnr_naks_are_forwarded_with_the_groups_number() {
    let mut merger = three([4, 2, 5]);
    let (short, long) = (Syndrome::ReceiverNotReady(1), Syndrome::ReceiverNotReady(20));
    assert_eq!(answer(&mut merger, 3, short, 6), forward(short, 3, 20));
    // Only a longer time is forwarded.
    assert_eq!(answer(&mut merger, 1, short, 5), Merged::Suppress);
    assert_eq!(answer(&mut merger, 1, long, 5), forward(long, 3, 20));
    assert_eq!(answer(&mut merger, 3, short, 6), Merged::Suppress);
}

#[test]
fn other_errors_end_the_connection_and_acknowledge_nothing_more() {
    let refused = Syndrome::Nak(NakCode::RemoteAccess);
    assert_eq!(answer(&mut three([4, 2, 5]), 3, refused, 6), forward(refused, 3, 20));
    assert_eq!(answer(&mut three([4, 2, 5]), 3, Syndrome::Reserved(0x45), 6), Merged::Unknown);
}

#[test]
fn the_fewest_credits_are_forwarded() {
    let mut merger = Merger::new(&merging(2, 1));
    answer(&mut merger, 1, Syndrome::Ack(3), 5);
    assert_eq!(answer(&mut merger, 2, Syndrome::Ack(31), 7), forward(Syndrome::Ack(3), 5, 50));
}

#[test]
fn answers_of_non_members_are_ignored() {
    let mut merger = three([4, 2, 5]);
    assert_eq!(answer(&mut merger, 9, ACK, 100), Merged::Unknown);
    assert_eq!(merger.notify(0, member(9)), None);
}

#[test]
fn what_was_never_sent_is_not_acknowledged() {
    // Comparing serial numbers is not transitive over more than half of the number space: each of three can be before the next.
    let most = AHEAD_MAX as u32;
    let mut merger = three([0, 0, 0]);
    assert_eq!(answer(&mut merger, 3, ACK, most + 1), Merged::Suppress);
    assert_eq!(answer(&mut merger, 3, ACK, most), Merged::Suppress);
    assert_eq!(answer(&mut merger, 3, ACK, 2 * most), Merged::Suppress);
    let expected = |merger: &Merger| merger.members().map(|(_, expected, _)| expected).last();
    assert_eq!(expected(&merger), Some(Serial::new(most + 1)), "the second");
    assert_eq!(answer(&mut merger, 1, ACK, 1), Merged::Suppress);
    assert_eq!(answer(&mut merger, 2, ACK, 3), forward(ACK, 1, 10));
}

#[test]
fn each_member_has_its_own_sequence_numbers() {
    let mut merging = merging(2, 100);
    merging.members[1].psn_offset = Serial::COUNT - 50;
    let mut merger = Merger::new(&merging);
    answer(&mut merger, 1, ACK, 103);
    assert_eq!(answer(&mut merger, 2, ACK, 52), forward(ACK, 102, 520));
}

#[test]
fn removing_its_slowest_member_advances_the_group() {
    let mut merger = three([4, 2, 5]);
    assert!(merger.remove(member(2)) && !merger.remove(member(2)));
    assert_eq!(answer(&mut merger, 1, ACK, 4), forward(ACK, 4, 40));
    assert_eq!(answer(&mut merger, 2, ACK, 4), Merged::Unknown);
    assert!(merger.remove(member(1)) && !merger.remove(member(3)), "the last stays");
}

/// DCQCN's shortest time between two CNPs of a receiver.
const SPACING_NS: u64 = 50_000;

fn notified(merger: &mut Merger, now_ns: u64, from: u8) -> u32 {
    u32::from(merger.notify(now_ns, member(from)).unwrap())
}

#[test]
fn the_sender_gets_as_many_notifications_as_the_most_congested_member_sent() {
    let mut merger = Merger::new(&merging(3, 0));
    let mut forwarded = 0;
    for at in 0..20 {
        for from in 1..=3 {
            // The third is congested half as often.
            if from < 3 || at % 2 == 0 {
                forwarded += notified(&mut merger, at * SPACING_NS, from);
            }
        }
    }
    assert_eq!(forwarded, 20 + 1, "and the second's that has caught up by its pace");
    let mut all = Merger::new(&Merging { all_notifications: true, ..merging(3, 0) });
    let forwarded: u32 = (1..=3).map(|from| notified(&mut all, 0, from)).sum();
    assert_eq!(forwarded, 3, "as the paper has it");
}

/// Seven members that send equally many, in an order of their own in each round. By the most in each millisecond
/// more than twice as many would be forwarded.
#[test]
fn members_that_are_congested_alike_are_heard_like_one() {
    let (mut merger, mut forwarded, mut state) = (Merger::new(&merging(7, 0)), 0, 1_u64);
    let (rounds, spacing_ns) = (2000, 700_000);
    for round in 0..rounds {
        for from in 1..=7 {
            // A member sends none, one or two in a round.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            for _ in 0..[0, 1, 1, 2][(state >> 62) as usize] {
                forwarded += notified(&mut merger, round * spacing_ns, from);
            }
        }
    }
    assert!((rounds as u32..rounds as u32 * 11 / 10).contains(&forwarded), "{forwarded}");
}

#[test]
fn a_member_that_was_silent_is_heard_at_once() {
    let mut merger = Merger::new(&merging(3, 0));
    for at in 0..1000 {
        assert_eq!(notified(&mut merger, at * SPACING_NS, 1), 1);
    }
    let now_ns = 1000 * SPACING_NS;
    assert_eq!(notified(&mut merger, now_ns, 2), 1, "the first ever");
    assert_eq!(notified(&mut merger, now_ns + SILENCE_NS, 3), 1, "all were silent");
}

/// How many notifications of a member that lagged are not forwarded, at this interval.
fn unheard(interval_ns: u64) -> u32 {
    let mut merger = Merger::new(&merging(2, 0));
    let mut at_ns = 0;
    for at in 0..1000 {
        at_ns = at * 4 * SPACING_NS;
        merger.notify(at_ns, member(1));
        // So that it is not silent.
        if at % 50 == 0 {
            merger.notify(at_ns, member(2));
        }
    }
    let mut send = || {
        at_ns += interval_ns;
        notified(&mut merger, at_ns, 2)
    };
    let unheard = (0..).take_while(|_| send() == 0).count();
    assert_eq!(send(), 1, "from then on each is heard");
    unheard as u32
}

#[test]
fn a_member_that_becomes_the_most_congested_is_heard_after_few() {
    let (pace, all) = (PACE_NS, LAG_MAX);
    assert!(pace.contains(&SPACING_NS));
    for in_pace in [*pace.start(), SPACING_NS, *pace.end()] {
        assert_eq!(unheard(in_pace), PACED, "it sends as fast as a receiver may");
    }
    for slower_or_faster in [pace.end() + 1, 3 * SPACING_NS, pace.start() - 1, 4000] {
        assert_eq!(unheard(slower_or_faster), all, "it lagged by all that it may");
    }
}

/// An answer of one of four members.
fn answers() -> impl Strategy<Value = (u8, u32, Syndrome)> {
    let syndrome = prop_oneof![
        (0_u8..32).prop_map(Syndrome::Ack),
        Just(NAK),
        (0_u8..32).prop_map(Syndrome::ReceiverNotReady),
    ];
    (1_u8..5, 0_u32..60, syndrome)
}

proptest! {
    /// Whatever members claim to have.
    #[test]
    fn no_more_is_acknowledged_than_each_member_has_acknowledged(
        answers in prop::collection::vec((answers(), 0_u32..8), 0..200),
    ) {
        let mut merger = Merger::new(&merging(4, 7));
        for (now, ((from, to, syndrome), jump)) in (0..).zip(answers) {
            let psn = Serial::new(to).plus(jump * ((1 << 21) - 1));
            let Merged::Forward { psn, aeth } =
                merger.answer(now * 1000, member(from), psn, aeth(syndrome, 0))
            else {
                continue;
            };
            let group = psn.plus(u32::from(matches!(aeth.syndrome, Syndrome::Ack(_))));
            for (of, expected, _) in merger.members() {
                prop_assert!(!group.is_after(expected), "{} lacks what was acknowledged", of);
            }
        }
    }

    /// In whatever order answers arrive, nothing is acknowledged to the sender that a member has not
    /// acknowledged; in the end everything is that all members have acknowledged.
    #[test]
    fn nothing_is_acknowledged_before_all_members_acknowledge_it(
        first in prop_oneof![Just(0_u32), Just(Serial::COUNT - 30)],
        answers in prop::collection::vec(answers(), 0..200),
    ) {
        let mut merger = Merger::new(&merging(4, first));
        let first = Serial::new(first);
        let mut has = [0_u32; 4];
        let mut forwarded = 0;
        for (now, (from, to, syndrome)) in (0..).zip(answers) {
            let is_ack = matches!(syndrome, Syndrome::Ack(_));
            let psn = first.plus(to).minus(u32::from(is_ack));
            let has_now = &mut has[usize::from(from) - 1];
            *has_now = to.max(*has_now);
            let least = has.into_iter().min().unwrap();
            if let Merged::Forward { psn, aeth } =
                merger.answer(now * 1000, member(from), psn, aeth(syndrome, 0))
            {
                let is_ack = matches!(aeth.syndrome, Syndrome::Ack(_));
                let place = psn.plus(u32::from(is_ack)).ahead_of(first);
                prop_assert_eq!(place, least as i32);
                forwarded = place;
            }
            prop_assert!(forwarded <= least as i32);
            if forwarded < least as i32 {
                prop_assert!(false, "the group has {} and the sender knows of {}", least, forwarded);
            }
        }
    }
}
