//! One-sided writes into memory that the writer has mapped.

use std::{
    thread,
    time::{Duration, Instant},
};

use transport::{Completion, EndpointId, OneSidedWrites, PeerMemory, Region, Token, Transport};
use transport_shm::ShmTransport;

use crate::common::{PATIENCE, links, settings, start};

struct Two {
    writer: ShmTransport,
    to: EndpointId,
    reader: ShmTransport,
    from: EndpointId,
}

/// Returns two ends that know each other.
fn two() -> Two {
    let (near, far) = links();
    let (mut writer, mut reader) = (start(settings()), start(settings()));
    let (to, from) = (writer.open(near).unwrap(), reader.open(far).unwrap());
    Two { writer, to, reader, from }
}

impl Two {
    fn write(&mut self, key: u32, offset: u64, bytes: &[u8], immediate: Option<u32>) {
        let region = Region::from_vec(bytes.to_vec());
        let from = region.read(0..bytes.len()).unwrap();
        self.writer.post_write(self.to, from, key, offset, immediate, Token(1)).unwrap();
    }
}

fn polled(transport: &mut ShmTransport) -> Vec<Completion> {
    let (mut completions, until) = (Vec::new(), Instant::now() + Duration::from_millis(5));
    // A wait may return early with nothing.
    while completions.is_empty() && Instant::now() < until {
        transport.poll(&mut completions, until.saturating_duration_since(Instant::now()));
    }
    completions
}

/// It is a store: neither end polls.
#[test]
fn a_write_is_there_when_it_was_posted() {
    let mut two = two();
    let memory = PeerMemory::zeroed(100);
    two.reader.expose(two.from, 7, memory.clone()).unwrap();
    two.write(7, 40, &[1, 2, 3, 4, 5, 6, 7, 8], None);
    assert_eq!(memory.load_word(40), Ok(Some(0x0807_0605_0403_0201)));
    assert_eq!(polled(&mut two.reader), []);
    let endpoint = two.to;
    assert_eq!(polled(&mut two.writer), [Completion::Sent { endpoint, token: Token(1) }]);
}

/// It was lent to one peer, and cannot be to another one at the same time.
#[test]
fn memory_that_a_peer_has_mapped_is_written_by_others_through_their_rings() {
    let (mut two, mut other) = (two(), two());
    let memory = PeerMemory::zeroed(64);
    two.reader.expose(two.from, 1, memory.clone()).unwrap();
    other.reader.expose(other.from, 1, memory.clone()).unwrap();
    other.write(1, 8, &[9; 8], Some(3));
    assert_eq!(memory.load_byte(8), Ok(0));
    let reported = polled(&mut other.reader);
    assert_eq!(reported, [Completion::Written { endpoint: other.from, immediate: 3 }]);
    two.write(1, 0, &[7; 8], None);
    assert_eq!((memory.load_byte(0), memory.load_byte(8)), (Ok(7), Ok(9)));
}

/// A peer that continues to write into the memory of an ended link writes into other pages.
#[test]
fn an_ended_link_gives_the_memory_to_its_owner_alone() {
    let mut two = two();
    let memory = PeerMemory::zeroed(10_000);
    two.reader.expose(two.from, 1, memory.clone()).unwrap();
    two.write(1, 0, &[1; 10_000], None);
    two.reader.close(two.from);
    let endpoint = two.from;
    assert_eq!(polled(&mut two.reader), [Completion::Closed { endpoint }]);
    two.write(1, 0, &[2; 10_000], None);
    let bytes = memory.try_into_vec().unwrap();
    assert!(bytes.iter().all(|&byte| byte == 1));
}

/// Takes turns with the other end by writes that are not reported, and sleeps whenever it sees nothing.
fn take_turns(mut end: ShmTransport, at: EndpointId, own: PeerMemory, turns: u64, is_first: bool) {
    let begin = Instant::now();
    for turn in 1..=turns {
        let write = |end: &mut ShmTransport| {
            let from = Region::from_vec(turn.to_le_bytes().to_vec());
            end.post_write(at, from.read(0..8).unwrap(), 1, 0, None, Token(turn)).unwrap();
        };
        if is_first {
            write(&mut end);
        }
        let mut completions = Vec::new();
        while own.load_word(0) != Ok(Some(turn)) {
            end.poll(&mut completions, PATIENCE);
            assert!(begin.elapsed() < PATIENCE, "a write in turn {turn} has not ended a wait");
        }
        if !is_first {
            write(&mut end);
        }
    }
}

#[test]
fn an_unreported_write_ends_a_wait() {
    const TURNS: u64 = 3_000;
    for direct in [true, false] {
        let settings = settings().spin(Duration::ZERO).direct_writes(direct);
        let settings = settings.silence_timeout(Duration::from_secs(3600));
        let (near, far) = links();
        let mut ends = [near, far].map(|link| {
            let mut end = start(settings.clone());
            let (at, memory) = (end.open(link).unwrap(), PeerMemory::zeroed(64));
            end.expose(at, 1, memory.clone()).unwrap();
            assert!(end.ends_waits(at));
            (end, at, memory)
        });
        // What is exposed has to be known before it is written.
        for _ in 0..5 {
            ends.iter_mut().for_each(|(end, ..)| {
                end.poll(&mut Vec::new(), Duration::from_millis(2));
            });
        }
        let [one, other] = ends;
        thread::scope(|scope| {
            scope.spawn(move || take_turns(one.0, one.1, one.2, TURNS, true));
            take_turns(other.0, other.1, other.2, TURNS, false);
        });
    }
}
