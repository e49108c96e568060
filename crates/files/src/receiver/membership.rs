//! One group at one receiver, which receives a part of the file or sends it.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use rdmc::{Application, Failure, Incoming, Region};

use crate::{
    hash::InPlace,
    messages::Start,
    ranges::{ByteRange, Ranges},
};

/// The copy while it grows, as the callbacks of all groups know it.
#[derive(Clone)]
pub struct Copy {
    pub region: Region,
    pub has: Arc<Mutex<Ranges>>,
    /// How much that is; changed with `has` only.
    pub bytes: Arc<AtomicU64>,
    pub in_place: InPlace,
}

impl Copy {
    /// Takes note of bytes that are in place. Whether that was the last that was missing.
    pub fn add(&self, range: ByteRange) -> bool {
        let mut has = self.has.lock().unwrap_or_else(PoisonError::into_inner);
        let new_bytes = has.add(range);
        let bytes = self.bytes.fetch_add(new_bytes, Ordering::Relaxed) + new_bytes;
        drop(has);
        // Hashing has ended early only if it failed, which is reported there.
        let _ = self.in_place.send((range.0, range.1 - range.0));
        new_bytes > 0 && bytes == self.region.len() as u64
    }

    /// The same for several.
    pub fn add_all(&self, ranges: &Ranges) -> bool {
        let mut is_whole = false;
        for range in ranges.iter() {
            is_whole |= self.add(range);
        }
        is_whole
    }

    pub fn has(&self) -> Ranges {
        self.has.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What a group's callbacks have to tell.
#[derive(Debug)]
pub enum News {
    /// The last byte is in place.
    Whole,
    /// A group has closed with success, or failed.
    Ended(u64, Result<(), Failure>),
}

/// The group's callbacks.
pub struct Member<F> {
    number: u64,
    /// What is received: a message each.
    ranges: Vec<ByteRange>,
    copy: Copy,
    tell: F,
}

impl<F: FnMut(News)> Member<F> {
    pub fn new(start: &Start, copy: Copy, tell: F) -> Self {
        let ranges = match start.rank {
            0 => Vec::new(),
            _ => start.ranges.within(copy.region.len() as u64).iter().collect(),
        };
        Self { number: start.round, ranges, copy, tell }
    }
}

impl<F: FnMut(News) + Send + 'static> Application for Member<F> {
    fn incoming(&mut self, message: u64, bytes: u64) -> Incoming {
        let Some(&(start, end)) = self.ranges.get(message as usize) else {
            return Incoming::Refuse(format!("this group has {} messages", self.ranges.len()));
        };
        if bytes != end - start {
            return Incoming::Refuse(format!("{} bytes were offered, not {bytes}", end - start));
        }
        match self.copy.region.slice(start as usize..end as usize) {
            Ok(region) => Incoming::Into(region),
            Err(error) => Incoming::Refuse(error.to_string()),
        }
    }

    fn block(&mut self, message: u64, offset: u64, bytes: u64) {
        if let Some(&(start, _)) = self.ranges.get(message as usize) {
            let start = start + offset;
            if self.copy.add((start, start + bytes)) {
                (self.tell)(News::Whole);
            }
        }
    }

    fn complete(&mut self, _message: u64, _region: Region) {}

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        (self.tell)(News::Ended(self.number, Err(failure.clone())));
    }

    fn closed(&mut self) {
        (self.tell)(News::Ended(self.number, Ok(())));
    }
}
