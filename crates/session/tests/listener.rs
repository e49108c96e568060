//! Unauthenticated peers of a listener cost little and keep nobody out.

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

fn stranger(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

/// Reads what the listener sends until it closes the connection.
#[track_caller]
fn assert_hung_up(mut stranger: &TcpStream) {
    let mut said = Vec::new();
    match stranger.read_to_end(&mut said) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}"),
    }
    assert!(said.len() < 1000, "{} bytes for a stranger", said.len());
}

#[test]
fn a_silent_crowd_keeps_nobody_out() {
    let (_door, address, inbox) = open();
    let crowd: Vec<TcpStream> = (0..CROWD).map(|_| stranger(address)).collect();
    let member = Channel::connect(address, &secret(), Deadline::after(PATIENCE)).unwrap();
    let admitted = loop {
        if let Ok(channel) = inbox.recv_timeout(PATIENCE).unwrap() {
            break channel;
        }
    };
    assert_eq!(admitted.peer(), member.local_address().unwrap());
    let threads = std::fs::read_dir("/proc/self/task").unwrap().count();
    assert!(threads < CROWD / 2, "{threads} threads, for strangers who said nothing");
    crowd[..CROWD - 128].iter().for_each(assert_hung_up);
    // The others still have time: they are not all cut off because somebody came.
    let last = crowd.last().unwrap();
    last.set_nonblocking(true).unwrap();
    let mut greeting = [0; 1000];
    while let Ok(count) = (&*last).read(&mut greeting) {
        assert_ne!(count, 0, "the youngest was hung up on");
    }
}

#[test]
fn a_listener_that_closes_hangs_up_on_strangers_and_on_nobody_else() {
    let (listening, address, inbox) = open();
    let silent = stranger(address);
    // Its greeting shows that the listener has accepted it.
    assert_eq!((&silent).read(&mut [0]).unwrap(), 1);
    let mut member = Channel::connect(address, &secret(), Deadline::after(PATIENCE)).unwrap();
    let mut admitted = inbox.recv_timeout(PATIENCE).unwrap().unwrap();
    drop(listening);
    assert_hung_up(&silent);
    member.send(&7_u32, Deadline::after(PATIENCE)).unwrap();
    assert_eq!(admitted.receive::<u32>(Deadline::after(PATIENCE)).unwrap(), 7);
    assert!(TcpStream::connect(address).is_err());
}
