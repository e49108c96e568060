//! Attackers on the path between members, and peers without the secret.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::Receiver,
    },
    thread,
    time::Duration,
};

use rdmc::{
    Algorithm, Error, Fabric, Failure, FailureKind, GroupSettings, Protection, Region, Secret,
    bootstrap::{Channel, Deadline, PROTOCOL_VERSION, SessionError},
};

use crate::common::{self, Event, PATIENCE, Recorder, World, among, close_all, contents, group};

/// Changes bytes in transit, given their direction and the offset of the first in that direction.
type Meddle = fn(to_listener: bool, from: usize, bytes: &mut [u8]);

/// Forwards connections to a listener, and records what the callers sent.
struct Relay {
    address: SocketAddr,
    recorded: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Relay {
    fn before(
        target: SocketAddr,
        meddle: impl Fn(bool, usize, &mut [u8]) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, recorded) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<_>>>::default());
        let (meddle, record) = (Arc::new(meddle), Arc::clone(&recorded));
        // Ends with the test's process.
        thread::spawn(move || {
            for caller in listener.incoming().flatten() {
                let Ok(callee) = TcpStream::connect(target) else { continue };
                for to_listener in [true, false] {
                    let ends = [caller.try_clone().unwrap(), callee.try_clone().unwrap()];
                    let (meddle, record) = (Arc::clone(&meddle), Arc::clone(&record));
                    thread::spawn(move || carry(ends, to_listener, &*meddle, &record));
                }
            }
        });
        Self { address, recorded }
    }
}

fn carry(
    [caller, callee]: [TcpStream; 2],
    to_listener: bool,
    meddle: &(impl Fn(bool, usize, &mut [u8]) + ?Sized),
    recorded: &Mutex<Vec<Vec<u8>>>,
) {
    let (mut from, mut to) = if to_listener { (caller, callee) } else { (callee, caller) };
    let (mut all, mut buffer) = (Vec::new(), [0; 4096]);
    let mut carried_bytes = 0;
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        if to_listener {
            all.extend_from_slice(&buffer[..count]);
        }
        meddle(to_listener, carried_bytes, &mut buffer[..count]);
        carried_bytes += count;
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    let _ = (to.shutdown(Shutdown::Write), from.shutdown(Shutdown::Read));
    if to_listener {
        recorded.lock().unwrap().push(all);
    }
}

/// Flips a bit of the byte at this offset in one direction.
fn flip(to_listener: bool, at: usize) -> impl Fn(bool, usize, &mut [u8]) + Send + Sync {
    move |way, from, bytes| {
        if way == to_listener && (from..from + bytes.len()).contains(&at) {
            bytes[at - from] ^= 0x10;
        }
    }
}

/// Starts members of which the first is reached through a relay.
fn world(
    members: usize,
    protection: Protection,
    patience_s: u64,
    relay: impl Fn(SocketAddr) -> Relay,
) -> (World, Relay) {
    let mut world = World::start_with(members, |settings| {
        settings.fabric = Fabric::Tcp;
        settings.protection = Some(protection);
        // Otherwise the traffic of members on one machine bypasses the relay.
        settings.tcp.direct_copies = false;
        settings.connect_timeout = Duration::from_secs(patience_s);
    });
    let relay = relay(world.addresses[0]);
    world.addresses[0] = relay.address;
    (world, relay)
}

fn chain(number: u64, members: u32) -> impl Fn(u32) -> GroupSettings + Sync {
    group(number, Algorithm::Chain, members, 0)
}

/// Returns all events of a member until its group ended.
fn events_until_the_end(events: &Receiver<Event>) -> (Vec<Event>, Option<Failure>) {
    let mut all = Vec::new();
    loop {
        match events.recv_timeout(PATIENCE).expect("the group ends") {
            Event::Failed(failure, _) => return (all, Some(failure)),
            Event::Closed => return (all, None),
            other => all.push(other),
        }
    }
}

const MESSAGE_BYTES: usize = 200_000;
/// An offset in the middle of the message, far behind the handshake.
const INSIDE: usize = 100_000;

#[test]
fn a_flipped_bit_is_detected_named_and_not_relayed() {
    let (world, _relay) =
        world(3, Protection::Encrypt, 30, |to| Relay::before(to, flip(false, INSIDE)));
    let groups = world.join(chain(1, 3));
    groups[0].0.try_send(Region::from_vec(contents(0, MESSAGE_BYTES))).unwrap();
    for (rank, (_, events)) in groups.iter().enumerate() {
        let (before, failure) = events_until_the_end(events);
        let failure = failure.expect("it fails everywhere");
        assert_eq!(failure.kind, FailureKind::Corrupt, "{failure}");
        // Each end of the link names the other as the cause.
        let ends = (failure.member, failure.reporter);
        let own = [(Some(1), 0), (Some(0), 1)];
        assert!(if rank < 2 { ends == own[rank] } else { own.contains(&ends) }, "{failure}");
        assert!(failure.detail.contains("at step"), "no step: {failure}");
        let whole = before.iter().any(|event| matches!(event, Event::Complete(..)));
        assert!(rank == 0 || !whole, "member {rank} has a message: {before:?}");
    }
    world.close();
}

/// Shows that the relay of the test above changes bytes.
#[test]
fn without_protection_flipped_bits_arrive() {
    let (world, _relay) =
        world(2, Protection::None, 30, |to| Relay::before(to, flip(false, INSIDE)));
    let groups = world.join(chain(1, 2));
    let sent = contents(0, MESSAGE_BYTES);
    groups[0].0.try_send(Region::from_vec(sent.clone())).unwrap();
    close_all(&groups).into_iter().for_each(|closed| closed.unwrap());
    let (events, _) = events_until_the_end(&groups[1].1);
    let received = events.into_iter().find_map(|event| match event {
        Event::Complete(_, bytes) => Some(bytes),
        _ => None,
    });
    assert_ne!(received.expect("it arrives"), sent);
    world.close();
}

/// What contexts say to each other when groups are created is not protected either: whatever arrives, connections with it end, and
/// with them the attempt.
#[test]
fn without_protection_changed_requests_make_no_group() {
    let mut lost = 0;
    // Behind the handshake.
    for at in (1_500_usize..2_000).step_by(50) {
        for way in [true, false] {
            // From here on everything is changed, also on connections that are made again.
            let meddle = move |to_listener, from: usize, bytes: &mut [u8]| {
                let first = at.saturating_sub(from).min(bytes.len());
                if to_listener == way {
                    bytes[first..].iter_mut().for_each(|byte| *byte ^= 0x10);
                }
            };
            let (world, _relay) =
                world(2, Protection::None, 1, move |to| Relay::before(to, meddle));
            for (group, _) in world.join_results(chain(1, 2), |_| Recorder) {
                lost += usize::from(group.is_err_and(|it| it.to_string().contains("was lost")));
            }
            world.close();
        }
    }
    assert!(lost > 0, "the requests were not reached");
}

#[test]
fn a_tampered_handshake_makes_no_link() {
    // The connector sends more than the listener; its request is the last message changed here.
    for (to_listener, places) in [
        (true, &[0, 4, 20, 100, 250, 1_000, 1_400, 1_650][..]),
        (false, &[0, 4, 20, 100, 250, 1_300]),
    ] {
        for &at in places {
            let (world, _relay) =
                world(2, Protection::default(), 1, |to| Relay::before(to, flip(to_listener, at)));
            let results = world.join_results(chain(1, 2), |_| Recorder);
            let made = results.iter().filter(|(group, _)| group.is_ok()).count();
            assert_eq!(made, 0, "offset {at}, to the listener: {to_listener}");
            world.close();
        }
    }
}

#[test]
fn a_replayed_session_is_refused() {
    let untouched: Meddle = |_, _, _| {};
    let (mut world, relay) = world(2, Protection::default(), 3, |to| Relay::before(to, untouched));
    let groups = world.join(chain(1, 2));
    groups[0].0.try_send(Region::from_vec(contents(0, 1_000))).unwrap();
    close_all(&groups).into_iter().for_each(|closed| closed.unwrap());
    let listener = world.contexts[0].address();
    drop((groups, world.contexts.remove(1)));
    let recorded = loop {
        if let Some(recorded) = relay.recorded.lock().unwrap().pop() {
            break recorded;
        }
        thread::sleep(Duration::from_millis(5));
    };
    // The same group again; the recording is replayed as the other member.
    thread::scope(|scope| {
        let replay = scope.spawn(|| {
            let mut stream = TcpStream::connect(listener).unwrap();
            stream.set_read_timeout(Some(PATIENCE)).unwrap();
            let _ = stream.write_all(&recorded);
            let mut answer = Vec::new();
            // The connection is closed or reset.
            let _ = stream.read_to_end(&mut answer);
        });
        let again = world.contexts[0].create_group_with(
            among(chain(1, 2)(0), &world.addresses),
            Recorder(std::sync::mpsc::channel().0),
        );
        assert!(matches!(again, Err(Error::Timeout { .. })), "{:?}", again.map(drop));
        replay.join().unwrap();
    });
    world.close();
}

#[test]
fn members_with_different_protection_are_refused_with_the_reason() {
    let protections = Mutex::new(vec![Protection::None, Protection::Encrypt]);
    let world = World::start_with(2, |settings| {
        settings.fabric = Fabric::Tcp;
        settings.protection = protections.lock().unwrap().pop();
        settings.connect_timeout = Duration::from_secs(5);
    });
    for (group, _) in world.join_results(chain(1, 2), |_| Recorder) {
        let error = group.map(drop).unwrap_err().to_string();
        assert!(error.contains("protection of links: encrypt here, none there"), "{error}");
    }
    world.close();
}

#[test]
fn a_fabric_that_does_not_encrypt_is_refused_when_asked_to() {
    let mut settings = common::context_settings(&Secret::random().unwrap());
    settings.fabric = Fabric::libfabric("verbs");
    settings.protection = Some(Protection::Encrypt);
    let error = rdmc::Context::start(settings).map(drop).unwrap_err().to_string();
    assert!(
        error.contains("none, as the fabric verbs does not encrypt; or the fabric tcp"),
        "{error}"
    );
}

/// Peers without the secret hold as many connections as they get, and open new ones continuously.
#[test]
fn members_connect_during_a_flood_of_unauthenticated_connections() {
    let world = World::start_with(3, |settings| settings.connect_timeout = PATIENCE);
    let running = world.join(chain(1, 3));
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        for &address in &world.addresses {
            let stop = &stop;
            scope.spawn(move || {
                let mut held = std::collections::VecDeque::new();
                while !stop.load(Ordering::Relaxed) {
                    if let Ok(stream) = TcpStream::connect_timeout(&address, PATIENCE) {
                        held.push_back(stream);
                    }
                    if held.len() > 140 {
                        held.pop_front();
                    }
                }
            });
        }
        // More than the listener's limit of handshakes.
        thread::sleep(Duration::from_millis(500));
        for number in 2..5 {
            let groups = world.join(chain(number, 3));
            for (group, message) in [(&groups, 0), (&running, number - 2)] {
                group[0].0.try_send(Region::from_vec(contents(message, 50_000))).unwrap();
            }
            close_all(&groups).into_iter().for_each(|closed| closed.unwrap());
        }
        stop.store(true, Ordering::Relaxed);
    });
    close_all(&running).into_iter().for_each(|closed| closed.unwrap());
    world.close();
}

/// Returns the listener's error for a caller that sends its greeting and then does this.
fn accepted(patience: Duration, go_on: impl FnOnce(TcpStream) + Send) -> SessionError {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    thread::scope(|scope| {
        let mut caller = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut greeting = b"RDMC".to_vec();
        greeting.extend(PROTOCOL_VERSION.to_le_bytes());
        caller.write_all(&greeting).unwrap();
        scope.spawn(move || go_on(caller));
        let (stream, _) = listener.accept().unwrap();
        let secret = Secret::from_bytes([1; 32]);
        Channel::accept(stream, &secret, Deadline::after(patience)).unwrap_err()
    })
}

#[test]
fn a_slow_handshake_is_ended_at_the_deadline() {
    let error = accepted(Duration::from_millis(300), |mut caller| {
        // A handshake record, a byte at a time.
        let record = [&[22, 3, 1, 1, 0][..], &[0; 256]].concat();
        for byte in record {
            if caller.write_all(&[byte]).is_err() {
                return;
            }
            thread::sleep(Duration::from_millis(20));
        }
    });
    assert!(matches!(error, SessionError::Timeout { timeout_ms: 300, .. }), "{error}");
}

#[test]
fn lengths_announced_by_unauthenticated_peers_are_not_allocated() {
    // A client's first message of 16 MiB, in whole records.
    let error = accepted(PATIENCE, |mut caller| {
        let mut first = vec![1, 0xFF, 0xFF, 0xFF];
        first.resize(16_384, 0);
        for body in [first, vec![0; 16_384], vec![0; 16_384], vec![0; 16_384], vec![0; 16_384]] {
            let record = [&[22, 3, 1, 0x40, 0][..], &body].concat();
            if caller.write_all(&record).is_err() {
                return;
            }
        }
        // The caller sends nothing more and keeps the connection: the listener must already have
        // detected the error.
        caller.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = caller.read_to_end(&mut Vec::new());
    });
    assert!(matches!(error, SessionError::Peer { .. }), "{error}");
    // A record above the maximum length.
    let error = accepted(PATIENCE, |mut caller| {
        caller.write_all(&[22, 3, 1, 0xFF, 0xFF]).unwrap();
        caller.set_read_timeout(Some(PATIENCE)).unwrap();
        let _ = caller.read_to_end(&mut Vec::new());
    });
    assert!(error.to_string().contains("not TLS"), "{error}");
}
