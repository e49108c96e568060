//! Peers that write anything wherever they can: their segment, exposed memory, the socket.

use std::{
    os::fd::{AsFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create},
    net::{SendFlags, send},
};
use transport::{Cause, FileAccess, PeerMemory};

use crate::{
    record::Record,
    ring::{RingWriter, segment_bytes},
    socket::{self, Message, Received},
    victim::Victim,
};

const RING: usize = 4096;
const SEEDS: u64 = 400;

/// A generator of numbers, of which many are small or at a limit.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        // The high bits are random enough.
        (self.0 >> 33) ^ (self.0 << 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    fn number(&mut self) -> u64 {
        match self.below(6) {
            0 => self.next(),
            1 => u64::MAX - self.below(100),
            2 => (1 << self.below(64)) - self.below(2),
            3 => self.below(RING as u64 * 2) & !7,
            _ => self.below(200),
        }
    }
}

/// What a hostile peer has of its victim, and its own segment.
struct Hostile {
    socket: OwnedFd,
    segment: PeerMemory,
    ring: RingWriter<PeerMemory>,
    mapped: Vec<PeerMemory>,
}

impl Hostile {
    fn start(socket: OwnedFd) -> Self {
        let segment = PeerMemory::zeroed(segment_bytes(RING));
        let file = segment.share(FileAccess::Read).unwrap();
        let hello = Message::Hello { ring_bytes: RING as u64 };
        socket::send(&socket, hello, Some(file.as_fd())).unwrap();
        let ring = RingWriter::new(segment.clone(), RING);
        let mut hostile = Self { socket, segment, ring, mapped: Vec::new() };
        while let Received::Message(message, file) = socket::receive(&hostile.socket) {
            if let (Message::Exposed { bytes, .. }, Ok(file)) = (message, file) {
                let mapped = PeerMemory::of_peer(&file, bytes as usize, FileAccess::Write);
                hostile.mapped.push(mapped.unwrap());
            }
        }
        hostile
    }

    /// Writes something somewhere.
    fn act(&mut self, random: &mut Random) {
        match random.below(8) {
            // Positions, heartbeats and sleeps.
            0 => {
                let at = random.below(4) as usize * 128;
                self.segment.publish(at, &random.number().to_le_bytes()).unwrap();
            }
            1 => {
                let at = random.below(self.segment.len() as u64 - 8) as usize;
                self.segment.copy_in(at, &random.next().to_le_bytes()).unwrap();
            }
            2 => {
                for mapped in &self.mapped {
                    let at = random.below(mapped.len() as u64 - 8) as usize;
                    mapped.copy_in(at, &random.next().to_le_bytes()).unwrap();
                }
            }
            _ => {
                let record = record(random);
                let payload = vec![3; record.payload_bytes().min(RING / 8)];
                self.ring.push(&record, &payload);
                self.ring.publish();
            }
        }
    }
}

/// Returns a record that can be encoded, with fields of all kinds.
fn record(random: &mut Random) -> Record {
    let length = random.number().max(1) as usize;
    let immediate = random.next() as u32;
    match random.below(13) {
        0 => Record::Word { bytes: length },
        1 | 2 => Record::Block { immediate, bytes: random.number() },
        3 => Record::BlockChunk { bytes: length },
        4 | 5 => {
            let (key, offset) = (random.below(3) as u32, random.number());
            let immediate = (random.below(2) == 0).then_some(immediate);
            Record::Write { key, offset, bytes: random.number(), immediate }
        }
        6 => Record::WriteChunk { bytes: length },
        7 => Record::Written { immediate },
        8 => Record::Challenge { proof: [random.next() as u8; 16] },
        9 => Record::Proof { address: random.next() },
        10 => Record::Readable,
        11 => Record::Reference { immediate, address: random.next(), bytes: length },
        12 => Record::Copied,
        _ => Record::Farewell,
    }
}

#[test]
fn a_peer_that_scribbles_over_all_that_it_can_write_breaks_its_own_link_alone() {
    let mut broken = 0;
    for seed in 0..SEEDS {
        let (mut victim, socket) = Victim::start();
        let mut random = Random(seed);
        let mut hostile = Hostile::start(socket);
        victim.transport_looks();
        for _ in 0..60 {
            victim.poll();
            hostile.act(&mut random);
        }
        broken += u64::from(matches!(victim.end, Some(Cause::Protocol(_))));
        victim.check();
    }
    // Most seeds write something that cannot be.
    assert!(broken > SEEDS / 2, "{broken} links broke");
}

/// Numbers and bytes change between any two instructions of the victim.
#[test]
fn a_peer_that_scribbles_at_the_same_time_breaks_its_own_link_alone() {
    let until = Instant::now() + Duration::from_secs(2);
    let mut seed = 0;
    while Instant::now() < until {
        seed += 1;
        let (mut victim, socket) = Victim::start();
        let is_over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random(seed);
                let mut hostile = Hostile::start(socket);
                while !is_over.load(Ordering::Relaxed) {
                    hostile.act(&mut random);
                }
            });
            for _ in 0..2_000 {
                victim.poll();
            }
            is_over.store(true, Ordering::Relaxed);
        });
        victim.end();
        victim.check();
    }
}

fn sealed(bytes: u64, seals: SealFlags) -> OwnedFd {
    let file = memfd_create("x", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

/// Those that could be truncated, whose accesses would then kill the victim, and those of other lengths.
#[test]
fn files_that_cannot_be_used_break_the_link() {
    let both = SealFlags::SHRINK | SealFlags::GROW;
    let bytes = segment_bytes(RING) as u64;
    for (length, seals, said, said_ring) in [
        (bytes, SealFlags::empty(), true, RING),
        (bytes, SealFlags::GROW, true, RING),
        (bytes - 1, both, true, RING),
        (bytes, both, true, RING * 2),
        (bytes, both, true, RING + 8),
        (bytes, both, true, 0),
        (bytes, both, false, RING),
    ] {
        let (mut victim, socket) = Victim::start();
        let file = sealed(length, seals);
        let hello = Message::Hello { ring_bytes: said_ring as u64 };
        socket::send(&socket, hello, said.then_some(file.as_fd())).unwrap();
        assert!(matches!(victim.end(), Cause::Protocol(_)), "{length} {seals:?} {said_ring}");
        victim.check();
    }
    for (length, seals, said_bytes) in [
        (100, SealFlags::empty(), 100),
        (100, both, 101),
        (100, both, 0),
        (100, both | SealFlags::WRITE, 100),
    ] {
        let (mut victim, socket) = Victim::start();
        let hostile = Hostile::start(socket);
        let file = sealed(length, seals);
        let exposed = Message::Exposed { key: 1, bytes: said_bytes };
        socket::send(&hostile.socket, exposed, Some(file.as_fd())).unwrap();
        assert!(matches!(victim.end(), Cause::Protocol(_)), "{length} {seals:?} {said_bytes}");
        victim.check();
    }
}

#[test]
fn messages_that_nobody_sends_break_the_link() {
    for message in [&[][..], &[1], &[0; 16], &[9; 16], &[3; 17], &[1; 4000]] {
        let (mut victim, socket) = Victim::start();
        send(&socket, message, SendFlags::NOSIGNAL).unwrap();
        let cause = victim.end();
        // An empty one is as an end.
        assert!(matches!(cause, Cause::Protocol(_)) || message.is_empty(), "{message:?}: {cause}");
        victim.check();
    }
}

/// Addresses and descriptors of the victim do not run out.
#[test]
fn memory_without_end_is_not_mapped() {
    let (mut victim, socket) = Victim::start();
    let hostile = Hostile::start(socket);
    let both = SealFlags::SHRINK | SealFlags::GROW;
    let file = sealed(1 << 38, both);
    for key in 0..5_000 {
        let exposed = Message::Exposed { key, bytes: 1 << 38 };
        while socket::send(&hostile.socket, exposed, Some(file.as_fd())).is_err() {
            victim.transport_looks();
            victim.poll();
        }
    }
    victim.transport_looks();
    victim.poll();
    assert_eq!(victim.end, None);
    victim.check();
}

/// Also those that a victim could have asked for, and has not.
#[test]
fn what_nobody_has_asked_for_of_copies_breaks_the_link() {
    let challenge = Record::Challenge { proof: [1; 16] };
    let reference = Record::Reference { immediate: 0, address: 64, bytes: 100 };
    for (records, why) in [
        (&[challenge, challenge][..], "a second challenge"),
        (&[Record::Readable], "memory that was not offered"),
        (&[Record::Copied], "without a reference"),
        (&[challenge, Record::Readable, Record::Copied], "without a reference"),
        (&[reference], "cannot be read here"),
        (&[Record::Proof { address: 0 }, reference], "cannot be read here"),
        (&[Record::Proof { address: 0 }, Record::Proof { address: 0 }], "unsolicited"),
    ] {
        let (mut victim, socket) = Victim::start();
        let mut hostile = Hostile::start(socket);
        for record in records {
            assert!(hostile.ring.push(record, &[]));
        }
        hostile.ring.publish();
        let Cause::Protocol(said) = victim.end() else { panic!("{records:?}: {:?}", victim.end) };
        // Root asks for no proof at all.
        let is_other = said == "an unsolicited proof";
        assert!(said.contains(why) || is_other, "{records:?}: {said}");
        victim.check();
    }
}
