//! A receiver's membership in one group, in which it receives or sends a part of the file.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use rdmc::{Application, Failure, Incoming, Region};

use super::deferred::Deferred;
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
    /// Messages whose place a group before is still being written for.
    pub deferred: Deferred,
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
            _ => start.messages(copy.region.len() as u64),
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
            Ok(region) if Deferred::is_in_use(&region) => {
                self.copy.deferred.add(self.number, message, region);
                Incoming::Later
            }
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

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;
    use crate::receiver::deferred::Free;

    const JOINED: fn(u64) -> bool = |_| true;

    /// A member of group 8 with two messages of 50 bytes each, in a file.
    fn member() -> Member<impl FnMut(MemberEvent)> {
        let file = tempfile::tempfile().unwrap();
        file.set_len(100).unwrap();
        let region = Region::from_file_writable(&file, 100).unwrap();
        let (has, bytes, in_place) = (Arc::default(), Arc::default(), mpsc::channel().0);
        let copy = Copy { region, has, bytes, in_place, deferred: Deferred::default() };
        Member { number: 8, ranges: vec![(0, 50), (50, 100)], copy, notify: drop }
    }

    #[test]
    fn a_message_waits_until_an_ended_group_has_written_to_its_place() {
        let mut member = member();
        let written = member.copy.region.write_stored(40..50).unwrap();
        assert!(matches!(member.incoming(1, 50), Incoming::Into(_)), "its place is free");
        assert!(matches!(member.incoming(0, 50), Incoming::Later));
        let deferred = member.copy.deferred.clone();
        let at = Duration::from_secs;
        assert!(deferred.take_free(at(7), JOINED).unwrap().is_empty());
        assert!(deferred.take_free(at(51), JOINED).unwrap().is_empty());
        drop(written);
        assert!(deferred.take_free(at(99), |group| group != 8).unwrap().is_empty(), "not joined");
        let free = deferred.take_free(at(99), JOINED).unwrap();
        let [Free { group: 8, message: 0, region }] = &free[..] else { panic!("{free:?}") };
        assert_eq!(region.len(), 50);
        assert!(region.write_stored(0..50).is_ok());
        assert!(deferred.take_free(at(99), JOINED).unwrap().is_empty(), "once");
    }

    #[test]
    fn storage_that_does_not_answer_is_named_and_no_group_that_has_ended_waits_for_it() {
        let mut member = member();
        let _written = member.copy.region.write_stored(0..1).unwrap();
        assert!(matches!(member.incoming(0, 50), Incoming::Later));
        let deferred = member.copy.deferred.clone();
        let at = Duration::from_secs;
        assert!(deferred.take_free(at(1), JOINED).is_ok());
        assert!(deferred.take_free(at(45), JOINED).is_ok());
        let error = deferred.take_free(at(46), JOINED).unwrap_err();
        assert!(error.contains("storage does not answer"), "{error}");
        assert!(error.contains("(deleted)"), "the file's name: {error}");
        deferred.forget(8);
        assert!(deferred.take_free(at(99), JOINED).unwrap().is_empty());
    }
}
