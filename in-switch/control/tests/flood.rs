//! Unauthenticated peers do not keep callers out, and callers with a certificate not each other.

use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    thread,
    time::{Duration, Instant},
};

use control::{Incoming, Limits, Most};
use rustls::{ClientConnection, pki_types::ServerName};
use session::certificates::{CertificateFiles, Certificates};
use testing::Authority;
use tokio::runtime::Runtime;
use tonic::codegen::tokio_stream::StreamExt;

/// No test waits longer than this for anything.
const PATIENCE: Duration = Duration::from_secs(50);
/// Limits of each state of a connection that has not authenticated (docs/guide/security.md).
const UNAUTHENTICATED_MAX: usize = 128;
const UNAUTHENTICATED_TIMEOUT: Duration = Duration::from_secs(10);
/// More than may be unauthenticated at once.
const CROWD: usize = UNAUTHENTICATED_MAX + 40;

const LIMITS: Limits =
    Limits { connections: Most { each: 2, all: 100 }, calls: Most { each: 2, all: 100 } };

fn certificates(authority: &Authority, name: &str) -> Certificates {
    let files = authority.issue(name).into_files(|certificate, key, authorities| {
        CertificateFiles { certificate, key, authorities }
    });
    Certificates::read(&files, &[]).unwrap()
}

fn hello(certificates: &Certificates) -> (ClientConnection, Vec<u8>) {
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut client = ClientConnection::new(certificates.connecting(), name).unwrap();
    let mut sent = Vec::new();
    client.write_tls(&mut sent).unwrap();
    (client, sent)
}

/// A peer that sends these bytes and nothing more.
struct Idle {
    stream: TcpStream,
    since: Instant,
}

impl Idle {
    fn connect(address: SocketAddr, sent: &[u8]) -> Self {
        let mut stream = TcpStream::connect(address).unwrap();
        let _ = stream.write_all(sent);
        stream.set_nonblocking(true).unwrap();
        Self { stream, since: Instant::now() }
    }

    fn is_closed(&mut self) -> bool {
        let mut received = [0; 16 << 10];
        loop {
            match self.stream.read(&mut received) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() != ErrorKind::WouldBlock,
            }
        }
    }
}

/// A caller's handshake. Blocks.
fn authenticate(address: SocketAddr, certificates: &Certificates) -> TcpStream {
    let (mut client, sent) = hello(certificates);
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&sent).unwrap();
    client.complete_io(&mut stream).unwrap();
    stream
}

/// While peers are idle in this state, a caller is admitted, and no peer has been closed to admit it but those
/// beyond the limit: the caller has not waited until the others' time was over.
fn assert_admitted(sent_by_peers: &[u8]) {
    let authority = Authority::new("network");
    let (server, caller) = (certificates(&authority, "127.0.0.1"), certificates(&authority, "a"));
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let runtime = Runtime::new().unwrap();
    let entered = runtime.enter();
    let mut admitted = Incoming::open(socket, &server, LIMITS).unwrap();
    drop(entered);
    let mut crowd: Vec<Idle> = (0..CROWD).map(|_| Idle::connect(address, sent_by_peers)).collect();
    let handshake = thread::spawn(move || authenticate(address, &caller));
    let mut closed_after = [None; CROWD];
    while !handshake.is_finished() {
        for (peer, closed_after) in crowd.iter_mut().zip(&mut closed_after) {
            if closed_after.is_none() && peer.is_closed() {
                *closed_after = Some(peer.since.elapsed());
            }
        }
        thread::sleep(Duration::from_millis(10));
    }
    let _caller = handshake.join().unwrap();
    let next = async { tokio::time::timeout(PATIENCE, admitted.next()).await };
    runtime.block_on(next).unwrap().unwrap().unwrap();
    // In which order they are looked at is not theirs.
    let closed = closed_after.iter().flatten().filter(|after| **after < UNAUTHENTICATED_TIMEOUT);
    let closed = closed.count();
    assert!(
        closed <= CROWD + 1 - UNAUTHENTICATED_MAX,
        "{closed} of {CROWD} peers were closed before their time: {closed_after:?}"
    );
    let newest = closed_after.last().unwrap();
    assert!(newest.is_none_or(|after| after >= UNAUTHENTICATED_TIMEOUT), "the newest: {newest:?}");
}

#[test]
fn silent_peers_do_not_keep_callers_out() {
    assert_admitted(&[]);
}

#[test]
fn peers_in_the_middle_of_a_hello_do_not_keep_callers_out() {
    let authority = Authority::new("another");
    let (_, sent) = hello(&certificates(&authority, "b"));
    assert_admitted(&sent[..sent.len() / 2]);
}

#[test]
fn peers_that_do_not_go_on_with_their_handshake_do_not_keep_callers_out() {
    let authority = Authority::new("another");
    let (_, sent) = hello(&certificates(&authority, "b"));
    assert_admitted(&sent);
}

#[test]
fn one_certificate_does_not_take_all_connections() {
    let authority = Authority::new("network");
    let [server, a, b] = ["127.0.0.1", "a", "b"].map(|name| certificates(&authority, name));
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let runtime = Runtime::new().unwrap();
    let entered = runtime.enter();
    let mut admitted = Incoming::open(socket, &server, LIMITS).unwrap();
    drop(entered);
    let mut next = || {
        let next = async { tokio::time::timeout(PATIENCE, admitted.next()).await };
        runtime.block_on(next).unwrap().unwrap().unwrap()
    };
    let mut first_two: Vec<(TcpStream, _)> =
        (0..2).map(|_| (authenticate(address, &a), next())).collect();
    let mut third = authenticate(address, &a);
    let closed = third.read_to_end(&mut Vec::new());
    assert!(closed.is_ok() || closed.unwrap_err().kind() == ErrorKind::ConnectionReset);
    let _of_another = (authenticate(address, &b), next());
    first_two.pop();
    let _again = (authenticate(address, &a), next());
}
