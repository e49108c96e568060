//! Small messages, without relaying (DSN 2018 section 4.6, "Small messages").
//!
//! Every receiver of a small group exposes a ring of slots to the root. The root writes a message
//! of few bytes into the next slot of every ring with a one-sided write: number, length, contents.
//! Single messages need neither an announcement nor a credit. Receivers free slots in order, as
//! their application takes the messages, and report it in batches of a quarter of the ring
//! ([`Word::Freed`]); while a ring is full, messages wait at the root. The root never waits for a
//! batch that is not full: without it, three quarters of the ring are free by the root's count.
//!
//! A message lies complete in its slot when it is announced, so it needs one hand-over between threads at a
//! receiver, from the thread that makes progress to the one that runs callbacks:
//!
//! - [`crate::Event::Incoming`] carries the slot ([`Slot`]). The application's thread copies the contents out
//!   of it itself, and reports them as received and complete at once, provided that all earlier messages are
//!   complete there: events keep the order of messages.
//! - [`Small::taken`] is the reply: the slot may be freed. Only a root with a full ring waits for it,
//!   so it need not wake the thread that makes progress more often than once for each batch of slots.
//!   Something else may need it: closing, or a relayed message behind it. That wakes the thread by itself, and
//!   later replies are given at once ([`Slot::note_done`]).
//! - All else is as for [`Small::accept`]: memory that is provided later, files, and memory in use.
//!
//! A slot is in use until its message was taken, whatever holds a [`Slot`] of it: until then the root may not
//! write it, so the contents do not change, and the ring bounds what waits for applications.
//!
//! Cost of a message to n members: n-1 writes, and 4(n-1)/slots words. The root copies the message
//! once into a ring of its own, so that its memory is returned at once; receivers copy it once out
//! of theirs.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use relay::RelayError;
use transport::{LeaseError, PeerMemory, PostError, Region, Token, Transport};

use crate::{
    error::{Error, Fault},
    job_list::Then,
    memory::Memory,
    peers::Peers,
    settings::{GroupSettings, SmallMessages, check_region},
    slot::{Slot, Tally},
    transfers::Transfers,
    words::Word,
};

/// The ring's key on its endpoint.
const KEY: u32 = 0;

/// Length of a slot's header: the message's number and its length, 8 bytes each.
const HEAD_BYTES: usize = 16;

/// Identifies posts of small messages. The relay's identifiers count from 0 and stay below.
const TOKEN: Token = Token(1 << 63);

/// Small messages at one member.
pub(crate) struct Small {
    limits: SmallMessages,
    slot_bytes: usize,
    end: End,
    /// Numbers of the last messages, one more than there are slots: the i-th small message is at
    /// `i % numbers.len()`.
    numbers: Vec<u64>,
    /// How many messages, small or not, are in place at every member.
    delivered: u64,
}

enum End {
    Root {
        /// The slots being written; the same at all receivers. Empty until the first message.
        ring: Region,
        /// Messages that have no slot yet, in order.
        waiting: VecDeque<u64>,
        /// How many messages were written.
        written: u64,
        /// How many slots each receiver has freed; `None` until it has exposed its ring.
        freed: BTreeMap<u32, Option<u64>>,
    },
    Receiver {
        root: u32,
        /// The memory into which the root writes.
        ring: PeerMemory,
        /// The messages in slots, in order.
        arrived: VecDeque<Arrived>,
        freed: u64,
        /// How many of `freed` were reported to the root.
        reported: u64,
        tally: Tally,
    },
}

/// A message that the root has written to every receiver.
struct Written {
    number: u64,
    bytes: u64,
    /// The outcome of each post, by rank.
    posts: Vec<(u32, Result<(), PostError>)>,
}

/// What was copied out of a slot: the contents to be written to the application's file, if it provided one.
type Copied = Result<Option<Vec<u8>>, LeaseError>;

/// Returns how many freed slots are reported to the root at once.
fn batch(limits: SmallMessages) -> u64 {
    u64::from(limits.slots / 4).max(1)
}

struct Arrived {
    number: u64,
    bytes: u64,
    taken: bool,
}

impl Small {
    /// Returns `None` if small messages are relayed like all others.
    pub(crate) fn new(settings: &GroupSettings) -> Option<Self> {
        let limits = settings.small_messages()?;
        let slot_bytes = HEAD_BYTES + limits.bytes_max as usize;
        let receivers = (0..settings.schedule.members()).filter(|&rank| rank != settings.rank);
        let end = if settings.is_root() {
            End::Root {
                ring: Region::zeroed(0),
                waiting: VecDeque::new(),
                written: 0,
                freed: receivers.map(|rank| (rank, None)).collect(),
            }
        } else {
            let root = settings.schedule.root();
            let ring = PeerMemory::zeroed(slot_bytes * limits.slots as usize);
            let tally = Tally::default();
            End::Receiver { root, ring, arrived: VecDeque::new(), freed: 0, reported: 0, tally }
        };
        let numbers = vec![0; limits.slots as usize + 1];
        Some(Self { limits, slot_bytes, end, numbers, delivered: 0 })
    }

    /// Returns whether this module made a post.
    pub(crate) fn made(token: Token) -> bool {
        token == TOKEN
    }

    /// Returns the offset of the slot of the i-th small message.
    fn slot_start(&self, index: u64) -> usize {
        (index % u64::from(self.limits.slots)) as usize * self.slot_bytes
    }

    /// Records the number of the i-th small message.
    fn note_number(&mut self, index: u64, number: u64) {
        let count = self.numbers.len() as u64;
        self.numbers[(index % count) as usize] = number;
    }

    /// Notes that every receiver has freed the slots of the first `freed` small messages, which
    /// must be among the last ones: all messages up to the last of these are in place there. So small
    /// messages need no counts of their own on the wire.
    fn note_freed_everywhere(&mut self, freed: u64) {
        let count = self.numbers.len() as u64;
        if let Some(last) = freed.checked_sub(1) {
            self.delivered = self.delivered.max(self.numbers[(last % count) as usize] + 1);
        }
    }

    /// Returns whether a message of this length is small.
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        bytes <= u64::from(self.limits.bytes_max)
    }

    /// Root only: queues a message, which is written once every ring has room.
    pub(crate) fn send(&mut self, number: u64) {
        if let End::Root { waiting, .. } = &mut self.end {
            waiting.push_back(number);
        }
    }

    /// Returns the member whose ring is full, or not exposed yet, while messages wait for it.
    pub(crate) fn waited_for(&self) -> Option<u32> {
        match &self.end {
            End::Root { waiting, freed, .. } if !waiting.is_empty() => {
                freed.iter().min_by_key(|&(_, freed)| freed).map(|(&rank, _)| rank)
            }
            _ => None,
        }
    }

    /// Returns whether the next message of all has arrived and the application has provided no
    /// memory for it.
    pub(crate) fn owes_memory(&self, next: u64) -> bool {
        let End::Receiver { arrived, .. } = &self.end else { return false };
        arrived.front().is_some_and(|message| !message.taken && message.number == next)
    }

    /// Notes that `rank` has exposed its ring, or has freed slots of it.
    pub(crate) fn on_freed(
        &mut self,
        rank: u32,
        count: u64,
        transfers: &mut Transfers,
    ) -> Result<(), RelayError> {
        self.freed(rank, count)?;
        transfers.note_everywhere(self.delivered);
        Ok(())
    }

    fn freed(&mut self, rank: u32, count: u64) -> Result<(), RelayError> {
        let wrong = |what: &str| RelayError::peer(rank, what);
        let End::Root { written, freed, .. } = &mut self.end else {
            return Err(wrong("freed slots of a ring that it does not have"));
        };
        match freed.get_mut(&rank) {
            // Each word frees some, or exposes the ring: others would only put off the stall timeout.
            Some(before) if *before < Some(count) && count <= *written => *before = Some(count),
            _ => return Err(wrong("freed slots that it does not have")),
        }
        let everywhere = freed.values().min().copied().flatten();
        self.note_freed_everywhere(everywhere.unwrap_or(0));
        Ok(())
    }

    /// Processes the root's write of the slot `immediate`.
    pub(crate) fn on_written(
        &mut self,
        rank: u32,
        immediate: u32,
        transfers: &mut Transfers,
    ) -> Result<(), RelayError> {
        let (number, bytes) = self.written(rank, immediate)?;
        transfers.note_everywhere(self.delivered);
        transfers.check_unused(rank, number)?;
        transfers.messages.order.incoming(number, bytes);
        Ok(())
    }

    /// Returns number and length of the message that the root has written to the slot `immediate`.
    fn written(&mut self, rank: u32, immediate: u32) -> Result<(u64, u64), RelayError> {
        let wrong = |what: &str| RelayError::peer(rank, what);
        let slots = u64::from(self.limits.slots);
        let (index, ring) = match &self.end {
            End::Receiver { root, ring, arrived, freed, .. }
                if *root == rank && (arrived.len() as u64) < slots =>
            {
                (freed + arrived.len() as u64, ring)
            }
            _ => return Err(wrong("wrote a small message for which there is no room")),
        };
        if u64::from(immediate) != index % slots {
            return Err(wrong("wrote small messages out of order"));
        }
        // Copied before it is checked, since the root could write it again.
        let mut head = [0; HEAD_BYTES];
        let copied = ring.copy_out(self.slot_start(index), &mut head);
        copied.map_err(|_| wrong("wrote a small message where there is no slot"))?;
        let number_at = |at: usize| {
            head[at..at + 8].iter().rev().fold(0, |value, &byte| value << 8 | u64::from(byte))
        };
        let (number, bytes) = (number_at(0), number_at(8));
        if !self.takes(bytes) {
            return Err(wrong("wrote a small message that is too long"));
        }
        if let End::Receiver { arrived, .. } = &mut self.end {
            if arrived.back().is_some_and(|last| last.number >= number) {
                return Err(wrong("wrote small messages out of order"));
            }
            arrived.push_back(Arrived { number, bytes, taken: false });
        }
        self.note_number(index, number);
        // The root writes a slot only once it is free at every receiver.
        self.note_freed_everywhere((index + 1).saturating_sub(slots));
        Ok((number, bytes))
    }

    /// Returns where a message is that the application has not taken: its index among those that
    /// have arrived, the offset of its first byte, and its length.
    fn find(&self, number: u64) -> Option<(usize, usize, u64)> {
        let End::Receiver { arrived, freed, .. } = &self.end else { return None };
        let index = arrived.binary_search_by_key(&number, |message| message.number).ok()?;
        let Arrived { bytes, taken, .. } = arrived[index];
        let start = self.slot_start(freed + index as u64) + HEAD_BYTES;
        (!taken).then_some((index, start, bytes))
    }

    /// Returns the slot of a message that the application has not taken.
    fn slot(&self, number: u64) -> Option<Slot> {
        let End::Receiver { ring, freed, tally, .. } = &self.end else { return None };
        let (index, start, bytes) = self.find(number)?;
        let ends_batch = (freed + index as u64 + 1).is_multiple_of(batch(self.limits));
        Some(Slot::new(ring, start, bytes as usize, number, ends_batch, tally))
    }

    /// Notes that the application has copied a message out of its slot, and is done with it. Returns its
    /// length; `None` if it is in no slot, or not the next message.
    pub(crate) fn taken(&mut self, number: u64, transfers: &mut Transfers) -> Option<u64> {
        let (index, _, bytes) = self.find(number)?;
        let End::Receiver { arrived, .. } = &mut self.end else { return None };
        let is_done = transfers.messages.order.is_reported(number)
            && (number < transfers.messages.order.completed()
                || transfers.messages.note_done(number));
        arrived[index].taken = is_done;
        is_done.then_some(bytes)
    }

    /// Notes the messages that the application is done with, also those for which [`Small::taken`] was not
    /// called yet; their slots stay in use.
    pub(crate) fn note_done(&self, transfers: &mut Transfers) {
        let End::Receiver { tally, .. } = &self.end else { return };
        let mut done = transfers.messages.order.completed()..tally.done();
        while done.next().is_some_and(|number| transfers.messages.note_done(number)) {}
    }

    /// Sets whether something besides the ring waits until messages are taken.
    pub(crate) fn set_awaited(&self, is_awaited: bool) {
        if let End::Receiver { tally, .. } = &self.end {
            tally.set_awaited(is_awaited);
        }
    }

    /// Frees the slots of messages below `completed`. Returns the word to the root, if one is due.
    fn free(&mut self, completed: u64) -> Option<(u32, Word)> {
        let End::Receiver { root, arrived, freed, reported, .. } = &mut self.end else {
            return None;
        };
        while arrived.front().is_some_and(|message| message.taken && message.number < completed) {
            arrived.pop_front();
            *freed += 1;
        }
        if *freed - *reported < batch(self.limits) {
            return None;
        }
        *reported = *freed;
        Some((*root, Word::Freed { count: *freed }))
    }

    /// Root only: takes the next message that every ring has room for, and returns how many were
    /// written before it.
    fn next_to_write(&mut self) -> Option<(u64, u64)> {
        let slots = u64::from(self.limits.slots);
        let End::Root { waiting, written, freed, .. } = &mut self.end else { return None };
        // `None`, for a receiver without a ring, is the smallest value.
        let least = (*freed.values().min()?)?;
        if *written - least >= slots {
            return None;
        }
        Some((*waiting.front()?, *written))
    }

    fn has_written(&mut self, number: u64, index: u64) {
        if let End::Root { waiting, written, .. } = &mut self.end {
            waiting.pop_front();
            *written += 1;
        }
        self.note_number(index, number);
    }

    /// Exposes the ring to the root. Returns the root, which is to be notified, if it is connected.
    /// Errors: the transport refuses.
    pub(crate) fn expose<T: Transport>(
        &self,
        transport: &mut T,
        peers: &Peers,
    ) -> Result<Option<u32>, Error> {
        let End::Receiver { root, ring, .. } = &self.end else { return Ok(None) };
        let Some(endpoint) = peers.get(*root) else { return Ok(None) };
        let writes = transport.one_sided().ok_or(PostError::Unsupported("one-sided writes"));
        match writes.and_then(|writes| writes.expose(endpoint, KEY, ring.clone())) {
            // A completion reports the end of that endpoint.
            Ok(()) | Err(PostError::EndpointGone(_)) => Ok(Some(*root)),
            Err(error) => Err(Error::Link { member: *root, error }),
        }
    }

    /// Returns whether this message is in a slot and the application has not taken it.
    pub(crate) fn holds(&self, number: u64) -> bool {
        self.find(number).is_some()
    }

    /// Receives a message into memory of the application, whose use fails the group if it is in use.
    ///
    /// Errors: the region is too small or read-only.
    pub(crate) fn accept(
        &mut self,
        message: u64,
        region: Region,
        transfers: &mut Transfers,
        now: Duration,
    ) -> Result<(), Error> {
        let (bytes, copied) = self.take(transfers.settings.number, message, &region)?;
        let Transfers { messages, staging, counters, .. } = transfers;
        // Returned by the event of the failure if it cannot be used.
        messages.memory.insert(message, region.clone());
        let placed = copied.and_then(|contents| match contents {
            Some(contents) => {
                let contents = Region::from_vec(contents).read(0..bytes as usize)?;
                staging.store(contents, &region, (message, 0), Then::SmallTaken { bytes }, now)
            }
            None => {
                messages.small_taken(message, bytes);
                Ok(())
            }
        });
        match placed {
            Ok(()) => counters.note_small(bytes),
            Err(error) => messages.unusable = Some(error),
        }
        Ok(())
    }

    /// Copies a message out of its slot: into the application's memory, or, for a file, into memory that
    /// is to be written there. Returns its length as well.
    ///
    /// Errors: the region is too small or read-only; there is no such message. The inner ones: the region is
    /// in use.
    fn take(&mut self, group: u64, number: u64, region: &Region) -> Result<(u64, Copied), Error> {
        let unknown = || RelayError::Unknown { what: "message", number };
        let (index, start, bytes) = self.find(number).ok_or_else(unknown)?;
        check_region(group, number, bytes, region)?;
        let End::Receiver { ring, arrived, .. } = &mut self.end else {
            return Err(unknown().into());
        };
        let copied = if region.is_stored() {
            let mut contents = vec![0; bytes as usize];
            ring.copy_out(start, &mut contents).map(|()| Some(contents))
        } else {
            let into = region.write(0..bytes as usize);
            into.and_then(|mut into| ring.copy_out(start, &mut into)).map(|()| None)
        };
        arrived[index].taken = copied.is_ok();
        Ok((bytes, copied))
    }

    /// Writes messages for which there is room, reports events that are due, and frees slots of messages
    /// that are complete.
    pub(crate) fn carry_out<T: Transport>(
        &mut self,
        transport: &mut T,
        transfers: &mut Transfers,
    ) -> Result<(), Fault> {
        while let Some(written) =
            self.write_next(transport, &transfers.messages.memory, &transfers.peers)?
        {
            transfers.counters.small_sent += 1;
            transfers.counters.bytes_copied += written.bytes;
            transfers.messages.order.complete(written.number);
            for (rank, posted) in written.posts {
                transfers.peers.record_post(rank, posted);
            }
        }
        transfers.messages.report(|message| self.slot(message));
        match self.free(transfers.messages.order.completed()) {
            Some((root, word)) => transfers.peers.write(transport, root, &word),
            None => Ok(()),
        }
    }

    /// Root only: writes the next message to every receiver. `None` if there is none, or no room for it.
    fn write_next<T: Transport>(
        &mut self,
        transport: &mut T,
        memory: &Memory,
        peers: &Peers,
    ) -> Result<Option<Written>, LeaseError> {
        let Some((number, index)) = self.next_to_write() else { return Ok(None) };
        let Some(message) = memory.get(number) else { return Ok(None) };
        let (start, bytes) = (self.slot_start(index), message.len());
        let range = start..start + HEAD_BYTES + bytes;
        // The transport may still use the root's copy of a slot that is free at every receiver,
        // until its sends are reported.
        let ring_bytes = self.slot_bytes * self.limits.slots as usize;
        let End::Root { ring, .. } = &mut self.end else { return Ok(None) };
        if ring.is_empty() {
            *ring = Region::zeroed(ring_bytes);
        }
        let Ok(mut slot) = ring.write(range.clone()) else { return Ok(None) };
        slot[..8].copy_from_slice(&number.to_le_bytes());
        slot[8..HEAD_BYTES].copy_from_slice(&(bytes as u64).to_le_bytes());
        slot[HEAD_BYTES..].copy_from_slice(&message.read(0..bytes)?);
        drop(slot);
        let immediate = (index % u64::from(self.limits.slots)) as u32;
        let leases = peers.iter().map(|peer| Ok((peer, ring.read(range.clone())?)));
        let leases = leases.collect::<Result<Vec<_>, LeaseError>>()?;
        let Some(writes) = transport.one_sided() else { return Ok(None) };
        let post = |((rank, endpoint), from)| {
            let posted =
                writes.post_write(endpoint, from, KEY, start as u64, Some(immediate), TOKEN);
            (rank, posted)
        };
        let posts = leases.into_iter().map(post).collect();
        self.has_written(number, index);
        Ok(Some(Written { number, bytes: bytes as u64, posts }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedule::{Algorithm, Schedule};

    /// Returns the state of a member of a group of 3 with 4 slots, in which member 1 is the root.
    fn small(rank: u32) -> Small {
        let schedule = Schedule::new(Algorithm::BinomialPipeline, 3, 1).unwrap();
        let mut settings = GroupSettings::new(7, rank, schedule);
        settings.small = Some(SmallMessages { bytes_max: 100, slots: 4, members_max: 16 });
        Small::new(&settings).unwrap()
    }

    fn put(small: &Small, slot: usize, number: u64, bytes: u64) {
        let start = slot * small.slot_bytes;
        let End::Receiver { ring, .. } = &small.end else {
            panic!("only receivers are written to")
        };
        ring.copy_in(start, &[number.to_le_bytes(), bytes.to_le_bytes()].concat()).unwrap();
    }

    fn wrong<T: std::fmt::Debug>(outcome: Result<T, RelayError>, member_wanted: u32) -> String {
        match outcome {
            Err(RelayError::Peer { member, what }) if member == member_wanted => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_receiver_refuses_malformed_slots() {
        let mut receiver = small(2);
        put(&receiver, 0, 5, 100);
        assert!(wrong(receiver.written(0, 0), 0).contains("no room"), "not the root");
        assert!(wrong(receiver.written(1, 1), 1).contains("out of order"));
        assert!(wrong(receiver.written(1, u32::MAX), 1).contains("out of order"));
        assert_eq!(receiver.written(1, 0), Ok((5, 100)));
        for number in [0, 5] {
            put(&receiver, 1, number, 1);
            assert!(wrong(receiver.written(1, 1), 1).contains("out of order"));
        }
        for bytes in [101, u64::MAX] {
            put(&receiver, 1, 6, bytes);
            assert!(wrong(receiver.written(1, 1), 1).contains("too long"));
        }
        for slot in 1..4 {
            put(&receiver, slot, 10 + slot as u64, 0);
            assert_eq!(receiver.written(1, slot as u32), Ok((10 + slot as u64, 0)));
        }
        put(&receiver, 0, 99, 0);
        assert!(wrong(receiver.written(1, 0), 1).contains("no room"), "the ring is full");
        assert_eq!(receiver.delivered, 0);
        assert!(wrong(receiver.freed(1, 0), 1).contains("does not have"));
    }

    #[test]
    fn the_root_refuses_slots_that_it_has_not_written() {
        let mut root = small(1);
        root.send(0);
        assert_eq!(root.next_to_write(), None, "no receiver has a ring yet");
        assert_eq!(root.waited_for(), Some(0));
        for rank in [0, 2] {
            assert!(wrong(root.freed(rank, 1), rank).contains("does not have"));
            assert_eq!(root.freed(rank, 0), Ok(()));
        }
        for number in 0..4 {
            root.send(number + 1);
            assert_eq!(root.next_to_write(), Some((number, number)));
            root.has_written(number + 1, number);
        }
        assert_eq!(root.next_to_write(), None, "the rings are full");
        assert_eq!(root.freed(0, 3), Ok(()));
        assert_eq!(root.next_to_write(), None, "one ring is full");
        assert_eq!(root.waited_for(), Some(2));
        for count in [2, 3] {
            assert!(
                wrong(root.freed(0, count), 0).contains("does not have"),
                "no more than before"
            );
        }
        assert!(wrong(root.freed(2, 5), 2).contains("does not have"), "more than were written");
        assert!(wrong(root.freed(1, 0), 1).contains("does not have"), "itself");
        assert_eq!(root.freed(2, 1), Ok(()));
        assert_eq!(root.next_to_write(), Some((4, 4)));
        assert_eq!(root.delivered, 2, "slot 0 is freed everywhere, whose message is number 1");
    }

    #[test]
    fn a_slot_that_is_used_again_was_freed_by_all() {
        let mut receiver = small(0);
        for index in 0..9_u64 {
            let slot = index as u32 % 4;
            put(&receiver, slot as usize, 10 * index, 0);
            assert_eq!(receiver.written(1, slot), Ok((10 * index, 0)));
            let freed = index.checked_sub(4);
            assert_eq!(receiver.delivered, freed.map_or(0, |freed| 10 * freed + 1));
            let region = Region::zeroed(0);
            receiver.take(7, 10 * index, &region).unwrap().1.unwrap();
            receiver.free(10 * index + 1);
        }
    }
}
