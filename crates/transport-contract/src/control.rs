//! Clauses about control words.

use std::time::Duration;

use transport::{CONTROL_BYTES_MAX, Completion, PostError};

use crate::{
    harness::Harness,
    patterns::{assert_pattern, pattern, patterned, poisoned},
    rig::Rig,
};

/// Words of every length arrive whole, once and in order, in both directions at once.
pub fn control_words_arrive_whole_and_in_order<H: Harness>(harness: &mut H) {
    const ROUNDS: usize = 8;
    let mut rig = Rig::new(harness, 2);
    let words: Vec<Vec<u8>> = (0..ROUNDS * CONTROL_BYTES_MAX)
        .map(|index| pattern(index as u64, 1 + index % CONTROL_BYTES_MAX))
        .collect();
    for word in &words {
        rig.write(0, 1, word);
        rig.write(1, 0, &word.iter().map(|byte| !byte).collect::<Vec<u8>>());
    }
    rig.pump("all words", |rig| {
        rig.words(1, 0).len() >= words.len() && rig.words(0, 1).len() >= words.len()
    });
    assert_eq!(rig.words(1, 0), words);
    let back = rig.words(0, 1);
    assert_eq!(back.len(), words.len());
    for (word, back) in words.iter().zip(back) {
        assert!(word.iter().map(|byte| !byte).eq(back.iter().copied()));
    }
}

/// An empty or too long word is refused by the call that writes it, and never sent.
pub fn control_words_of_a_wrong_length_are_refused<H: Harness>(harness: &mut H) {
    let mut rig = Rig::new(harness, 2);
    for bytes in [0, CONTROL_BYTES_MAX + 1, 70_000] {
        let answer = rig.try_write(0, 1, &vec![1; bytes]);
        assert!(
            matches!(answer, Err(PostError::TooLarge { .. } | PostError::System(_))),
            "a word of {bytes} bytes: {answer:?}"
        );
    }
    rig.write(0, 1, &[2; CONTROL_BYTES_MAX]);
    rig.pump("the good word", |rig| !rig.words(1, 0).is_empty());
    assert_eq!(rig.words(1, 0), [[2; CONTROL_BYTES_MAX]]);
}

/// A word does not wait for all blocks that are queued for sending.
pub fn control_words_overtake_waiting_blocks<H: Harness>(harness: &mut H) {
    const COUNT: usize = 12;
    const BYTES: usize = 4 << 20;
    let mut rig = Rig::new(harness, 2);
    let source = patterned(1, BYTES);
    let into = poisoned(COUNT * BYTES);
    let receives: Vec<_> = (0..COUNT)
        .map(|block| rig.receive(1, 0, &into, block * BYTES..(block + 1) * BYTES))
        .collect();
    for _ in 0..COUNT {
        rig.send_shared(0, 1, &source, 0);
    }
    rig.write(0, 1, b"first");
    // While the receiver does not poll, the sender can send as much as buffers hold; not
    // everything, unless the network is very fast and this test very slow.
    for _ in 0..50 {
        rig.poll(0, Duration::ZERO);
    }
    rig.write(0, 1, b"second");
    rig.pump("all blocks", |rig| receives.iter().all(|&token| rig.succeeded(1, token)));
    let at_receiver: Vec<&Completion> =
        rig.seen.iter().filter(|(member, _)| *member == 1).map(|(_, seen)| seen).collect();
    let last = at_receiver.iter().rposition(|seen| matches!(seen, Completion::Received { .. }));
    for expected in [b"first".as_slice(), b"second"] {
        let is_it = |seen: &Completion| matches!(seen, Completion::Control { word, .. } if word == expected);
        let at = at_receiver.iter().position(|seen| is_it(seen));
        assert!(at.is_some() && at < last, "the word came at {at:?}, the last block at {last:?}");
    }
    assert_pattern(&into, (COUNT - 1) * BYTES..COUNT * BYTES, 1);
}

/// Words need no posted receive, and none is lost while the peer does not poll.
pub fn control_words_wait_for_a_slow_reader<H: Harness>(harness: &mut H) {
    const COUNT: usize = 1_000;
    let mut rig = Rig::new(harness, 2);
    rig.set_polled(1, false);
    let words: Vec<Vec<u8>> =
        (0..COUNT).map(|index| pattern(index as u64, CONTROL_BYTES_MAX)).collect();
    for word in &words {
        rig.write(0, 1, word);
    }
    rig.pump_for(Duration::from_millis(20));
    rig.set_polled(1, true);
    rig.pump("all words", |rig| rig.words(1, 0).len() >= COUNT);
    assert_eq!(rig.words(1, 0), words);
}
