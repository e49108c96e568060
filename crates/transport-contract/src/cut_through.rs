//! Clauses about blocks that are sent on while they arrive. Skipped, with a message, on networks that
//! cannot do this.

use std::time::Duration;

use transport::{Arriving, Completion, EndpointId, PostError, Region, Token, Transport};

use crate::{
    ends::{assert_cancelled, assert_closed, exchange},
    harness::Harness,
    patterns::{assert_pattern, pattern, patterned, poisoned},
    rig::Rig,
};

/// More than a network keeps in its buffers.
const BYTES: usize = 32 << 20;

/// Long enough for a completion that must not happen to be reported.
const SETTLE: Duration = Duration::from_millis(30);

/// Members of a network that can; `None` if this one cannot.
fn cut_through_rig<H: Harness>(harness: &mut H, members: usize) -> Option<Rig<'_, H>> {
    let mut rig = Rig::new(harness, members);
    if rig.transport(0).cut_through().is_none() {
        eprintln!("SKIPPED: this transport cannot send a block on while it arrives");
        return None;
    }
    Some(rig)
}

/// A long block that has begun to arrive at member 1, and cannot end while member 0 is not polled (in
/// real time; in virtual time the network goes on).
struct Begun {
    memory: Region,
    received: Token,
    arriving: Arriving,
}

fn contents(seed: u64) -> Vec<u8> {
    pattern(seed, 64 << 10).repeat(BYTES / (64 << 10))
}

fn begin<H: Harness>(rig: &mut Rig<'_, H>, seed: u64, immediate: u32) -> Begun {
    let (source, memory) = (Region::from_vec(contents(seed)), poisoned(BYTES));
    let (received, arriving) = rig.followed_receive(1, 0, &memory, 0..BYTES);
    rig.send(0, 1, &source, 0..BYTES, immediate);
    rig.pump("the beginning of a block", |rig| rig.arriving(1, received).is_some());
    assert_eq!(rig.arriving(1, received), Some(immediate));
    rig.set_polled(0, false);
    Begun { memory, received, arriving }
}

/// Returns the place in all that was reported where the first completion like this is.
fn place<H: Harness>(
    rig: &Rig<'_, H>,
    member: usize,
    is_it: impl Fn(&Completion) -> bool,
) -> usize {
    let seen = |(of, completion): &(usize, Completion)| *of == member && is_it(completion);
    rig.seen.iter().position(seen).expect("it was reported")
}

/// The last of three members has the beginning of a block before the middle one has its end; the send
/// completes after the receive.
pub fn a_block_is_sent_on_while_it_arrives<H: Harness>(harness: &mut H) {
    let Some(mut rig) = cut_through_rig(harness, 3) else { return };
    let begun = begin(&mut rig, 1, 7);
    let last = poisoned(BYTES);
    let (end, _arriving) = rig.followed_receive(2, 1, &last, 0..BYTES);
    let sent = rig.cut_through_send(1, 2, &begun.arriving, &begun.memory, BYTES, 8);
    rig.pump("the beginning at the last member", |rig| rig.arriving(2, end).is_some());
    rig.set_polled(0, true);
    rig.pump("the whole block", |rig| rig.succeeded(2, end) && rig.succeeded(1, sent));
    let of = |wanted: Token| move |it: &Completion| matches!(it, Completion::Received { token, .. } if *token == wanted);
    let begins = place(&rig, 2, |it| matches!(it, Completion::Arriving { .. }));
    let ends = place(&rig, 1, of(begun.received));
    assert!(begins < ends, "nothing was sent on before all had arrived");
    assert!(ends < place(&rig, 1, |it| matches!(it, Completion::Sent { .. })));
    let (endpoint, bytes) = (rig.endpoint(2, 1), BYTES as u64);
    let expected = Completion::Received { endpoint, token: end, bytes, immediate: 8 };
    assert_eq!(rig.outcome(2, end), Some(&expected));
    assert!(begun.memory.read(0..BYTES).expect("it is free")[..] == contents(1));
    assert!(last.read(0..BYTES).expect("it is free")[..] == contents(1));
}

/// Blocks of all lengths pass through a member to two others, in the order in which they were posted,
/// together with others that it holds.
pub fn blocks_of_all_lengths_are_sent_on<H: Harness>(harness: &mut H) {
    const LENGTHS: [usize; 8] = [0, 1, 8_191, 8_192, 20_000, 65_536, 300_001, 3_000_000];
    let Some(mut rig) = cut_through_rig(harness, 4) else { return };
    for (round, &bytes) in LENGTHS.iter().enumerate() {
        let seed = round as u64;
        let (source, memory) = (patterned(seed, bytes), poisoned(bytes));
        let (received, arriving) = rig.followed_receive(1, 0, &memory, 0..bytes);
        rig.send(0, 1, &source, 0..bytes, 5);
        rig.pump("a beginning or a block", |rig| {
            rig.arriving(1, received).is_some() || rig.succeeded(1, received)
        });
        let own = patterned(99, 100);
        let ends: Vec<_> = [2, 3]
            .map(|to| {
                let (into, other) = (poisoned(bytes), poisoned(100));
                let first = rig.receive(to, 1, &into, 0..bytes);
                let second = rig.receive(to, 1, &other, 0..100);
                rig.cut_through_send(1, to, &arriving, &memory, bytes, 5);
                rig.send_shared(1, to, &own, 6);
                (to, first, second, into, other)
            })
            .into();
        rig.pump("all blocks", |rig| {
            ends.iter().all(|&(to, one, two, ..)| rig.succeeded(to, one) && rig.succeeded(to, two))
        });
        assert_pattern(&memory, 0..bytes, seed);
        for (_, _, _, into, other) in &ends {
            assert_pattern(into, 0..bytes, seed);
            assert_pattern(other, 0..100, 99);
        }
    }
}

/// A send that waits for its block holds back neither control words nor other endpoints.
pub fn a_block_that_does_not_go_on_delays_nothing_else<H: Harness>(harness: &mut H) {
    let Some(mut rig) = cut_through_rig(harness, 4) else { return };
    let begun = begin(&mut rig, 2, 1);
    let last = poisoned(BYTES);
    let end = rig.receive(2, 1, &last, 0..BYTES);
    rig.cut_through_send(1, 2, &begun.arriving, &begun.memory, BYTES, 1);
    rig.pump_for(SETTLE);
    rig.write(1, 2, b"a word");
    rig.pump("a word", |rig| !rig.words(2, 1).is_empty());
    exchange(&mut rig, 1, 3, 3);
    exchange(&mut rig, 3, 1, 4);
    rig.set_polled(0, true);
    rig.pump("the block", |rig| rig.succeeded(2, end));
    assert!(last.read(0..BYTES).expect("it is free")[..] == contents(2));
}

/// The source dies in the middle of a block: its receive is cancelled, the send stays until its endpoint
/// is closed, and the last member never gets the block.
pub fn a_block_whose_source_has_died_is_not_completed<H: Harness>(harness: &mut H) {
    let Some(mut rig) = cut_through_rig(harness, 3) else { return };
    let begun = begin(&mut rig, 3, 1);
    let last = poisoned(BYTES);
    let end = rig.receive(2, 1, &last, 0..BYTES);
    let sent = rig.cut_through_send(1, 2, &begun.arriving, &begun.memory, BYTES, 1);
    rig.kill(0);
    rig.pump("the end of the source", |rig| rig.end(1, 0).is_some());
    assert_cancelled(&rig, 1, 0, begun.received);
    rig.pump_for(SETTLE);
    assert_eq!((rig.outcome(1, sent), rig.outcome(2, end)), (None, None));
    rig.write(1, 2, b"still here");
    rig.pump("a word", |rig| !rig.words(2, 1).is_empty());
    rig.close(1, 2);
    rig.pump("both ends", |rig| rig.end(1, 2).is_some() && rig.end(2, 1).is_some());
    assert_closed(&rig, 1, 2);
    assert_cancelled(&rig, 1, 2, sent);
    assert_cancelled(&rig, 2, 1, end);
    assert!(begun.memory.write(0..BYTES).is_ok(), "a lease is out");
}

/// Memory is handed back although a block is in the middle of two transfers.
pub fn a_dropped_transport_hands_back_what_it_sends_on<H: Harness>(harness: &mut H) {
    let Some(mut rig) = cut_through_rig(harness, 3) else { return };
    let begun = begin(&mut rig, 4, 1);
    let last = poisoned(BYTES);
    let end = rig.receive(2, 1, &last, 0..BYTES);
    rig.cut_through_send(1, 2, &begun.arriving, &begun.memory, BYTES, 1);
    (1..3).for_each(|member| {
        rig.poll(member, Duration::ZERO);
    });
    rig.kill(1);
    assert!(begun.memory.write(0..BYTES).is_ok(), "a lease is out");
    rig.pump("the end of the middle", |rig| rig.end(2, 1).is_some());
    assert_cancelled(&rig, 2, 1, end);
}

/// As other sends.
pub fn cut_through_sends_are_refused_as_others_are<H: Harness>(harness: &mut H) {
    let Some(mut rig) = cut_through_rig(harness, 2) else { return };
    let memory = poisoned(10);
    let arriving = memory.write(0..10).expect("it is free").arriving();
    let gone = EndpointId(u64::MAX);
    let sends = rig.transport(0).cut_through().expect("it has them");
    let read = arriving.read(10).expect("there is no writer");
    let refused = sends.post_cut_through_send(gone, read, 0, Token(1));
    assert_eq!(refused, Err(PostError::EndpointGone(gone)));
    assert!(memory.write(0..10).is_ok(), "a lease is out");
}
