//! Blocks arrive whole whatever lengths their segments have, and whatever stands between them: also where the receiver has guessed
//! other lengths (`segment_read`).

use std::{io::Write, time::Duration};

use proptest::prelude::*;
use transport::{Arriving, Completion, Region, Token, Transport};

use crate::common::*;

/// What a peer sends: the segments of each block, and before each segment perhaps a control word.
type Blocks = Vec<Vec<(usize, bool)>>;

fn blocks() -> impl Strategy<Value = Blocks> {
    // Mostly the lengths that a peer repeats; a length is only guessed right if it does.
    let length = prop_oneof![4 => Just(4_096), 2 => 1..20_000_usize, 1 => 1..40_usize];
    let segment = (length, prop::bool::weighted(0.1));
    prop::collection::vec(prop::collection::vec(segment, 1..24), 1..4)
}

fn contents(block: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at % 251) as u8 ^ (block as u8) << 6).collect()
}

/// The frames of the blocks, and the control words among them.
fn frames(blocks: &Blocks) -> (Vec<u8>, Vec<Vec<u8>>) {
    let (mut frames, mut words) = (Vec::new(), Vec::new());
    for (number, segments) in blocks.iter().enumerate() {
        let bytes = segments.iter().map(|(bytes, _)| bytes).sum();
        let contents = contents(number, bytes);
        let mut at = 0;
        for &(bytes, with_word) in segments {
            if with_word {
                let word = format!("word {}", words.len()).into_bytes();
                frames.extend(frame(CONTROL, 0, word.len() as u32, 0, 0));
                frames.extend(&word);
                words.push(word);
            }
            let flags = if at + bytes == contents.len() { LAST } else { 0 };
            frames.extend(frame(DATA, flags, bytes as u32, number as u32, number as u32));
            frames.extend(&contents[at..][..bytes]);
            at += bytes;
        }
    }
    (frames, words)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn segments_of_any_lengths_make_the_block(
        blocks in blocks(), chunk_bytes in prop_oneof![1..100_usize, 1_000..200_000_usize], spare_bytes in 0..9_000_usize,
    ) {
        let (mut transport, endpoint, mut raw) = facing_raw(&patient());
        let mut posted: Vec<(Region, Arriving)> = Vec::new();
        for (number, segments) in blocks.iter().enumerate() {
            let bytes: usize = segments.iter().map(|(bytes, _)| bytes).sum();
            // Memory for a first block is longer than a short message.
            let region = Region::zeroed(bytes + spare_bytes);
            let mut lease = region.write(0..region.len()).unwrap();
            let arriving = lease.arriving();
            transport.post_receive(endpoint, lease, Token(number as u64)).unwrap();
            posted.push((region, arriving));
        }
        let (frames, words) = frames(&blocks);
        let mut completions = Vec::new();
        // Tiny chunks for the start only, or it takes long.
        let chunks = if chunk_bytes < 100 { frames.len().min(2_000) } else { frames.len() };
        let (begin, rest) = frames.split_at(chunks);
        for chunk in begin.chunks(chunk_bytes).chain([rest]) {
            raw.write_all(chunk).unwrap();
            transport.poll(&mut completions, Duration::from_millis(1));
            for (number, (_, arriving)) in posted.iter().enumerate() {
                if let Ok(read) = arriving.read(1) {
                    let arrived = read.arrived();
                    prop_assert_eq!(arrived, &contents(number, arrived.len())[..]);
                }
            }
        }
        let is_last = |it: &Completion| matches!(it, Completion::Received { token, .. } if token.0 + 1 == blocks.len() as u64);
        completions.extend(poll_until(&mut transport, |new| {
            completions.iter().chain(new).any(is_last)
        }));
        let mut received = Vec::new();
        let mut controls = Vec::new();
        for completion in completions {
            match completion {
                Completion::Received { token, bytes, immediate, .. } => received.push((token.0, bytes, immediate)),
                Completion::Control { word, .. } => controls.push(word),
                Completion::Arriving { .. } => {}
                other => prop_assert!(false, "{:?}", other),
            }
        }
        prop_assert_eq!(controls, words);
        for (number, (region, arriving)) in posted.into_iter().enumerate() {
            let bytes: usize = blocks[number].iter().map(|(bytes, _)| bytes).sum();
            prop_assert_eq!(received[number], (number as u64, bytes as u64, number as u32));
            drop(arriving);
            prop_assert_eq!(&region.read(0..bytes).unwrap()[..], &contents(number, bytes)[..]);
        }
    }
}

/// Equal segments that have arrived are read together, from the second block on, when their length is known.
#[test]
fn one_read_takes_several_segments() {
    const SEGMENTS: usize = 8;
    let blocks: Blocks = vec![vec![(2_048, false); SEGMENTS]; 2];
    let (mut transport, endpoint, mut raw) = facing_raw(&patient());
    let bytes = SEGMENTS * 2_048;
    let regions = [0, 1].map(|number| {
        let region = Region::zeroed(bytes);
        let mut lease = region.write(0..bytes).unwrap();
        let arriving = lease.arriving();
        transport.post_receive(endpoint, lease, Token(number)).unwrap();
        (region, arriving)
    });
    let (frames, _) = frames(&blocks);
    for (number, block) in frames.chunks(frames.len() / 2).enumerate() {
        let before = transport.counters().read_calls;
        raw.write_all(block).unwrap();
        poll_until(&mut transport, |new| {
            new.iter().any(|it| matches!(it, Completion::Received { .. }))
        });
        let reads = transport.counters().read_calls - before;
        assert!(number == 0 || reads <= SEGMENTS as u64 / 2, "{reads} reads");
    }
    assert_eq!(
        regions[1].0.read(0..bytes).map(|read| read[..] == contents(1, bytes)[..]),
        Ok(true)
    );
}
