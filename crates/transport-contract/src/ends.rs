//! Clauses about closing.

use std::time::Duration;

use transport::{Cause, Completion, EndpointId, PostError, Token, Transport};

use crate::{
    harness::Harness,
    patterns::{assert_pattern, assert_poison, patterned, poisoned},
    rig::Rig,
};

/// Long enough for a completion that must not happen to be reported.
const SETTLE: Duration = Duration::from_millis(30);

#[track_caller]
pub(crate) fn assert_closed<H: Harness>(rig: &Rig<'_, H>, member: usize, peer: usize) {
    let endpoint = rig.endpoint(member, peer);
    assert_eq!(rig.end(member, peer), Some(&Completion::Closed { endpoint }));
}

#[track_caller]
fn assert_closed_by_peer<H: Harness>(rig: &Rig<'_, H>, member: usize, peer: usize) {
    let endpoint = rig.endpoint(member, peer);
    let expected = Completion::Broken { endpoint, cause: Cause::ClosedByPeer };
    assert_eq!(rig.end(member, peer), Some(&expected));
}

#[track_caller]
pub(crate) fn assert_cancelled<H: Harness>(
    rig: &Rig<'_, H>,
    member: usize,
    peer: usize,
    token: Token,
) {
    let expected = Completion::Cancelled { endpoint: rig.endpoint(member, peer), token };
    assert_eq!(rig.outcome(member, token), Some(&expected));
}

/// Sends one block and waits for it, to check that the endpoint works.
pub(crate) fn exchange<H: Harness>(rig: &mut Rig<'_, H>, from: usize, to: usize, seed: u64) {
    let (source, into) = (patterned(seed, 1_000), poisoned(1_000));
    let received = rig.receive(to, from, &into, 0..1_000);
    rig.send(from, to, &source, 0..1_000, 9);
    rig.pump("a block on another endpoint", |rig| rig.succeeded(to, received));
    assert_pattern(&into, 0..1_000, seed);
}

/// Posted receives, and sends that were not begun, are cancelled on both sides; then each side
/// reports the end once, and other endpoints are not affected.
pub fn a_close_cancels_what_is_posted<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 3);
    let into = poisoned(500);
    let own: Vec<Token> =
        (0..4).map(|index| rig.receive(0, 1, &into, index * 100..(index + 1) * 100)).collect();
    let far = poisoned(100);
    let others = rig.receive(1, 0, &far, 0..100);
    let elsewhere = rig.receive(0, 2, &into, 400..500);
    rig.close(0, 1);
    rig.pump("both ends", |rig| rig.end(0, 1).is_some() && rig.end(1, 0).is_some());
    assert_closed(&rig, 0, 1);
    assert_closed_by_peer(&rig, 1, 0);
    own.iter().for_each(|&token| assert_cancelled(&rig, 0, 1, token));
    assert_cancelled(&rig, 1, 0, others);
    assert_poison(&far, 0..100);
    exchange(&mut rig, 0, 2, 1);
    exchange(&mut rig, 2, 1, 2);
    rig.send(2, 0, &patterned(4, 100), 0..100, 0);
    rig.pump("the block elsewhere", |rig| rig.succeeded(0, elsewhere));
    // That nothing follows an end is checked for every completion.
    rig.pump_for(SETTLE);
}

/// What was written before the close is delivered before the peer reports the close.
pub fn control_words_before_a_close_arrive<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 2);
    let words: Vec<[u8; 3]> = (0..200).map(|index| [1, 2, index]).collect();
    words.iter().for_each(|word| rig.write(0, 1, word));
    rig.close(0, 1);
    rig.pump("both ends", |rig| rig.end(0, 1).is_some() && rig.end(1, 0).is_some());
    assert_eq!(rig.words(1, 0), words);
    assert_closed(&rig, 0, 1);
    assert_closed_by_peer(&rig, 1, 0);
}

/// Closing an endpoint that is closing or has ended does nothing.
pub fn closing_twice_is_harmless<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 2);
    rig.close(0, 1);
    rig.close(0, 1);
    rig.pump("both ends", |rig| rig.end(0, 1).is_some() && rig.end(1, 0).is_some());
    rig.close(0, 1);
    rig.close(1, 0);
    rig.transport(0).close(EndpointId(u64::MAX));
    rig.pump_for(SETTLE);
    assert_closed(&rig, 0, 1);
    assert_closed_by_peer(&rig, 1, 0);
}

/// When both sides close, both report that the endpoint was closed.
pub fn both_sides_may_close_at_once<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 2);
    let into = poisoned(20);
    let own = rig.receive(0, 1, &into, 0..10);
    let others = rig.receive(1, 0, &into, 10..20);
    rig.close(0, 1);
    rig.close(1, 0);
    rig.pump("both ends", |rig| rig.end(0, 1).is_some() && rig.end(1, 0).is_some());
    assert_closed(&rig, 0, 1);
    assert_closed(&rig, 1, 0);
    assert_cancelled(&rig, 0, 1, own);
    assert_cancelled(&rig, 1, 0, others);
}

/// Blocks in transit are completed or cancelled, each once, on both sides and in both directions.
pub fn a_close_in_the_middle_of_blocks<H: Harness>(harness: &mut H) {
    const COUNT: usize = 6;
    const BYTES: usize = 2 << 20;
    for turns in [0, 1, 3, 6] {
        let mut rig = Rig::new(harness, 2);
        let source = patterned(8, BYTES);
        let into = [poisoned(COUNT * BYTES), poisoned(COUNT * BYTES)];
        let place = |block: usize| block * BYTES..(block + 1) * BYTES;
        let mut receives = Vec::new();
        for block in 0..COUNT {
            receives.push((0, 1, block, rig.receive(0, 1, &into[0], place(block))));
            receives.push((1, 0, block, rig.receive(1, 0, &into[1], place(block))));
        }
        let mut sends = Vec::new();
        for _ in 0..COUNT {
            sends.push((0, rig.send_shared(0, 1, &source, 0)));
            sends.push((1, rig.send_shared(1, 0, &source, 0)));
        }
        for _ in 0..turns {
            rig.poll(0, Duration::from_millis(1));
            rig.poll(1, Duration::from_millis(1));
        }
        rig.close(0, 1);
        rig.pump("both ends", |rig| rig.end(0, 1).is_some() && rig.end(1, 0).is_some());
        assert_closed(&rig, 0, 1);
        assert_closed_by_peer(&rig, 1, 0);
        for (member, token) in sends {
            assert!(rig.outcome(member, token).is_some());
        }
        for (member, _, block, token) in receives {
            match rig.outcome(member, token) {
                Some(Completion::Received { .. }) => {
                    assert_pattern(&into[member], place(block), 8);
                }
                outcome => assert!(matches!(outcome, Some(Completion::Cancelled { .. }))),
            }
        }
        assert!(source.write(0..BYTES).is_ok(), "both ends are reported, but a lease is out");
    }
}

/// Draining is bounded: a peer that never reads cannot delay a close for longer.
pub fn a_close_ends_although_the_peer_does_not_read<H: Harness>(harness: &mut H) {
    const COUNT: usize = 8;
    const BYTES: usize = 4 << 20;
    let mut rig = Rig::new(harness, 2);
    rig.set_polled(1, false);
    let source = patterned(8, BYTES);
    let into = poisoned(COUNT * BYTES);
    for block in 0..COUNT {
        rig.receive(1, 0, &into, block * BYTES..(block + 1) * BYTES);
        rig.send_shared(0, 1, &source, 0);
    }
    rig.pump_for(SETTLE);
    rig.write(0, 1, b"last words");
    rig.close(0, 1);
    rig.pump("the end at the closing side", |rig| rig.end(0, 1).is_some());
    assert_closed(&rig, 0, 1);
    assert!(source.write(0..BYTES).is_ok(), "the end is reported, but a lease is out");
    rig.set_polled(1, true);
    rig.pump("the end at the other side", |rig| rig.end(1, 0).is_some());
    assert!(matches!(rig.end(1, 0), Some(Completion::Broken { .. })), "{:?}", rig.end(1, 0));
}

/// Closing, closed, broken and unknown endpoints refuse posts, and return the memory.
pub fn posts_on_a_gone_endpoint_are_refused<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 2);
    let memory = poisoned(10);
    // The rig checks that the lease of a refused post is dropped.
    let refuses = |rig: &mut Rig<'_, H>, member: usize, peer: usize| {
        let gone = PostError::EndpointGone(rig.endpoint(member, peer));
        assert_eq!(rig.try_receive(member, peer, &memory, 0..10), Err(gone.clone()));
        assert_eq!(rig.try_send(member, peer, &memory, 0..10, 0), Err(gone.clone()));
        assert_eq!(rig.try_write(member, peer, b"word"), Err(gone));
    };
    rig.close(0, 1);
    refuses(&mut rig, 0, 1);
    rig.pump("both ends", |rig| rig.end(0, 1).is_some() && rig.end(1, 0).is_some());
    refuses(&mut rig, 0, 1);
    refuses(&mut rig, 1, 0);
    let unknown = EndpointId(u64::MAX);
    let answer = rig.transport(0).write_control(unknown, b"word");
    assert_eq!(answer, Err(PostError::EndpointGone(unknown)));
    rig.pump_for(SETTLE);
}
