//! Clauses about members that die, stop answering or break the protocol.

use std::time::Duration;

use transport::{Cause, Completion};

use crate::{
    ends::{assert_cancelled, exchange},
    harness::Harness,
    patterns::{assert_poison, patterned, poisoned},
    rig::Rig,
};

#[track_caller]
fn cause<'r, H: Harness>(rig: &'r Rig<'_, H>, member: usize, peer: usize) -> &'r Cause {
    match rig.end(member, peer) {
        Some(Completion::Broken { cause, .. }) => cause,
        end => panic!("member {member} did not break with member {peer}, but {end:?}"),
    }
}

/// At survivors, posts to the dead member are cancelled, and its endpoint ends once; transfers
/// between survivors continue.
pub fn a_dead_member_breaks_its_endpoints_only<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 4);
    exchange(&mut rig, 0, 2, 1);
    let into = poisoned(400);
    let pending: Vec<_> = [0, 1, 3]
        .into_iter()
        .enumerate()
        .map(|(index, member)| {
            (member, rig.receive(member, 2, &into, index * 100..(index + 1) * 100))
        })
        .collect();
    let among_survivors = rig.receive(1, 0, &into, 300..400);
    rig.kill(2);
    rig.pump("the survivors' ends", |rig| {
        [0, 1, 3].iter().all(|&member| rig.end(member, 2).is_some())
    });
    for (member, token) in pending {
        assert_cancelled(&rig, member, 2, token);
        let cause = cause(&rig, member, 2);
        assert!(matches!(cause, Cause::Lost(_) | Cause::Silent(_)), "{cause:?}");
    }
    assert_poison(&into, 0..300);
    rig.send(0, 1, &patterned(1, 100), 0..100, 0);
    rig.pump("a block among survivors", |rig| rig.succeeded(1, among_survivors));
    exchange(&mut rig, 3, 0, 2);
    exchange(&mut rig, 1, 3, 3);
    rig.pump_for(Duration::from_millis(30));
}

/// A member dies while blocks are in transit in both directions: all memory is handed back.
pub fn a_death_in_the_middle_of_blocks<H: Harness>(harness: &mut H) {
    const COUNT: usize = 6;
    const BYTES: usize = 2 << 20;
    for turns in [0, 1, 4] {
        let mut rig = Rig::new(harness, 2);
        let source = patterned(8, BYTES);
        let (into, far) = (poisoned(COUNT * BYTES), poisoned(COUNT * BYTES));
        let place = |block: usize| block * BYTES..(block + 1) * BYTES;
        let mut posts = Vec::new();
        for block in 0..COUNT {
            posts.push(rig.receive(0, 1, &into, place(block)));
            rig.receive(1, 0, &far, place(block));
        }
        for _ in 0..COUNT {
            posts.push(rig.send_shared(0, 1, &source, 0));
            rig.send_shared(1, 0, &source, 0);
        }
        for _ in 0..turns {
            rig.poll(0, Duration::from_millis(1));
            rig.poll(1, Duration::from_millis(1));
        }
        rig.kill(1);
        rig.pump("the survivor's end", |rig| rig.end(0, 1).is_some());
        let cause = cause(&rig, 0, 1);
        assert!(matches!(cause, Cause::Lost(_) | Cause::Silent(_)), "{cause:?}");
        assert!(posts.iter().all(|&token| rig.outcome(0, token).is_some()));
        assert!(source.write(0..BYTES).is_ok(), "the end is reported, but a lease is out");
    }
}

/// After a transport was dropped, nothing accesses its memory.
pub fn a_dropped_transport_hands_back_its_memory<H: Harness>(harness: &mut H) {
    const BYTES: usize = 3 << 20;
    let mut rig = Rig::new(harness, 2);
    let (source, into) = (patterned(1, BYTES), poisoned(BYTES));
    let (near_source, near_into) = (patterned(1, BYTES), poisoned(BYTES));
    rig.receive(0, 1, &near_into, 0..BYTES);
    rig.receive(1, 0, &into, 0..BYTES);
    rig.send(0, 1, &near_source, 0..BYTES, 0);
    rig.send(1, 0, &source, 0..BYTES, 0);
    rig.poll(1, Duration::from_millis(1));
    rig.kill(1);
    assert!(source.write(0..BYTES).is_ok(), "a send of a dropped transport keeps its lease");
    assert!(into.write(0..BYTES).is_ok(), "a receive of a dropped transport keeps its lease");
    // The survivor, which has not detected the death yet, sends to memory that is no longer the
    // dead member's.
    into.write(0..BYTES).expect("just seen").fill(crate::patterns::POISON);
    rig.pump("the survivor's end", |rig| rig.end(0, 1).is_some());
    assert_poison(&into, 0..BYTES);
}

/// Credit: a block without a posted receive breaks the endpoint on both sides, and no other.
pub fn a_block_that_nobody_asked_for_breaks_the_endpoint<H: Harness>(harness: &mut H) {
    for bytes in [0, 1, 1_000, 1 << 20] {
        let mut rig = Rig::new(harness, 3);
        let source = patterned(1, bytes);
        let sent = rig.send(0, 1, &source, 0..bytes, 7);
        rig.pump("both ends", |rig| rig.end(0, 1).is_some() && rig.end(1, 0).is_some());
        let at_receiver = cause(&rig, 1, 0);
        assert!(matches!(at_receiver, Cause::Protocol(_)), "{bytes} bytes: {at_receiver:?}");
        cause(&rig, 0, 1);
        assert!(rig.outcome(0, sent).is_some());
        exchange(&mut rig, 0, 2, 1);
        exchange(&mut rig, 2, 1, 2);
    }
}

/// Credit: a block longer than the posted memory breaks the endpoint on both sides, and no byte
/// outside of the posted memory is written.
pub fn a_block_longer_than_the_memory_breaks_the_endpoint<H: Harness>(harness: &mut H) {
    for (posted_bytes, bytes) in [(0, 1), (100, 101), (100, 1 << 20), (1 << 20, (1 << 20) + 1)] {
        let mut rig = Rig::new(harness, 3);
        let (source, into) = (patterned(1, bytes), poisoned(posted_bytes + 2_000));
        let place = 1_000..1_000 + posted_bytes;
        let received = rig.receive(1, 0, &into, place.clone());
        let sent = rig.send(0, 1, &source, 0..bytes, 7);
        rig.pump("both ends", |rig| rig.end(0, 1).is_some() && rig.end(1, 0).is_some());
        let at_receiver = cause(&rig, 1, 0);
        assert!(matches!(at_receiver, Cause::Protocol(_)), "{bytes} bytes: {at_receiver:?}");
        cause(&rig, 0, 1);
        assert_cancelled(&rig, 1, 0, received);
        assert!(rig.outcome(0, sent).is_some());
        assert_poison(&into, 0..place.start);
        assert_poison(&into, place.end..into.len());
        exchange(&mut rig, 0, 2, 1);
        exchange(&mut rig, 2, 1, 2);
    }
}

/// A member that stops answering while its connections stay is reported in time.
pub fn a_silent_member_is_reported<H: Harness>(harness: &mut H) {
    /// The additional time allowed for a busy machine.
    const ALLOWANCE: Duration = Duration::from_secs(5);
    let mut rig = Rig::new(harness, 3);
    exchange(&mut rig, 1, 0, 1);
    let into = poisoned(100);
    let pending = rig.receive(0, 1, &into, 0..100);
    let Some(within) = rig.silence(1) else { return };
    let start = rig.now();
    rig.pump("the end with the silent member", |rig| rig.end(0, 1).is_some());
    let took = rig.now() - start;
    assert!(took <= within + ALLOWANCE, "reported after {took:?} instead of {within:?}");
    assert!(matches!(cause(&rig, 0, 1), Cause::Silent(_)), "{:?}", cause(&rig, 0, 1));
    assert_cancelled(&rig, 0, 1, pending);
    exchange(&mut rig, 0, 2, 2);
}
