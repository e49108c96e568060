//! Unauthenticated peers cost a listener little, and authorized ones are still admitted.

use std::{
    io::{ErrorKind, Read},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use session::{Channel, Deadline, Error, Listener, Secret};

/// No test waits longer than this for anything.
const PATIENCE: Duration = Duration::from_secs(50);
/// More than may be pending at once.
const CROWD: usize = 140;

fn secret() -> Secret {
    Secret::from_bytes([7; 32])
}

fn open() -> (Listener, SocketAddr, Receiver<Result<Channel, Error>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (admitted, inbox) = channel();
    let listening =
        Listener::open(listener, secret(), move |channel| drop(admitted.send(channel))).unwrap();
    let address = listening.address();
    (listening, address, inbox)
}

fn unauthenticated(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads what the listener sends until it closes the connection.
#[track_caller]
fn assert_closed(mut unauthenticated: &TcpStream) {
    let mut received = Vec::new();
    match unauthenticated.read_to_end(&mut received) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    assert!(received.len() < 1000, "{} bytes for an unauthenticated peer", received.len());
}

#[test]
fn silent_peers_do_not_keep_members_out() {
    let (_listener, address, inbox) = open();
    let crowd: Vec<TcpStream> = (0..CROWD).map(|_| unauthenticated(address)).collect();
    let member = Channel::connect(address, &secret(), Deadline::after(PATIENCE)).unwrap();
    let admitted = loop {
        if let Ok(channel) = inbox.recv_timeout(PATIENCE).unwrap() {
            break channel;
        }
    };
    assert_eq!(admitted.peer(), member.local_address().unwrap());
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    assert!(threads < CROWD / 2, "{threads} threads for peers that sent nothing");
    crowd[..CROWD - 128].iter().for_each(assert_closed);
    // The others are within their time limit: a new connection does not close all of them.
    let last = crowd.last().unwrap();
    last.set_nonblocking(true).unwrap();
    let mut greeting = [0; 1000];
    while let Ok(count) = (&*last).read(&mut greeting) {
        assert_ne!(count, 0, "the newest connection was closed");
    }
}

#[test]
fn closing_a_listener_closes_pending_connections_and_keeps_admitted_ones() {
    let (listening, address, inbox) = open();
    let silent = unauthenticated(address);
    // Its greeting shows that the listener has accepted it.
    assert_eq!((&silent).read(&mut [0]).unwrap(), 1);
    let mut member = Channel::connect(address, &secret(), Deadline::after(PATIENCE)).unwrap();
    let mut admitted = inbox.recv_timeout(PATIENCE).unwrap().unwrap();
    drop(listening);
    assert_closed(&silent);
    member.send(&7_u32, Deadline::after(PATIENCE)).unwrap();
    assert_eq!(admitted.receive::<u32>(Deadline::after(PATIENCE)).unwrap(), 7);
    assert!(TcpStream::connect(address).is_err());
}
