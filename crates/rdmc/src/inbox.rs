//! Messages that wait until the application receives them: a state machine without I/O.
//!
//! A message gets memory as soon as some is available: a region that the application has posted, or
//! memory allocated here, up to a bound over all messages that were not received yet. A message
//! beyond the bound gets its memory when the application receives it; until then the root waits, as
//! for a slow callback.

use std::{
    collections::{BTreeMap, VecDeque},
    ops::Range,
};

use rangemap::RangeSet;
use transport::Region;

use crate::Error;

/// Memory for messages by number, to be handed to the engine.
pub(crate) type Given = Vec<(u64, Region)>;

#[derive(Debug)]
pub(crate) struct Inbox {
    group: u64,
    /// Upper bound of `allocated_bytes`.
    receive_bytes_max: u64,
    /// Memory of messages that were not received yet, except regions that the application has
    /// posted.
    allocated_bytes: u64,
    /// Regions that the application has posted, for the next messages that need memory.
    posted: VecDeque<Region>,
    /// Messages from their announcement until they are both dropped and complete, or their memory
    /// was returned.
    entries: BTreeMap<u64, Entry>,
    /// The message that is received next.
    next: u64,
}

#[derive(Debug)]
struct Entry {
    bytes: u64,
    memory: Memory,
    arrived: RangeSet<u64>,
    /// What has arrived and was not returned by [`Inbox::next_block`].
    fresh: RangeSet<u64>,
    is_whole: bool,
    /// Set when this member is done with the message.
    done: Option<Region>,
    /// The application has dropped the message.
    is_dropped: bool,
}

#[derive(Debug)]
enum Memory {
    Awaited,
    /// Posted for this message, and too small.
    TooSmall(Region),
    Posted(Region),
    Allocated(Region),
}

/// A message that the application receives.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    pub(crate) region: Region,
}

impl Inbox {
    pub(crate) fn new(group: u64, receive_bytes_max: u64) -> Self {
        Self {
            group,
            receive_bytes_max,
            allocated_bytes: 0,
            posted: VecDeque::new(),
            entries: BTreeMap::new(),
            next: 0,
        }
    }

    /// Adds a message that was announced.
    pub(crate) fn announced(&mut self, number: u64, bytes: u64) -> Given {
        let mut given = Given::new();
        let entry = Entry {
            bytes,
            memory: Memory::Awaited,
            arrived: RangeSet::new(),
            fresh: RangeSet::new(),
            is_whole: false,
            done: None,
            is_dropped: false,
        };
        self.entries.insert(number, entry);
        if let Some(region) = self.posted.pop_front() {
            self.put(number, region, &mut given);
        }
        self.fill(&mut given);
        given
    }

    /// Assigns a posted region to the first message that has no memory, or else keeps it for a
    /// later one.
    pub(crate) fn post(&mut self, region: Region) -> Given {
        let mut given = Given::new();
        let mut waiting = self.entries.range(self.next..);
        match waiting.find(|(_, entry)| matches!(entry.memory, Memory::Awaited)) {
            Some((&number, _)) => self.put(number, region, &mut given),
            None => self.posted.push_back(region),
        }
        given
    }

    /// Returns the next message, and assigns memory to it if it had none; `None` if it was not
    /// announced yet.
    ///
    /// Errors: the region that was posted for it is too small, or none can be allocated. The
    /// message then remains the next one.
    pub(crate) fn receive(&mut self, given: &mut Given) -> Result<Option<Received>, Error> {
        let number = self.next;
        let Some(entry) = self.entries.get_mut(&number) else { return Ok(None) };
        let bytes = entry.bytes;
        if matches!(entry.memory, Memory::Awaited) {
            if let Some(region) = self.posted.pop_front() {
                self.put(number, region, given);
            } else {
                let region = Region::allocate(bytes)?;
                given.push((number, region.clone()));
                entry.memory = Memory::Posted(region);
            }
        }
        let Some(entry) = self.entries.get_mut(&number) else { return Ok(None) };
        let region = match &entry.memory {
            Memory::Posted(region) => region.clone(),
            Memory::Allocated(region) => {
                self.allocated_bytes -= bytes;
                region.clone()
            }
            Memory::TooSmall(_) | Memory::Awaited => {
                let memory = std::mem::replace(&mut entry.memory, Memory::Awaited);
                let Memory::TooSmall(region) = memory else { return Ok(None) };
                return Err(Error::RegionTooSmall {
                    group: self.group,
                    message: number,
                    bytes,
                    region,
                });
            }
        };
        // The application owns the memory from now on.
        entry.memory = Memory::Awaited;
        self.next += 1;
        self.fill(given);
        Ok(Some(Received { number, bytes, region }))
    }

    /// Returns whether the next message is whole, and can be received although the group has ended.
    pub(crate) fn is_next_whole(&self) -> bool {
        self.entries.get(&self.next).is_some_and(|entry| entry.is_whole)
    }

    /// Notes that these bytes are in place.
    pub(crate) fn arrived(&mut self, number: u64, range: Range<u64>) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        if !range.is_empty() && !entry.is_dropped {
            entry.arrived.insert(range.clone());
            entry.fresh.insert(range);
        }
    }

    /// Notes that the whole message is in place.
    pub(crate) fn whole(&mut self, number: u64) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.is_whole = true;
        }
    }

    /// Notes that this member is done with the message. Returns its memory if the application has dropped it.
    pub(crate) fn complete(&mut self, number: u64, region: Region) -> Option<Region> {
        match self.entries.get_mut(&number) {
            Some(entry) if !entry.is_dropped => {
                entry.done = Some(region);
                None
            }
            _ => {
                self.entries.remove(&number);
                Some(region)
            }
        }
    }

    /// Notes that the application has dropped a message that it had received. Returns its memory once this
    /// member is done with it.
    pub(crate) fn dropped(&mut self, number: u64, has_ended: bool) -> Option<Region> {
        let entry = self.entries.get_mut(&number)?;
        if has_ended || entry.done.is_some() {
            return self.entries.remove(&number)?.done;
        }
        entry.is_dropped = true;
        None
    }

    /// Returns how many bytes of a received message have arrived without a gap from its start.
    pub(crate) fn prefix(&self, number: u64) -> u64 {
        let entry = self.entries.get(&number);
        entry.and_then(|entry| entry.arrived.get(&0)).map_or(0, |range| range.end)
    }

    /// Returns whether all of a received message is in place.
    pub(crate) fn is_whole(&self, number: u64) -> bool {
        self.entries.get(&number).is_some_and(|entry| entry.is_whole)
    }

    /// Returns the next range of a received message that has arrived and was not returned yet;
    /// adjacent blocks are one range.
    pub(crate) fn next_block(&mut self, number: u64) -> Option<Range<u64>> {
        let fresh = &mut self.entries.get_mut(&number)?.fresh;
        let first = fresh.first()?.clone();
        fresh.remove(first.clone());
        Some(first)
    }

    /// Returns the memory of a received message once this member is done with it, and removes the
    /// message.
    pub(crate) fn take_done(&mut self, number: u64) -> Option<Region> {
        self.entries.get(&number)?.done.as_ref()?;
        self.entries.remove(&number)?.done
    }

    /// Assigns a posted region to a message that has no memory.
    fn put(&mut self, number: u64, region: Region, given: &mut Given) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        if (region.len() as u64) < entry.bytes {
            entry.memory = Memory::TooSmall(region);
        } else {
            given.push((number, region.clone()));
            entry.memory = Memory::Posted(region);
        }
    }

    /// Allocates memory for messages that have none, in their order, up to the bound.
    fn fill(&mut self, given: &mut Given) {
        for (&number, entry) in self.entries.range_mut(self.next..) {
            if !matches!(entry.memory, Memory::Awaited) {
                continue;
            }
            let allocated_bytes = self.allocated_bytes.saturating_add(entry.bytes);
            if allocated_bytes > self.receive_bytes_max {
                return;
            }
            // The message waits; receiving it allocates again and reports the error.
            let Ok(region) = Region::allocate(entry.bytes) else { return };
            self.allocated_bytes = allocated_bytes;
            given.push((number, region.clone()));
            entry.memory = Memory::Allocated(region);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: u64 = 100;

    fn numbers(given: &Given) -> Vec<(u64, usize)> {
        given.iter().map(|(number, region)| (*number, region.len())).collect()
    }

    fn receive(inbox: &mut Inbox) -> (Received, Given) {
        let mut given = Given::new();
        let received = inbox.receive(&mut given).unwrap().expect("a message");
        (received, given)
    }

    fn region(bytes: u64) -> Region {
        Region::allocate(bytes).unwrap()
    }

    #[test]
    fn memory_is_allocated_up_to_the_bound_and_then_as_messages_are_received() {
        let mut inbox = Inbox::new(1, MAX);
        assert_eq!(numbers(&inbox.announced(0, 60)), [(0, 60)]);
        assert_eq!(numbers(&inbox.announced(1, 41)), []);
        // Not before its turn, though it would fit.
        assert_eq!(numbers(&inbox.announced(2, 10)), []);
        let (received, given) = receive(&mut inbox);
        assert_eq!((received.number, received.bytes), (0, 60));
        assert_eq!(numbers(&given), [(1, 41), (2, 10)]);
    }

    #[test]
    fn a_message_beyond_the_bound_gets_memory_when_it_is_received() {
        let mut inbox = Inbox::new(1, MAX);
        assert_eq!(numbers(&inbox.announced(0, MAX + 1)), []);
        let (received, given) = receive(&mut inbox);
        assert_eq!((received.number, received.region.len() as u64), (0, MAX + 1));
        assert_eq!(numbers(&given), [(0, MAX as usize + 1)]);
        assert_eq!(inbox.allocated_bytes, 0);
    }

    #[test]
    fn posted_memory_is_used_in_its_order() {
        let mut inbox = Inbox::new(1, 0);
        assert_eq!(numbers(&inbox.post(region(50))), []);
        assert_eq!(numbers(&inbox.post(region(20))), []);
        assert_eq!(numbers(&inbox.announced(0, 10)), [(0, 50)]);
        assert_eq!(numbers(&inbox.announced(1, 20)), [(1, 20)]);
        assert_eq!(numbers(&inbox.announced(2, 30)), []);
        assert_eq!(numbers(&inbox.post(region(30))), [(2, 30)]);
        for number in 0..3 {
            assert_eq!(receive(&mut inbox).0.number, number);
        }
    }

    #[test]
    fn posted_memory_that_is_too_small_comes_back_and_other_may_be_posted() {
        let mut inbox = Inbox::new(7, 0);
        inbox.post(region(9));
        assert_eq!(numbers(&inbox.announced(0, 10)), []);
        match inbox.receive(&mut Given::new()) {
            Err(Error::RegionTooSmall { group: 7, message: 0, bytes: 10, region }) => {
                assert_eq!(region.len(), 9);
            }
            other => panic!("{other:?}"),
        }
        assert_eq!(numbers(&inbox.post(region(11))), [(0, 11)]);
        assert_eq!(receive(&mut inbox).0.region.len(), 11);
    }

    #[test]
    fn a_message_too_long_for_any_memory_is_an_error_and_stays() {
        let mut inbox = Inbox::new(1, u64::MAX);
        assert_eq!(numbers(&inbox.announced(0, u64::MAX)), []);
        for _ in 0..2 {
            assert!(matches!(inbox.receive(&mut Given::new()), Err(Error::Region(_))));
        }
    }

    #[test]
    fn blocks_are_reported_once_and_the_prefix_has_no_gaps() {
        let mut inbox = Inbox::new(1, MAX);
        inbox.announced(0, 30);
        receive(&mut inbox);
        inbox.arrived(0, 10..20);
        assert_eq!(inbox.prefix(0), 0);
        assert_eq!(inbox.next_block(0), Some(10..20));
        inbox.arrived(0, 0..10);
        inbox.arrived(0, 20..30);
        assert_eq!((inbox.prefix(0), inbox.is_whole(0)), (30, false));
        assert_eq!(inbox.next_block(0), Some(0..10));
        assert_eq!(inbox.next_block(0), Some(20..30));
        assert_eq!(inbox.next_block(0), None);
    }

    #[test]
    fn nothing_is_kept_of_messages_that_are_dropped() {
        let mut inbox = Inbox::new(1, MAX);
        for (number, is_complete_first) in [(0, true), (1, false)] {
            inbox.announced(number, 10);
            let (received, _) = receive(&mut inbox);
            if is_complete_first {
                inbox.complete(number, received.region);
                inbox.dropped(number, false);
            } else {
                inbox.dropped(number, false);
                inbox.complete(number, received.region);
            }
        }
        inbox.announced(2, 10);
        receive(&mut inbox);
        inbox.dropped(2, true);
        assert!(inbox.entries.is_empty() && inbox.allocated_bytes == 0);
    }
}
