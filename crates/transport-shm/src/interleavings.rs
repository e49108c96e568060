//! The ring and its sleeps in every order of their loads and stores that the memory model allows ([loom](https://docs.rs/loom)).

use loom::{
    model::Builder,
    sync::{
        Arc, Notify,
        atomic::{AtomicU64, Ordering, fence},
    },
    thread,
};

use crate::{
    record::{RECORD_BYTES, Record},
    ring::{RingReader, RingWriter, Shared},
    sleep::Sleep,
};

/// Two records.
const RING_BYTES: usize = 2 * RECORD_BYTES;
/// The words before the ring, and those of the ring.
const WORDS: usize = 4 + RING_BYTES / 8;
/// How often a thread is interrupted at most; more find no other errors in so few steps.
const PREEMPTIONS: usize = 3;

/// A segment of atomic words, of which only those that are used exist.
#[derive(Clone)]
struct Segment(Arc<[AtomicU64; WORDS]>);

impl Segment {
    fn zeroed() -> Self {
        Self(Arc::new(std::array::from_fn(|_| AtomicU64::new(0))))
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        &self.0[if at < 512 { at / 128 } else { 4 + (at - 512) / 8 }]
    }
}

impl Shared for Segment {
    fn load(&self, at: usize) -> u64 {
        self.word(at).load(Ordering::Acquire)
    }

    fn publish(&self, at: usize, word: u64) {
        self.word(at).store(word, Ordering::Release);
    }

    fn copy_in(&self, at: usize, bytes: &[u8]) {
        for (index, word) in bytes.as_chunks().0.iter().enumerate() {
            self.word(at + 8 * index).store(u64::from_le_bytes(*word), Ordering::Relaxed);
        }
    }

    fn copy_out(&self, at: usize, into: &mut [u8]) {
        for (index, word) in into.as_chunks_mut().0.iter_mut().enumerate() {
            *word = self.word(at + 8 * index).load(Ordering::Relaxed).to_le_bytes();
        }
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }
}

fn check(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(PREEMPTIONS);
    builder.check(model);
}

fn record(number: u32) -> Record {
    Record::Written { immediate: number }
}

/// More records than fit, so that places are used again.
#[test]
fn records_are_read_as_they_were_written() {
    const COUNT: u32 = 3;
    check(|| {
        let [written, read] = [Segment::zeroed(), Segment::zeroed()];
        let mut writer = RingWriter::new(written.clone(), RING_BYTES);
        let mut reader = RingReader::new(written, RING_BYTES);
        let of_reader = read.clone();
        let writing = thread::spawn(move || {
            for number in 0..COUNT {
                while !writer.push(&record(number), &[]) {
                    thread::yield_now();
                    writer.look(&of_reader).unwrap();
                }
                writer.publish();
            }
        });
        for number in 0..COUNT {
            while reader.available().unwrap() == 0 {
                thread::yield_now();
            }
            let mut encoded = [0; RECORD_BYTES];
            reader.take(&mut encoded);
            assert_eq!(Record::decode(&encoded), Some(record(number)));
            reader.free(&read);
        }
        writing.join().unwrap();
    });
}

/// An end that sleeps for ever is a deadlock, which the model reports.
#[test]
fn no_wake_up_is_lost() {
    check(|| {
        let [written, read] = [Segment::zeroed(), Segment::zeroed()];
        let mut writer = RingWriter::new(written.clone(), RING_BYTES);
        let reader = RingReader::new(written, RING_BYTES);
        let bell = Arc::new(Notify::new());
        let (of_reader, rung) = (read.clone(), Arc::clone(&bell));
        let writing = thread::spawn(move || {
            writer.push(&record(1), &[]);
            writer.publish();
            if Sleep::default().has_to_wake(&of_reader, true) {
                rung.notify();
            }
        });
        let mut sleep = Sleep::default();
        loop {
            sleep.doze(&read, false);
            if reader.has_news() {
                break;
            }
            // May also end by itself.
            bell.wait();
            sleep.wake(&read);
        }
        writing.join().unwrap();
    });
}
