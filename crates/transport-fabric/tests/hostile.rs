//! A peer that breaks the protocol before or beside the fabric's own connection breaks its own
//! link, with a cause that names the violation, and no other.

use std::time::{Duration, Instant};

use transport::{Cause, Completion, EndpointId, Region, Token, Transport};
use transport_fabric::{FabricLink, FabricSettings, FabricTransport, Role};
use transport_tcp::{TcpSettings, TcpTransport};

use crate::common::{Place, connect, start, stream_pair};

const PATIENCE: Duration = Duration::from_secs(20);

/// Polls until this endpoint has ended; returns the cause, and how many posts were handed back.
#[track_caller]
fn end_of(transport: &mut FabricTransport, endpoint: EndpointId) -> (Cause, usize) {
    let deadline = Instant::now() + PATIENCE;
    let (mut completions, mut cancelled) = (Vec::new(), 0);
    while Instant::now() < deadline {
        transport.poll(&mut completions, Duration::from_millis(10));
        for completion in completions.drain(..) {
            match completion {
                Completion::Broken { endpoint: broken, cause } if broken == endpoint => {
                    return (cause, cancelled);
                }
                Completion::Cancelled { .. } => cancelled += 1,
                _ => {}
            }
        }
    }
    panic!("the endpoint did not end");
}

/// Polls both until the first of them reports something.
#[track_caller]
fn poll_both(receiver: &mut FabricTransport, sender: &mut FabricTransport) -> Vec<Completion> {
    let (deadline, mut completions) = (Instant::now() + PATIENCE, Vec::new());
    while completions.is_empty() {
        assert!(Instant::now() < deadline, "no word came");
        sender.poll(&mut Vec::new(), Duration::from_millis(1));
        receiver.poll(&mut completions, Duration::from_millis(1));
    }
    completions
}

/// Makes a transport with a link whose peer has sent these messages on its lifeline, and never
/// connects.
fn after(words: &[&[u8]]) -> (FabricTransport, EndpointId, TcpTransport) {
    let mut settings = FabricSettings::new("tcp");
    settings.near = Some([127, 0, 0, 1].into());
    settings.connect_timeout = Duration::from_secs(1);
    let mut transport = FabricTransport::start(settings, TcpSettings::default()).unwrap();
    let (near, far) = stream_pair();
    let ours = transport.offers().make().unwrap();
    let theirs = transport.offers().make().unwrap();
    let link = FabricLink::new(near.into(), Role::Accept, ours, theirs.bytes()).unwrap();
    let endpoint = transport.open(link).unwrap();
    let mut peer = TcpTransport::new(TcpSettings::default()).unwrap();
    let lifeline = peer.open(far.into()).unwrap();
    for word in words {
        peer.write_control(lifeline, word).unwrap();
    }
    peer.poll(&mut Vec::new(), Duration::from_millis(1));
    (transport, endpoint, peer)
}

#[track_caller]
fn assert_protocol(words: &[&[u8]], says: &str) {
    let (mut transport, endpoint, _peer) = after(words);
    let region = Region::zeroed(100);
    transport.post_receive(endpoint, region.write(0..100).unwrap(), Token(1)).unwrap();
    let (cause, cancelled) = end_of(&mut transport, endpoint);
    assert!(matches!(&cause, Cause::Protocol(text) if text.contains(says)), "{cause:?}");
    assert_eq!(cancelled, 1);
    assert!(region.try_into_vec().is_ok(), "a lease is still out");
}

/// Encodes a message of the lifeline: its code, then numbers.
fn word(code: u8, numbers: &[u64]) -> Vec<u8> {
    let numbers = numbers.iter().flat_map(|number| number.to_le_bytes());
    std::iter::once(code).chain(numbers).collect()
}

#[test]
fn malformed_control_words_break_the_endpoint() {
    assert_protocol(&[b"?"], "invalid word on the lifeline");
    assert_protocol(&[&word(1, &[1, 2, 3])], "invalid word on the lifeline");
    let hello = word(1, &[0, 0]);
    assert_protocol(&[&hello, &hello], "invalid word on the lifeline");
}

#[test]
fn addresses_that_do_not_exist() {
    assert_protocol(&[&word(1, &[0, u64::MAX])], "invalid word on the lifeline");
    assert_protocol(&[&word(2, &[1, 0, u64::MAX, 2])], "invalid word on the lifeline");
}

#[test]
fn memory_that_was_not_exposed() {
    assert_protocol(&[&word(5, &[3])], "memory 3, which was not exposed");
}

/// If a peer has sent everything and never connects, the wait ends with an error that names the
/// remedy.
#[test]
fn a_peer_that_never_connects() {
    let (mut transport, endpoint, mut peer) = after(&[&word(1, &[0, 0])]);
    let heart = std::thread::spawn(move || {
        let until = Instant::now() + PATIENCE;
        let mut completions = Vec::new();
        while Instant::now() < until && completions.is_empty() {
            peer.poll(&mut completions, Duration::from_millis(100));
            completions.retain(|done| matches!(done, Completion::Broken { .. }));
        }
    });
    let (cause, _) = end_of(&mut transport, endpoint);
    assert!(matches!(&cause, Cause::Lost(text) if text.contains("not made in time")), "{cause:?}");
    drop(transport);
    heart.join().unwrap();
}

/// A drop does not wait for the peer of a half-made link, which may still request connections; only
/// an ordered end does.
#[test]
fn dropping_a_transport_hands_back_memory_and_does_not_wait() {
    let drops = (0..5).map(|_| {
        let (mut transport, endpoint, _peer) = after(&[]);
        let region = Region::zeroed(100);
        transport.post_receive(endpoint, region.write(0..100).unwrap(), Token(1)).unwrap();
        transport.poll(&mut Vec::new(), Duration::ZERO);
        let begin = Instant::now();
        drop(transport);
        let taken = begin.elapsed();
        assert!(region.try_into_vec().is_ok(), "a lease is still out");
        taken
    });
    let quickest = drops.min().unwrap();
    let (mut transport, ..) = after(&[]);
    let begin = Instant::now();
    transport.finish();
    assert!(quickest < begin.elapsed() / 2, "{quickest:?}");
}

/// The lifeline's peer is not silent yet, but nothing is transferred over the fabric.
#[test]
fn a_fabric_that_carries_nothing() {
    let mut settings = FabricSettings::new("tcp");
    settings.near = Some([127, 0, 0, 1].into());
    settings.answer_timeout = Duration::from_secs(1);
    let tcp = TcpSettings::default().silence_timeout(Duration::from_secs(60));
    let start = || FabricTransport::start(settings.clone(), tcp.clone()).unwrap();
    let (mut sender, mut receiver) = (start(), start());
    let (to_receiver, to_sender) = connect(&mut sender, &mut receiver);
    // More than sockets buffer, so that it cannot be sent before it is read.
    let bytes = 48 << 20;
    let (from, into) = (Region::zeroed(bytes), Region::zeroed(bytes));
    receiver.post_receive(to_sender, into.write(0..bytes).unwrap(), Token(1)).unwrap();
    sender.post_send(to_receiver, from.read(0..bytes).unwrap(), 0, Token(1)).unwrap();
    // The word announces the receive as well; from then on the receiver is not polled.
    receiver.write_control(to_sender, b"go").unwrap();
    poll_both(&mut sender, &mut receiver);
    let (cause, cancelled) = end_of(&mut sender, to_receiver);
    assert!(matches!(&cause, Cause::Lost(text) if text.contains("carried nothing")), "{cause:?}");
    assert_eq!(cancelled, 1);
}

/// A peer has the address where connections are accepted, but not the cookie of a link.
#[test]
fn a_connection_with_a_wrong_cookie_is_refused() {
    let mut host = start(&Place::here("tcp"));
    let mut intruder = start(&Place::here("tcp"));
    let (near, far) = stream_pair();
    let ours = host.offers().make().unwrap();
    let mut seen = ours.bytes().to_vec();
    // The version, and the provider's name with its length, precede the cookie.
    seen[1 + 1 + "tcp".len()] ^= 1;
    let guess = intruder.offers().make().unwrap();
    let shown = guess.bytes().to_vec();
    let endpoint =
        intruder.open(FabricLink::new(far.into(), Role::Connect, guess, &seen).unwrap()).unwrap();
    let honest =
        host.open(FabricLink::new(near.into(), Role::Accept, ours, &shown).unwrap()).unwrap();
    let turning = std::thread::spawn(move || {
        let (cause, _) = end_of(&mut intruder, endpoint);
        assert!(matches!(cause, Cause::Lost(_)), "{cause:?}");
    });
    // The host reports the end of the lifeline, and its other links still work.
    let (cause, _) = end_of(&mut host, honest);
    assert!(matches!(cause, Cause::Lost(_) | Cause::ClosedByPeer), "{cause:?}");
    turning.join().unwrap();
    let mut friend = start(&Place::here("tcp"));
    let (to_friend, to_host) = connect(&mut host, &mut friend);
    host.write_control(to_friend, b"still here").unwrap();
    let completions = poll_both(&mut friend, &mut host);
    let endpoint = to_host;
    assert_eq!(completions, [Completion::Control { endpoint, word: b"still here"[..].into() }]);
}
