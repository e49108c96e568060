//! Small messages, without relaying (DSN 2018 section 4.6, "Small messages").
//!
//! Every receiver of a small group exposes a ring of slots to the root. The root writes a message
//! of few bytes into the next slot of every ring, one-sided: number, length, contents. There is no
//! announcement and no credit for each message. Receivers free slots in order, as their
//! application takes the messages, and say so in batches of a quarter of the ring
//! ([`Word::Freed`]); while a ring is full, messages wait at the root. A batch that is not full is
//! never waited for: the root then knows of three quarters of the ring that are free.
//!
//! Cost of a message to n members: n-1 writes, and 4(n-1)/slots words. The root copies the message
//! once into a ring of its own, so its memory comes back at once; receivers copy it once out.

use std::collections::{BTreeMap, VecDeque};

use relay::RelayError;
use transport::{LeaseError, PeerMemory, PostError, Region, Token, Transport};

use crate::{
    error::Error,
    peers::Peers,
    settings::{GroupSettings, SmallMessages, check_region},
    words::Word,
};

/// The ring's name on its endpoint.
const KEY: u32 = 0;

/// A slot begins with the message's number and its length, 8 bytes each.
const HEAD_BYTES: usize = 16;

/// Marks posts of this path. The relay's own identifiers count from 0 and stay below.
const TOKEN: Token = Token(1 << 63);

/// Small messages at one member.
pub(crate) struct Small {
    limits: SmallMessages,
    slot_bytes: usize,
    end: End,
}

enum End {
    Root {
        /// What is being written.
        ring: Region,
        /// Messages that have no slot yet, in order.
        waiting: VecDeque<u64>,
        /// How many were written.
        written: u64,
        /// How many slots each receiver has freed, once it has a ring.
        freed: BTreeMap<u32, Option<u64>>,
    },
    Receiver {
        root: u32,
        /// What the root writes into.
        ring: PeerMemory,
        /// What lies in slots, in order.
        arrived: VecDeque<Arrived>,
        freed: u64,
        /// How many of `freed` the root has been told of.
        told: u64,
    },
}

/// A message that the root has written to everybody.
pub(crate) struct Written {
    pub(crate) number: u64,
    pub(crate) bytes: u64,
    /// What has become of each post, by rank.
    pub(crate) posts: Vec<(u32, Result<(), PostError>)>,
}

/// A message that was copied out of its slot.
pub(crate) struct Taken {
    pub(crate) bytes: u64,
    /// What is to be written to the application's file, if it gave one.
    pub(crate) contents: Option<Vec<u8>>,
}

struct Arrived {
    number: u64,
    bytes: u64,
    taken: bool,
}

impl Small {
    /// `None` where small messages are relayed like others.
    pub(crate) fn new(settings: &GroupSettings) -> Option<Self> {
        let limits = settings.small_messages()?;
        let slot_bytes = HEAD_BYTES + limits.bytes_max as usize;
        let receivers = (0..settings.schedule.members()).filter(|&rank| rank != settings.rank);
        let ring_bytes = slot_bytes * limits.slots as usize;
        let end = if settings.is_root() {
            End::Root {
                ring: Region::zeroed(ring_bytes),
                waiting: VecDeque::new(),
                written: 0,
                freed: receivers.map(|rank| (rank, None)).collect(),
            }
        } else {
            let root = settings.schedule.root();
            let ring = PeerMemory::zeroed(ring_bytes);
            End::Receiver { root, ring, arrived: VecDeque::new(), freed: 0, told: 0 }
        };
        Some(Self { limits, slot_bytes, end })
    }

    /// Whether a post was made by this path.
    pub(crate) fn made(token: Token) -> bool {
        token == TOKEN
    }

    /// First byte of the slot of the i-th small message.
    fn slot_start(&self, index: u64) -> usize {
        (index % u64::from(self.limits.slots)) as usize * self.slot_bytes
    }

    /// Whether the root can send a message of this length this way.
    pub(crate) fn takes(&self, bytes: u64) -> bool {
        bytes <= u64::from(self.limits.bytes_max)
    }

    /// Root only: the message is written as soon as every ring has room.
    pub(crate) fn send(&mut self, number: u64) {
        if let End::Root { waiting, .. } = &mut self.end {
            waiting.push_back(number);
        }
    }

    /// The member whose ring is full, or missing, while messages wait for it.
    pub(crate) fn waited_for(&self) -> Option<u32> {
        match &self.end {
            End::Root { waiting, freed, .. } if !waiting.is_empty() => {
                freed.iter().min_by_key(|&(_, freed)| freed).map(|(&rank, _)| rank)
            }
            _ => None,
        }
    }

    /// Whether the next message of all has come, and the application has given no memory for it.
    pub(crate) fn owes_memory(&self, next: u64) -> bool {
        let End::Receiver { arrived, .. } = &self.end else { return false };
        arrived.front().is_some_and(|message| !message.taken && message.number == next)
    }

    /// `rank` has a ring, or has freed slots of it.
    pub(crate) fn heard(&mut self, rank: u32, count: u64) -> Result<(), RelayError> {
        let wrong = |what: &str| RelayError::Peer { member: rank, what: what.to_owned() };
        let End::Root { written, freed, .. } = &mut self.end else {
            return Err(wrong("freed slots of a ring that it does not have"));
        };
        match freed.get_mut(&rank) {
            Some(before) if *before <= Some(count) && count <= *written => *before = Some(count),
            _ => return Err(wrong("freed slots that it does not have")),
        }
        Ok(())
    }

    /// The root has written the slot `immediate`: answers number and length of the message.
    pub(crate) fn arrived(&mut self, rank: u32, immediate: u32) -> Result<(u64, u64), RelayError> {
        let wrong = |what: &str| RelayError::Peer { member: rank, what: what.to_owned() };
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
        // Copied once, then checked: the root may write it again.
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
        Ok((number, bytes))
    }

    /// Where a message lies that the application has not taken: its index among what has arrived,
    /// the first byte, and the length.
    fn find(&self, number: u64) -> Option<(usize, usize, u64)> {
        let End::Receiver { arrived, freed, .. } = &self.end else { return None };
        let index = arrived.binary_search_by_key(&number, |message| message.number).ok()?;
        let Arrived { bytes, taken, .. } = arrived[index];
        let start = self.slot_start(freed + index as u64) + HEAD_BYTES;
        (!taken).then_some((index, start, bytes))
    }

    /// Frees the slots of messages below `completed`. Answers what to tell the root, if it is time.
    pub(crate) fn free(&mut self, completed: u64) -> Option<(u32, Word)> {
        let End::Receiver { root, arrived, freed, told, .. } = &mut self.end else { return None };
        while arrived.front().is_some_and(|message| message.taken && message.number < completed) {
            arrived.pop_front();
            *freed += 1;
        }
        if *freed - *told < u64::from(self.limits.slots / 4).max(1) {
            return None;
        }
        *told = *freed;
        Some((*root, Word::Freed { count: *freed }))
    }

    /// Root only: takes the next message that every ring has room for, and says how many were
    /// written before it.
    fn next_to_write(&mut self) -> Option<(u64, u64)> {
        let slots = u64::from(self.limits.slots);
        let End::Root { waiting, written, freed, .. } = &mut self.end else { return None };
        // `None`, of a receiver without a ring, comes first.
        let least = (*freed.values().min()?)?;
        if *written - least >= slots {
            return None;
        }
        Some((*waiting.front()?, *written))
    }

    fn has_written(&mut self) {
        if let End::Root { waiting, written, .. } = &mut self.end {
            waiting.pop_front();
            *written += 1;
        }
    }

    /// Lets the root write. Answers the root, which is to be told, if it is connected. Errors: the
    /// transport refuses.
    pub(crate) fn expose<T: Transport>(
        &self,
        transport: &mut T,
        peers: &Peers,
    ) -> Result<Option<u32>, Error> {
        let End::Receiver { root, ring, .. } = &self.end else { return Ok(None) };
        let Some(endpoint) = peers.get(*root) else { return Ok(None) };
        let writes = transport.one_sided().ok_or(PostError::Unsupported("one-sided writes"));
        match writes.and_then(|writes| writes.expose(endpoint, KEY, ring.clone())) {
            // A root that is gone already says so by a completion, which names it.
            Ok(()) | Err(PostError::EndpointGone(_)) => Ok(Some(*root)),
            Err(error) => Err(Error::Transport(format!("memory for small messages: {error}"))),
        }
    }

    /// Whether this message lies in a slot, and the application has not taken it.
    pub(crate) fn holds(&self, number: u64) -> bool {
        self.find(number).is_some()
    }

    /// Copies a message out of its slot: into the application's memory, or, for a file, into memory that
    /// is to be written there.
    ///
    /// Errors: the region is too small, read-only or in use; there is no such message.
    pub(crate) fn take(
        &mut self,
        group: u64,
        number: u64,
        region: &Region,
    ) -> Result<Taken, Error> {
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
        let contents = copied.map_err(|error| memory_refused(number, &error))?;
        arrived[index].taken = true;
        Ok(Taken { bytes, contents })
    }

    /// Root only: writes the next message to everybody. `None` if there is none, or no room for it.
    pub(crate) fn write_next<T: Transport>(
        &mut self,
        transport: &mut T,
        memory: &BTreeMap<u64, Region>,
        peers: &Peers,
    ) -> Result<Option<Written>, LeaseError> {
        let Some((number, index)) = self.next_to_write() else { return Ok(None) };
        let Some(message) = memory.get(&number) else { return Ok(None) };
        let (start, bytes) = (self.slot_start(index), message.len());
        let range = start..start + HEAD_BYTES + bytes;
        // A slot that is free at every receiver may still be in the transport's hands here, until
        // its sends are reported.
        let End::Root { ring, .. } = &self.end else { return Ok(None) };
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
            let posted = writes.post_write(endpoint, from, KEY, start as u64, immediate, TOKEN);
            (rank, posted)
        };
        let posts = leases.into_iter().map(post).collect();
        self.has_written();
        Ok(Some(Written { number, bytes: bytes as u64, posts }))
    }
}

/// Memory that the application gave for a small message cannot be used.
pub(crate) fn memory_refused(number: u64, error: &LeaseError) -> Error {
    Error::Transport(format!("memory for message {number}: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use schedule::{Algorithm, Schedule};

    /// Of a group of 3 with 4 slots, in which member 1 is the root.
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
    fn a_receiver_believes_no_slot_that_makes_no_sense() {
        let mut receiver = small(2);
        put(&receiver, 0, 5, 100);
        assert!(wrong(receiver.arrived(0, 0), 0).contains("no room"), "not the root");
        assert!(wrong(receiver.arrived(1, 1), 1).contains("out of order"));
        assert!(wrong(receiver.arrived(1, u32::MAX), 1).contains("out of order"));
        assert_eq!(receiver.arrived(1, 0), Ok((5, 100)));
        for number in [0, 5] {
            put(&receiver, 1, number, 1);
            assert!(wrong(receiver.arrived(1, 1), 1).contains("out of order"));
        }
        for bytes in [101, u64::MAX] {
            put(&receiver, 1, 6, bytes);
            assert!(wrong(receiver.arrived(1, 1), 1).contains("too long"));
        }
        for slot in 1..4 {
            put(&receiver, slot, 10 + slot as u64, 0);
            assert_eq!(receiver.arrived(1, slot as u32), Ok((10 + slot as u64, 0)));
        }
        put(&receiver, 0, 99, 0);
        assert!(wrong(receiver.arrived(1, 0), 1).contains("no room"), "the ring is full");
        assert!(wrong(receiver.heard(1, 0), 1).contains("does not have"));
    }

    #[test]
    fn the_root_believes_nobody_who_frees_what_was_not_written() {
        let mut root = small(1);
        root.send(0);
        assert_eq!(root.next_to_write(), None, "nobody has a ring yet");
        assert_eq!(root.waited_for(), Some(0));
        for rank in [0, 2] {
            assert!(wrong(root.heard(rank, 1), rank).contains("does not have"));
            assert_eq!(root.heard(rank, 0), Ok(()));
        }
        for number in 0..4 {
            root.send(number + 1);
            assert_eq!(root.next_to_write(), Some((number, number)));
            root.has_written();
        }
        assert_eq!(root.next_to_write(), None, "the rings are full");
        assert_eq!(root.heard(0, 3), Ok(()));
        assert_eq!(root.next_to_write(), None, "one ring is full");
        assert_eq!(root.waited_for(), Some(2));
        assert!(wrong(root.heard(0, 2), 0).contains("does not have"), "fewer than before");
        assert!(wrong(root.heard(2, 5), 2).contains("does not have"), "more than were written");
        assert!(wrong(root.heard(1, 0), 1).contains("does not have"), "itself");
        assert_eq!(root.heard(2, 1), Ok(()));
        assert_eq!(root.next_to_write(), Some((4, 4)));
    }
}
