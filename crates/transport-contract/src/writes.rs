//! Clauses about one-sided writes. Where a transport has none, each prints a message and passes.

use transport::{Cause, Completion, PostError, Transport};

use crate::{
    harness::Harness,
    patterns::{assert_pattern, assert_poison, pattern, patterned, poisoned, poisoned_for_peers},
    rig::Rig,
};

/// Makes a rig of members that can write; `None`, with a message, if the transport cannot.
fn rig<H: Harness>(harness: &mut H, members: usize) -> Option<Rig<'_, H>> {
    let mut rig = Rig::new(harness, members);
    if rig.transport(0).one_sided().is_none() {
        eprintln!("SKIPPED: this transport has no one-sided writes");
        return None;
    }
    Some(rig)
}

/// Bytes and immediates arrive in posting order, at the offsets of the writes; bytes between them
/// do not change.
pub fn writes_arrive_in_order_where_they_belong<H: Harness>(harness: &mut H) {
    const COUNT: usize = 200;
    const SLOT: usize = 128;
    let Some(mut rig) = rig(harness, 2) else { return };
    let exposed = poisoned_for_peers(COUNT * SLOT);
    rig.expose(1, 0, 7, &exposed);
    // A network may carry short immediates in another way than those with the highest bit.
    let immediate =
        |index: usize| if index % 7 < 3 { u32::MAX - index as u32 } else { index as u32 };
    let posts: Vec<_> = (0..COUNT)
        .map(|index| {
            let source = patterned(index as u64, index % (SLOT + 1));
            let offset = (index * SLOT) as u64;
            rig.write_to(0, 1, &source, 7, offset, immediate(index))
        })
        .collect();
    rig.pump("all writes", |rig| rig.written(1, 0).len() >= COUNT);
    rig.pump("all handed back", |rig| posts.iter().all(|&token| rig.succeeded(0, token)));
    let expected: Vec<u32> = (0..COUNT).map(immediate).collect();
    assert_eq!(rig.written(1, 0), expected);
    for index in 0..COUNT {
        let (start, bytes) = (index * SLOT, index % (SLOT + 1));
        assert_pattern(&exposed, start..start + bytes, index as u64);
        assert_poison(&exposed, start + bytes..start + SLOT);
    }
}

/// A write longer than any buffer between the two arrives whole.
pub fn a_large_write_arrives_whole<H: Harness>(harness: &mut H) {
    const BYTES: usize = (3 << 20) + 77;
    let Some(mut rig) = rig(harness, 2) else { return };
    let exposed = poisoned_for_peers(BYTES + 2);
    rig.expose(1, 0, 0, &exposed);
    rig.write_to(0, 1, &patterned(5, BYTES), 0, 1, 9);
    rig.pump("the write", |rig| !rig.written(1, 0).is_empty());
    assert_pattern(&exposed, 1..BYTES + 1, 5);
    assert_poison(&exposed, 0..1);
    assert_poison(&exposed, BYTES + 1..BYTES + 2);
}

/// Several keys on several endpoints are independent, and a key cannot be used twice.
pub fn keys_name_memory_of_one_endpoint<H: Harness>(harness: &mut H) {
    let Some(mut rig) = rig(harness, 3) else { return };
    let regions: Vec<_> = (0..4).map(|_| poisoned_for_peers(100)).collect();
    rig.expose(0, 1, 1, &regions[0]);
    rig.expose(0, 1, u32::MAX, &regions[1]);
    rig.expose(0, 2, 1, &regions[2]);
    assert!(rig.try_expose(0, 1, 1, &regions[3]).is_err(), "a key was given twice");
    rig.write_to(1, 0, &patterned(1, 100), 1, 0, 1);
    rig.write_to(1, 0, &patterned(2, 100), u32::MAX, 0, 2);
    rig.write_to(2, 0, &patterned(3, 100), 1, 0, 3);
    rig.pump("all", |rig| rig.written(0, 1).len() >= 2 && !rig.written(0, 2).is_empty());
    for (region, seed) in regions.iter().zip(1..=3) {
        assert_pattern(region, 0..100, seed);
    }
    assert_poison(&regions[3], 0..100);
}

/// Memory is written repeatedly, and its owner reads it between the writes.
pub fn exposed_memory_is_used_by_turns<H: Harness>(harness: &mut H) {
    let Some(mut rig) = rig(harness, 2) else { return };
    let exposed = poisoned_for_peers(1_000);
    rig.expose(1, 0, 3, &exposed);
    for turn in 0..20 {
        rig.write_to(0, 1, &patterned(turn, 1_000), 3, 0, turn as u32);
        rig.pump("the write", |rig| rig.written(1, 0).len() as u64 > turn);
        assert_pattern(&exposed, 0..1_000, turn);
    }
}

/// Writes, blocks and words in both directions do not disturb each other.
pub fn writes_blocks_and_words_interleave<H: Harness>(harness: &mut H) {
    const COUNT: usize = 60;
    const BYTES: usize = 5_000;
    let Some(mut rig) = rig(harness, 2) else { return };
    let rings = [poisoned_for_peers(COUNT * BYTES), poisoned_for_peers(COUNT * BYTES)];
    let into = [poisoned(COUNT * BYTES), poisoned(COUNT * BYTES)];
    let mut receives = Vec::new();
    for (me, other) in [(0, 1), (1, 0)] {
        rig.expose(me, other, 1, &rings[me]);
        for index in 0..COUNT {
            let range = index * BYTES..(index + 1) * BYTES;
            receives.push((me, rig.receive(me, other, &into[me], range)));
        }
    }
    for index in 0..COUNT {
        for (me, other) in [(0, 1), (1, 0)] {
            let seed = (2 * index + me) as u64;
            rig.write(me, other, &pattern(seed, 1 + index));
            let written = patterned(seed, BYTES - index);
            rig.write_to(me, other, &written, 1, (index * BYTES) as u64, index as u32);
            rig.send_shared(me, other, &patterned(seed + 1_000, BYTES), 0);
        }
    }
    rig.pump("all of it", |rig| {
        let arrived = |me, other| {
            rig.written(me, other).len() >= COUNT && rig.words(me, other).len() >= COUNT
        };
        arrived(0, 1)
            && arrived(1, 0)
            && receives.iter().all(|&(member, token)| rig.succeeded(member, token))
    });
    for (me, other) in [(0, 1), (1, 0)] {
        for index in 0..COUNT {
            let (start, seed) = (index * BYTES, (2 * index + other) as u64);
            assert_eq!(rig.words(me, other)[index], pattern(seed, 1 + index));
            assert_pattern(&rings[me], start..start + BYTES - index, seed);
            assert_pattern(&into[me], start..start + BYTES, seed + 1_000);
        }
    }
}

/// A write that does not fit, or to a key that was not exposed, breaks the connection, writes
/// nothing, and does not affect others. Which of the two ends reports the cause depends on the
/// network.
pub fn a_write_outside_breaks_the_endpoint<H: Harness>(harness: &mut H) {
    for (key, offset, bytes) in
        [(7, 1, 100), (7, 101, 0), (7, u64::MAX, 1), (7, 50, 3 << 20), (8, 0, 10)]
    {
        let Some(mut rig) = rig(harness, 3) else { return };
        let exposed = poisoned_for_peers(100);
        let other = poisoned_for_peers(100);
        rig.expose(1, 0, 7, &exposed);
        rig.expose(1, 2, 7, &other);
        rig.write_to(0, 1, &patterned(1, bytes), key, offset, 0);
        let is_protocol = |end: Option<&Completion>| {
            matches!(end, Some(Completion::Broken { cause: Cause::Protocol(_), .. }))
        };
        rig.pump("the break", |rig| is_protocol(rig.end(1, 0)) || is_protocol(rig.end(0, 1)));
        assert!(rig.written(1, 0).is_empty(), "key {key}, offset {offset}, {bytes} bytes");
        assert_poison(&exposed, 0..100);
        rig.write_to(2, 1, &patterned(2, 100), 7, 0, 4);
        rig.pump("the other's write", |rig| !rig.written(1, 2).is_empty());
        assert_pattern(&other, 0..100, 2);
    }
}

/// Once an endpoint has ended, the memory that was exposed on it belongs to its owner alone.
pub fn exposed_memory_is_released_at_the_end<H: Harness>(harness: &mut H) {
    for dies in [false, true] {
        let Some(mut rig) = rig(harness, 2) else { return };
        let exposed = poisoned_for_peers(64);
        rig.expose(1, 0, 1, &exposed);
        rig.write_to(0, 1, &patterned(1, 64), 1, 0, 0);
        rig.pump("the write", |rig| !rig.written(1, 0).is_empty());
        if dies {
            rig.kill(0)
        } else {
            rig.close(1, 0)
        }
        rig.pump("the end", |rig| rig.end(1, 0).is_some());
        assert!(exposed.try_into_vec().is_ok(), "the transport still has the memory");
    }
}

/// A close hands back every write, completed or cancelled; those that arrived did so in order.
pub fn a_close_hands_back_writes<H: Harness>(harness: &mut H) {
    const COUNT: usize = 40;
    const BYTES: usize = 300_000;
    let Some(mut rig) = rig(harness, 2) else { return };
    let exposed = poisoned_for_peers(BYTES);
    rig.expose(1, 0, 1, &exposed);
    let source = patterned(1, BYTES);
    let posts: Vec<_> =
        (0..COUNT).map(|index| rig.write_to(0, 1, &source, 1, 0, index as u32)).collect();
    rig.close(0, 1);
    let endpoint = rig.endpoint(0, 1);
    let from = source.read(0..1).expect("readers share");
    let refused = rig.writes(0).post_write(endpoint, from, 1, 0, Some(0), transport::Token(1));
    assert!(matches!(refused, Err(PostError::EndpointGone(_))), "{refused:?}");
    rig.pump("both ends", |rig| rig.end(0, 1).is_some() && rig.end(1, 0).is_some());
    assert!(posts.iter().all(|&token| rig.outcome(0, token).is_some()));
    assert!(source.try_into_vec().is_ok(), "the transport still has the source");
    let written = rig.written(1, 0);
    assert!(written.iter().copied().eq(0..written.len() as u32), "{written:?}");
}

/// A member that does not poll receives its writes later; none is lost.
pub fn writes_wait_for_a_slow_reader<H: Harness>(harness: &mut H) {
    const COUNT: usize = 64;
    let Some(mut rig) = rig(harness, 2) else { return };
    let exposed = poisoned_for_peers(COUNT * 10_000);
    rig.expose(1, 0, 1, &exposed);
    rig.set_polled(1, false);
    for index in 0..COUNT {
        let source = patterned(index as u64, 10_000);
        rig.write_to(0, 1, &source, 1, (index * 10_000) as u64, index as u32);
    }
    rig.pump_for(std::time::Duration::from_millis(20));
    rig.set_polled(1, true);
    rig.pump("all writes", |rig| rig.written(1, 0).len() >= COUNT);
    for index in 0..COUNT {
        assert_pattern(&exposed, index * 10_000..(index + 1) * 10_000, index as u64);
    }
}
