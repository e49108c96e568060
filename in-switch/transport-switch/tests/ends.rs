//! A receiver's end of a group, in a network namespace: how it waits, and which posts it cancels.
//! Needs root.

use std::{
    net::{IpAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    thread::{CapabilitySet, Pid, capabilities, gettid, set_capabilities},
    time::{ClockId, clock_gettime},
};
use transport::{Completion, EndpointId, PostError, Region, Token, Transport, Waker};
use transport_switch::{OpenError, SwitchLink, SwitchTransport, Unconnected};
use transport_tcp::{TcpLink, TcpSettings, TcpTransport};

use crate::common::{OWN, ROOT, enter_network, group_end, lifeline};

/// Returns a transport with a receiver's end, the waker of the TCP transport that it wraps, and the
/// peer's end of its lifeline.
fn receiver() -> (SwitchTransport, EndpointId, Waker, TcpStream) {
    let tcp = TcpTransport::new(TcpSettings::default()).unwrap();
    let waker = tcp.waker();
    let mut transport = SwitchTransport::over(tcp);
    let (lifeline, peer) = lifeline();
    let endpoint = transport.open(SwitchLink::of_group(lifeline, group_end())).unwrap();
    (transport, endpoint, waker, peer)
}

fn processor_time() -> Duration {
    clock_gettime(ClockId::ThreadCPUTime).try_into().unwrap()
}

/// Whether a thread of this process waits for something.
fn is_asleep(thread: Pid) -> bool {
    let stat = format!("/proc/self/task/{}/stat", thread.as_raw_pid());
    let stat = std::fs::read_to_string(stat).unwrap();
    // Behind its name, which is in parentheses.
    stat.rsplit_once(") ").is_some_and(|(_, state)| state.starts_with('S'))
}

#[test]
fn a_wait_sleeps_and_can_be_woken() {
    if !enter_network() {
        return;
    }
    let (mut transport, endpoint, waker, _peer) = receiver();
    let region = Region::zeroed(100);
    transport.post_receive(endpoint, region.write(0..100).unwrap(), Token(1)).unwrap();
    let mut completions = Vec::new();
    let (begin, busy) = (Instant::now(), processor_time());
    while begin.elapsed() < Duration::from_millis(300) {
        transport.poll(&mut completions, Duration::from_millis(300));
    }
    let (waited, busy) = (begin.elapsed(), processor_time() - busy);
    assert!(busy < waited / 4, "{busy:?} of {waited:?} were spent waiting");

    let (long, begin, own) = (Duration::from_secs(60), Instant::now(), gettid());
    thread::scope(|scope| {
        scope.spawn(|| {
            // Used while the other thread waits.
            while !is_asleep(own) && begin.elapsed() < long {
                thread::sleep(Duration::from_millis(1));
            }
            waker();
        });
        transport.poll(&mut completions, long);
    });
    // Used between two polls, the waker ends the next.
    waker();
    transport.poll(&mut completions, long);
    assert!(begin.elapsed() < long);
    assert_eq!(completions, []);
    // The waker also works once there are no groups; posts on the group's endpoint are cancelled.
    assert!(!transport.is_idle());
    transport.close(endpoint);
    transport.poll(&mut completions, Duration::ZERO);
    assert_eq!(completions, [Completion::Cancelled { endpoint, token: Token(1) }]);
    assert!(transport.is_idle());
    waker();
    transport.poll(&mut completions, long);
    assert!(begin.elapsed() < long);
}

#[test]
fn every_post_is_completed_before_the_end() {
    if !enter_network() {
        return;
    }
    let (mut transport, endpoint, _, peer) = receiver();
    let region = Region::zeroed(100);
    for token in 0..3 {
        let at = token as usize * 10;
        transport.post_receive(endpoint, region.write(at..at + 10).unwrap(), Token(token)).unwrap();
    }
    let sent = transport.post_send(endpoint, region.read(50..60).unwrap(), 1, Token(9));
    assert!(matches!(sent, Err(PostError::Unsupported(_))), "{sent:?}");
    // The lifeline breaks.
    drop(peer);
    let mut completions = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(60);
    while !completions.iter().any(|one| matches!(one, Completion::Broken { .. })) {
        assert!(Instant::now() < deadline);
        transport.poll(&mut completions, Duration::from_secs(1));
    }
    let cancelled = |token| Completion::Cancelled { endpoint, token: Token(token) };
    assert_eq!(completions[..3], [0, 1, 2].map(cancelled));
    assert_eq!(completions.len(), 4, "{completions:?}");
    assert!(region.write(0..100).is_ok());
    let late = transport.post_receive(endpoint, region.write(0..10).unwrap(), Token(4));
    assert_eq!(late, Err(PostError::EndpointGone(endpoint)));
}

#[test]
fn posts_after_a_close_are_refused() {
    if !enter_network() {
        return;
    }
    let (mut transport, endpoint, _, _peer) = receiver();
    let region = Region::zeroed(100);
    transport.post_receive(endpoint, region.write(0..10).unwrap(), Token(0)).unwrap();
    transport.close(endpoint);
    let late = transport.post_receive(endpoint, region.write(20..30).unwrap(), Token(1));
    assert_eq!(late, Err(PostError::EndpointGone(endpoint)));
    let mut completions = Vec::new();
    transport.poll(&mut completions, Duration::ZERO);
    assert_eq!(completions, [Completion::Cancelled { endpoint, token: Token(0) }]);
}

#[test]
fn unusable_interfaces_are_named() {
    if !enter_network() {
        return;
    }
    let open = |own: [u8; 4], peer: [u8; 4]| {
        Unconnected::open(own.into(), &[IpAddr::from(peer)]).map(drop).unwrap_err()
    };
    assert!(matches!(open([10, 9, 0, 7], ROOT), OpenError::NoInterface(_)));
    assert!(matches!(open([127, 0, 0, 1], [127, 0, 0, 1]), OpenError::Loopback(_)));
    let routed = open(OWN, [10, 10, 0, 2]).to_string();
    assert!(routed.contains("10.10.0.2 is not reached from 10.9.0.1 by h0: no route"), "{routed}");
    lab::quiet("h0", 300).unwrap();
    let short = open(OWN, ROOT).to_string();
    assert!(short.contains("h0 carries packets of 300 bytes"), "{short}");
    // Only of this thread.
    let mut sets = capabilities(None).unwrap();
    sets.effective.remove(CapabilitySet::NET_RAW);
    set_capabilities(None, sets).unwrap();
    let denied = open(OWN, ROOT);
    assert!(matches!(denied, OpenError::Permission(_)), "{denied:?}");
    let denied = denied.to_string();
    assert!(denied.contains("h0") && denied.contains("CAP_NET_RAW"), "{denied}");
}

/// Two transports without groups, with a link between them.
fn pair() -> [(SwitchTransport, EndpointId); 2] {
    let (one, other) = lifeline();
    [one, TcpLink::from(other)].map(|link| {
        let tcp = TcpTransport::new(TcpSettings::default()).unwrap();
        let mut transport = SwitchTransport::over(tcp);
        let endpoint = transport.open(SwitchLink::plain(link)).unwrap();
        (transport, endpoint)
    })
}

#[test]
fn a_block_over_tcp_goes_on_while_a_group_comes_and_goes() {
    if !enter_network() {
        return;
    }
    let [(mut source, to), (mut target, from)] = pair();
    let bytes = 8 << 20;
    let (sent, into) = (Region::from_vec(vec![7; bytes]), Region::zeroed(bytes));
    let (long, waker) = (Duration::from_secs(60), target.waker());
    let mut group = None;
    for token in 0..2 {
        into.write(0..bytes).unwrap().fill(0);
        target.post_receive(from, into.write(0..bytes).unwrap(), Token(token)).unwrap();
        source.post_send(to, sent.read(0..bytes).unwrap(), 0, Token(token)).unwrap();
        // The socket's buffer is full then; the rest of the block waits for the target.
        source.poll(&mut Vec::new(), Duration::ZERO);
        target.poll(&mut Vec::new(), Duration::ZERO);
        let (begin, mut completions) = (Instant::now(), Vec::new());
        match group.take() {
            None => {
                // The end of an earlier wait does not end one with a group; a later use of the waker does.
                waker();
                target.poll(&mut completions, long);
                let (lifeline, peer) = lifeline();
                let link = SwitchLink::of_group(lifeline, group_end());
                group = Some((target.open(link).unwrap(), peer));
                assert!(!target.is_idle());
                waker();
                target.poll(&mut completions, long);
            }
            Some((endpoint, _peer)) => {
                target.close(endpoint);
                assert!(target.is_idle());
            }
        }
        let is_whole = |completions: &[Completion]| {
            completions.iter().any(|one| matches!(one, Completion::Received { .. }))
        };
        while !is_whole(&completions) {
            assert!(begin.elapsed() < long, "{completions:?}");
            source.poll(&mut Vec::new(), Duration::ZERO);
            target.poll(&mut completions, Duration::from_millis(1));
        }
        assert!(into.read(0..bytes).unwrap().iter().all(|&byte| byte == 7));
    }
}
