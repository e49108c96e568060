//! Clauses about what is visible of writes that are not reported, or not yet. A transport is checked
//! for what it vouches for ([`transport::Visibility`]); for anything else they print a message and
//! pass.

use std::time::Duration;

use transport::{PeerMemory, Transport, Visibility};

use crate::{
    harness::Harness,
    patterns::{assert_pattern, patterned, poisoned_for_peers},
    rig::{PATIENCE, Rig},
};

/// Several packets, segments and pages.
const BYTES: usize = 10_000;
/// Writes that are looked at; below the values that a byte has.
const WRITES: u8 = 60;
/// How long a member polls between two looks at its memory.
const LOOK: Duration = Duration::from_micros(5);

/// A write without an immediate is handed back and not reported; it has arrived when a later one is
/// reported.
pub fn unreported_writes_arrive_before_a_reported_one<H: Harness>(harness: &mut H) {
    const COUNT: usize = 50;
    const SLOT: usize = 3_000;
    let mut rig = Rig::new(harness, 2);
    if rig.transport(0).one_sided().is_none() {
        eprintln!("SKIPPED: this transport has no one-sided writes");
        return;
    }
    let exposed = poisoned_for_peers(COUNT * SLOT);
    rig.expose(1, 0, 2, &exposed);
    let last = |index: usize| index % 10 == 9;
    let posts: Vec<_> = (0..COUNT)
        .map(|index| {
            let source = patterned(index as u64, SLOT - index);
            let immediate = last(index).then_some(index as u32);
            rig.write_to(0, 1, &source, 2, (index * SLOT) as u64, immediate)
        })
        .collect();
    for index in (0..COUNT).filter(|&index| last(index)) {
        let reported = index / 10 + 1;
        rig.pump("a reported write", |rig| rig.written(1, 0).len() >= reported);
        for earlier in 0..=index {
            let start = earlier * SLOT;
            assert_pattern(&exposed, start..start + SLOT - earlier, earlier as u64);
        }
    }
    rig.pump("all handed back", |rig| posts.iter().all(|&token| rig.succeeded(0, token)));
    rig.pump_for(Duration::from_millis(5));
    let expected: Vec<u32> = (0..COUNT as u32).filter(|&index| last(index as usize)).collect();
    assert_eq!(rig.written(1, 0), expected);
}

/// A reader that has seen a byte of a write sees all bytes before it.
pub fn vouched_bytes_become_visible_in_order<H: Harness>(harness: &mut H) {
    look_at_writes(
        harness,
        |vouched| vouched.in_order,
        "the order of bytes",
        |exposed, _| {
            let mut behind = 0;
            // Each write has a higher value than the one before it.
            for at in (0..BYTES).rev() {
                let value = exposed.load_byte(at).expect("it is in range");
                assert!(value >= behind, "byte {at} is of write {value}, the next one of {behind}");
                behind = value;
            }
        },
    );
}

/// No aligned word has bytes of two writes.
pub fn vouched_words_become_visible_whole<H: Harness>(harness: &mut H) {
    look_at_writes(
        harness,
        |vouched| vouched.whole_words,
        "whole words",
        |exposed, first_word| {
            for at in (first_word..BYTES - 7).step_by(8) {
                let word = exposed.load_word(at).expect("it is in range").expect("it is aligned");
                let bytes = word.to_le_bytes();
                assert!(
                    bytes.iter().all(|&byte| byte == bytes[0]),
                    "the word at {at} is {bytes:?}"
                );
            }
        },
    );
}

/// Writes the same memory again and again, each time with another value of all bytes, and looks at it
/// meanwhile; `look` also gets the position of the first aligned word.
fn look_at_writes<H: Harness>(
    harness: &mut H,
    is_vouched: impl Fn(Visibility) -> bool,
    what: &str,
    look: impl Fn(&PeerMemory, usize),
) {
    let mut rig = Rig::new(harness, 2);
    if rig.transport(1).one_sided().is_none() || !is_vouched(rig.visibility(1, 0)) {
        eprintln!("SKIPPED: this transport does not vouch for {what}");
        return;
    }
    let exposed = PeerMemory::zeroed(BYTES);
    let first_word = exposed.start().align_offset(8);
    rig.expose(1, 0, 0, &exposed);
    for value in 1..=WRITES {
        let source = transport::Region::from_vec(vec![value; BYTES]);
        rig.write_to(0, 1, &source, 0, 0, u32::from(value));
        let deadline = rig.now() + PATIENCE;
        while rig.written(1, 0).len() < usize::from(value) {
            assert!(rig.now() < deadline, "write {value} is not reported");
            rig.poll(0, Duration::ZERO);
            rig.poll(1, LOOK);
            look(&exposed, first_word);
        }
        assert_eq!(exposed.load_byte(BYTES - 1), Ok(value));
    }
}
