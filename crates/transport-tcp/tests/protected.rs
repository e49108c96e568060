//! Tampering with a protected stream: what precedes the change arrives, and nothing after it does.

use std::{
    io::{Read, Write},
    ops::Range,
    thread,
    time::Duration,
};

use proptest::prelude::*;
use transport::{
    CONTROL_BYTES_MAX, Cause, Completion, EndpointId, OneSidedWrites, PeerMemory, Region, Token,
    Transport,
};
use transport_tcp::{TcpSettings, TcpTransport};

use crate::common::*;

/// The lengths of a record's head, of the end behind its content, and of the longest content (RFC 8446, section 5.2).
const HEAD_BYTES: usize = 5;
const END_BYTES: usize = 17;
const CONTENT_BYTES_MAX: usize = 16 << 10;

/// Connects a transport to a raw socket by a protected stream.
fn protected_facing_raw(
    settings: &TcpSettings,
    protection: Protection,
    first: bool,
) -> (TcpTransport, EndpointId, std::net::TcpStream) {
    let (ours, raw) = stream_pair("127.0.0.1").unwrap();
    // What is recorded may not depend on where it is recorded.
    let mut transport = transport(&settings.clone().direct_copies(false));
    let endpoint = transport.open(link(vec![ours], protection, first)).unwrap();
    raw.set_read_timeout(Some(PATIENCE)).unwrap();
    raw.set_write_timeout(Some(PATIENCE)).unwrap();
    (transport, endpoint, raw)
}

/// Reads up to the bye, in one record with the last word.
fn read_to_bye(raw: &mut std::net::TcpStream, protection: Protection) -> Vec<u8> {
    let bye = frame(BYE, 0, 0, 0, 0);
    let (last_bytes, mut bytes) = (16 + 4 + bye.len(), Vec::new());
    let mut read = |bytes: &mut Vec<u8>, count: usize| {
        let at = bytes.len();
        bytes.resize(at + count, 0);
        raw.read_exact(&mut bytes[at..]).unwrap();
        at
    };
    if protection == Protection::None {
        while !bytes.ends_with(&bye) {
            read(&mut bytes, 1);
        }
        return bytes;
    }
    loop {
        let at = read(&mut bytes, HEAD_BYTES);
        let rest_bytes = rest_of_record(&bytes[at..]);
        read(&mut bytes, rest_bytes);
        if rest_bytes == last_bytes + END_BYTES {
            return bytes;
        }
    }
}

/// Returns how many bytes of a record follow its head.
fn rest_of_record(head: &[u8]) -> usize {
    u16::from_be_bytes(head[3..5].try_into().unwrap()) as usize
}

/// Records all that one end sends: a word, blocks of these lengths, a word, and a bye.
fn recorded(protection: Protection, lengths: &[usize]) -> Vec<u8> {
    // No heartbeat comes between.
    let settings = patient().silence_timeout(Duration::from_secs(600));
    let (mut transport, endpoint, mut raw) = protected_facing_raw(&settings, protection, true);
    // Closing the socket ends the other end's wait for a bye.
    let reader = thread::spawn(move || read_to_bye(&mut raw, protection));
    transport.write_control(endpoint, b"first").unwrap();
    transport.poll(&mut Vec::new(), Duration::ZERO);
    for (token, &bytes) in lengths.iter().enumerate() {
        let block: Vec<u8> = (0..bytes).map(|at| contents(token, at)).collect();
        post_send(&mut transport, endpoint, &Region::from_vec(block), token as u64);
        poll_until(&mut transport, |completions| !completions.is_empty());
    }
    transport.write_control(endpoint, b"last").unwrap();
    transport.close(endpoint);
    poll_until(&mut transport, ended);
    reader.join().unwrap()
}

fn contents(block: usize, at: usize) -> u8 {
    (at % 251 + block) as u8
}

/// Feeds bytes to the other end, checks the blocks that it receives, and returns its completions.
fn played(protection: Protection, bytes: &[u8], lengths: &[usize]) -> Vec<Completion> {
    let (mut transport, endpoint, mut raw) = protected_facing_raw(&patient(), protection, false);
    let regions: Vec<Region> = lengths.iter().map(|&bytes| Region::zeroed(bytes)).collect();
    for (token, region) in regions.iter().enumerate() {
        post_receive(&mut transport, endpoint, region, token as u64);
    }
    let mut completions = Vec::new();
    for part in bytes.chunks(30_000) {
        // The transport may have closed the connection already.
        let _ = raw.write_all(part);
        transport.poll(&mut completions, Duration::ZERO);
    }
    drop(raw);
    if !ended(&completions) {
        completions.extend(poll_until(&mut transport, ended));
    }
    for completion in &completions {
        if let Completion::Received { token: Token(token), .. } = completion {
            let block = regions[*token as usize].read(0..lengths[*token as usize]).unwrap();
            assert!((0..block.len()).all(|at| block[at] == contents(*token as usize, at)));
        }
    }
    assert!(regions.into_iter().all(|region| region.try_into_vec().is_ok()), "a lease is out");
    completions
}

/// Splits a recording into records.
fn records(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut all = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        all.push(at..at + HEAD_BYTES + rest_of_record(&bytes[at..]));
        at = all[all.len() - 1].end;
    }
    assert_eq!(at, bytes.len());
    all
}

/// Returns the completions of blocks and words, in order.
fn arrived(completions: &[Completion]) -> Vec<&Completion> {
    let came = |done: &&Completion| {
        matches!(done, Completion::Received { .. } | Completion::Control { .. })
    };
    completions.iter().filter(came).collect()
}

/// Checks that only what precedes the corruption arrives, and that the endpoint ends with
/// `Corrupt`.
#[track_caller]
fn assert_corrupt(whole: &[Completion], completions: &[Completion], what: &str) {
    assert_broken(whole, completions, false, what);
}

/// As [`assert_corrupt`]; what announces more than comes may also be a lost connection.
#[track_caller]
fn assert_broken(whole: &[Completion], completions: &[Completion], may_be_lost: bool, what: &str) {
    let (all, came) = (arrived(whole), arrived(completions));
    assert!(came.len() < all.len() && came == all[..came.len()], "{what}: {came:?} of {all:?}");
    match completions.last() {
        Some(Completion::Broken { cause: Cause::Corrupt(text), .. }) => {
            assert!(text.contains("record"), "{text}");
        }
        Some(Completion::Broken { cause: Cause::Lost(_), .. }) if may_be_lost => {}
        _ => panic!("{what}: {completions:?}"),
    }
}

#[test]
fn untampered_traffic_arrives() {
    let protection = Protection::Encrypted;
    let lengths = [1, 100_000, 0, 7];
    let completions = played(protection, &recorded(protection, &lengths), &lengths);
    assert_eq!(arrived(&completions).len(), 6, "{completions:?}");
    let last = completions.last();
    assert!(matches!(last, Some(Completion::Broken { cause: Cause::ClosedByPeer, .. })));
}

#[test]
fn encryption_hides_what_is_sent() {
    let block: Vec<u8> = (0..64).map(|at| contents(0, at)).collect();
    let shows = |protection| {
        let bytes = recorded(protection, &[64]);
        let has = |what: &[u8]| bytes.windows(what.len()).any(|window| window == what);
        (has(&block), has(b"first"))
    };
    assert_eq!(shows(Protection::None), (true, true));
    assert_eq!(shows(Protection::Encrypted), (false, false));
}

/// Flips every bit of a short recording.
#[test]
fn any_flipped_bit_is_detected() {
    let protection = Protection::Encrypted;
    let lengths = [3];
    let good = recorded(protection, &lengths);
    let whole = played(protection, &good, &lengths);
    let records = records(&good);
    for bit in 0..good.len() * 8 {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        let is_length =
            |record: &Range<usize>| (record.start + 3..record.start + 5).contains(&(bit / 8));
        let is_longer = records.iter().any(is_length) && bad[bit / 8] > good[bit / 8];
        let completions = played(protection, &bad, &lengths);
        assert_broken(&whole, &completions, is_longer, &format!("bit {bit}"));
    }
}

#[test]
fn reordered_records_are_refused() {
    let protection = Protection::Encrypted;
    let lengths = [10, 70_000];
    let good = recorded(protection, &lengths);
    let whole = played(protection, &good, &lengths);
    let records = records(&good);
    assert!(records.len() >= 4, "{records:?}");
    let built_of = |order: &[usize]| -> Vec<u8> {
        order.iter().flat_map(|&index| good[records[index].clone()].to_vec()).collect()
    };
    let all: Vec<usize> = (0..records.len()).collect();
    for index in 0..records.len() - 1 {
        let mut orders = [all.clone(), all.clone(), all.clone()];
        orders[0].swap(index, index + 1);
        orders[1].insert(index + 1, index);
        orders[2].remove(index);
        for order in orders {
            let completions = played(protection, &built_of(&order), &lengths);
            assert_corrupt(&whole, &completions, &format!("{order:?}"));
        }
    }
    let [again, twice] = [&good[records[0].clone()], &good[..]];
    let replayed = [again, twice].concat();
    assert_corrupt(&whole, &played(protection, &replayed, &lengths), "replayed from the start");
}

#[test]
fn a_cut_is_a_lost_connection() {
    let protection = Protection::Encrypted;
    let lengths = [70_000];
    let good = recorded(protection, &lengths);
    let whole = played(protection, &good, &lengths);
    let records = records(&good);
    let last = records.last().unwrap().clone();
    let cuts = [0, 1, 4, 5, 6, records[0].end, good.len() / 2, last.start, last.end - 1];
    for cut in cuts {
        let completions = played(protection, &good[..cut], &lengths);
        let came = arrived(&completions);
        assert!(came == arrived(&whole)[..came.len()], "{cut}: {completions:?}");
        let last = completions.last();
        assert!(matches!(last, Some(Completion::Broken { cause: Cause::Lost(_), .. })), "{cut}");
    }
}

#[test]
fn other_modes_and_directions_are_refused() {
    let refused = |protection, bytes: &[u8]| {
        let completions = played(protection, bytes, &[10]);
        assert!(arrived(&completions).is_empty(), "{completions:?}");
        let last = completions.last();
        assert!(matches!(last, Some(Completion::Broken { cause: Cause::Corrupt(_), .. })));
    };
    refused(Protection::Encrypted, &recorded(Protection::None, &[10]));
    // The end's own bytes are sent back to it.
    let protection = Protection::Encrypted;
    let (mut transport, endpoint, mut raw) = protected_facing_raw(&patient(), protection, true);
    raw.write_all(&recorded(protection, &[10])).unwrap();
    let completions = poll_until(&mut transport, ended);
    let [Completion::Broken { endpoint: broken, cause: Cause::Corrupt(_) }] = completions[..]
    else {
        panic!("{completions:?}");
    };
    assert_eq!(broken, endpoint);
}

/// Returns which part of a record a position is in.
fn position(record: &Range<usize>, part: usize, at: usize) -> usize {
    let body = record.start + HEAD_BYTES..record.end - END_BYTES;
    let within = |range: Range<usize>| range.start + at % range.len();
    match part {
        0 => within(record.start..record.start + 3),
        1 => within(record.start + 3..body.start),
        2 => within(body.start..body.start + 16.min(body.len())),
        3 => within(body),
        _ => within(body.end..record.end),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..Default::default() })]

    /// Flips random bits in each part of the records of a long recording.
    #[test]
    fn corruption_anywhere_is_detected(
        flips in proptest::collection::vec((any::<prop::sample::Index>(), 0_usize..5, any::<usize>(), 0_u8..8), 1..3),
    ) {
        let protection = Protection::Encrypted;
        let lengths = [200_000, 5, 65_536];
        let good = recorded(protection, &lengths);
        let whole = played(protection, &good, &lengths);
        let records = records(&good);
        let mut bad = good.clone();
        for &(record, part, at, bit) in &flips {
            bad[position(&records[record.index(records.len())], part, at)] ^= 1 << bit;
        }
        prop_assume!(bad != good);
        let changes_length = flips.iter().any(|&(_, part, ..)| part == 1);
        assert_broken(&whole, &played(protection, &bad, &lengths), changes_length, "flipped");
    }

    /// Whatever an unauthenticated peer sends: no panic, each post completes once, and the endpoint
    /// ends once.
    #[test]
    fn any_bytes_are_refused(bytes in proptest::collection::vec(any::<u8>(), 20..200)) {
        let protection = Protection::Encrypted;
        let completions = played(protection, &bytes, &[10]);
        prop_assert!(arrived(&completions).is_empty());
        let corrupt = matches!(
            completions.last(),
            Some(Completion::Broken { cause: Cause::Corrupt(_), .. })
        );
        prop_assert!(corrupt);
    }
}

/// A block and a write of no bytes behind control words that fill the longest record up to its last bytes.
#[test]
fn frames_need_not_end_with_their_record() {
    const FRAME_BYTES: usize = 16 + CONTROL_BYTES_MAX;
    for left_bytes in 0..FRAME_BYTES - 16 {
        for writes in [false, true] {
            let (one, other) = protected_pair("127.0.0.1", 1, Protection::Encrypted).unwrap();
            let settings = patient().direct_copies(false);
            let (mut left, mut right) = (transport(&settings), transport(&settings));
            let (from, to) = (left.open(one).unwrap(), right.open(other).unwrap());
            let (source, target) = (Region::zeroed(0), Region::zeroed(0));
            post_receive(&mut right, to, &target, 1);
            right.expose(to, 3, PeerMemory::zeroed(8)).unwrap();
            let words = CONTENT_BYTES_MAX / FRAME_BYTES;
            for _ in 1..words {
                left.write_control(from, &[7; CONTROL_BYTES_MAX]).unwrap();
            }
            left.write_control(from, &vec![7; CONTROL_BYTES_MAX - left_bytes]).unwrap();
            if writes {
                let lease = source.read(0..0).unwrap();
                left.post_write(from, lease, 3, 8, Some(5), Token(1)).unwrap();
            } else {
                post_send(&mut left, from, &source, 1);
            }
            poll_until(&mut left, |completions| !completions.is_empty());
            let completions = poll_until(&mut right, |completions| {
                completions.len() > words || ended(completions)
            });
            let last = match writes {
                true => Completion::Written { endpoint: to, immediate: 5 },
                false => {
                    Completion::Received { endpoint: to, token: Token(1), bytes: 0, immediate: 0 }
                }
            };
            assert_eq!(completions.last(), Some(&last), "{left_bytes} bytes are left");
        }
    }
}
