//! A receiver's membership in one group, in which it receives or sends a part of the file.

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

/// The growing copy, shared by the callbacks of all groups.
#[derive(Clone)]
pub struct Copy {
    pub region: Region,
    pub has: Arc<Mutex<Ranges>>,
    /// Length of `has`; written under its lock.
    pub bytes: Arc<AtomicU64>,
    pub in_place: InPlace,
}

impl Copy {
    /// Adds bytes that are in place. True if nothing is missing any more.
    pub fn add(&self, range: ByteRange) -> bool {
        let mut has = self.has.lock().unwrap_or_else(PoisonError::into_inner);
        let new_bytes = has.add(range);
        let bytes = self.bytes.fetch_add(new_bytes, Ordering::Relaxed) + new_bytes;
        drop(has);
        // The hasher ends early only on an error, which it reports itself.
        let _ = self.in_place.send((range.0, range.1 - range.0));
        new_bytes > 0 && bytes == self.region.len() as u64
    }

    /// The same for several ranges.
    pub fn add_all(&self, ranges: &Ranges) -> bool {
        let mut is_complete = false;
        for range in ranges.iter() {
            is_complete |= self.add(range);
        }
        is_complete
    }

    pub fn has(&self) -> Ranges {
        self.has.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Events from a group's callbacks.
#[derive(Debug)]
pub enum MemberEvent {
    /// The last byte is in place.
    Complete,
    /// The listing of the tree has come in a group.
    Listed(u64),
    /// What arrived in a group at this place in a stream is not what the root has announced.
    Altered(u64, u64),
    /// A group has closed with success, or failed.
    Ended(u64, Result<(), Failure>),
}

/// The group's callbacks.
pub struct Member<F> {
    number: u64,
    /// The ranges to receive, one per message.
    ranges: Vec<ByteRange>,
    copy: Copy,
    notify: F,
}

impl<F: FnMut(MemberEvent)> Member<F> {
    pub fn new(start: &Start, copy: Copy, notify: F) -> Self {
        let ranges = match start.group.rank {
            0 => Vec::new(),
            _ => start.ranges.within(copy.region.len() as u64).iter().collect(),
        };
        Self { number: start.group.number, ranges, copy, notify }
    }
}

impl<F: FnMut(MemberEvent) + Send + 'static> Application for Member<F> {
    fn incoming(&mut self, message: u64, bytes: u64) -> Incoming {
        let Some(&(start, end)) = self.ranges.get(message as usize) else {
            return Incoming::Refuse(format!("this group has {} messages", self.ranges.len()));
        };
        if bytes != end - start {
            return Incoming::Refuse(format!(
                "expected a message of {} bytes, not {bytes}",
                end - start
            ));
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
                (self.notify)(MemberEvent::Complete);
            }
        }
    }

    fn complete(&mut self, _message: u64, _region: Region) {}

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        (self.notify)(MemberEvent::Ended(self.number, Err(failure.clone())));
    }

    fn closed(&mut self) {
        (self.notify)(MemberEvent::Ended(self.number, Ok(())));
    }
}
