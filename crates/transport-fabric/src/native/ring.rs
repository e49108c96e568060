//! Control words over a fabric: a ring of slots at each end, into which the other end writes.
//!
//! These are the one-sided writes by which receivers report that they are ready (DSN 2018 section
//! 4.2). Words use the slots in turn. Every word contains how many words its writer has consumed in
//! the other direction, so a slot is never overwritten before it is free; and the receives that its
//! writer has posted, so that no block arrives before its receive is posted or exceeds the posted
//! memory. This file only counts; `link` moves the bytes.

use std::collections::VecDeque;

use transport::CONTROL_BYTES_MAX;

/// Slots of a ring.
pub const SLOTS: u64 = 64;
/// Slots reserved for [`Note::Consumed`], so that freeing slots never waits for a free slot.
const RESERVED_SLOTS: u64 = 4;
/// After this many words without one in the other direction, the reader acknowledges them.
const CONSUMED_UNTOLD_MAX: u64 = SLOTS / 4;
pub const SLOT_BYTES: usize = HEADER_BYTES + 4 * LENGTHS_MAX + CONTROL_BYTES_MAX;
/// Sequence, consumed, first receive; kind, length of the body, number of lengths. Lengths and the body
/// follow, as long as they are; what follows those means nothing.
const HEADER_BYTES: usize = 8 + 8 + 8 + 3;
/// Receives that one slot announces.
pub const LENGTHS_MAX: usize = 8;
/// The most bytes of words that may wait for a peer that does not read.
const QUEUED_BYTES_MAX: usize = 4 << 20;

/// The contents of a slot, besides its counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// A control word of the layer above.
    Word(Vec<u8>),
    /// Only the counts.
    Consumed,
    /// The writer has a block of this length for its peer's receive of this index, whose length was
    /// not announced.
    Wants { index: u64, bytes: u64 },
    /// A one-sided write with this immediate was placed.
    Written(u32),
}

/// A decoded slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Slot {
    sequence: u64,
    pub consumed: u64,
    pub receives: Receives,
    pub note: Note,
}

/// Some receives that a member has posted: the index of the first, and the length of each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Receives {
    pub first: u64,
    /// At most [`LENGTHS_MAX`].
    pub lengths: Vec<u32>,
}

impl Note {
    fn code(&self) -> u8 {
        match self {
            Self::Word(_) => 1,
            Self::Consumed => 2,
            Self::Wants { .. } => 3,
            Self::Written(_) => 4,
        }
    }

    fn body(&self) -> Vec<u8> {
        match self {
            Self::Word(word) => word.clone(),
            Self::Consumed => Vec::new(),
            Self::Wants { index, bytes } => [index.to_le_bytes(), bytes.to_le_bytes()].concat(),
            Self::Written(immediate) => immediate.to_le_bytes().into(),
        }
    }
}

/// Returns how many bytes of an encoded slot mean something.
pub fn used_bytes(slot: &[u8; SLOT_BYTES]) -> usize {
    HEADER_BYTES + 4 * usize::from(slot[26]) + usize::from(slot[25])
}

impl Slot {
    fn encode(&self) -> [u8; SLOT_BYTES] {
        let mut bytes = [0; SLOT_BYTES];
        let body = self.note.body();
        let lengths = &self.receives.lengths[..self.receives.lengths.len().min(LENGTHS_MAX)];
        bytes[0..8].copy_from_slice(&self.sequence.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.consumed.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.receives.first.to_le_bytes());
        bytes[24] = self.note.code();
        bytes[25] = body.len() as u8;
        bytes[26] = lengths.len() as u8;
        let (places, rest) = bytes[HEADER_BYTES..].split_at_mut(4 * lengths.len());
        for (place, length) in places.chunks_mut(4).zip(lengths) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        rest[..body.len()].copy_from_slice(&body);
        bytes
    }

    /// Decodes a slot; `None` for anything that [`Slot::encode`] does not make.
    fn decode(bytes: &[u8; SLOT_BYTES]) -> Option<Self> {
        let number = |at: usize| {
            bytes[at..].first_chunk().map(|chunk| u64::from_le_bytes(*chunk)).unwrap_or_default()
        };
        let (count, body_bytes) = (usize::from(bytes[26]), usize::from(bytes[25]));
        if count > LENGTHS_MAX || body_bytes > CONTROL_BYTES_MAX {
            return None;
        }
        let (lengths, rest) = bytes[HEADER_BYTES..].split_at_checked(4 * count)?;
        let body = rest.get(..body_bytes)?;
        let note = match bytes[24] {
            1 if !body.is_empty() => Note::Word(body.to_vec()),
            2 if body.is_empty() => Note::Consumed,
            3 if body.len() == 16 => {
                let number = |at: usize| body[at..].first_chunk().copied().map(u64::from_le_bytes);
                Note::Wants { index: number(0)?, bytes: number(8)? }
            }
            4 => Note::Written(u32::from_le_bytes(body.try_into().ok()?)),
            _ => return None,
        };
        let (lengths, _) = lengths.as_chunks::<4>();
        let lengths = lengths.iter().map(|length| u32::from_le_bytes(*length)).collect();
        let first = number(16);
        first.checked_add(LENGTHS_MAX as u64)?;
        let receives = Receives { first, lengths };
        Some(Self { sequence: number(0), consumed: number(8), receives, note })
    }
}

/// The words to a peer and from it, and their counts.
#[derive(Debug, Default)]
pub struct Ring {
    waiting: VecDeque<Note>,
    waiting_bytes: usize,
    /// How many of those are [`Note::Written`].
    waiting_writes: usize,
    /// Words written to the peer's slots.
    sent: u64,
    /// How many of them the peer has acknowledged as consumed.
    acknowledged: u64,
    /// Words read from this end's slots.
    consumed: u64,
    /// How many of them were acknowledged to the peer.
    told: u64,
    /// How many of the others were more than [`Note::Consumed`].
    untold: u64,
}

impl Ring {
    /// Queues a note. Returns false, without queuing it, if megabytes of words wait for the peer.
    pub fn push(&mut self, note: Note) -> bool {
        if self.waiting_bytes >= QUEUED_BYTES_MAX {
            return false;
        }
        self.waiting_bytes += SLOT_BYTES;
        self.waiting_writes += usize::from(matches!(note, Note::Written(_)));
        self.waiting.push_back(note);
        true
    }

    /// Returns the next slot to be written and its contents, if one is free; to be followed by
    /// [`Ring::wrote`].
    pub fn next(&self, receives: Receives) -> Option<(u64, [u8; SLOT_BYTES])> {
        let used = self.sent - self.acknowledged;
        let note = match self.waiting.front() {
            Some(note) if used < SLOTS - RESERVED_SLOTS => note.clone(),
            _ if self.untold >= CONSUMED_UNTOLD_MAX && used < SLOTS => Note::Consumed,
            _ => return None,
        };
        let (sequence, consumed) = (self.sent, self.consumed);
        let slot = Slot { sequence, consumed, receives, note };
        Some((self.sent % SLOTS, slot.encode()))
    }

    /// Records that the result of [`Ring::next`] is being written.
    pub fn wrote(&mut self) {
        let used = self.sent - self.acknowledged;
        if used < SLOTS - RESERVED_SLOTS
            && let Some(note) = self.waiting.pop_front()
        {
            self.waiting_bytes -= SLOT_BYTES;
            self.waiting_writes -= usize::from(matches!(note, Note::Written(_)));
        }
        self.sent += 1;
        self.told = self.consumed;
        self.untold = 0;
    }

    /// Returns whether a write of memory with its own immediate may be posted now.
    pub fn has_number(&self) -> bool {
        self.sent - self.acknowledged < SLOTS - RESERVED_SLOTS
    }

    /// Records such a write. It takes the number of a slot, which stays as it is: so that the peer's
    /// queue never gets more reports than there are slots, and the peer acknowledges them likewise.
    pub fn wrote_memory(&mut self) {
        self.sent += 1;
    }

    /// Handles such a write of the peer's.
    pub fn read_memory(&mut self) {
        self.consumed += 1;
        self.untold += 1;
    }

    /// Returns whether the report of a write waits for a slot.
    pub fn has_waiting_write(&self) -> bool {
        self.waiting_writes > 0
    }

    /// Handles a slot that the peer has written. Errors: how the peer broke the protocol.
    pub fn read(&mut self, slot: u64, bytes: &[u8; SLOT_BYTES]) -> Result<Slot, &'static str> {
        if slot != self.next_slot() {
            return Err("wrote control slots out of turn");
        }
        let read = Slot::decode(bytes).ok_or("wrote a malformed control slot")?;
        if read.sequence != self.consumed {
            return Err("announced a control slot that it had not written");
        }
        if read.consumed < self.acknowledged || read.consumed > self.sent {
            return Err("claims to have read control words that it did not");
        }
        self.acknowledged = read.consumed;
        self.consumed += 1;
        self.untold += u64::from(read.note != Note::Consumed);
        Ok(read)
    }

    /// Returns the slot that the peer writes next.
    pub fn next_slot(&self) -> u64 {
        self.consumed % SLOTS
    }

    /// Returns whether no word waits to be written.
    pub fn is_idle(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Returns the number of words written so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Returns the number of words read so far.
    pub fn consumed(&self) -> u64 {
        self.consumed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn some_receives() -> Receives {
        Receives { first: 7, lengths: vec![1, u32::MAX] }
    }

    /// Moves all words that can be moved from one to the other.
    fn deliver(from: &mut Ring, to: &mut Ring) -> Vec<Note> {
        let mut notes = Vec::new();
        while let Some((slot, bytes)) = from.next(some_receives()) {
            from.wrote();
            let read = to.read(slot, &bytes).unwrap();
            assert_eq!(read.receives, some_receives());
            notes.push(read.note);
        }
        notes
    }

    #[test]
    fn one_way_traffic_goes_on_and_on() {
        let (mut one, mut other) = (Ring::default(), Ring::default());
        let mut got = Vec::new();
        for index in 0..1_000_u64 {
            assert!(one.push(Note::Wants { index, bytes: 2 }));
            got.extend(deliver(&mut one, &mut other));
            let back = deliver(&mut other, &mut one);
            assert!(back.iter().all(|note| *note == Note::Consumed));
        }
        assert_eq!(
            got,
            (0..1_000).map(|index| Note::Wants { index, bytes: 2 }).collect::<Vec<_>>()
        );
        // Acknowledgements alone are not acknowledged.
        assert!(deliver(&mut one, &mut other).is_empty());
    }

    #[test]
    fn a_full_ring_waits_and_keeps_slots_for_answers() {
        let (mut one, mut other) = (Ring::default(), Ring::default());
        for index in 0..200 {
            one.push(Note::Word(vec![index; 3]));
            other.push(Note::Word(vec![index; 2]));
        }
        let mut slots = Vec::new();
        while let Some(slot) = one.next(Receives::default()) {
            one.wrote();
            slots.push(slot);
        }
        assert_eq!(slots.len() as u64, SLOTS - RESERVED_SLOTS);
        while other.next(Receives::default()).is_some() {
            other.wrote();
        }
        for (slot, bytes) in &slots {
            other.read(*slot, bytes).unwrap();
        }
        assert!(
            other.next(Receives::default()).is_some(),
            "an answer has a slot although the ring is full"
        );
    }

    #[test]
    fn broken_rules_are_named() {
        let (mut one, mut other) = (Ring::default(), Ring::default());
        one.push(Note::Word(vec![1]));
        let (slot, bytes) = one.next(Receives::default()).unwrap();
        assert!(other.read(slot + 1, &bytes).unwrap_err().contains("out of turn"));
        let with = |at: usize, value: u8| {
            let mut changed = bytes;
            changed[at] = value;
            Ring::default().read(slot, &changed)
        };
        assert!(with(0, 1).unwrap_err().contains("not written"));
        assert!(with(8, 1).unwrap_err().contains("did not"));
        for (at, value) in
            [(24, 0), (24, 9), (24, 3), (25, 0), (25, 65), (25, 255), (26, 9), (26, 255)]
        {
            assert!(with(at, value).unwrap_err().contains("malformed"));
        }
        other.read(slot, &bytes).unwrap();
        assert!(other.read(slot, &bytes).is_err());
    }

    /// What a writer leaves of a slot's earlier contents, which it need not overwrite.
    #[test]
    fn what_follows_a_slot_means_nothing() {
        let lengths: Vec<u32> = (1..=LENGTHS_MAX as u32).collect();
        let receives = Receives { first: 3, lengths };
        for (note, receives, expected_bytes) in [
            (Note::Consumed, Receives::default(), 27),
            (Note::Word(vec![5; 9]), some_receives(), 27 + 8 + 9),
            (Note::Word(vec![5; CONTROL_BYTES_MAX]), receives, SLOT_BYTES),
        ] {
            let mut ring = Ring::default();
            ring.push(note.clone());
            let (slot, mut bytes) = ring.next(receives.clone()).unwrap();
            assert_eq!(used_bytes(&bytes), expected_bytes);
            bytes[expected_bytes..].fill(0xff);
            let read = Ring::default().read(slot, &bytes).unwrap();
            assert_eq!((read.note, read.receives), (note, receives));
        }
    }

    #[test]
    fn reports_of_writes_that_wait_are_counted() {
        let mut ring = Ring::default();
        assert!(!ring.has_waiting_write());
        ring.push(Note::Word(vec![1]));
        ring.push(Note::Written(7));
        assert!(ring.has_waiting_write());
        ring.next(Receives::default()).unwrap();
        ring.wrote();
        assert!(ring.has_waiting_write());
        ring.next(Receives::default()).unwrap();
        ring.wrote();
        assert!(!ring.has_waiting_write());
    }

    #[test]
    fn a_peer_that_never_reads_is_refused_at_last() {
        let mut ring = Ring::default();
        let accepted = (0..1_000_000).take_while(|_| ring.push(Note::Consumed)).count();
        assert!((10_000..100_000).contains(&accepted), "{accepted}");
    }
}
