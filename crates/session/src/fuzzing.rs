//! Fuzz targets (`./dev fuzz`): input of unauthenticated peers, and messages of a rendezvous.

use std::{
    io::Write,
    net::{Shutdown, TcpListener, TcpStream},
    time::Duration,
};

use serde::{Serialize, de::DeserializeOwned};
use socket2::SockRef;

use crate::{Channel, Deadline, Secret, rendezvous};

/// Decodes a message whose first byte selects its kind; other kinds belong to other crates. Returns
/// whether it is valid.
pub fn messages(bytes: &[u8]) -> bool {
    let Some((&kind, body)) = bytes.split_first() else { return false };
    match kind {
        3 => is_message::<rendezvous::Join>(body),
        4 => is_message::<rendezvous::Answer>(body),
        _ => false,
    }
}

/// Returns whether this decodes; if so, checks that the value is unchanged by encoding it again.
fn is_message<M: Serialize + DeserializeOwned>(bytes: &[u8]) -> bool {
    let Ok(message) = postcard::from_bytes::<M>(bytes) else { return false };
    let encoded = postcard::to_stdvec(&message).expect("it was decoded");
    let again: M = postcard::from_bytes(&encoded).expect("it was encoded here");
    assert_eq!(postcard::to_stdvec(&again).expect("it was decoded"), encoded);
    true
}

/// Runs a listener to which an unauthenticated peer sends these bytes and nothing more: the
/// listener must refuse it long before the deadline. Returns whether the peer has sent a whole
/// greeting.
pub fn handshake(bytes: &[u8]) -> bool {
    const DEADLINE: Duration = Duration::from_secs(20);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let mut peer = TcpStream::connect(address).expect("the listener's queue is empty");
    let (accepted, _) = listener.accept().expect("the peer has connected");
    // Keeps the socket open until the peer has sent a reset: ports in TIME_WAIT would soon be
    // exhausted.
    let _open = accepted.try_clone();
    let _ = SockRef::from(&peer).set_linger(Some(Duration::ZERO));
    // Inputs longer than the system's buffers would block, since nothing reads them.
    let _ = peer.set_nonblocking(true);
    let _ = peer.write(bytes);
    let _ = peer.shutdown(Shutdown::Write);
    let deadline = Deadline::after(DEADLINE);
    let secret = Secret::from_bytes([7; 32]);
    let error = Channel::accept(accepted, &secret, deadline).expect_err("the peer has no secret");
    assert!(!deadline.left().is_zero(), "took too long: {error}");
    drop(peer);
    !error.to_string().contains("does not use rdmc") && bytes.len() >= 38
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::SocketAddr};

    use super::*;
    use crate::PROTOCOL_VERSION;

    fn seed(kind: u8, message: &impl Serialize) -> Vec<u8> {
        [vec![kind], postcard::to_stdvec(message).unwrap()].concat()
    }

    #[test]
    fn the_corpus_of_messages_passes() {
        let address = SocketAddr::from(([10, 0, 0, 1], 7));
        let v6 = SocketAddr::from(([1; 16], 7));
        let seeds = [
            ("join", seed(3, &(Some(2_u32), address))),
            ("members", seed(4, &(0_u8, 1_u32, vec![address, v6]))),
            ("turned-away", seed(4, &(1_u8, "taken"))),
        ];
        testing::replay("rdmc_messages", &seeds, super::messages);
    }

    /// Returns what a peer with another secret sends first: a greeting, and a TLS hello.
    fn another_secret() -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let deadline = Deadline::after(Duration::from_secs(20));
        let caller = std::thread::spawn(move || {
            Channel::connect(address, &Secret::from_bytes([8; 32]), deadline).unwrap_err()
        });
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[&b"RDMC"[..], &PROTOCOL_VERSION.to_le_bytes()].concat()).unwrap();
        let mut sent = vec![0; 6 + 5];
        stream.read_exact(&mut sent).unwrap();
        let hello_bytes = usize::from(u16::from_be_bytes([sent[9], sent[10]]));
        sent.resize(11 + hello_bytes, 0);
        stream.read_exact(&mut sent[11..]).unwrap();
        drop(stream);
        caller.join().unwrap();
        sent
    }

    #[test]
    fn the_corpus_of_handshakes_passes() {
        let greeting = |version: u16| [&b"RDMC"[..], &version.to_le_bytes(), &[5; 64]].concat();
        let seeds = [
            ("this-version", greeting(PROTOCOL_VERSION)),
            ("another-version", greeting(99)),
            ("another-secret", another_secret()),
        ];
        testing::replay("session_handshakes", &seeds, handshake);
    }
}
