//! Regions' memory, registered with the device of one queue pair: on demand, in pieces, until the queue pair or the memory
//! is gone.
//!
//! Registering pins pages, which takes as long as copying them, so pieces stay registered for later blocks. The kernel
//! refuses some memory, such as mappings of files: its blocks are copied.

use std::{
    ops::Range,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use memory::Memory;

use crate::device::{Device, Registered, Registration};

/// Memory is registered in pieces of this length, counted from its region's start, or of a block's if that is longer: the
/// thread that polls does nothing else meanwhile.
const PIECE_BYTES: usize = 32 << 20;
/// Pieces that stay registered although no block in transit is in them: 1 GiB.
const IDLE_PIECES_MAX: usize = 32;

/// Registered memory of a lease.
pub(crate) struct Span {
    registration: Arc<Registration>,
    range: Range<usize>,
}

impl Span {
    pub(crate) fn registered(&self) -> Registered<'_> {
        Registered { registration: &self.registration, range: self.range.clone() }
    }
}

/// Pieces in the order in which they were registered.
struct Table<R>(Mutex<Vec<Arc<R>>>);

impl<R> Table<R> {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<R>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What can be asked of a registered piece.
pub(crate) trait Piece {
    /// Its first address, and the one behind its last.
    fn addresses(&self) -> Range<u64>;
}

impl Piece for Registration {
    fn addresses(&self) -> Range<u64> {
        self.addresses()
    }
}

/// Attached to a region: ends the registrations of its memory before that is freed.
struct Guard<R: Piece> {
    table: Weak<Table<R>>,
    start: u64,
    bytes: u64,
    /// The device has refused a piece of it.
    is_refused: bool,
}

impl<R: Piece> Drop for Guard<R> {
    fn drop(&mut self) {
        let memory = self.start..self.start + self.bytes;
        if let Some(table) = self.table.upgrade() {
            table.lock().retain(|piece| {
                let piece = piece.addresses();
                piece.end <= memory.start || memory.end <= piece.start
            });
        }
    }
}

/// Registers memory with one device, and owns the registrations.
pub(crate) struct Registrar<R = Registration>(Arc<Table<R>>);

impl Registrar {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Table(Mutex::default())))
    }

    /// Returns `bytes` bytes from `start`, registered; they are in `memory`, of which the caller has a lease that outlives
    /// the result. `None` if they have to be copied.
    pub(crate) fn cover(
        &self,
        device: &Device,
        memory: &Memory<'_>,
        start: *const u8,
        bytes: usize,
    ) -> Option<Span> {
        let registration = self.piece(memory, start as u64, bytes, |begin, bytes| {
            // SAFETY: the piece is in the memory. The guard ends the registration before the memory is freed; others that
            // hold it have a lease, which they drop afterwards.
            let made = unsafe { device.register_foreign(begin, bytes, memory.is_writable()) };
            made.map_err(|error| error.to_string())
        })?;
        let begin = (start as u64 - registration.addresses().start) as usize;
        Some(Span { registration, range: begin..begin + bytes })
    }
}

impl<R: Piece + Send + Sync + 'static> Registrar<R> {
    /// The piece that has these bytes; one that `register` makes if there is none.
    fn piece(
        &self,
        memory: &Memory<'_>,
        start: u64,
        bytes: usize,
        register: impl FnOnce(*mut u8, usize) -> Result<R, String>,
    ) -> Option<Arc<R>> {
        let mut attachments = memory.attachments();
        let is_own = |guard: &Guard<R>| guard.table.as_ptr() == Arc::as_ptr(&self.0);
        let known = attachments.iter().position(|one| one.downcast_ref().is_some_and(is_own));
        let at = known.unwrap_or_else(|| {
            // Those of queue pairs that are gone have nothing left to end.
            attachments.retain(|one| {
                one.downcast_ref().is_none_or(|guard: &Guard<R>| guard.table.strong_count() > 0)
            });
            attachments.push(Box::new(Guard {
                table: Arc::downgrade(&self.0),
                start: memory.start() as u64,
                bytes: memory.bytes() as u64,
                is_refused: false,
            }));
            attachments.len() - 1
        });
        let guard = attachments[at].downcast_mut::<Guard<R>>()?;
        if guard.is_refused || bytes == 0 {
            return None;
        }
        let mut pieces = self.0.lock();
        let wanted = start..start + bytes as u64;
        let has = |piece: &&Arc<R>| {
            let piece = piece.addresses();
            piece.start <= wanted.start && wanted.end <= piece.end
        };
        if let Some(found) = pieces.iter().find(has) {
            return Some(Arc::clone(found));
        }
        release_idle(&mut pieces);
        let offset = start as usize - memory.start() as usize;
        let begin = offset / PIECE_BYTES * PIECE_BYTES;
        let end = (offset + bytes).next_multiple_of(PIECE_BYTES).min(memory.bytes());
        match register(memory.start().wrapping_add(begin), end - begin) {
            Ok(made) => {
                pieces.push(Arc::new(made));
                pieces.last().cloned()
            }
            Err(why) => {
                guard.is_refused = true;
                tracing::debug!(why, "blocks are copied into memory of the queue pair");
                None
            }
        }
    }
}

/// Makes room for one more: ends the oldest piece that nothing uses, if there are many.
fn release_idle<R>(pieces: &mut Vec<Arc<R>>) {
    let is_idle = |piece: &Arc<R>| Arc::strong_count(piece) == 1;
    if pieces.iter().filter(|piece| is_idle(piece)).count() >= IDLE_PIECES_MAX
        && let Some(first) = pieces.iter().position(is_idle)
    {
        pieces.remove(first);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use memory::Region;

    /// What stands for a registration.
    struct Pinned(Range<u64>);

    impl Piece for Pinned {
        fn addresses(&self) -> Range<u64> {
            self.0.clone()
        }
    }

    fn registrar() -> Registrar<Pinned> {
        Registrar(Arc::new(Table(Mutex::default())))
    }

    fn pin(begin: *mut u8, bytes: usize) -> Result<Pinned, String> {
        Ok(Pinned(begin as u64..begin as u64 + bytes as u64))
    }

    /// The piece for a block, whose lease has ended.
    fn cover(
        registrar: &Registrar<Pinned>,
        region: &Region,
        block: Range<usize>,
    ) -> Option<Arc<Pinned>> {
        let lease = region.read(block).unwrap();
        registrar.piece(&lease.memory(), lease.as_ptr() as u64, lease.bytes(), pin)
    }

    /// Registered pieces: lengths, in the order in which they were registered.
    fn lengths(registrar: &Registrar<Pinned>) -> Vec<u64> {
        registrar.0.lock().iter().map(|piece| piece.0.end - piece.0.start).collect()
    }

    #[test]
    fn a_piece_is_registered_once_and_covers_blocks_across_its_end() {
        let (registrar, region) = (registrar(), Region::zeroed(3 * PIECE_BYTES + 5));
        let first = cover(&registrar, &region, 10..20).unwrap();
        let same = cover(&registrar, &region, PIECE_BYTES - 9..PIECE_BYTES).unwrap();
        assert!(Arc::ptr_eq(&first, &same));
        let across = cover(&registrar, &region, PIECE_BYTES - 1..PIECE_BYTES + 1).unwrap();
        let end = 3 * PIECE_BYTES;
        cover(&registrar, &region, end + 1..end + 5).unwrap();
        let piece = PIECE_BYTES as u64;
        assert_eq!(lengths(&registrar), [piece, 2 * piece, 5]);
        assert_eq!(across.0.start, first.0.start);
        assert!(cover(&registrar, &region, 7..7).is_none(), "nothing to register");
    }

    #[test]
    fn registrations_end_before_the_memory_does() {
        let registrar = registrar();
        let (gone, kept) = (Region::zeroed(100), Region::zeroed(200));
        let pinned = Arc::downgrade(&cover(&registrar, &gone, 0..100).unwrap());
        cover(&registrar, &kept, 0..1).unwrap();
        let clone = gone.clone();
        drop(gone);
        assert_eq!(pinned.strong_count(), 1, "there is a clone");
        drop(clone);
        assert_eq!((pinned.strong_count(), lengths(&registrar)), (0, vec![200]));
        let vector = kept.try_into_vec().unwrap();
        assert_eq!((vector.len(), lengths(&registrar)), (200, vec![]));
    }

    #[test]
    fn registrations_end_with_their_queue_pair() {
        let region = Region::zeroed(100);
        for _ in 0..5 {
            let registrar = registrar();
            let pinned = Arc::downgrade(&cover(&registrar, &region, 0..100).unwrap());
            assert_eq!(region.memory().0.attachments().len(), 1, "those before are gone");
            drop(registrar);
            assert_eq!(pinned.strong_count(), 0);
        }
    }

    #[test]
    fn refused_memory_is_not_tried_again() {
        let (registrar, region) = (registrar(), Region::zeroed(100));
        let other = Region::zeroed(10);
        let lease = region.read(0..10).unwrap();
        let mut tries = 0;
        for _ in 0..3 {
            let refuse = |_, _| {
                tries += 1;
                Err("it is a file".into())
            };
            let found = registrar.piece(&lease.memory(), lease.as_ptr() as u64, 10, refuse);
            assert!(found.is_none());
        }
        assert_eq!(tries, 1);
        assert!(cover(&registrar, &other, 0..10).is_some(), "others are");
    }

    #[test]
    fn the_oldest_pieces_that_are_idle_are_released() {
        let registrar = registrar();
        let regions: Vec<Region> = (1..=IDLE_PIECES_MAX + 3).map(Region::zeroed).collect();
        let used = cover(&registrar, &regions[0], 0..1).unwrap();
        for region in &regions[1..] {
            cover(&registrar, region, 0..1).unwrap();
        }
        let expected = (4..=IDLE_PIECES_MAX as u64 + 3).collect::<Vec<u64>>();
        assert_eq!(lengths(&registrar), [vec![1], expected].concat());
        drop(used);
    }
}
