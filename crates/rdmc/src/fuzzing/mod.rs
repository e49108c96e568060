//! What fuzzers feed (`./dev fuzz`): what neighbours and strangers may say.

mod neighbours;

use std::{
    io::Write,
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use schedule::{Algorithm, Schedule};
use serde::{Serialize, de::DeserializeOwned};
use socket2::SockRef;
use transport::CONTROL_BYTES_MAX;

use crate::{
    GroupSettings, Offload, Secret,
    bootstrap::{
        Channel, Deadline, Request, Response, Terms,
        in_switch::{FromReceiver, FromRoot},
        rendezvous,
    },
    engine::words::Word,
};
pub use neighbours::neighbours;

/// Decodes a message of which the first byte says the kind. True if it is one.
pub fn messages(bytes: &[u8]) -> bool {
    let Some((&kind, body)) = bytes.split_first() else { return false };
    match kind {
        // Transports carry no longer words.
        0 if body.len() > CONTROL_BYTES_MAX => false,
        0 => Word::decode(body).inspect(|word| assert_eq!(word.encode(), body)).is_some(),
        1 => decoded::<Request>(body).is_some(),
        2 => decoded::<Response>(body).is_some(),
        3 => decoded::<rendezvous::Join>(body).is_some(),
        4 => decoded::<rendezvous::Answer>(body).is_some(),
        5 => {
            let theirs = decoded::<Terms>(body);
            let ours = terms();
            theirs
                .inspect(|theirs| drop((ours.difference(theirs), theirs.difference(&ours))))
                .is_some()
        }
        6 => decoded::<FromReceiver>(body).is_some(),
        7 => decoded::<FromRoot>(body).is_some(),
        _ => false,
    }
}

/// What decodes has to mean the same once it is encoded again.
fn decoded<M: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<M> {
    let message: M = postcard::from_bytes(bytes).ok()?;
    let encoded = postcard::to_stdvec(&message).expect("it was decoded");
    let again: M = postcard::from_bytes(&encoded).expect("it was encoded here");
    assert_eq!(postcard::to_stdvec(&again).expect("it was decoded"), encoded);
    Some(message)
}

fn terms() -> Terms {
    let schedule = Schedule::new(Algorithm::BinomialPipeline, 3, 0).expect("a small group");
    let addresses = [7, 8, 9].map(|port| SocketAddr::from(([10, 0, 0, 1], port)));
    Terms::new(
        &GroupSettings::new(1, 0, schedule),
        &addresses,
        1,
        "tcp",
        Offload::NotAsked,
        crate::Protection::default(),
    )
}

/// A listener that a stranger calls, who says this and then no more: it must refuse, long before
/// the deadline. True if the stranger got as far as a whole greeting.
pub fn strangers(bytes: &[u8]) -> bool {
    const DEADLINE: Duration = Duration::from_secs(20);
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("it is bound");
    let mut stranger = TcpStream::connect(address).expect("the listener's queue is empty");
    let (accepted, _) = listener.accept().expect("somebody has connected");
    // Kept open until the stranger has gone by a reset: ports that wait would soon be used up.
    let _open = accepted.try_clone();
    let _ = SockRef::from(&stranger).set_linger(Some(Duration::ZERO));
    // Longer inputs than the system buffers would wait for a reader.
    let _ = stranger.set_nonblocking(true);
    let _ = stranger.write(bytes);
    let _ = stranger.shutdown(Shutdown::Write);
    let deadline = Deadline::after(DEADLINE);
    let secret = Secret::from_bytes([7; 32]);
    let error = Channel::accept(accepted, &secret, deadline).expect_err("nobody knows the secret");
    assert!(!deadline.left().is_zero(), "took too long: {error}");
    drop(stranger);
    !error.to_string().contains("does not speak rdmc") && bytes.len() >= 38
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;
    use crate::{FailureKind, bootstrap::PROTOCOL_VERSION};

    fn seed(kind: u8, message: &impl Serialize) -> Vec<u8> {
        [vec![kind], postcard::to_stdvec(message).unwrap()].concat()
    }

    #[test]
    fn the_corpus_of_messages_passes() {
        let member = Some(3);
        let (kind, detail) = (FailureKind::Stalled, "why".to_owned());
        let words = [
            ("announce", Word::Announce { number: 3, bytes: 1 << 40 }),
            ("grant", Word::Grant { count: 2 }),
            ("freed", Word::Freed { count: 7 }),
            ("failed", Word::Failed { member, reporter: 7, kind, detail }),
            ("closing", Word::Closing { messages: 3 }),
            ("delivered", Word::Delivered),
            ("confirmed", Word::Confirmed),
            ("moving", Word::Moving { idle_ms: 250 }),
        ];
        let words = words.map(|(name, word)| (name, [vec![0], word.encode()].concat()));
        let address = SocketAddr::from(([10, 0, 0, 1], 7));
        let v6 = SocketAddr::from(([1; 16], 7));
        let messages = [
            // The fields in their order: group, from, to, stream, terms, offer, time.
            ("request", seed(1, &(5_u64, 2_u32, 1_u32, 0_u8, terms(), vec![9_u8; 8], 1_000_u64))),
            ("accepted", seed(2, &(0_u8, vec![9_u8; 8]))),
            ("refused", seed(2, &(1_u8, "no"))),
            ("join", seed(3, &(Some(2_u32), address))),
            ("members", seed(4, &(0_u8, 1_u32, vec![address, v6]))),
            ("turned-away", seed(4, &(1_u8, "taken"))),
            ("terms", seed(5, &terms())),
            (
                "joins-in-switch",
                seed(6, &(0_u8, [2_u8, 0, 0, 0, 0, 7], 1024_u32, 1_u32 << 20, 0x4_0001_u32)),
            ),
            ("cannot-in-switch", seed(6, &(1_u8, "CAP_NET_RAW"))),
            ("stands-in-switch", seed(7, &(0_u8, 0x4_0002_u32, 0xff_ff00_u32, 1024_u32))),
            ("refused-in-switch", seed(7, &(1_u8, "a switch is full"))),
        ];
        let seeds: Vec<_> = words.into_iter().chain(messages).collect();
        testing::replay("rdmc_messages", &seeds, super::messages);
    }

    /// What somebody says first who knows another secret: a greeting, and a hello of TLS.
    fn another_secret() -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let deadline = Deadline::after(Duration::from_secs(20));
        let caller = std::thread::spawn(move || {
            Channel::connect(address, &Secret::from_bytes([8; 32]), deadline).unwrap_err()
        });
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&[&b"RDMC"[..], &PROTOCOL_VERSION.to_le_bytes()].concat()).unwrap();
        let mut said = vec![0; 6 + 5];
        stream.read_exact(&mut said).unwrap();
        let hello_bytes = usize::from(u16::from_be_bytes([said[9], said[10]]));
        said.resize(11 + hello_bytes, 0);
        stream.read_exact(&mut said[11..]).unwrap();
        drop(stream);
        caller.join().unwrap();
        said
    }

    #[test]
    fn the_corpus_of_strangers_passes() {
        let greeting = |version: u16| [&b"RDMC"[..], &version.to_le_bytes(), &[5; 64]].concat();
        let seeds = [
            ("this-version", greeting(PROTOCOL_VERSION)),
            ("another-version", greeting(99)),
            ("another-secret", another_secret()),
        ];
        testing::replay("rdmc_strangers", &seeds, strangers);
    }
}
