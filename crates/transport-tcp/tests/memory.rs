//! Links through shared memory: who waits is woken, who has nothing to do sleeps, and an end is noticed.

use std::{
    thread,
    time::{Duration, Instant},
};

use transport::{Cause, Completion, EndpointId, Region, Transport};
use transport_tcp::{SharedConnections, SharedEvent, TcpSettings, TcpTransport};

use crate::common::*;

/// The least: both ends wait for space again and again.
const RING_BYTES: usize = 4096;
const BLOCK_BYTES: usize = 20_001;

/// Without heartbeats, which would end a wait even if the peer did not wake this end.
fn without_heartbeats() -> TcpSettings {
    patient().silence_timeout(Duration::from_secs(24 * 3600)).direct_copies(false)
}

fn facing(settings: &TcpSettings) -> [(TcpTransport, EndpointId); 2] {
    let (left, right) = memory_pair(RING_BYTES).unwrap();
    [left, right].map(|link| {
        let mut transport = transport(settings);
        let endpoint = transport.open(link).unwrap();
        (transport, endpoint)
    })
}

#[test]
fn nobody_sleeps_through_bytes_or_space() {
    const BLOCKS: usize = 300;
    let exchange = |end: (TcpTransport, EndpointId)| {
        let (mut transport, peer) = end;
        let (from, into) = (Region::from_vec(vec![7; BLOCK_BYTES]), Region::zeroed(BLOCK_BYTES));
        let receive = |transport: &mut TcpTransport| {
            post_receive(transport, peer, &into, 1);
            transport.write_control(peer, b"one more").unwrap();
        };
        receive(&mut transport);
        let (mut sent, mut received) = (0, 0);
        while sent < BLOCKS || received < BLOCKS {
            let (begin, mut completions) = (Instant::now(), Vec::new());
            transport.poll(&mut completions, PATIENCE);
            assert!(begin.elapsed() < PATIENCE / 2, "it sleeps, {sent} sent, {received} received");
            for completion in completions {
                match completion {
                    Completion::Control { .. } => post_send(&mut transport, peer, &from, 2),
                    Completion::Sent { .. } => sent += 1,
                    Completion::Received { .. } => {
                        received += 1;
                        if received < BLOCKS {
                            receive(&mut transport);
                        }
                    }
                    // The peer was done first.
                    Completion::Broken { .. } if sent + received == 2 * BLOCKS => return,
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(into.read(0..BLOCK_BYTES).unwrap()[..], [7; BLOCK_BYTES]);
        transport.close(peer);
        poll_until(&mut transport, ended);
    };
    thread::scope(|scope| {
        for end in facing(&without_heartbeats()) {
            scope.spawn(|| exchange(end));
        }
    });
}

fn is_word(completion: &Completion) -> bool {
    matches!(completion, Completion::Control { .. })
}

/// With a peer that neither reads nor writes.
#[test]
fn who_has_nothing_to_do_sleeps() {
    let [(mut here, peer), (_there, _)] = facing(&TcpSettings::default().direct_copies(false));
    post_receive(&mut here, peer, &Region::zeroed(1 << 20), 1);
    post_send(&mut here, peer, &Region::zeroed(1 << 20), 2);
    let mut completions = Vec::new();
    here.poll(&mut completions, Duration::from_millis(200));
    let before = here.counters();
    here.poll(&mut completions, Duration::from_millis(500));
    let after = here.counters();
    assert_eq!(completions, []);
    assert!(after.waits - before.waits <= 3, "{before:?} {after:?}");
    assert!(after.read_calls + after.write_calls <= before.read_calls + before.write_calls + 2);
}

#[test]
fn polls_that_do_not_wait_seldom_ask_the_system() {
    let [(mut here, _), (mut there, peer)] = facing(&TcpSettings::default().direct_copies(false));
    let before = here.counters();
    let mut completions = Vec::new();
    for _ in 0..1_000 {
        here.poll(&mut completions, Duration::ZERO);
    }
    let after = here.counters();
    assert!(after.waits - before.waits <= 100, "{before:?} {after:?}");
    assert!(after.read_calls - before.read_calls <= 100, "{before:?} {after:?}");
    there.write_control(peer, b"word").unwrap();
    there.flush();
    here.poll(&mut completions, Duration::ZERO);
    assert!(completions.iter().any(is_word), "{completions:?}");
}

#[test]
fn the_end_of_a_peer_is_noticed_behind_what_it_has_sent() {
    let [(mut here, peer), (mut there, back)] = facing(&without_heartbeats());
    let waiting = thread::spawn(move || {
        let begin = Instant::now();
        let completions = poll_until(&mut here, ended);
        (begin.elapsed(), completions)
    });
    thread::sleep(Duration::from_millis(100));
    there.write_control(back, b"last").unwrap();
    there.flush();
    drop(there);
    let (time, completions) = waiting.join().unwrap();
    assert!(time < PATIENCE / 2, "{time:?}");
    let [word, Completion::Broken { endpoint, cause: Cause::Lost(_) }] = &completions[..] else {
        panic!("{completions:?}");
    };
    assert!(is_word(word) && *endpoint == peer);
}

#[test]
fn a_connection_without_endpoints_ends() {
    let settings = patient().idle_timeout(Duration::from_millis(200)).direct_copies(false);
    let mut transports = [transport(&settings), transport(&settings)];
    let (left, right) = memory_pair(RING_BYTES).unwrap();
    let shared = [transports[0].share(left).unwrap(), transports[1].share(right).unwrap()];
    let channels = [0, 1].map(|at| transports[at].reserve(shared[at], 1).unwrap());
    let mut endpoints = channels.into_iter().zip(&mut transports);
    let endpoints: Vec<_> = endpoints.by_ref().map(|(link, at)| at.open(link).unwrap()).collect();
    for (transport, endpoint) in transports.iter_mut().zip(endpoints) {
        transport.close(endpoint);
    }
    let (begin, mut ends) = (Instant::now(), 0);
    while ends < 2 {
        assert!(begin.elapsed() < PATIENCE, "{ends} have ended");
        for transport in &mut transports {
            transport.poll(&mut Vec::new(), Duration::from_millis(10));
            for event in transport.take_shared_events() {
                ends += usize::from(matches!(event, SharedEvent::Ended { .. }));
            }
        }
    }
}
