//! Rendezvous of members, and the peers that they refuse.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    thread,
    time::Duration,
};

use session::{Channel, Deadline, Error, PROTOCOL_VERSION, Secret, rendezvous};

/// No test waits longer than this for anything.
const PATIENCE: Duration = Duration::from_secs(60);

fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn deadline() -> Deadline {
    Deadline::after(PATIENCE)
}

fn secret(byte: u8) -> Secret {
    Secret::from_bytes([byte; 32])
}

/// Returns the results of a listener and a connector with these secrets.
fn channels(accepting: u8, connecting: u8) -> (Result<Channel, Error>, Result<Channel, Error>) {
    let (listener, address) = listener();
    thread::scope(|scope| {
        let accepting = scope.spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            Channel::accept(stream, &secret(accepting), deadline())
        });
        let connected = Channel::connect(address, &secret(connecting), deadline());
        (accepting.join().unwrap(), connected)
    })
}

/// Returns the listener's error for a peer that sends these bytes.
fn answer_to(bytes: &[u8]) -> String {
    let (listener, address) = listener();
    thread::scope(|scope| {
        let accepting = scope.spawn(move || {
            let (stream, _) = listener.accept().unwrap();
            Channel::accept(stream, &secret(1), deadline()).unwrap_err().to_string()
        });
        let mut peer = TcpStream::connect(address).unwrap();
        peer.write_all(bytes).unwrap();
        let mut greeting = [0; 6];
        peer.read_exact(&mut greeting).unwrap();
        drop(peer);
        accepting.join().unwrap()
    })
}

#[test]
fn members_meet_and_all_get_the_same_list() {
    for ranks in [[Some(3), Some(1), Some(2)], [None; 3]] {
        let (listener, meeting) = listener();
        let own = SocketAddr::from((Ipv4Addr::LOCALHOST, 1_000));
        // An unspecified IP stands for the one from which the rendezvous is reached.
        let theirs = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 1_001));
        let (hosted, joined) = thread::scope(|scope| {
            let hosting =
                scope.spawn(move || rendezvous::host(&listener, &secret(1), 4, own, deadline()));
            let joining = ranks.map(|rank| {
                let join = move || rendezvous::join(meeting, &secret(1), rank, theirs, deadline());
                scope.spawn(join)
            });
            let joined = joining.map(|thread| thread.join().unwrap().unwrap());
            (hosting.join().unwrap().unwrap(), joined)
        });
        let other = SocketAddr::from((Ipv4Addr::LOCALHOST, 1_001));
        assert_eq!(hosted, [own, other, other, other]);
        for (wanted, (rank, list)) in ranks.iter().zip(&joined) {
            assert_eq!(list, &hosted);
            assert!(wanted.is_none_or(|wanted| wanted == *rank));
        }
        let mut given = joined.map(|(rank, _)| rank);
        given.sort_unstable();
        assert_eq!(given, [1, 2, 3]);
    }
}

#[test]
fn a_rendezvous_ends_at_its_deadline_and_says_how_many_are_missing() {
    let (listener, address) = listener();
    let soon = Deadline::after(Duration::from_millis(100));
    let error = rendezvous::host(&listener, &secret(1), 3, address, soon).unwrap_err();
    assert!(error.to_string().contains("2 more members"), "{error}");
}

#[test]
fn a_rank_that_is_taken_is_refused() {
    let (listener, meeting) = listener();
    thread::scope(|scope| {
        scope.spawn(move || {
            let soon = Deadline::after(Duration::from_millis(500));
            rendezvous::host(&listener, &secret(1), 2, meeting, soon).unwrap_err();
        });
        let refused = rendezvous::join(meeting, &secret(1), Some(7), meeting, deadline());
        assert!(refused.unwrap_err().to_string().contains("rank 7 is taken"));
    });
}

#[test]
fn messages_cross_a_channel_in_both_directions() {
    let (accepted, connected) = channels(1, 1);
    let (mut one, mut other) = (accepted.unwrap(), connected.unwrap());
    one.send(&("text".to_owned(), vec![1_u8; 200_000]), deadline()).unwrap();
    let (text, bytes): (String, Vec<u8>) = other.receive(deadline()).unwrap();
    assert_eq!((text.as_str(), bytes.len()), ("text", 200_000));
    other.send(&7_u64, deadline()).unwrap();
    assert_eq!(one.receive::<u64>(deadline()).unwrap(), 7);
    drop(other);
    assert!(one.receive::<u64>(deadline()).unwrap_err().to_string().contains("closed"));
}

#[test]
fn another_secret_is_noticed_by_both_ends() {
    let (accepted, connected) = channels(1, 2);
    for error in [accepted.unwrap_err(), connected.unwrap_err()] {
        assert!(error.to_string().contains("secret"), "{error}");
    }
}

#[test]
fn another_version_is_named_with_the_remedy() {
    let mut greeting = b"RDMC".to_vec();
    greeting.extend((PROTOCOL_VERSION + 1).to_le_bytes());
    greeting.extend([0; 32]);
    let error = answer_to(&greeting);
    assert!(error.contains(&format!("version {}", PROTOCOL_VERSION + 1)), "{error}");
    assert!(error.contains("install the same rdmc"), "{error}");
}

#[test]
fn other_protocols_are_refused() {
    assert!(
        answer_to(b"GET / HTTP/1.1\r\nHost: example\r\n\r\n     ")
            .contains("does not use rdmc's protocol")
    );
    assert!(answer_to(b"RD").contains("greeting"));
}

#[test]
fn a_silent_peer_fails_at_the_deadline() {
    let (_listener, address) = listener();
    let soon = Deadline::after(Duration::from_millis(100));
    let error = Channel::connect(address, &secret(1), soon).unwrap_err();
    assert!(matches!(error, Error::Timeout { timeout_ms: 100, .. }), "{error}");
}

#[test]
fn a_malformed_message_is_an_error() {
    let (accepted, connected) = channels(1, 1);
    let (mut one, mut other) = (accepted.unwrap(), connected.unwrap());
    other.send(&[0xff_u8; 2], deadline()).unwrap();
    let error = one.receive::<String>(deadline()).unwrap_err();
    assert!(error.to_string().contains("malformed"), "{error}");
}
