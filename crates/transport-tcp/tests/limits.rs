//! Limits on time and memory, and fairness, with silent peers, failing files and busy endpoints.

use std::{
    io::{Read, Write},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use transport::{
    CONTROL_BYTES_MAX, Cause, Completion, PostError, Region, Token, Transport, Watched,
};
use transport_tcp::{TcpLink, TcpSettings};

use crate::common;
use crate::common::*;

/// A timeout for tests that wait for it.
const SHORT: Duration = Duration::from_millis(400);

fn soon_silent() -> TcpSettings {
    patient().silence_timeout(SHORT)
}

#[test]
fn a_silent_peer_is_found_in_time() {
    for streams in [1, 3] {
        let (ours, _held_open) = link_pair("127.0.0.1", streams).unwrap();
        let mut transport = transport(&soon_silent());
        let endpoint = transport.open(ours).unwrap();
        let begin = Instant::now();
        let region = Region::zeroed(8);
        post_receive(&mut transport, endpoint, &region, 1);
        let mut completions = Vec::new();
        // One long wait: the transport itself has to end it for its timers.
        while !ended(&completions) {
            transport.poll(&mut completions, PATIENCE);
        }
        let [cancelled, Completion::Broken { cause: Cause::Silent(silent_ms), .. }] =
            &completions[..]
        else {
            panic!("{completions:?}");
        };
        assert_eq!(*cancelled, Completion::Cancelled { endpoint, token: Token(1) });
        assert!(Duration::from_millis(*silent_ms) >= SHORT, "{silent_ms}");
        assert!(begin.elapsed() < PATIENCE, "not by the one wait, which was longer");
    }
}

#[test]
fn a_probe_is_written_at_once_and_an_endpoint_can_be_broken_off() {
    let (ours, mut peer) = stream_pair("127.0.0.1").unwrap();
    let address = peer.local_addr().unwrap();
    let link = TcpLink::from(ours);
    assert_eq!(link.peer(), Some(address));
    let mut transport = transport(&patient().direct_copies(false));
    let endpoint = transport.open(link).unwrap();
    assert!(transport.probe(endpoint).is_some());
    let mut read = [0; 16];
    peer.read_exact(&mut read).unwrap();
    assert_eq!(read[..], frame(HEARTBEAT, 0, 0, 0, 0));
    let region = Region::zeroed(8);
    post_receive(&mut transport, endpoint, &region, 1);
    let cause = Cause::Lost("its host has died".into());
    transport.break_off(endpoint, cause.clone());
    transport.break_off(endpoint, Cause::Lost("again".into()));
    let cancelled = Completion::Cancelled { endpoint, token: Token(1) };
    let mut completions = Vec::new();
    transport.poll(&mut completions, Duration::ZERO);
    assert_eq!(completions, [cancelled, Completion::Broken { endpoint, cause }]);
    assert!(transport.probe(endpoint).is_none());
}

#[test]
fn heartbeats_keep_an_idle_link_alive() {
    let ((mut left, _), (mut right, _)) =
        facing_each_other(&patient().silence_timeout(Duration::from_millis(800)), 3);
    let mut completions = Vec::new();
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(2400) {
        left.poll(&mut completions, Duration::from_millis(20));
        right.poll(&mut completions, Duration::from_millis(20));
    }
    assert_eq!(completions, []);
    let heartbeats = left.counters().heartbeats;
    // 12 per stream are due; a busy machine may skip some.
    assert!((9..=36).contains(&heartbeats), "{heartbeats}");
}

/// Many idle endpoints with different deadlines share wake-ups.
#[test]
fn idle_endpoints_are_checked_together() {
    const ENDPOINTS: u32 = 60;
    let settings = patient().silence_timeout(Duration::from_millis(2_400));
    let mut transport = transport(&settings);
    let begin = Instant::now();
    let _held_open: Vec<_> = (0..ENDPOINTS)
        .map(|_| {
            let (ours, theirs) = stream_pair("127.0.0.1").unwrap();
            transport.open(ours.into()).unwrap();
            thread::sleep(Duration::from_millis(600) / ENDPOINTS);
            theirs
        })
        .collect();
    let mut completions = Vec::new();
    let rest = Duration::from_millis(2_200).saturating_sub(begin.elapsed());
    transport.poll(&mut completions, rest);
    let counters = transport.counters();
    assert!(counters.heartbeats >= u64::from(ENDPOINTS), "{counters:?}");
    assert!(counters.waits < counters.heartbeats / 3, "{counters:?}");
}

/// A pause of this end does not count as the peer's silence: the socket holds what it sent
/// meanwhile.
#[test]
fn a_pause_of_our_own_is_not_the_peers_silence() {
    let (mut transport, endpoint, mut raw) = facing_raw(&soon_silent());
    transport.poll(&mut Vec::new(), Duration::ZERO);
    thread::sleep(Duration::from_millis(600));
    raw.write_all(&frame(HEARTBEAT, 0, 0, 0, 0)).unwrap();
    let mut completions = Vec::new();
    transport.poll(&mut completions, Duration::ZERO);
    transport.poll(&mut completions, Duration::ZERO);
    assert_eq!(completions, []);
    transport.write_control(endpoint, b"x").unwrap();
}

/// A peer that reads nothing for several silence timeouts, as one whose rate is limited may, but sends
/// heartbeats.
#[test]
fn a_closed_window_is_not_silence() {
    let (mut transport, endpoint, mut raw) = facing_raw(&soon_silent());
    let region = Region::from_vec(vec![1; 64 << 20]);
    post_send(&mut transport, endpoint, &region, 1);
    let mut reader = Some(raw.try_clone().unwrap());
    let (begin, mut completions) = (Instant::now(), Vec::new());
    while completions.is_empty() {
        assert!(begin.elapsed() < PATIENCE, "nothing is sent");
        raw.write_all(&frame(HEARTBEAT, 0, 0, 0, 0)).unwrap();
        transport.poll(&mut completions, Duration::from_millis(10));
        if begin.elapsed() > 12 * SHORT
            && let Some(mut socket) = reader.take()
        {
            thread::spawn(move || std::io::copy(&mut socket, &mut std::io::sink()));
        }
    }
    assert_eq!(completions, [Completion::Sent { endpoint, token: Token(1) }]);
    assert!(reader.is_none(), "the window was not closed");
}

#[test]
fn a_close_is_bounded_by_the_drain_time() {
    let (mut transport, endpoint, _never_reads) = facing_raw(&patient().drain_timeout(SHORT));
    let region = Region::from_vec(vec![1; 16 << 20]);
    post_send(&mut transport, endpoint, &region, 1);
    transport.poll(&mut Vec::new(), Duration::from_millis(10));
    let begin = Instant::now();
    transport.close(endpoint);
    assert!(matches!(
        transport.write_control(endpoint, b"late"),
        Err(PostError::EndpointGone(gone)) if gone == endpoint
    ));
    assert_eq!(
        poll_until(&mut transport, ended),
        [Completion::Cancelled { endpoint, token: Token(1) }, Completion::Closed { endpoint }]
    );
    assert!(begin.elapsed() >= SHORT, "{:?}", begin.elapsed());
    assert!(region.try_into_vec().is_ok());
}

/// A close writes the rest of the begun segment, not the rest of the block, and then the words that
/// were written before.
#[test]
fn a_close_in_the_middle_of_a_block_leaves_whole_frames() {
    let settings = patient().segment_bytes(100_000);
    let (mut transport, endpoint, mut raw) = facing_raw(&settings);
    let region = Region::from_vec(vec![1; 64 << 20]);
    post_send(&mut transport, endpoint, &region, 1);
    transport.poll(&mut Vec::new(), Duration::from_millis(10));
    transport.write_control(endpoint, b"word").unwrap();
    transport.close(endpoint);
    let reader = thread::spawn(move || {
        let (mut segments, mut words) = (0, Vec::new());
        loop {
            let mut header = [0; 16];
            raw.read_exact(&mut header).unwrap();
            let mut body = vec![0; u32::from_le_bytes(header[4..8].try_into().unwrap()) as usize];
            raw.read_exact(&mut body).unwrap();
            match header[0] {
                DATA => segments += 1,
                CONTROL => words.push(body),
                BYE => break,
                _ => {}
            }
        }
        assert_eq!(raw.read(&mut [0]).unwrap(), 0, "something follows the bye");
        (segments, words)
    });
    let completions = poll_until(&mut transport, ended);
    assert_eq!(completions.last(), Some(&Completion::Closed { endpoint }));
    assert_eq!(completions[0], Completion::Cancelled { endpoint, token: Token(1) });
    let (segments, words) = reader.join().unwrap();
    assert!((1..671).contains(&segments), "{segments}");
    assert_eq!(words, [b"word"]);
}

/// Everything sent before a close arrives before the end, with any number of streams.
#[test]
fn blocks_that_are_sent_arrive_although_their_sender_closes() {
    let ((mut left, from), (mut right, to)) = facing_each_other(&patient(), 3);
    let regions: Vec<Region> = (0..6).map(|_| Region::zeroed(100_000)).collect();
    let source = Region::from_vec(vec![9; 100_000]);
    for (token, region) in regions.iter().enumerate() {
        post_receive(&mut right, to, region, token as u64);
        post_send(&mut left, from, &source, token as u64);
    }
    let sent = |completions: &[Completion]| {
        completions.iter().filter(|done| matches!(done, Completion::Sent { .. })).count()
    };
    let other = thread::spawn(move || {
        let completions = poll_until(&mut left, |completions| sent(completions) == 6);
        assert_eq!(completions.len(), 6);
        left.close(from);
        poll_until(&mut left, ended)
    });
    let completions = poll_until(&mut right, ended);
    assert_eq!(other.join().unwrap(), [Completion::Closed { endpoint: from }]);
    assert_eq!(completions.len(), 7, "{completions:?}");
    assert_eq!(
        completions.last(),
        Some(&Completion::Broken { endpoint: to, cause: Cause::ClosedByPeer })
    );
    assert!(regions.into_iter().all(|region| region.try_into_vec().unwrap() == [9; 100_000]));
}

/// One endpoint's peer never stops sending; another one exchanges a word now and then.
#[test]
fn a_continuous_sender_starves_no_other_endpoint() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let (mut transport, busy, mut raw) = facing_raw(&TcpSettings::default());
    let flood = thread::spawn(move || {
        let mut bytes = frame(CONTROL, 0, 64, 0, 0).repeat(1);
        bytes.extend([0; 64]);
        let bytes = bytes.repeat(4096);
        while !STOP.load(Ordering::Relaxed) {
            if raw.write_all(&bytes).is_err() {
                return;
            }
        }
    });
    let (ours, theirs) = link_pair("127.0.0.1", 1).unwrap();
    let quiet = transport.open(ours).unwrap();
    let echo = thread::spawn(move || {
        let mut peer = common::transport(&TcpSettings::default());
        let endpoint = peer.open(theirs).unwrap();
        let mut completions = Vec::new();
        while !ended(&completions) {
            completions.clear();
            peer.poll(&mut completions, PATIENCE);
            for completion in &completions {
                if let Completion::Control { word, .. } = completion {
                    peer.write_control(endpoint, word).unwrap();
                }
            }
        }
    });
    let (mut flooded, mut completions, mut longest) = (0_u64, Vec::new(), Duration::ZERO);
    let (started, mut number) = (Instant::now(), 0_u64);
    // On a busy machine the flood may start late, and without it the test would test nothing.
    while number < 50 || flooded < 10_000 {
        assert!(started.elapsed() < PATIENCE, "{flooded} words of a flood");
        number += 1;
        let begin = Instant::now();
        transport.write_control(quiet, &number.to_le_bytes()).unwrap();
        let mut answered = false;
        while !answered {
            transport.poll(&mut completions, PATIENCE);
            for completion in completions.drain(..) {
                match completion {
                    Completion::Control { endpoint, .. } if endpoint == busy => flooded += 1,
                    Completion::Control { word, .. } => {
                        answered = word == number.to_le_bytes();
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        longest = longest.max(begin.elapsed());
    }
    STOP.store(true, Ordering::Relaxed);
    drop(transport);
    flood.join().unwrap();
    echo.join().unwrap();
    assert!(longest < Duration::from_secs(1), "{longest:?}");
}

#[test]
fn control_words_overtake_blocks() {
    let settings = TcpSettings::default().segment_bytes(64 << 10);
    let ((mut left, from), (mut right, to)) = facing_each_other(&settings, 1);
    let (source, target) = (Region::from_vec(vec![1; 32 << 20]), Region::zeroed(32 << 20));
    post_receive(&mut right, to, &target, 1);
    post_send(&mut left, from, &source, 1);
    left.poll(&mut Vec::new(), Duration::ZERO);
    left.write_control(from, b"first").unwrap();
    let other = thread::spawn(move || {
        poll_until(&mut left, |completions| !completions.is_empty());
        left
    });
    let completions = poll_until(&mut right, |completions| completions.len() == 2);
    assert_eq!(completions[0], Completion::Control { endpoint: to, word: b"first".into() });
    drop(other.join().unwrap());
}

#[test]
fn words_for_a_peer_that_does_not_read_are_refused_in_the_end() {
    let settings = patient().silence_timeout(Duration::from_secs(60));
    let (mut transport, endpoint, _never_reads) = facing_raw(&settings);
    let refused = (0..1_000_000).find_map(|_| transport.write_control(endpoint, &[1; 64]).err());
    assert!(matches!(refused, Some(PostError::System(_))), "{refused:?}");
    assert!(matches!(
        transport.write_control(endpoint, &[0; CONTROL_BYTES_MAX + 1]),
        Err(PostError::TooLarge { bytes: 65, bytes_max: 64 })
    ));
    assert!(transport.write_control(endpoint, &[]).is_err());
}

#[test]
fn a_transport_can_move_to_another_thread() {
    fn is_send<T: Send>(_: &T) {}
    is_send(&transport(&TcpSettings::default()));
}

/// An idle transport sleeps: it neither spins nor wakes without need.
#[test]
fn an_idle_transport_sleeps() {
    let (mut transport, endpoint, mut raw) = facing_raw(&TcpSettings::default());
    let region = Region::zeroed(1 << 20);
    post_receive(&mut transport, endpoint, &region, 1);
    // Half a segment, and a send that the peer does not read: nothing can be done until more
    // arrives.
    raw.write_all(&frame(DATA, LAST, 1000, 0, 0)).unwrap();
    raw.write_all(&[1; 500]).unwrap();
    let source = Region::from_vec(vec![1; 16 << 20]);
    post_send(&mut transport, endpoint, &source, 2);
    let mut completions = Vec::new();
    transport.poll(&mut completions, Duration::from_millis(200));
    let before = transport.counters();
    transport.poll(&mut completions, Duration::from_millis(500));
    let after = transport.counters();
    assert_eq!(completions, []);
    assert!(after.waits - before.waits <= 3, "{before:?} {after:?}");
    assert!(after.read_calls + after.write_calls <= before.read_calls + before.write_calls + 2);
}

#[test]
fn the_waker_ends_a_wait_from_another_thread() {
    let mut transport = transport(&TcpSettings::default());
    let waker = transport.waker();
    let other = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        waker();
    });
    let begin = Instant::now();
    transport.poll(&mut Vec::new(), PATIENCE);
    assert!(begin.elapsed() < PATIENCE / 2);
    assert_eq!(transport.counters().wakeups, 1);
    other.join().unwrap();
}

/// More endpoints than one batch of events reports have something to read at every poll. Timers run all the same: heartbeats are
/// written, a close ends in time, and of all peers only the silent one is found to be silent.
#[test]
fn more_busy_endpoints_than_a_batch_of_events_put_off_no_timer() {
    const BUSY: usize = 300;
    raise_descriptor_limit();
    let settings = soon_silent().drain_timeout(SHORT).direct_copies(false);
    let (mut transport, silent, _never_writes) = facing_raw(&settings);
    let mut busy: Vec<_> = (0..BUSY)
        .map(|_| {
            let (ours, theirs) = stream_pair("127.0.0.1").unwrap();
            transport.open(ours.into()).unwrap();
            theirs
        })
        .collect();
    let (ours, _never_reads) = stream_pair("127.0.0.1").unwrap();
    let closing = transport.open(ours.into()).unwrap();
    post_send(&mut transport, closing, &Region::zeroed(64 << 20), 1);
    transport.poll(&mut Vec::new(), Duration::ZERO);
    transport.close(closing);
    let (begin, mut completions) = (Instant::now(), Vec::new());
    while completions.len() < 3 || transport.counters().heartbeats == 0 {
        assert!(begin.elapsed() < PATIENCE, "{completions:?}, {:?}", transport.counters());
        for peer in &mut busy {
            peer.write_all(&frame(HEARTBEAT, 0, 0, 0, 0)).unwrap();
        }
        transport.poll(&mut completions, Duration::ZERO);
    }
    assert_eq!(completions.len(), 3, "{completions:?}");
    assert!(completions.contains(&Completion::Cancelled { endpoint: closing, token: Token(1) }));
    assert!(completions.contains(&Completion::Closed { endpoint: closing }));
    let is_silent = |it: &Completion| matches!(it, Completion::Broken { endpoint, cause: Cause::Silent(_) } if *endpoint == silent);
    assert!(completions.iter().any(is_silent), "{completions:?}");
}

/// Also polls that do not wait and find something to do at once handle the clock, as an application needs that waits for
/// [`TcpTransport::next_tick`] among other things.
#[test]
fn a_poll_at_the_next_tick_handles_it() {
    let (mut transport, _, mut raw) = facing_raw(&soon_silent());
    for _ in 0..3 {
        let due = transport.next_tick().unwrap();
        thread::sleep(due.saturating_duration_since(Instant::now()));
        raw.write_all(&frame(HEARTBEAT, 0, 0, 0, 0)).unwrap();
        // One handles it, and another one writes the heartbeat.
        for _ in 0..3 {
            transport.poll(&mut Vec::new(), Duration::ZERO);
        }
        assert!(transport.next_tick().is_none_or(|next| next > due), "it is still due");
    }
}

fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    setrlimit(Resource::Nofile, limit).unwrap();
}
