//! Which posts the provider gets, and which of them have a completion: not to be seen from outside.

use std::{
    net::{Ipv4Addr, TcpListener, TcpStream},
    time::{Duration, Instant},
};

use transport::{Completion, EndpointId, PeerMemory, Region, Token, Transport};
use transport_tcp::TcpSettings;

use crate::{FabricLink, FabricSettings, FabricTransport, Role};

const PATIENCE: Duration = Duration::from_secs(20);

fn start() -> FabricTransport {
    let mut settings = FabricSettings::new("tcp");
    settings.near = Some(Ipv4Addr::LOCALHOST.into());
    FabricTransport::start(settings, TcpSettings::default()).unwrap()
}

/// By itself it checks no answers, so that what it posts does not depend on the time.
fn start_patient() -> FabricTransport {
    let mut transport = start();
    transport.answers_checked = Instant::now() + Duration::from_secs(86_400);
    transport
}

fn connect(one: &mut FabricTransport, other: &mut FabricTransport) -> (EndpointId, EndpointId) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    let (ours, theirs) = (one.offers().make().unwrap(), other.offers().make().unwrap());
    let (our_bytes, their_bytes) = (ours.bytes().to_vec(), theirs.bytes().to_vec());
    let near = FabricLink::new(near.into(), Role::Accept, ours, &their_bytes).unwrap();
    let far = FabricLink::new(far.into(), Role::Connect, theirs, &our_bytes).unwrap();
    (one.open(near).unwrap(), other.open(far).unwrap())
}

/// Connects both, until a word has arrived.
fn connected() -> [(FabricTransport, EndpointId); 2] {
    let (mut one, mut other) = (start_patient(), start_patient());
    let (near, far) = connect(&mut one, &mut other);
    let mut ends = [(one, near), (other, far)];
    write(&mut ends, 0, 1);
    take(&mut ends, 1, 1);
    ends
}

fn write(ends: &mut [(FabricTransport, EndpointId); 2], end: usize, words: usize) {
    let (transport, endpoint) = &mut ends[end];
    (0..words).for_each(|_| transport.write_control(*endpoint, b"a credit").unwrap());
}

/// Polls until this end has received this many words.
#[track_caller]
fn take(ends: &mut [(FabricTransport, EndpointId); 2], end: usize, words: usize) {
    let (deadline, mut completions) = (Instant::now() + PATIENCE, Vec::new());
    while completions.len() < words {
        assert!(Instant::now() < deadline, "only {} words came", completions.len());
        ends[1 - end].0.poll(&mut Vec::new(), Duration::ZERO);
        ends[end].0.poll(&mut completions, Duration::from_millis(1));
    }
    assert!(completions.iter().all(|done| matches!(done, Completion::Control { .. })));
}

/// Returns how many words await a completion.
fn open(ends: &[(FabricTransport, EndpointId); 2], end: usize) -> usize {
    let (transport, endpoint) = &ends[end];
    transport.links[endpoint].open_words()
}

#[test]
fn one_control_word_of_sixteen_has_a_completion() {
    let mut ends = connected();
    // The first word of this end was one of them.
    write(&mut ends, 0, 14);
    ends[0].0.flush();
    assert_eq!(open(&ends, 0), 0);
    write(&mut ends, 0, 1);
    ends[0].0.flush();
    assert_eq!(open(&ends, 0), 1, "the sixteenth");
    write(&mut ends, 0, 32);
    ends[0].0.flush();
    assert_eq!(open(&ends, 0), 3);
    take(&mut ends, 1, 14 + 1 + 32);
}

/// Otherwise a link with nothing but such words on it would not notice that they are lost.
#[test]
fn a_second_after_a_word_without_a_completion_one_with_a_completion_follows() {
    let mut ends = connected();
    write(&mut ends, 0, 3);
    ends[0].0.flush();
    assert_eq!(open(&ends, 0), 0);
    let (transport, endpoint) = &mut ends[0];
    let link = transport.links.get_mut(endpoint).unwrap();
    let timeout = Duration::from_secs(1);
    assert!(link.check_answers(Instant::now(), timeout), "there is a word to post");
    assert!(!link.check_answers(Instant::now(), timeout), "one is enough");
    transport.busy.insert(*endpoint);
    transport.flush();
    assert_eq!(open(&ends, 0), 1);
    let (transport, endpoint) = &mut ends[0];
    let link = transport.links.get_mut(endpoint).unwrap();
    let now = Instant::now();
    assert!(!link.check_answers(now, timeout), "the wait for its completion begins");
    assert!(link.check_answers(now + timeout, timeout), "it did not complete");
    assert!(!link.is_open());
}

/// The first write asks for the address; a later one is posted at once.
#[test]
fn a_write_with_an_immediate_is_one_operation() {
    let mut ends = connected();
    let (receiver, to_sender) = &mut ends[1];
    let memory = PeerMemory::zeroed(100);
    receiver.one_sided().unwrap().expose(*to_sender, 7, memory).unwrap();
    let from = Region::zeroed(100);
    for token in 0..3 {
        let (sender, to_receiver) = &mut ends[0];
        let sent = sender.links[to_receiver].words_sent();
        let lease = from.read(0..100).unwrap();
        let writes = sender.one_sided().unwrap();
        writes.post_write(*to_receiver, lease, 7, 0, Some(9), Token(token)).unwrap();
        if token > 0 {
            assert_eq!(sender.links[to_receiver].words_sent(), sent + 1, "the write itself");
        }
        let (mut completions, deadline) = (Vec::new(), Instant::now() + PATIENCE);
        while completions.is_empty() {
            assert!(Instant::now() < deadline, "no write was reported");
            ends[0].0.poll(&mut Vec::new(), Duration::ZERO);
            ends[1].0.poll(&mut completions, Duration::from_millis(1));
        }
        let endpoint = ends[1].1;
        assert_eq!(completions, [Completion::Written { endpoint, immediate: 9 }]);
        assert_eq!(ends[0].0.links[&ends[0].1].words_sent(), sent + 1, "no word follows");
    }
}

/// Nothing but what arrives at one link has the other one send it on.
#[test]
fn what_arrives_is_sent_on_without_another_event() {
    // More than sockets buffer.
    const BYTES: usize = 64 << 20;
    let (mut first, mut middle, mut last) = (start_patient(), start_patient(), start_patient());
    let (to_middle, from_first) = connect(&mut first, &mut middle);
    let (to_last, from_middle) = connect(&mut middle, &mut last);
    let [source, through, into] = [0; 3].map(|_| Region::zeroed(BYTES));
    let mut lease = through.write(0..BYTES).unwrap();
    let arriving = lease.arriving();
    middle.post_receive(from_first, lease, Token(1)).unwrap();
    middle.write_control(from_first, b"a credit").unwrap();
    last.post_receive(from_middle, into.write(0..BYTES).unwrap(), Token(2)).unwrap();
    last.write_control(from_middle, b"a credit").unwrap();
    let (deadline, mut seen) = (Instant::now() + PATIENCE, Vec::new());
    let mut poll = |members: [&mut FabricTransport; 2], is_it: fn(&Completion) -> bool| {
        seen.clear();
        while !seen.iter().any(is_it) {
            assert!(Instant::now() < deadline, "{seen:?}");
            members[0].poll(&mut Vec::new(), Duration::ZERO);
            members[1].poll(&mut seen, Duration::from_millis(1));
        }
    };
    let is_credit = |it: &Completion| matches!(it, Completion::Control { .. });
    poll([&mut middle, &mut first], is_credit);
    poll([&mut last, &mut middle], is_credit);
    first.post_send(to_middle, source.read(0..BYTES).unwrap(), 0, Token(3)).unwrap();
    poll([&mut first, &mut middle], |it| matches!(it, Completion::Arriving { .. }));
    let read = arriving.read(BYTES).unwrap();
    middle.cut_through().unwrap().post_cut_through_send(to_last, read, 0, Token(4)).unwrap();
    // What is there is sent on, and completes, before more arrives.
    for _ in 0..200 {
        middle.poll(&mut Vec::new(), Duration::from_millis(1));
        last.poll(&mut Vec::new(), Duration::ZERO);
    }
    assert!(!arriving.read(BYTES).unwrap().arrived().is_empty() && through.read(0..BYTES).is_err());
    poll([&mut first, &mut middle], |it| matches!(it, Completion::Received { .. }));
    poll([&mut middle, &mut last], |it| matches!(it, Completion::Received { .. }));
}
