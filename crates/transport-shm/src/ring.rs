//! Segments and the ring in them.
//!
//! A segment is written by its owner and read by the peer. Positions count bytes from the beginning and never wrap.
//! The writer of a ring stores a record and then, by a release store, the position behind it; the reader loads the
//! position, copies, and then stores in its own segment how far it has read, by which the writer knows what is free. So
//! each number has one writer, and nobody waits for anybody: a process that dies between any two instructions leaves a
//! ring that ends with its last whole record.

use std::{
    ops::RangeInclusive,
    sync::atomic::{Ordering, fence},
};

use transport::PeerMemory;

use crate::record::{RECORD_BYTES, Record};

/// How many bytes the owner has written to its ring.
pub(crate) const WRITTEN_AT: usize = 0;
/// How many bytes of the peer's ring the owner has consumed.
pub(crate) const CONSUMED_AT: usize = 128;
/// Whether the owner sleeps: see [`crate::sleep`].
pub(crate) const SLEEP_AT: usize = 256;
/// A number that changes while the owner lives and polls.
pub(crate) const BEAT_AT: usize = 384;
/// Two cache lines apart: processors fetch them in pairs.
pub(crate) const RING_AT: usize = 512;

/// The lengths that a ring may have; powers of two.
pub(crate) const RING_BYTES: RangeInclusive<usize> = 4096..=64 << 20;

/// The default of [`crate::ShmSettings::ring_bytes`].
pub const USUAL_RING_BYTES: usize = 1 << 20;

/// Errors: a ring of this length is not allowed.
pub(crate) fn check_ring(bytes: usize) -> Result<(), &'static str> {
    match bytes.is_power_of_two() && RING_BYTES.contains(&bytes) {
        true => Ok(()),
        false => Err("ring_bytes is not a power of two from 4 KiB to 64 MiB"),
    }
}

/// Memory that two processes have mapped, or that two threads of a test share. Positions are within it, and those of words
/// are multiples of eight.
pub(crate) trait Shared {
    /// Loads a word. What was stored before the word that is found is visible to later loads.
    fn load(&self, at: usize) -> u64;
    /// Stores a word that becomes visible after all that was stored before.
    fn publish(&self, at: usize, word: u64);
    fn copy_in(&self, at: usize, bytes: &[u8]);
    fn copy_out(&self, at: usize, into: &mut [u8]);
    /// Orders stores of this thread before its later loads, among all threads and processes that do so.
    fn fence() {
        fence(Ordering::SeqCst);
    }
}

impl Shared for PeerMemory {
    fn load(&self, at: usize) -> u64 {
        let word = self.load_word(at);
        debug_assert!(matches!(word, Ok(Some(_))), "{word:?} at {at}");
        word.ok().flatten().unwrap_or_default()
    }

    fn publish(&self, at: usize, word: u64) {
        let stored = PeerMemory::publish(self, at, &word.to_le_bytes());
        debug_assert!(stored.is_ok(), "{stored:?} at {at}");
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        let stored = PeerMemory::copy_in(self, at, bytes);
        debug_assert!(stored.is_ok(), "{stored:?} at {at}");
    }

    fn copy_out(&self, at: usize, into: &mut [u8]) {
        let copied = PeerMemory::copy_out(self, at, into);
        debug_assert!(copied.is_ok(), "{copied:?} at {at}");
    }
}

/// Returns the length of a segment with a ring of this length.
pub(crate) const fn segment_bytes(ring_bytes: usize) -> usize {
    RING_AT + ring_bytes
}

/// Returns the length that a record takes in a ring.
pub(crate) fn framed_bytes(payload: usize) -> usize {
    RECORD_BYTES + payload.next_multiple_of(8)
}

/// Returns the longest payload of a record: several are under way at once, so that both ends are busy, and in caches.
pub(crate) fn payload_bytes_max(ring_bytes: usize) -> usize {
    (ring_bytes / 8).min(64 << 10) - RECORD_BYTES
}

/// This end's ring, in this end's segment.
pub(crate) struct RingWriter<S> {
    segment: S,
    ring_bytes: usize,
    written: u64,
    published: u64,
    /// How far the peer has read, as last seen.
    consumed: u64,
}

impl<S: Shared> RingWriter<S> {
    /// The segment is zeroed and has [`segment_bytes`].
    pub(crate) fn new(segment: S, ring_bytes: usize) -> Self {
        Self { segment, ring_bytes, written: 0, published: 0, consumed: 0 }
    }

    pub(crate) fn ring_bytes(&self) -> usize {
        self.ring_bytes
    }

    /// Looks how far the peer has read, in its segment. Errors: it says that it has read what is not there.
    pub(crate) fn look(&mut self, peer: &S) -> Result<(), &'static str> {
        let consumed = peer.load(CONSUMED_AT);
        if !(self.consumed..=self.published).contains(&consumed) {
            return Err("it has read more of a ring than there is, or has unread some");
        }
        self.consumed = consumed;
        Ok(())
    }

    /// Returns whether the peer has read more than [`RingWriter::look`] has seen.
    pub(crate) fn has_news(&self, peer: &S) -> bool {
        peer.load(CONSUMED_AT) != self.consumed
    }

    /// Writes a record with its payload, to be published. Returns false if there is no space.
    pub(crate) fn push(&mut self, record: &Record, payload: &[u8]) -> bool {
        let used = (self.written - self.consumed) as usize;
        if self.ring_bytes - used < framed_bytes(payload.len()) {
            return false;
        }
        self.put(0, &record.encode());
        self.put(RECORD_BYTES, payload);
        self.written += framed_bytes(payload.len()) as u64;
        true
    }

    fn put(&self, behind: usize, bytes: &[u8]) {
        let start = (self.written as usize).wrapping_add(behind) & (self.ring_bytes - 1);
        let (head, tail) = bytes.split_at(bytes.len().min(self.ring_bytes - start));
        self.segment.copy_in(RING_AT + start, head);
        self.segment.copy_in(RING_AT, tail);
    }

    /// Shows the peer what was written. Returns whether that was anything.
    pub(crate) fn publish(&mut self) -> bool {
        if self.published == self.written {
            return false;
        }
        self.segment.publish(WRITTEN_AT, self.written);
        self.published = self.written;
        true
    }
}

/// The peer's ring, in its segment.
pub(crate) struct RingReader<S> {
    segment: S,
    ring_bytes: usize,
    consumed: u64,
    told: u64,
}

impl<S: Shared> RingReader<S> {
    /// The segment has [`segment_bytes`].
    pub(crate) fn new(segment: S, ring_bytes: usize) -> Self {
        Self { segment, ring_bytes, consumed: 0, told: 0 }
    }

    pub(crate) fn segment(&self) -> &S {
        &self.segment
    }

    /// Returns how many bytes can be taken. Errors: more than the ring has, or parts of words.
    pub(crate) fn available(&self) -> Result<usize, &'static str> {
        let available = self.segment.load(WRITTEN_AT).wrapping_sub(self.consumed);
        match usize::try_from(available) {
            Ok(bytes) if bytes <= self.ring_bytes && bytes.is_multiple_of(8) => Ok(bytes),
            _ => Err("a ring has more bytes than fit"),
        }
    }

    /// Returns whether anything can be taken, or is wrong.
    pub(crate) fn has_news(&self) -> bool {
        self.available() != Ok(0)
    }

    /// Takes the next bytes; there have to be as many. They may be anything.
    pub(crate) fn take(&mut self, into: &mut [u8]) {
        let start = self.consumed as usize & (self.ring_bytes - 1);
        let first = into.len().min(self.ring_bytes - start);
        let (head, tail) = into.split_at_mut(first);
        self.segment.copy_out(RING_AT + start, head);
        self.segment.copy_out(RING_AT, tail);
        self.consumed += into.len().next_multiple_of(8) as u64;
    }

    /// Lets the peer write again what was taken; `own` is this end's segment. Returns whether there was anything.
    pub(crate) fn free(&mut self, own: &S) -> bool {
        if self.told == self.consumed {
            return false;
        }
        own.publish(CONSUMED_AT, self.consumed);
        self.told = self.consumed;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 4096;

    /// The ends of one ring; the second segment is the reader's.
    struct Ends {
        segments: [PeerMemory; 2],
        writer: RingWriter<PeerMemory>,
        reader: RingReader<PeerMemory>,
    }

    fn ends() -> Ends {
        let segments = [0, 0].map(|_| PeerMemory::zeroed(segment_bytes(BYTES)));
        let writer = RingWriter::new(segments[0].clone(), BYTES);
        let reader = RingReader::new(segments[0].clone(), BYTES);
        Ends { segments, writer, reader }
    }

    fn taken(reader: &mut RingReader<PeerMemory>, bytes: usize) -> Vec<u8> {
        let (mut record, mut payload) = ([0; RECORD_BYTES], vec![0; bytes]);
        reader.take(&mut record);
        assert_eq!(Record::decode(&record), Some(Record::BlockChunk { bytes }));
        reader.take(&mut payload);
        payload
    }

    #[test]
    fn records_of_all_lengths_pass_around_the_end() {
        let Ends { segments, mut writer, mut reader } = ends();
        for length in 1..payload_bytes_max(BYTES) {
            let payload: Vec<u8> = (0..length).map(|at| (at ^ length) as u8).collect();
            assert!(writer.push(&Record::BlockChunk { bytes: length }, &payload));
            assert_eq!(reader.available(), Ok(0), "it is not published");
            assert!(writer.publish() && !writer.publish());
            assert_eq!(reader.available(), Ok(framed_bytes(length)));
            assert_eq!(taken(&mut reader, length), payload);
            assert!(!writer.has_news(&segments[1]) && reader.free(&segments[1]));
            assert!(writer.has_news(&segments[1]) && !reader.free(&segments[1]));
            writer.look(&segments[1]).unwrap();
        }
    }

    #[test]
    fn a_full_ring_takes_nothing_until_it_was_read() {
        let Ends { segments, mut writer, mut reader } = ends();
        let payload = [7; 480];
        let record = Record::BlockChunk { bytes: 480 };
        for _ in 0..8 {
            assert!(writer.push(&record, &payload));
        }
        assert!(!writer.push(&Record::Farewell, &[]));
        writer.publish();
        assert_eq!(reader.available(), Ok(BYTES));
        assert_eq!(taken(&mut reader, 480), payload);
        assert!(!writer.push(&record, &payload), "it is not free");
        reader.free(&segments[1]);
        writer.look(&segments[1]).unwrap();
        assert!(writer.push(&record, &payload) && !writer.push(&record, &payload));
    }

    #[test]
    fn impossible_positions_are_refused() {
        let Ends { segments, mut writer, reader } = ends();
        for written in [8 + BYTES as u64, 1, u64::MAX, 1 << 63] {
            Shared::publish(&segments[0], WRITTEN_AT, written);
            assert!(reader.available().is_err() && reader.has_news(), "{written}");
        }
        writer.push(&Record::Farewell, &[]);
        writer.publish();
        writer.push(&Record::Farewell, &[]);
        for consumed in [33, 64, u64::MAX] {
            Shared::publish(&segments[1], CONSUMED_AT, consumed);
            assert!(writer.look(&segments[1]).is_err(), "{consumed}");
        }
        Shared::publish(&segments[1], CONSUMED_AT, 32);
        writer.look(&segments[1]).unwrap();
        Shared::publish(&segments[1], CONSUMED_AT, 0);
        assert!(writer.look(&segments[1]).is_err(), "it was 32 before");
    }

    #[test]
    fn two_threads_pass_numbers() {
        const COUNT: u64 = 200_000;
        let Ends { segments, mut writer, mut reader } = ends();
        let own = segments[1].clone();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for number in 0..COUNT {
                    while !writer.push(&Record::BlockChunk { bytes: 8 }, &number.to_le_bytes()) {
                        std::thread::yield_now();
                        writer.look(&segments[1]).unwrap();
                    }
                    writer.publish();
                }
            });
            for number in 0..COUNT {
                while reader.available().unwrap() == 0 {
                    std::thread::yield_now();
                }
                assert_eq!(taken(&mut reader, 8), number.to_le_bytes());
                reader.free(&own);
            }
        });
    }
}
