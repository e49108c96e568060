//! Memory that a provider requires to be registered before use: registered on demand, kept with its
//! region, and released with it.
//!
//! Registration pins pages, which takes longer than sending a block, so large pieces are registered
//! and kept. It never accesses the memory, except where the kernel cannot pin it: Linux 6.1 a
//! mapping of a file that is open for reading, Linux from 6.5 on one that is open for writing.
//! Blocks then pass through a copy of the piece.
//!
//! The polling thread registers: another one would make credits precede their receives, and memory could not be freed
//! while it is being pinned.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    ops::Range,
    sync::{Arc, Weak},
};

use rustix::process::{Resource, getrlimit};
use transport::{Memory, ReadLease, Region};

use crate::{
    native::{
        pinned::{BAD_ADDRESS, NOT_SUPPORTED, Pinned},
        sys::{Errno, Object},
    },
    settings::Copies,
};

/// Memory is registered in pieces of this length when it is first used, or of a block's if that is longer: a
/// mapped file may be larger than what can be pinned at once, and the thread that polls does nothing else
/// meanwhile (pinning takes 0.1 to 0.25 ms for each MiB, a copy more).
const PIECE_BYTES: usize = 32 << 20;
/// The same for memory that is registered ahead, where devices are better off with few pieces.
const AHEAD_BYTES: usize = 256 << 20;
/// Pieces of one region that stay registered although nothing uses them: 1 GiB.
const IDLE_PIECES_MAX: usize = 32;

const NO_MEMORY: Errno = Errno(12);
const NOT_PERMITTED: Errno = Errno(1);
const NO_SPACE: Errno = Errno(28);

/// The pieces of one region that are registered with one device's domain; attached to the region.
struct Pieces {
    domain: usize,
    /// By the start of their ranges, of which none contains another: so their ends ascend, too.
    by_start: BTreeMap<usize, Piece>,
}

struct Piece {
    range: Range<usize>,
    pinned: Arc<Pinned>,
    /// Stays registered until the memory is freed, used or not.
    is_kept: bool,
}

impl Piece {
    fn contains(&self, wanted: &Range<usize>) -> bool {
        self.range.start <= wanted.start && wanted.end <= self.range.end
    }

    fn is_idle(&self) -> bool {
        !self.is_kept && Arc::strong_count(&self.pinned) == 1
    }
}

impl Pieces {
    fn find(&mut self, wanted: &Range<usize>) -> Option<&mut Piece> {
        let (_, nearest) = self.by_start.range_mut(..=wanted.start).next_back()?;
        Some(nearest).filter(|piece| piece.contains(wanted))
    }

    /// Releases the first piece that nothing uses, if there are many: one for each new one, since that takes
    /// time, too.
    fn release_idle(&mut self) {
        let mut idle = self.by_start.iter().filter(|(_, piece)| piece.is_idle());
        let first = idle.next().map(|(&start, _)| start);
        if let Some(first) = first.filter(|_| 1 + idle.count() >= IDLE_PIECES_MAX) {
            self.by_start.remove(&first);
        }
    }

    /// Adds a piece that none contains, and drops those that it contains.
    fn insert(&mut self, mut piece: Piece) {
        let inside =
            self.by_start.extract_if(piece.range.clone(), |_, old| piece.contains(&old.range));
        let kept = inside.filter(|(_, old)| old.is_kept).count();
        piece.is_kept |= kept > 0;
        self.by_start.insert(piece.range.start, piece);
    }
}

/// A piece that was used lately, with what identifies its memory.
struct Recent {
    memory: (usize, usize, bool),
    range: Range<usize>,
    /// Alive only as long as its memory: the region or the holder of a lease of it keeps it.
    pinned: Weak<Pinned>,
}

/// A table in which each piece has one place.
struct RecentPieces(Vec<Option<Recent>>);

impl RecentPieces {
    const PLACES: usize = 64;

    /// Returns the place of the piece that contains the byte at this offset.
    fn place(memory: &Memory<'_>, at: usize) -> usize {
        // Multiplied by the golden ratio, for all bits to count.
        let number = (memory.start() as usize / 4096).wrapping_add(at / PIECE_BYTES) as u64;
        (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 58) as usize % Self::PLACES
    }

    /// A registration that is alive covers memory that is alive; and memory with the same start and length as
    /// that of the lease at hand is the same memory, or another region of the same bytes, which the
    /// lease keeps as well.
    fn find(&self, memory: &Memory<'_>, wanted: &Range<usize>) -> Option<Arc<Pinned>> {
        let recent = self.0.get(Self::place(memory, wanted.start))?.as_ref()?;
        let is_inside = recent.range.start <= wanted.start && wanted.end <= recent.range.end;
        (is_inside && recent.memory == identity(memory)).then(|| recent.pinned.upgrade())?
    }

    fn note(&mut self, memory: &Memory<'_>, at: usize, range: Range<usize>, pinned: &Arc<Pinned>) {
        self.0.resize_with(Self::PLACES, || None);
        let pinned = Arc::downgrade(pinned);
        self.0[Self::place(memory, at)] = Some(Recent { memory: identity(memory), range, pinned });
    }
}

fn identity(memory: &Memory<'_>) -> (usize, usize, bool) {
    (memory.start() as usize, memory.bytes(), memory.is_writable())
}

/// Registers memory with one device.
pub struct Registrar {
    domain: Arc<Object>,
    is_needed: bool,
    copies: Copies,
    /// Found without the lock of a region's attachments.
    recent: RefCell<RecentPieces>,
}

impl Registrar {
    pub fn new(domain: Arc<Object>, is_needed: bool, copies: Copies) -> Self {
        let is_needed = is_needed || copies == Copies::Always;
        Self { domain, is_needed, copies, recent: RefCell::new(RecentPieces(Vec::new())) }
    }

    /// Returns the registration that covers `bytes` bytes from `start`, which are inside `memory`, of which
    /// the caller has a lease; none if the provider does not require it.
    ///
    /// Errors: as text, with the remedy.
    pub fn cover(
        &self,
        memory: &Memory<'_>,
        start: *const u8,
        bytes: usize,
    ) -> Result<Option<Arc<Pinned>>, String> {
        if !self.is_needed || bytes == 0 {
            return Ok(None);
        }
        let first = start as usize - memory.start() as usize;
        let wanted = first..first + bytes;
        let recent = self.recent.borrow().find(memory, &wanted);
        recent.map_or_else(|| self.piece(memory, &wanted, false), Ok).map(Some)
    }

    /// As [`Registrar::cover`], for bytes that the device may read from now on.
    pub fn cover_to_read(&self, from: &ReadLease) -> Result<Option<Arc<Pinned>>, String> {
        let pinned = self.cover(&from.memory(), from.as_ptr(), from.bytes())?;
        if let Some(pinned) = &pinned {
            // SAFETY: the piece covers what is leased, and the lease is for reading.
            unsafe { pinned.before_reading(from.as_ptr(), from.bytes()) }
        }
        Ok(pinned)
    }

    /// Registers all of a region, until its memory is freed.
    ///
    /// Errors: as text, with the remedy.
    pub fn register(&self, region: &Region) -> Result<(), String> {
        if !self.is_needed || region.is_stored() {
            return Ok(());
        }
        let (memory, part) = region.memory();
        let mut at = part.start;
        while at < part.end {
            let end = (at / AHEAD_BYTES + 1).saturating_mul(AHEAD_BYTES).min(part.end);
            self.piece(&memory, &(at..end), true)?;
            at = end;
        }
        Ok(())
    }

    /// Returns a registered piece that contains the range `wanted` of `memory`; a new one if there
    /// is none.
    fn piece(
        &self,
        memory: &Memory<'_>,
        wanted: &Range<usize>,
        keep: bool,
    ) -> Result<Arc<Pinned>, String> {
        let domain = self.domain.address();
        let mut attachments = memory.attachments();
        let of_domain = |pieces: &Pieces| pieces.domain == domain;
        let known =
            attachments.iter().position(|attached| attached.downcast_ref().is_some_and(of_domain));
        let at = known.unwrap_or_else(|| {
            attachments.push(Box::new(Pieces { domain, by_start: BTreeMap::new() }));
            attachments.len() - 1
        });
        let Some(pieces) = attachments[at].downcast_mut::<Pieces>() else {
            return Err("registrations of this memory were lost".into());
        };
        if pieces.find(wanted).is_none() {
            pieces.release_idle();
            pieces.insert(self.register_around(memory, wanted)?);
        }
        let Some(piece) = pieces.find(wanted) else {
            return Err("registrations of this memory were lost".into());
        };
        piece.is_kept |= keep;
        let mut recent = self.recent.borrow_mut();
        recent.note(memory, wanted.start, piece.range.clone(), &piece.pinned);
        Ok(Arc::clone(&piece.pinned))
    }

    fn register_around(&self, memory: &Memory<'_>, wanted: &Range<usize>) -> Result<Piece, String> {
        let range = piece_around(wanted, memory.bytes());
        let start = memory.start().wrapping_add(range.start).cast_const();
        let (bytes, is_writable) = (range.len(), memory.is_writable());
        // SAFETY: the range is inside the region, which drops its attachments, and with them the
        // registration, before its memory. Other holders of the registration hold a lease of the
        // region as well, and drop it after the registration.
        let pinned = unsafe { Pinned::new(&self.domain, self.copies, start, bytes, is_writable) };
        let pinned = pinned.map_err(|error| explain(error, bytes))?;
        Ok(Piece { range, pinned: Arc::new(pinned), is_kept: false })
    }
}

/// Returns the whole pieces of a region of `bytes` bytes that contain this range. Those of a block on the boundary of two are
/// registered together, even if both were registered ahead.
fn piece_around(wanted: &Range<usize>, bytes: usize) -> Range<usize> {
    let start = wanted.start / PIECE_BYTES * PIECE_BYTES;
    let end = wanted.end.div_ceil(PIECE_BYTES).saturating_mul(PIECE_BYTES);
    start..end.min(bytes)
}

/// Explains why memory was not registered, with the remedy.
pub fn explain(error: Errno, bytes: usize) -> String {
    let help = match error {
        NO_MEMORY | NOT_PERMITTED => format!(
            "the limit on locked memory is {}: raise it by `ulimit -l unlimited`, or by a line \
             `* - memlock unlimited` in /etc/security/limits.conf; or there are too many regions \
             for the device",
            locked_memory_limit()
        ),
        NO_SPACE => "the device cannot register more regions: use larger ones".into(),
        BAD_ADDRESS | NOT_SUPPORTED => "its file system cannot give pages to a network device: \
                                        copy the file to tmpfs or another file system"
            .into(),
        _ => "the device refuses".into(),
    };
    format!("registering {bytes} bytes: {}; {help}", error.text())
}

fn locked_memory_limit() -> String {
    match getrlimit(Resource::Memlock).current {
        Some(bytes) => format!("{} KiB", bytes / 1024),
        None => "not set".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        FabricSettings,
        native::{
            device::{self, Device},
            sys,
        },
    };

    /// A device whose registrar registers copies.
    fn device() -> Device {
        sys::load().unwrap();
        let mut settings = FabricSettings::new("tcp");
        settings.copies = Copies::Always;
        Device::open(device::choose(&settings).unwrap().remove(0), &settings).unwrap()
    }

    fn use_one(device: &Device, region: &Region, range: Range<usize>) -> Arc<Pinned> {
        let lease = region.read(range).unwrap();
        device.registrar.cover(&lease.memory(), lease.as_ptr(), lease.bytes()).unwrap().unwrap()
    }

    /// Returns the registered ranges: numbers of the first piece and of the one behind the last.
    fn registered(region: &Region) -> Vec<(usize, usize)> {
        let (memory, _) = region.memory();
        let attachments = memory.attachments();
        let all = attachments.iter().filter_map(|attached| attached.downcast_ref::<Pieces>());
        let ranges = all.flat_map(|pieces| pieces.by_start.values().map(|piece| &piece.range));
        ranges.map(|range| (range.start / PIECE_BYTES, range.end.div_ceil(PIECE_BYTES))).collect()
    }

    #[test]
    fn pieces_are_whole_and_stay_inside() {
        assert_eq!(piece_around(&(0..10), 100), 0..100);
        let large = 3 * PIECE_BYTES + 5;
        assert_eq!(piece_around(&(0..1), large), 0..PIECE_BYTES);
        assert_eq!(piece_around(&(PIECE_BYTES - 1..PIECE_BYTES + 1), large), 0..2 * PIECE_BYTES);
        assert_eq!(piece_around(&(large - 1..large), large), 3 * PIECE_BYTES..large);
    }

    #[test]
    fn what_is_used_is_registered_once() {
        let (device, region) = (device(), Region::zeroed(4 * PIECE_BYTES + 5));
        let first = use_one(&device, &region, 0..10);
        assert_eq!(registered(&region), [(0, 1)]);
        assert!(Arc::ptr_eq(&first, &use_one(&device, &region, 100..PIECE_BYTES)));
        let across = use_one(&device, &region, PIECE_BYTES - 1..PIECE_BYTES + 1);
        assert_eq!(registered(&region), [(0, 2)], "replaces the shorter one");
        assert!(Arc::ptr_eq(&across, &use_one(&device, &region, PIECE_BYTES..PIECE_BYTES + 9)));
        use_one(&device, &region, 4 * PIECE_BYTES..4 * PIECE_BYTES + 5);
        assert_eq!(registered(&region), [(0, 2), (4, 5)]);
        device.registrar.register(&region).unwrap();
        assert_eq!(registered(&region), [(0, 5)], "ahead, in longer pieces");
    }

    #[test]
    fn pieces_that_nothing_uses_are_released_one_by_one() {
        let (device, region) = (device(), Region::zeroed((IDLE_PIECES_MAX + 10) * PIECE_BYTES));
        let at = |piece: usize| piece * PIECE_BYTES..piece * PIECE_BYTES + 1;
        let held = use_one(&device, &region, at(0));
        (1..IDLE_PIECES_MAX + 1).for_each(|piece| drop(use_one(&device, &region, at(piece))));
        assert_eq!(registered(&region).len(), 1 + IDLE_PIECES_MAX);
        use_one(&device, &region, at(IDLE_PIECES_MAX + 1));
        let mut expected = vec![(0, 1)];
        expected.extend((2..IDLE_PIECES_MAX + 2).map(|piece| (piece, piece + 1)));
        assert_eq!(registered(&region), expected);
        drop(held);
        use_one(&device, &region, at(IDLE_PIECES_MAX + 2));
        assert_eq!(registered(&region)[0], (2, 3), "then the one that was in use");
    }

    /// Otherwise memory that is mapped at the same address later would be taken for it.
    #[test]
    fn what_was_used_lately_ends_with_its_memory() {
        let (device, region) = (device(), Region::zeroed(100));
        let pinned = Arc::downgrade(&use_one(&device, &region, 0..10));
        assert_eq!(pinned.strong_count(), 1, "the region keeps it");
        drop(region);
        assert_eq!(pinned.strong_count(), 0);
    }
}
