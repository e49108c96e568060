//! Clauses about blocks: matching, lengths, memory.

use std::{collections::VecDeque, time::Duration};

use transport::{Completion, PostError, Region, Token, Transport};

use crate::{
    harness::Harness,
    patterns::{assert_pattern, assert_poison, pattern, patterned, poisoned},
    rig::Rig,
};

/// Bytes before and after posted memory, which must not be written.
const MARGIN_BYTES: usize = 64;

#[track_caller]
fn assert_received<H: Harness>(
    rig: &Rig<'_, H>,
    member: usize,
    peer: usize,
    token: Token,
    bytes: usize,
    immediate: u32,
) {
    let endpoint = rig.endpoint(member, peer);
    let expected = Completion::Received { endpoint, token, bytes: bytes as u64, immediate };
    assert_eq!(rig.outcome(member, token), Some(&expected));
}

/// Matching: the i-th send fills the i-th receive, in both directions at once.
pub fn blocks_match_receives_in_posting_order<H: Harness>(harness: &mut H) {
    const COUNT: usize = 48;
    let bytes_of = |direction: usize, block: usize| (block * 977 + direction * 13) % 5_000;
    let mut rig = Rig::new(harness, 2);
    let mut expected = Vec::new();
    for (from, to) in [(0, 1), (1, 0)] {
        for block in 0..COUNT {
            let into = poisoned(5_000);
            let token = rig.receive(to, from, &into, 0..5_000);
            expected.push((from, to, block, token, into));
        }
    }
    let mut sends = Vec::new();
    for block in 0..COUNT {
        for (from, to) in [(0, 1), (1, 0)] {
            let bytes = bytes_of(from, block);
            let source = patterned((from * COUNT + block) as u64, bytes);
            sends.push((from, rig.send(from, to, &source, 0..bytes, block as u32)));
        }
    }
    rig.pump("all sends and receives", |rig| {
        sends.iter().all(|&(member, token)| rig.succeeded(member, token))
            && expected.iter().all(|(_, to, _, token, _)| rig.succeeded(*to, *token))
    });
    for (from, to, block, token, into) in &expected {
        let bytes = bytes_of(*from, *block);
        assert_received(&rig, *to, *from, *token, bytes, *block as u32);
        assert_pattern(into, 0..bytes, (from * COUNT + block) as u64);
        assert_poison(into, bytes..5_000);
    }
}

/// Tokens and immediates of every value come back unchanged.
pub fn tokens_and_immediates_come_back<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 2);
    for (token, immediate) in [(0, 0), (u64::MAX, u32::MAX), (1 << 63, 1 << 31), (7, 0x0102_0304)] {
        let (source, into) = (patterned(token, 100), poisoned(100));
        rig.next_token = token;
        let received = rig.receive(1, 0, &into, 0..100);
        rig.next_token = token;
        let sent = rig.send(0, 1, &source, 0..100, immediate);
        rig.pump("one block", |rig| rig.succeeded(0, sent) && rig.succeeded(1, received));
        assert_received(&rig, 1, 0, Token(token), 100, immediate);
        let endpoint = rig.endpoint(0, 1);
        let expected = Completion::Sent { endpoint, token: Token(token) };
        assert_eq!(rig.outcome(0, sent), Some(&expected));
    }
}

/// A block of any length arrives with exactly its length, at exactly its address.
pub fn every_length_arrives_exactly<H: Harness>(harness: &mut H) {
    const KIB: usize = 1 << 10;
    let mut rig = Rig::new(harness, 2);
    let bytes_max = rig.transport(0).block_bytes_max();
    let around = |bytes: usize| [bytes - 1, bytes, bytes + 1];
    let lengths = [0, 1, 2, 3, 7, 17]
        .into_iter()
        .chain([64, 4 * KIB, 64 * KIB, 256 * KIB].into_iter().flat_map(around))
        .chain([KIB * KIB + 3, 5 * KIB * KIB + 1]);
    for bytes in lengths.filter(|&bytes| bytes as u64 <= bytes_max) {
        let (source, into) = (patterned(bytes as u64, bytes), poisoned(bytes + 2 * MARGIN_BYTES));
        let place = MARGIN_BYTES..MARGIN_BYTES + bytes;
        let received = rig.receive(1, 0, &into, place.clone());
        let sent = rig.send(0, 1, &source, 0..bytes, bytes as u32);
        rig.pump("one block", |rig| rig.succeeded(0, sent) && rig.succeeded(1, received));
        assert_received(&rig, 1, 0, received, bytes, bytes as u32);
        assert_pattern(&into, place.clone(), bytes as u64);
        assert_poison(&into, 0..place.start);
        assert_poison(&into, place.end..into.len());
        assert_pattern(&source, 0..bytes, bytes as u64);
    }
}

/// Only the bytes of the block are written, however much memory was posted.
pub fn a_short_block_leaves_the_rest_of_the_memory_alone<H: Harness>(harness: &mut H) {
    const POSTED_BYTES: usize = 200_000;
    let mut rig = Rig::new(harness, 2);
    for bytes in [0, 1, 99_999, POSTED_BYTES - 1] {
        let (source, into) = (patterned(3, bytes), poisoned(POSTED_BYTES));
        let received = rig.receive(1, 0, &into, 0..POSTED_BYTES);
        rig.send(0, 1, &source, 0..bytes, 0);
        rig.pump("a short block", |rig| rig.succeeded(1, received));
        assert_received(&rig, 1, 0, received, bytes, 0);
        assert_pattern(&into, 0..bytes, 3);
        assert_poison(&into, bytes..POSTED_BYTES);
    }
}

/// A sequence of small blocks, each sent once the peer has posted the receive for it.
pub fn many_small_blocks_through_a_window_of_two<H: Harness>(harness: &mut H) {
    const COUNT: usize = 2_000;
    const BLOCK_BYTES: usize = 24;
    let mut rig = Rig::new(harness, 2);
    let place = |block: usize| block * BLOCK_BYTES..(block + 1) * BLOCK_BYTES;
    let (source, into) = (patterned(5, COUNT * BLOCK_BYTES), poisoned(COUNT * BLOCK_BYTES));
    let mut pending = VecDeque::new();
    for block in 0..COUNT {
        if pending.len() == 2
            && let Some((sent, received)) = pending.pop_front()
        {
            rig.pump("a small block", |rig| rig.succeeded(0, sent) && rig.succeeded(1, received));
        }
        let received = rig.receive(1, 0, &into, place(block));
        pending.push_back((rig.send(0, 1, &source, place(block), block as u32), received));
    }
    rig.pump("the last blocks", |rig| pending.iter().all(|&(_, token)| rig.succeeded(1, token)));
    assert_pattern(&into, 0..into.len(), 5);
    let received: Vec<u32> = rig
        .seen
        .iter()
        .filter_map(|(_, completion)| match completion {
            Completion::Received { immediate, .. } => Some(*immediate),
            _ => None,
        })
        .collect();
    assert_eq!(received.len(), COUNT);
}

/// Blocks that a transport may spread over several streams arrive in their own receives; the order
/// of completions is not specified.
pub fn large_blocks_posted_all_at_once<H: Harness>(harness: &mut H) {
    const COUNT: usize = 24;
    let bytes_of = |block: usize| [700_001, 3, 90_000, 0][block % 4];
    let mut rig = Rig::new(harness, 2);
    let receives: Vec<_> = (0..COUNT)
        .map(|block| {
            let into = poisoned(bytes_of(block));
            (rig.receive(1, 0, &into, 0..into.len()), into)
        })
        .collect();
    for block in 0..COUNT {
        let source = patterned(block as u64, bytes_of(block));
        rig.send(0, 1, &source, 0..source.len(), !(block as u32));
    }
    rig.pump("all blocks", |rig| receives.iter().all(|(token, _)| rig.succeeded(1, *token)));
    for (block, (token, into)) in receives.iter().enumerate() {
        assert_received(&rig, 1, 0, *token, bytes_of(block), !(block as u32));
        assert_pattern(into, 0..into.len(), block as u64);
    }
}

/// Read leases are shared: a relay sends the same block to several peers at the same time.
pub fn one_block_to_several_peers_at_once<H: Harness>(harness: &mut H) {
    const BYTES: usize = 300_000;
    let mut rig = Rig::new(harness, 4);
    let source = patterned(1, BYTES);
    let receives: Vec<_> = (1..4)
        .map(|member| {
            let into = poisoned(BYTES);
            (member, rig.receive(member, 0, &into, 0..BYTES), into)
        })
        .collect();
    let sends: Vec<_> = (1..4).map(|peer| rig.send_shared(0, peer, &source, peer as u32)).collect();
    rig.pump("three copies", |rig| {
        sends.iter().all(|&token| rig.succeeded(0, token))
            && receives.iter().all(|(member, token, _)| rig.succeeded(*member, *token))
    });
    for (member, token, into) in &receives {
        assert_received(&rig, *member, 0, *token, BYTES, *member as u32);
        assert_pattern(into, 0..BYTES, 1);
    }
    assert!(source.write(0..BYTES).is_ok(), "all sends are reported, but a lease is out");
}

/// Endpoints of one member are distinguished.
pub fn everybody_sends_to_everybody<H: Harness>(harness: &mut H) {
    const MEMBERS: usize = 5;
    const BYTES: usize = 40_000;
    let mut rig = Rig::new(harness, MEMBERS);
    let pairs: Vec<(usize, usize)> = (0..MEMBERS)
        .flat_map(|from| (0..MEMBERS).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .collect();
    let receives: Vec<_> = pairs
        .iter()
        .map(|&(from, to)| {
            let into = poisoned(BYTES);
            (from, to, rig.receive(to, from, &into, 0..BYTES), into)
        })
        .collect();
    for &(from, to) in &pairs {
        let seed = from * MEMBERS + to;
        rig.send(from, to, &patterned(seed as u64, BYTES), 0..BYTES, seed as u32);
        rig.write(from, to, &[from as u8, to as u8]);
    }
    rig.pump("all blocks and words", |rig| {
        receives.iter().all(|(from, to, token, _)| {
            rig.succeeded(*to, *token) && !rig.words(*to, *from).is_empty()
        })
    });
    for (from, to, token, into) in &receives {
        let seed = from * MEMBERS + to;
        assert_received(&rig, *to, *from, *token, BYTES, seed as u32);
        assert_pattern(into, 0..BYTES, seed as u64);
        assert_eq!(rig.words(*to, *from), [[*from as u8, *to as u8]]);
    }
}

/// Handing back: a posted receive excludes all other leases until it completes. (For a send only
/// the completion can be checked: a transport may copy a small block and need its memory no
/// longer.)
pub fn memory_is_held_until_it_is_handed_back<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 2);
    let into = poisoned(100);
    let received = rig.receive(1, 0, &into, 10..90);
    rig.pump_for(Duration::from_millis(20));
    assert!(into.read(10..11).is_err() && into.read(89..90).is_err(), "the memory is not held");
    assert!(into.write(0..10).is_ok() && into.write(90..100).is_ok());
    rig.send(0, 1, &patterned(2, 80), 0..80, 0);
    // That the memory is free when the completion is reported is checked for every post.
    rig.pump("the block", |rig| rig.succeeded(1, received));
    assert_pattern(&into, 10..90, 2);
}

/// A block longer than [`Transport::block_bytes_max`] is refused by that error, without other
/// effects.
pub fn a_block_over_the_limit_is_refused<H: Harness>(harness: &mut H) {
    /// A higher limit cannot be tested: no test can allocate the memory.
    const TESTABLE_BYTES_MAX: u64 = 1 << 36;
    let mut rig = Rig::new(harness, 2);
    let bytes_max = rig.transport(0).block_bytes_max();
    let bytes = bytes_max.saturating_add(1);
    if bytes > TESTABLE_BYTES_MAX || usize::try_from(bytes).is_err() {
        return;
    }
    // Only address space: the memory is never accessed.
    let region = Region::zeroed(bytes as usize);
    let whole = 0..region.len();
    let expected = PostError::TooLarge { bytes, bytes_max };
    assert_eq!(rig.try_send(0, 1, &region, whole.clone(), 0), Err(expected.clone()));
    assert_eq!(rig.try_receive(0, 1, &region, whole), Err(expected));
    let into = poisoned(10);
    let received = rig.receive(1, 0, &into, 0..10);
    rig.send(0, 1, &patterned(1, 10), 0..10, 0);
    rig.pump("a block of a valid size", |rig| rig.succeeded(1, received));
}

/// Blocks can be sent from read-only memory.
pub fn blocks_of_read_only_memory_arrive<H: Harness>(harness: &mut H) {
    const BYTES: usize = 100_003;
    let mut rig = Rig::new(harness, 2);
    let source = Region::from_shared(pattern(1, BYTES));
    let into = poisoned(BYTES);
    let receives: Vec<_> = [0..70_001, 70_001..BYTES]
        .map(|range| {
            let receive = rig.receive(1, 0, &into, range.clone());
            rig.send(0, 1, &source, range, 0);
            receive
        })
        .into();
    rig.pump("both blocks", |rig| receives.iter().all(|&token| rig.succeeded(1, token)));
    assert_pattern(&into, 0..BYTES, 1);
}
