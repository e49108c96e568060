//! A peer that breaks the protocol breaks its own endpoint, with a cause that names the violation.

use std::{io::Write, thread, time::Duration};

use proptest::prelude::*;
use transport::{
    Cause, Completion, EndpointId, OneSidedWrites, PeerMemory, Region, Token, Transport,
};
use transport_tcp::{SEGMENT_BYTES_MAX, TcpTransport};

use crate::common;
use crate::common::*;

const POSTED_BYTES: usize = 100;

/// Writes `bytes` to a transport with `receives` posted receives of 100 bytes; returns all
/// completions up to the end of the endpoint.
fn after(bytes: &[u8], receives: u64) -> Vec<Completion> {
    let (mut transport, endpoint, mut raw) = facing_raw(&patient());
    let regions: Vec<Region> = (0..receives).map(|_| Region::zeroed(POSTED_BYTES)).collect();
    for (token, region) in regions.iter().enumerate() {
        post_receive(&mut transport, endpoint, region, token as u64);
    }
    raw.write_all(bytes).unwrap();
    let completions = poll_until(&mut transport, ended);
    for region in regions {
        assert!(region.try_into_vec().is_ok(), "a lease is still out");
    }
    completions
}

#[track_caller]
fn assert_protocol(bytes: &[u8], receives: u64, words: &str) {
    let completions = after(bytes, receives);
    let Some(Completion::Broken { cause: Cause::Protocol(text), .. }) = completions.last() else {
        panic!("{completions:?}");
    };
    assert!(text.contains(words), "{text:?} does not contain {words:?}");
    let cancelled =
        completions.iter().filter(|done| matches!(done, Completion::Cancelled { .. })).count();
    let received =
        completions.iter().filter(|done| matches!(done, Completion::Received { .. })).count();
    assert_eq!(cancelled + received, receives as usize);
}

#[test]
fn arbitrary_bytes_break_the_endpoint() {
    assert_protocol(b"GET / HTTP/1.1\r\n\r\n", 0, "not a frame");
    assert_protocol(b"GET / HTTP/1.1\r\n\r\n", 1, "not a frame");
    assert_protocol(&frame(15, 0, 0, 0, 0), 0, "not a frame");
    assert_protocol(&frame(13, 0, 0, 0, 0), 0, "a challenge or a proof of 0 bytes");
    assert_protocol(&frame(9, 0, 0, 0, 0), 0, "a reference to no bytes");
}

#[test]
fn a_segment_over_the_limit() {
    let long = SEGMENT_BYTES_MAX as u32 + 1;
    assert_protocol(&frame(DATA, 0, long, 0, 0), 1, "a segment of");
    assert_protocol(&frame(DATA, 0, u32::MAX, 0, 0), 0, "a segment of");
}

#[test]
fn an_empty_segment_inside_a_block() {
    assert_protocol(&frame(DATA, 0, 0, 0, 0), 1, "a segment of 0 bytes");
}

#[test]
fn control_words_of_0_and_65_bytes() {
    assert_protocol(&frame(CONTROL, 0, 0, 0, 0), 0, "a control word of 0 bytes");
    assert_protocol(&frame(CONTROL, 0, 65, 0, 0), 1, "a control word of 65 bytes");
}

/// Whichever thread serves it.
#[test]
fn a_control_word_on_another_stream_than_the_first() {
    for threads in [1, 2] {
        let mut transport = transport(&patient().threads(Some(threads)).direct_copies(false));
        let [(one, _first), (other, mut second)] =
            [0; 2].map(|_| stream_pair("127.0.0.1").unwrap());
        transport.open(link(vec![one, other], Protection::None, true)).unwrap();
        let word = [frame(CONTROL, 0, 3, 0, 0), b"abc".to_vec()].concat();
        second.write_all(&word).unwrap();
        let completions = poll_until(&mut transport, ended);
        let Some(Completion::Broken { cause: Cause::Protocol(text), .. }) = completions.last()
        else {
            panic!("{completions:?}");
        };
        assert!(text.contains("on another stream than the first"), "{text}");
    }
}

#[test]
fn a_block_that_nobody_asked_for() {
    let mut bytes = frame(DATA, LAST, 3, 0, 0);
    bytes.extend(b"abc");
    assert_protocol(&bytes, 0, "no memory was posted");
    // The second of two blocks, directly behind the first.
    bytes.extend(frame(DATA, LAST, 3, 0, 1));
    assert_protocol(&bytes, 1, "no memory was posted");
}

#[test]
fn a_block_longer_than_posted() {
    assert_protocol(&frame(DATA, LAST, 101, 0, 0), 1, "longer than the 100 bytes posted");
    // In two segments, each of which would fit.
    let mut bytes = frame(DATA, 0, 60, 0, 0);
    bytes.extend([1; 60]);
    bytes.extend(frame(DATA, LAST, 41, 0, 0));
    assert_protocol(&bytes, 1, "longer than the 100 bytes posted");
}

#[test]
fn blocks_out_of_step() {
    assert_protocol(&frame(DATA, LAST, 1, 0, 7), 1, "block 7 came instead of 0");
    let mut bytes = frame(DATA, 0, 1, 5, 0);
    bytes.push(1);
    bytes.extend(frame(DATA, LAST, 1, 6, 0));
    assert_protocol(&bytes, 1, "the immediate changed");
}

/// Makes a one-sided write of `bytes` bytes at `offset`, which leaves `rest` bytes to be written.
fn write(key: u32, bytes: u32, offset: u64, rest: u64) -> Vec<u8> {
    let mut whole = frame(WRITE, 0, bytes, 9, key);
    whole.extend(offset.to_le_bytes());
    whole.extend(rest.to_le_bytes());
    whole.extend(vec![7; bytes as usize]);
    whole
}

/// Checks that a write to a transport that exposes 100 bytes under key 1 breaks the endpoint with
/// these words, and changes no byte.
#[track_caller]
fn assert_write_refused(bytes: &[u8], words: &str) {
    let (mut transport, endpoint, mut raw) = facing_raw(&patient());
    let memory = PeerMemory::zeroed(POSTED_BYTES);
    transport.expose(endpoint, 1, memory.clone()).unwrap();
    raw.write_all(bytes).unwrap();
    let completions = poll_until(&mut transport, ended);
    let Some(Completion::Broken { cause: Cause::Protocol(text), .. }) = completions.last() else {
        panic!("{completions:?}");
    };
    assert!(text.contains(words), "{text:?} does not contain {words:?}");
    let mut contents = [1; POSTED_BYTES];
    memory.copy_out(0, &mut contents).unwrap();
    assert_eq!(contents, [0; POSTED_BYTES], "it was written");
}

#[test]
fn writes_where_nothing_is_exposed() {
    assert_write_refused(&write(2, 10, 0, 10), "key 2, which is not exposed");
    assert_write_refused(&write(1, 10, 91, 10), "of the 100 bytes of key 1");
    assert_write_refused(&write(1, 10, u64::MAX, 10), "of the 100 bytes of key 1");
    assert_write_refused(&write(1, 10, 0, u64::MAX), "of the 100 bytes of key 1");
    assert_write_refused(&write(1, 10, 0, 9), "a segment of 10 bytes");
}

#[test]
fn an_end_without_a_bye() {
    let mut middle_of_segment = frame(DATA, LAST, 50, 0, 0);
    middle_of_segment.extend([1; 20]);
    for bytes in [&[][..], &frame(HEARTBEAT, 0, 0, 0, 0)[..7], &middle_of_segment] {
        let (mut transport, endpoint, mut raw) = facing_raw(&patient());
        let region = Region::zeroed(POSTED_BYTES);
        post_receive(&mut transport, endpoint, &region, 1);
        raw.write_all(bytes).unwrap();
        drop(raw);
        let completions = poll_until(&mut transport, ended);
        let words = "connection closed before its bye frame".to_owned();
        assert_eq!(
            completions,
            [
                Completion::Cancelled { endpoint, token: Token(1) },
                Completion::Broken { endpoint, cause: Cause::Lost(words) },
            ]
        );
        assert!(region.try_into_vec().is_ok());
    }
}

#[test]
fn a_bye_inside_a_block() {
    let mut bytes = frame(DATA, 0, 4, 0, 0);
    bytes.extend([1; 4]);
    bytes.extend(frame(BYE, 0, 0, 0, 0));
    let completions = after(&bytes, 1);
    assert!(matches!(completions[0], Completion::Cancelled { .. }));
    assert!(
        matches!(completions[1], Completion::Broken { cause: Cause::ClosedByPeer, .. }),
        "{completions:?}"
    );
}

/// A peer that writes one byte at a time is not an error.
#[test]
fn a_byte_at_a_time() {
    let (mut transport, endpoint, mut raw) = facing_raw(&patient());
    let region = Region::zeroed(POSTED_BYTES);
    let mut bytes = frame(CONTROL, 0, 5, 0, 0);
    bytes.extend(b"first");
    bytes.extend(frame(DATA, 0, 10, 77, 0));
    bytes.extend([1; 10]);
    bytes.extend(frame(CONTROL, 0, 6, 0, 0));
    bytes.extend(b"second");
    bytes.extend(frame(HEARTBEAT, 0, 0, 0, 0));
    bytes.extend(frame(DATA, LAST, 20, 77, 0));
    bytes.extend([2; 20]);
    bytes.extend(frame(BYE, 0, 0, 0, 0));
    post_receive(&mut transport, endpoint, &region, 3);
    let writer = thread::spawn(move || {
        for byte in bytes {
            raw.write_all(&[byte]).unwrap();
            thread::sleep(Duration::from_micros(500));
        }
        raw
    });
    let completions = poll_until(&mut transport, ended);
    drop(writer.join().unwrap());
    assert_eq!(
        completions,
        [
            Completion::Control { endpoint, word: b"first".into() },
            Completion::Control { endpoint, word: b"second".into() },
            Completion::Received { endpoint, token: Token(3), bytes: 30, immediate: 77 },
            Completion::Broken { endpoint, cause: Cause::ClosedByPeer },
        ]
    );
    let contents = region.try_into_vec().unwrap();
    assert_eq!(
        (&contents[..10], &contents[10..31]),
        (&[1; 10][..], &[[2; 20].as_slice(), &[0]].concat()[..])
    );
}

/// After this end's close, blocks for receives that it has cancelled are no protocol error.
#[test]
fn blocks_that_come_while_closing_are_dropped() {
    let (mut transport, endpoint, mut raw) = facing_raw(&patient());
    let region = Region::zeroed(POSTED_BYTES);
    post_receive(&mut transport, endpoint, &region, 1);
    let mut bytes = frame(DATA, 0, 90, 0, 0);
    bytes.extend([1; 40]);
    raw.write_all(&bytes).unwrap();
    transport.poll(&mut Vec::new(), Duration::from_millis(20));
    transport.close(endpoint);
    let mut rest = vec![1; 50];
    rest.extend(frame(DATA, LAST, 10, 0, 0));
    rest.extend([1; 10]);
    rest.extend(frame(CONTROL, 0, 4, 0, 0));
    rest.extend(b"last");
    for block in 1..200 {
        rest.extend(frame(DATA, LAST, 700, 0, block));
        rest.extend([1; 700]);
    }
    rest.extend(frame(BYE, 0, 0, 0, 0));
    raw.write_all(&rest).unwrap();
    assert_eq!(
        poll_until(&mut transport, ended),
        [
            Completion::Cancelled { endpoint, token: Token(1) },
            Completion::Control { endpoint, word: b"last".into() },
            Completion::Closed { endpoint },
        ]
    );
}

/// Garbage on one endpoint does not affect another.
#[test]
fn a_hostile_peer_breaks_only_its_own_endpoint() {
    let (mut transport, bad, mut raw) = facing_raw(&patient());
    let (ours, theirs) = link_pair("127.0.0.1", 1).unwrap();
    let good = transport.open(ours).unwrap();
    let mut peer: TcpTransport = common::transport(&patient());
    let peer_endpoint = peer.open(theirs).unwrap();
    raw.write_all(&[0xFF; 4096]).unwrap();
    let completions = poll_until(&mut transport, ended);
    assert!(matches!(completions[..], [Completion::Broken { endpoint, .. }] if endpoint == bad));
    peer.write_control(peer_endpoint, b"still here").unwrap();
    peer.poll(&mut Vec::new(), Duration::ZERO);
    let completions = poll_until(&mut transport, |completions| !completions.is_empty());
    assert_eq!(completions, [Completion::Control { endpoint: good, word: b"still here".into() }]);
}

/// Frames that the peer can send next, valid or invalid.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let framed = (0_u8..6, 0_u8..3, 0_u32..140, 0_u32..2, 0_u32..4, any::<bool>()).prop_map(
        |(kind, flags, length, immediate, block, whole)| {
            let mut bytes = frame(kind, flags, length, immediate, block);
            bytes.extend(vec![3; if whole { length as usize } else { length as usize / 2 }]);
            bytes
        },
    );
    prop_oneof![4 => framed, 1 => proptest::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..Default::default() })]

    /// Whatever the input: no panic, each post completes once, the endpoint ends once, and nothing
    /// follows.
    #[test]
    fn any_bytes_end_with_a_valid_sequence_of_completions(frames in proptest::collection::vec(any_frame(), 0..8), cut in 1_usize..64) {
        let (mut transport, endpoint, mut raw) = facing_raw(&patient());
        let region = Region::zeroed(4 * POSTED_BYTES);
        for token in 0..4 {
            let at = token as usize * POSTED_BYTES;
            let lease = region.write(at..at + POSTED_BYTES).unwrap();
            transport.post_receive(endpoint, lease, Token(token)).unwrap();
        }
        let mut completions = Vec::new();
        for piece in frames.concat().chunks(cut) {
            // The transport may have closed the connection already.
            let _ = raw.write_all(piece);
            transport.poll(&mut completions, Duration::ZERO);
        }
        drop(raw);
        if !ended(&completions) {
            completions.extend(poll_until(&mut transport, ended));
        }
        let tokens: Vec<u64> = completions.iter().filter_map(handed_back(endpoint)).collect();
        let mut sorted = tokens.clone();
        sorted.sort_unstable();
        prop_assert_eq!(sorted, [0, 1, 2, 3]);
        prop_assert!(ended(&completions[completions.len() - 1..]));
        prop_assert!(!ended(&completions[..completions.len() - 1]));
        prop_assert!(region.try_into_vec().is_ok());
    }
}

fn handed_back(of: EndpointId) -> impl Fn(&Completion) -> Option<u64> {
    move |completion| match completion {
        Completion::Received { endpoint, token, .. }
        | Completion::Cancelled { endpoint, token } => {
            assert_eq!(*endpoint, of);
            Some(token.0)
        }
        _ => None,
    }
}
