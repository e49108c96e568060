//! Fuzz targets (`./dev fuzz`): everything that a peer may write to its ring, or send over the socket.

use std::{os::fd::AsFd, thread, time::Duration};

use rustix::net::{SendFlags, send};
use transport::{FileAccess, PeerMemory};

use crate::{
    ring::{RING_AT, Shared, WRITTEN_AT, segment_bytes},
    socket::{self, Message},
    victim::Victim,
};

const RING: usize = 4096;
/// Bits of the first byte: the bytes are messages of the socket, of the length of which each begins with one byte.
const SOCKET: u8 = 1;

/// Writes all bytes but the first, which says where to, and hangs up. Returns whether something was understood.
///
/// Checks that the link ends once and completes each post once, that nothing else is written, and that no lease is left.
pub fn records(bytes: &[u8]) -> bool {
    let Some((&kind, bytes)) = bytes.split_first() else { return false };
    let (mut victim, socket) = Victim::start();
    let segment = PeerMemory::zeroed(segment_bytes(RING));
    let file = segment.share(FileAccess::Read).expect("it is new");
    let hello = Message::Hello { ring_bytes: RING as u64 };
    socket::send(&socket, hello, Some(file.as_fd())).expect("the first message has space");
    victim.transport_looks();
    victim.poll();
    if kind & SOCKET != 0 {
        let mut rest = bytes;
        while let Some((&length, others)) = rest.split_first() {
            let (message, others) = others.split_at(others.len().min(length.into()));
            // It may have hung up.
            let _ = send(&socket, message, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
            rest = others;
        }
    } else {
        // Whole words, which take half of the ring.
        for (chunk, written) in bytes.chunks(RING / 2).zip((0..).step_by(RING / 2)) {
            segment.copy_in(RING_AT + written % RING, chunk).expect("it is within the ring");
            let end = (written + chunk.len()).next_multiple_of(8);
            Shared::publish(&segment, WRITTEN_AT, end as u64);
            victim.poll();
        }
    }
    drop(socket);
    thread::sleep(Duration::from_micros(100));
    victim.end();
    let understood = victim.understood > 0;
    victim.check();
    understood
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Record;

    /// As [`crate::ring::RingWriter`] writes it.
    fn framed(record: Record, payload: &[u8]) -> Vec<u8> {
        let mut framed = [&record.encode()[..], payload].concat();
        framed.resize(framed.len().next_multiple_of(8), 0);
        framed
    }

    #[test]
    fn the_corpus_passes() {
        let word = framed(Record::Word { bytes: 3 }, b"abc");
        let block = [
            framed(Record::Block { immediate: 5, bytes: 20 }, &[]),
            framed(Record::BlockChunk { bytes: 12 }, &[1; 12]),
            word.clone(),
            framed(Record::BlockChunk { bytes: 8 }, &[2; 8]),
        ]
        .concat();
        let write = |key| {
            let place = Record::Write { key, offset: 3, bytes: 9, immediate: Some(4) };
            [framed(place, &[]), framed(Record::WriteChunk { bytes: 9 }, &[7; 9])].concat()
        };
        let written = framed(Record::Written { immediate: 2 }, &[]);
        let challenge = framed(Record::Challenge { proof: [9; 16] }, &[]);
        let proof = framed(Record::Proof { address: 64 }, &[]);
        let reference = Record::Reference { immediate: 1, address: 64, bytes: 100 };
        let answers = [framed(Record::Readable, &[]), framed(Record::Copied, &[])].concat();
        let farewell = framed(Record::Farewell, &[]);
        let ring = |parts: &[&[u8]]| [&[0][..], &parts.concat()].concat();
        let seeds = [
            ("words", ring(&[&word, &word, &farewell])),
            ("block", ring(&[&block])),
            ("writes", ring(&[&write(0), &write(1), &written])),
            ("challenge", ring(&[&word, &challenge, &answers])),
            ("reference", ring(&[&word, &proof, &framed(reference, &[])])),
        ];
        testing::replay("shm_records", &seeds, records);
    }
}
