//! The memory that a linked member writes: a ring of slots for each of its directions.

use collective::{Contents, HEADER_BYTES, Header, InvalidHeader, Ring};
use transport::{EndpointId, LeaseError, PeerMemory, PostError, Transport};

use crate::{
    TeamSettings,
    ends::Marks,
    flags::{Flags, WORD_BYTES, words_bytes},
};

/// The longest contents with a flag in every word, which doubles their length.
const WORDS_CONTENTS_BYTES_MAX: usize = 128;
/// The length of its words, at the end of a slot.
const WORDS_BYTES_MAX: usize = words_bytes(HEADER_BYTES + WORDS_CONTENTS_BYTES_MAX);

/// Bits of the number of a write in its immediate. With the ring's bit they leave the highest one
/// to transports: some then need one operation instead of two.
const NUMBER_BITS: u32 = 30;

/// Both rings that one member writes.
pub(crate) struct Slots {
    rings: [Incoming; 2],
    slots: u64,
    slot_bytes: usize,
    flags: Flags,
    marks: Marks,
    /// A write that is not reported ends a wait in the transport, too.
    ends_waits: bool,
}

/// One ring, and how much of it was written.
struct Incoming {
    memory: PeerMemory,
    /// Writes that were seen.
    seen: u64,
    /// All writes before this one have arrived, as the transport has reported.
    reported: u64,
    /// Writes whose slots were reset.
    reset: u64,
    /// The last use of each slot.
    uses: Vec<Use>,
}

/// How a slot shows that it was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Mark {
    LastByte,
    InWords,
}

/// One use of a slot.
#[derive(Clone, Copy, Default)]
struct Use {
    /// What it fills at the end of the slot.
    bytes: usize,
    in_words: bool,
}

/// Returns the key under which a ring is exposed.
pub(crate) fn key(ring: Ring) -> u32 {
    ring as u32
}

/// Returns the immediate of a ring's write of this number.
pub(crate) fn immediate(ring: Ring, number: u64) -> u32 {
    (number as u32 & ((1 << NUMBER_BITS) - 1)) << 1 | ring as u32
}

/// Returns the length in bytes of contents of a slot with their header, as words; `None` if they are
/// too long for that.
pub(crate) fn as_words(contents: usize, slot_bytes: usize) -> Option<usize> {
    let bytes = words_bytes(contents + HEADER_BYTES);
    (contents <= WORDS_CONTENTS_BYTES_MAX && bytes <= slot_bytes).then_some(bytes)
}

impl Slots {
    pub(crate) fn new(settings: &TeamSettings) -> Self {
        let slots = settings.core.slots as usize;
        let bytes = slots * settings.core.slot_bytes as usize;
        let rings = Ring::ALL.map(|_| Incoming {
            memory: PeerMemory::zeroed(bytes),
            seen: 0,
            reported: 0,
            reset: 0,
            uses: vec![Use::default(); slots],
        });
        Self {
            rings,
            slots: slots as u64,
            slot_bytes: settings.core.slot_bytes as usize,
            flags: Flags::new(settings.core.slots, settings.planted),
            marks: Marks::default(),
            ends_waits: false,
        }
    }

    pub(crate) fn memory(&self, ring: Ring) -> &PeerMemory {
        &self.rings[ring as usize].memory
    }

    /// Lets the peer of an endpoint write, and decides what to look at. Errors: the transport cannot.
    pub(crate) fn expose<T: Transport>(
        &mut self,
        transport: &mut T,
        endpoint: EndpointId,
        settings: &TeamSettings,
    ) -> Result<Marks, PostError> {
        let writes = transport.one_sided().ok_or(PostError::Unsupported("one-sided writes"))?;
        for ring in Ring::ALL {
            writes.expose(endpoint, key(ring), self.memory(ring).clone())?;
        }
        let aligned = |ring: &Incoming| ring.memory.start().align_offset(WORD_BYTES) == 0;
        let is_aligned =
            self.slot_bytes.is_multiple_of(WORD_BYTES) && self.rings.iter().all(aligned);
        self.marks = Marks::new(settings.ends, writes.visibility(endpoint), is_aligned);
        self.ends_waits = writes.ends_waits(endpoint);
        Ok(self.marks)
    }

    /// Returns whether writes may come that are not reported.
    pub(crate) fn has_marks(&self) -> bool {
        self.marks.any()
    }

    /// Returns whether the peer has to be asked to end a wait by its next write.
    pub(crate) fn needs_asking(&self) -> bool {
        self.has_marks() && !self.ends_waits
    }

    /// Returns how many writes to each ring were seen.
    pub(crate) fn seen(&self) -> [u64; 2] {
        Ring::ALL.map(|ring| self.rings[ring as usize].seen)
    }

    /// Takes the transport's report of a write: it and all before it have arrived. Errors: how it
    /// violates the protocol.
    pub(crate) fn note_report(&mut self, immediate: u32) -> Result<(), &'static str> {
        const NOT_NEXT: &str = "a write to a slot that is not the next";
        const HALF: u64 = 1 << (NUMBER_BITS - 1);
        let ring = &mut self.rings[immediate as usize & 1];
        let ahead = u64::from(immediate >> 1).wrapping_sub(ring.seen) & (2 * HALF - 1);
        match ahead {
            0 => {}
            // Its flag was seen before.
            _ if ahead >= HALF && self.marks.any() => return Ok(()),
            // Those before it have flags that were not seen yet.
            _ if ahead < self.slots && self.marks.any() => {}
            _ => return Err(NOT_NEXT),
        }
        ring.reported = ring.reported.max(ring.seen + ahead + 1);
        Ok(())
    }

    /// Returns whether [`Slots::next`] would find something, as far as the last byte or word tells.
    pub(crate) fn shows_next(&self, ring: Ring) -> bool {
        let Incoming { memory, seen, reported, .. } = &self.rings[ring as usize];
        if seen < reported {
            return true;
        }
        let end = ((seen % self.slots) as usize + 1) * self.slot_bytes;
        self.mark(memory, *seen, end).is_some()
    }

    /// Returns whether the slot before `end` shows the write of this number by its last byte or its
    /// last word. Whatever else has become visible by then is visible to later loads.
    fn mark(&self, memory: &PeerMemory, number: u64, end: usize) -> Option<Mark> {
        let last = if self.marks.words {
            let word = memory.load_word(end - WORD_BYTES).ok().flatten()?;
            if self.flags.value(number, word).is_some() {
                return Some(Mark::InWords);
            }
            word.to_le_bytes()[WORD_BYTES - 1]
        } else if self.marks.last_byte {
            memory.load_byte(end - 1).ok()?
        } else {
            return None;
        };
        (self.marks.last_byte && last == self.flags.byte(number)).then_some(Mark::LastByte)
    }

    /// Returns the slot and the header of the next write, once all of it has arrived. The header is
    /// copied once: the peer may change it at any time.
    pub(crate) fn next(&mut self, ring: Ring) -> Result<Option<(u32, Header)>, InvalidHeader> {
        let Incoming { memory, seen, reported, .. } = &self.rings[ring as usize];
        let (number, is_reported) = (*seen, seen < reported);
        let slot = (number % self.slots) as usize;
        let end = (slot + 1) * self.slot_bytes;
        let mark = self.mark(memory, number, end);
        if !is_reported && mark.is_none() {
            return Ok(None);
        }
        let in_words = mark == Some(Mark::InWords);
        let (header, bytes) = if in_words {
            match self.header_in_words(memory, number, end)? {
                Some(found) => found,
                None if is_reported => return Err(InvalidHeader),
                None => return Ok(None),
            }
        } else {
            let mut encoded = [0; HEADER_BYTES];
            memory.copy_out(end - HEADER_BYTES, &mut encoded).map_err(|_| InvalidHeader)?;
            let header = Header::decode(&encoded)?;
            (header, HEADER_BYTES.saturating_add(header.bytes as usize))
        };
        if header.flag != self.flags.byte(number) || bytes > self.slot_bytes {
            return Err(InvalidHeader);
        }
        let ring = &mut self.rings[ring as usize];
        ring.seen += 1;
        ring.uses[slot] = Use { bytes, in_words };
        Ok(Some((slot as u32, header)))
    }

    /// Returns the header in the words before `end`, and the length of all words of the write; `None`
    /// if not all of them are there yet.
    fn header_in_words(
        &self,
        memory: &PeerMemory,
        number: u64,
        end: usize,
    ) -> Result<Option<(Header, usize)>, InvalidHeader> {
        let mut encoded = [0; HEADER_BYTES];
        let start = end.checked_sub(words_bytes(HEADER_BYTES)).ok_or(InvalidHeader)?;
        for (value, at) in encoded.chunks_exact_mut(4).zip((start..).step_by(WORD_BYTES)) {
            let Some(found) = self.value(memory, number, at) else { return Ok(None) };
            value.copy_from_slice(&found);
        }
        let header = Header::decode(&encoded)?;
        let bytes = as_words(header.bytes as usize, self.slot_bytes).ok_or(InvalidHeader)?;
        let mut contents = (end - bytes..start).step_by(WORD_BYTES);
        let is_whole = contents.all(|at| self.value(memory, number, at).is_some());
        Ok(is_whole.then_some((header, bytes)))
    }

    /// Returns the value of a word, if it is of the write of this number.
    fn value(&self, memory: &PeerMemory, number: u64, at: usize) -> Option<[u8; 4]> {
        self.flags.value(number, memory.load_word(at).ok().flatten()?)
    }

    /// Copies contents out of a slot.
    pub(crate) fn copy_out(&self, contents: &Contents, into: &mut [u8]) -> Result<(), LeaseError> {
        let Incoming { memory, uses, .. } = &self.rings[contents.ring as usize];
        let end = (contents.slot as usize + 1) * self.slot_bytes;
        if !uses[contents.slot as usize].in_words {
            return memory.copy_out(end - HEADER_BYTES - into.len(), into);
        }
        // The last word ends where the header begins.
        let mut at = end - words_bytes(HEADER_BYTES);
        for value in into.rchunks_mut(4) {
            at -= WORD_BYTES;
            let word = memory.load_word(at)?.unwrap_or_default();
            let found = (word as u32).to_le_bytes();
            value.copy_from_slice(&found[4 - value.len()..]);
        }
        Ok(())
    }

    /// Resets the words of the first `count` writes of a ring, before the peer is notified that their
    /// slots are free: it writes them only afterwards. No word of a free slot is then that of a write.
    pub(crate) fn reset(&mut self, ring: Ring, count: u64) {
        let ring = &mut self.rings[ring as usize];
        let numbers = std::mem::replace(&mut ring.reset, count)..count;
        if !self.marks.words || !self.flags.resets() {
            return;
        }
        for number in numbers {
            let slot = (number % self.slots) as usize;
            let bytes = ring.uses[slot].bytes.min(WORDS_BYTES_MAX);
            let end = (slot + 1) * self.slot_bytes;
            let reset = ring.memory.copy_in(end - bytes, &[0; WORDS_BYTES_MAX][..bytes]);
            debug_assert!(reset.is_ok(), "slots are inside of the ring");
        }
    }
}

#[cfg(test)]
mod tests {
    use collective::{Call, Kind};

    use super::*;
    use crate::{WriteEnds, flags::PlantedBug};

    const SLOT_BYTES: usize = 512;

    fn slots(ends: WriteEnds, planted: Option<PlantedBug>) -> Slots {
        let mut settings = TeamSettings::new(1, 2, 0);
        (settings.core.slots, settings.core.slot_bytes) = (2, SLOT_BYTES as u32);
        settings.planted = planted;
        let mut slots = Slots::new(&settings);
        let is_aligned = slots.memory(Ring::Up).start().align_offset(WORD_BYTES) == 0;
        slots.marks = Marks::new(ends, Default::default(), is_aligned);
        slots
    }

    /// A write of a ring as a member makes it.
    fn write(number: u64, contents: &[u8], in_words: bool) -> Vec<u8> {
        let flags = Flags::new(2, None);
        let call = Call::new(Kind::Broadcast, 0, contents.len() as u64);
        let (bytes, flag) = (contents.len() as u32, flags.byte(number));
        let header = Header { operation: number, call, offset: 0, bytes, flag }.encode();
        if !in_words {
            return [contents, &header].concat();
        }
        let mut words = vec![0; words_bytes(contents.len() + HEADER_BYTES)];
        flags.put_words(number, contents, &header, &mut words);
        words
    }

    fn place(slots: &Slots, number: u64, bytes: &[u8]) {
        let end = Flags::new(2, None).end(number, SLOT_BYTES) as usize;
        slots.memory(Ring::Up).copy_in(end - bytes.len(), bytes).unwrap();
    }

    fn contents(slots: &Slots, slot: u32, bytes: usize) -> Vec<u8> {
        let mut copy = vec![0; bytes];
        let contents = Contents { from: 1, ring: Ring::Up, slot, bytes: bytes as u32 };
        slots.copy_out(&contents, &mut copy).unwrap();
        copy
    }

    #[test]
    fn contents_come_out_as_they_were_written() {
        for (ends, in_words) in [(WriteEnds::LastByte, false), (WriteEnds::Words, true)] {
            let mut slots = slots(ends, None);
            if !slots.has_marks() {
                eprintln!("SKIPPED: memory is not aligned");
                continue;
            }
            for number in 0..60 {
                assert!(slots.next(Ring::Up).unwrap().is_none() && !slots.shows_next(Ring::Up));
                let bytes: Vec<u8> = (0..number as u8 * 2).map(|at| at ^ 90).collect();
                place(&slots, number, &write(number, &bytes, in_words));
                assert!(slots.shows_next(Ring::Up));
                let (slot, header) = slots.next(Ring::Up).unwrap().unwrap();
                assert_eq!((u64::from(slot), header.operation), (number % 2, number));
                assert_eq!(contents(&slots, slot, bytes.len()), bytes);
                slots.reset(Ring::Up, number + 1);
                // Its report comes late.
                slots.note_report(immediate(Ring::Up, number)).unwrap();
            }
            assert_eq!(slots.seen(), [60, 0]);
        }
    }

    /// Every word of a write counts, wherever it stands.
    #[test]
    fn a_write_in_words_is_seen_once_all_words_are_there() {
        let words = write(0, &[7; 50], true);
        for missing in (0..words.len()).step_by(WORD_BYTES) {
            let mut slots = slots(WriteEnds::Words, None);
            if !slots.has_marks() {
                return eprintln!("SKIPPED: memory is not aligned");
            }
            let mut partly = words.clone();
            partly[missing..missing + WORD_BYTES].fill(0);
            place(&slots, 0, &partly);
            assert!(slots.next(Ring::Up).unwrap().is_none(), "the word at {missing} is missing");
            place(&slots, 0, &words);
            assert!(slots.next(Ring::Up).unwrap().is_some());
            assert_eq!(contents(&slots, 0, 50), [7; 50]);
        }
    }

    /// Otherwise a member that waits for another one would look again and again.
    #[test]
    fn a_ring_that_is_full_or_was_not_reset_shows_nothing() {
        for (ends, in_words) in [(WriteEnds::LastByte, false), (WriteEnds::Words, true)] {
            let mut slots = slots(ends, None);
            for number in 0..2 {
                place(&slots, number, &write(number, &[1, 2], in_words));
                assert_eq!(slots.next(Ring::Up).unwrap().is_some(), slots.has_marks());
            }
            assert!(!slots.shows_next(Ring::Up) && slots.next(Ring::Up).unwrap().is_none());
        }
    }

    /// Contents of a long message look like words of a later one.
    #[test]
    fn words_of_former_contents_are_reset() {
        for (planted, is_seen) in [(None, false), (Some(PlantedBug::NoReset), true)] {
            let mut slots = slots(WriteEnds::Words, planted);
            if !slots.has_marks() {
                return eprintln!("SKIPPED: memory is not aligned");
            }
            // The words of the write after the next, behind which the header of this one takes the place of others.
            let later = write(2, &[1; 128], true);
            place(&slots, 0, &write(0, &later[..later.len() - HEADER_BYTES], false));
            slots.note_report(immediate(Ring::Up, 0)).unwrap();
            assert!(slots.next(Ring::Up).unwrap().is_some());
            place(&slots, 1, &write(1, &[], true));
            assert!(slots.next(Ring::Up).unwrap().is_some());
            slots.reset(Ring::Up, 2);
            // Of that write only the last words have become visible.
            let visible = write(2, &[2; 128], true);
            place(&slots, 2, &visible[visible.len() - words_bytes(HEADER_BYTES)..]);
            assert_eq!(slots.next(Ring::Up).unwrap().is_some(), is_seen);
        }
    }

    #[test]
    fn impossible_reports_and_headers_are_refused() {
        for ends in [WriteEnds::Reports, WriteEnds::LastByte] {
            let mut slots = slots(ends, None);
            assert!(slots.note_report(immediate(Ring::Up, 2)).is_err(), "there are two slots");
            let ahead = slots.note_report(immediate(Ring::Up, 1));
            assert_eq!(ahead.is_ok(), ends == WriteEnds::LastByte);
            let behind = slots.note_report(immediate(Ring::Down, u64::MAX));
            assert_eq!(behind.is_ok(), ends == WriteEnds::LastByte);
        }
        let mut slots = slots(WriteEnds::Reports, None);
        slots.note_report(immediate(Ring::Up, 0)).unwrap();
        assert!(slots.next(Ring::Up).is_err(), "nothing was written");
        place(&slots, 0, &write(2, &[1], false));
        assert!(slots.next(Ring::Up).is_err(), "the flag of another use");
        place(&slots, 0, &write(0, &[1; SLOT_BYTES], false)[SLOT_BYTES..]);
        assert!(slots.next(Ring::Up).is_err(), "longer than a slot");
        place(&slots, 0, &write(0, &[1], false));
        assert!(slots.next(Ring::Up).unwrap().is_some());
    }
}
