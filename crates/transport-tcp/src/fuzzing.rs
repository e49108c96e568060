//! Fuzz targets (`./dev fuzz`): everything that a peer may send on a connection.

use std::{
    io::{self, Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::AsFd,
    time::{Duration, Instant},
};

use socket2::SockRef;
use transport::{
    Completion, EndpointId, OneSidedWrites, PROOF_BYTES, PeerMemory, Region, Token, Transport,
};

use crate::{
    SharedConnections, StreamKeys, TcpLink, TcpSettings, TcpTransport,
    peer::identify_to_peer,
    record::{Sealer, sealed_bytes_max},
    wire::{HEADER_BYTES, Header},
};

/// The receives that are posted, in bytes.
const POSTED_BYTES: [usize; 3] = [100, 0, 70_000];
const EXPOSED_BYTES: usize = 4096;
/// The channel of the endpoint on a shared connection.
const CHANNEL: u32 = 3;
/// The key of the exposed memory.
const KEY: u32 = 1;
const PATIENCE: Duration = Duration::from_secs(20);

/// Bits of the first byte: what is posted, and how the stream is protected.
const EXPOSED: u8 = 1;
const POSTED: u8 = 2;
const PROTECTED: u8 = 4;
/// The peer is this process, whose memory may be read where the system lets it: what follows may refer to it. Not
/// on protected or shared connections.
const NEIGHBOUR: u8 = 32;
/// The endpoint is a channel of a shared connection.
const SHARED: u8 = 64;
/// The input is not put into records: it comes from an attacker on the path.
const RAW: u8 = 16;

/// Sends all bytes but the first, which selects the state of the receiver, and closes the
/// connection. Returns whether anything has completed.
///
/// Checks that the endpoint ends once and completes each post once, and that no lease is left.
pub fn frames(bytes: &[u8]) -> bool {
    let Some((&kind, bytes)) = bytes.split_first() else { return false };
    let (ours, mut peer) = connect().expect("the loopback");
    // Ports in TIME_WAIT would soon be exhausted.
    let _ = SockRef::from(&peer).set_linger(Some(Duration::ZERO));
    let mut transport = TcpTransport::new(TcpSettings::default()).expect("an event queue");
    let link = if kind & PROTECTED == 0 {
        ours.into()
    } else {
        let keys = StreamKeys::new([1; 32], [2; 32]);
        TcpLink::protected(vec![(ours, keys)]).expect("one stream")
    };
    let endpoint = if kind & SHARED != 0 {
        let connection = transport.share(link).expect("it is connected");
        // One that was reserved, and one that has ended, receive, too.
        for (channel, is_closed) in [(1, false), (2, true)] {
            let other = transport.reserve(connection, channel).expect("it is new");
            if is_closed {
                transport.release(other);
            }
        }
        let reserved = transport.reserve(connection, CHANNEL).expect("it is new");
        transport.open(reserved).expect("it is reserved")
    } else {
        transport.open(link).expect("it is connected")
    };
    let posted: Vec<Region> = if kind & POSTED == 0 { &[][..] } else { &POSTED_BYTES }
        .iter()
        .map(|&bytes| Region::zeroed(bytes))
        .collect();
    for (region, token) in posted.iter().zip(0..) {
        let lease = region.write(0..region.len()).expect("no other lease exists");
        transport.post_receive(endpoint, lease, Token(token)).expect("the endpoint is open");
    }
    if kind & EXPOSED != 0 {
        let memory = PeerMemory::zeroed(EXPOSED_BYTES);
        transport.expose(endpoint, KEY, memory).expect("the endpoint is open");
    }
    let mut proof = Box::new([0; PROOF_BYTES]);
    if kind & (NEIGHBOUR | PROTECTED | SHARED) == NEIGHBOUR {
        become_neighbour(&mut transport, &mut peer, &mut proof).expect("an answer");
    }
    let sealed = (kind & PROTECTED != 0 && kind & RAW == 0).then(|| records(bytes));
    let completions = listen(&mut transport, &mut peer, sealed.as_deref().unwrap_or(bytes));
    check(endpoint, &completions, posted)
}

/// Lets the transport read this process as the peer, if the system lets it.
fn become_neighbour(
    transport: &mut TcpTransport,
    peer: &mut TcpStream,
    proof: &mut [u8; PROOF_BYTES],
) -> io::Result<()> {
    peer.write_all(&Header::Introduction { pid: std::process::id() }.encode())?;
    let deadline = Instant::now() + PATIENCE;
    let mut heard = Vec::new();
    // Its own introduction comes first.
    while heard.len() < 2 * HEADER_BYTES + PROOF_BYTES {
        transport.poll(&mut Vec::new(), Duration::ZERO);
        if transport.counters().refused_introductions > 0 {
            return Ok(());
        }
        assert!(Instant::now() < deadline, "no challenge");
        let mut some = [0; 2 * HEADER_BYTES + PROOF_BYTES];
        match peer.read(&mut some) {
            Ok(bytes) => heard.extend_from_slice(&some[..bytes]),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    proof.copy_from_slice(&heard[2 * HEADER_BYTES..]);
    identify_to_peer(peer.as_fd())?;
    let address = proof.as_ptr().addr() as u64;
    peer.write_all(&[&Header::Proof.encode()[..], &address.to_le_bytes()].concat())
}

/// Puts frames into records, as a peer with the keys does.
fn records(bytes: &[u8]) -> Vec<u8> {
    let mut sealer = Sealer::new([2; 32].into());
    let sealed = bytes.chunks(1024).map(|frames| {
        let mut record = vec![0; sealed_bytes_max(frames.len())];
        let bytes = sealer.seal(frames, &mut record).expect("its length is valid");
        record.truncate(bytes);
        record
    });
    sealed.collect::<Vec<_>>().concat()
}

fn connect() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let peer = TcpStream::connect(listener.local_addr()?)?;
    peer.set_nonblocking(true)?;
    Ok((listener.accept()?.0, peer))
}

/// Feeds the bytes to the transport, and polls it until the endpoint has ended.
fn listen(transport: &mut TcpTransport, peer: &mut TcpStream, bytes: &[u8]) -> Vec<Completion> {
    let deadline = Instant::now() + PATIENCE;
    let (mut rest, mut completions) = (bytes, Vec::new());
    while !completions.iter().any(is_end) {
        assert!(Instant::now() < deadline, "no end, after {completions:?}");
        match peer.write(rest) {
            Ok(_) if rest.is_empty() => drop(peer.shutdown(std::net::Shutdown::Write)),
            Ok(written) => rest = &rest[written..],
            // The socket is full, or closed already.
            Err(_) => {}
        }
        transport.poll(&mut completions, Duration::from_millis(1));
    }
    completions
}

fn is_end(completion: &Completion) -> bool {
    matches!(completion, Completion::Broken { .. } | Completion::Closed { .. })
}

fn check(own: EndpointId, completions: &[Completion], posted: Vec<Region>) -> bool {
    let (mut back, mut understood) = (vec![0; posted.len()], false);
    for (index, completion) in completions.iter().enumerate() {
        assert_eq!(is_end(completion), index + 1 == completions.len(), "{completions:?}");
        let (endpoint, token) = match completion {
            Completion::Received { endpoint, token, bytes, .. } => {
                assert!(*bytes <= POSTED_BYTES[token.0 as usize] as u64);
                understood = true;
                (endpoint, Some(token))
            }
            Completion::Cancelled { endpoint, token } => (endpoint, Some(token)),
            Completion::Control { endpoint, word } => {
                assert!((1..=transport::CONTROL_BYTES_MAX).contains(&word.len()));
                understood = true;
                (endpoint, None)
            }
            Completion::Written { endpoint, .. } => {
                understood = true;
                (endpoint, None)
            }
            Completion::Broken { endpoint, .. } | Completion::Closed { endpoint } => {
                (endpoint, None)
            }
            other => panic!("nothing was posted for {other:?}"),
        };
        assert_eq!(*endpoint, own);
        token.iter().for_each(|token| back[token.0 as usize] += 1);
    }
    assert!(back.iter().all(|&times| times == 1), "{completions:?}");
    assert!(posted.into_iter().all(|region| region.try_into_vec().is_ok()), "a lease is out");
    understood
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Place;

    fn data(bytes: &[u8], last: bool, block: u32) -> Vec<u8> {
        let header = Header::Data { bytes: bytes.len(), last, immediate: 7, block };
        [&header.encode()[..], bytes].concat()
    }

    #[test]
    fn the_corpus_passes() {
        if let Err(why) = crate::check_direct_copies() {
            // Not by a macro, whose text the test program keeps for itself.
            let _ =
                writeln!(io::stderr(), "SKIPPED: peers whose memory is read (tcp_frames): {why}");
        }
        let word = [&Header::Control { bytes: 3 }.encode()[..], b"abc"].concat();
        let blocks = [data(&[1; 60], false, 0), data(&[2; 40], true, 0), data(&[], true, 1)];
        let place = Place { offset: 8, rest_bytes: 4 }.encode();
        let header = Header::Write { bytes: 4, immediate: Some(5), key: KEY }.encode();
        let write = [&header[..], &place, b"abcd"].concat();
        let (heartbeat, bye) = (Header::Heartbeat.encode(), Header::Bye.encode());
        let ended = [&[0][..], &heartbeat, &word, &bye].concat();
        let protected = POSTED | PROTECTED;
        let mut seeds = vec![
            ("word", [&[0][..], &word].concat()),
            ("blocks", [&[POSTED][..], &blocks.concat(), &word].concat()),
            ("write", [&[EXPOSED][..], &write].concat()),
            ("bye", ended),
            ("record", [&[protected][..], &blocks.concat(), &word].concat()),
        ];
        // Nothing is mapped at the lowest addresses.
        let reference = |bytes, block| {
            let header = Header::Reference { bytes, immediate: 1, block }.encode();
            [&header[..], &8_u64.to_le_bytes()].concat()
        };
        let wrong = [reference(100, 0), reference(70_001, 1)].concat();
        seeds.push(("reference", [&[POSTED | NEIGHBOUR][..], &blocks[0], &word, &wrong].concat()));
        let early = [&[protected][..], &word, &reference(90, 0)].concat();
        seeds.push(("sealed-reference", early));
        let introduction = Header::Introduction { pid: 1 }.encode();
        let challenge = [&Header::Challenge.encode()[..], &[5; PROOF_BYTES]].concat();
        let proof = [&Header::Proof.encode()[..], &8_u64.to_le_bytes()].concat();
        let asked = [&[POSTED][..], &word, &introduction, &challenge, &word].concat();
        seeds.push(("introduction", asked));
        seeds.push(("proof", [&[POSTED][..], &word, &introduction, &proof].concat()));
        let answers = [Header::Readable.encode(), Header::Copied { block: 0 }.encode()].concat();
        seeds.push(("answers", [&[0][..], &word, &answers].concat()));
        let channel = |number| Header::Channel { number }.encode().to_vec();
        let message = [&Header::Message { bytes: 2, last: true }.encode()[..], b"hi"].concat();
        let of_three = [channel(1), word.clone(), channel(3), blocks.concat(), message, channel(2)];
        let of_three = [of_three.concat(), bye.to_vec(), channel(3), word.clone()].concat();
        seeds.push(("channels", [&[protected | SHARED][..], &of_three].concat()));
        seeds.push(("unprotected-channels", [&[POSTED | SHARED][..], &of_three].concat()));
        let unwanted = [channel(3), data(&[1; 9], true, 7), word.clone(), bye.to_vec()].concat();
        seeds.push(("channel-refused", [&[protected | SHARED | EXPOSED][..], &unwanted].concat()));
        let refused = [&[POSTED | SHARED | EXPOSED][..], &unwanted].concat();
        seeds.push(("unprotected-channel-refused", refused));
        // One block comes in segments between those of others.
        let between = [&data(&[1; 60], false, 0)[..], &channel(1), &word, &channel(2), &word];
        let between = [&between.concat()[..], &channel(3), &data(&[2; 40], true, 0)].concat();
        let between = [&[POSTED | SHARED][..], &channel(3), &between].concat();
        seeds.push(("between-segments", between));
        let on_the_way = records(&blocks.concat());
        seeds.push(("on-the-way", [&[protected | RAW][..], &on_the_way].concat()));
        testing::replay("tcp_frames", &seeds, frames);
    }
}
