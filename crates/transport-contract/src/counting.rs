//! An allocator that counts allocations, for tests that detect leaks.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// The system's allocator with counters. A test program sets it as its global allocator:
///
/// ```
/// use transport_contract::CountingAllocator;
///
/// #[global_allocator]
/// static MEMORY: CountingAllocator = CountingAllocator::new();
/// ```
///
/// It counts what Rust code allocates, in all threads; not thread stacks, mapped files, or
/// allocations of libraries in other languages.
#[derive(Debug)]
pub struct CountingAllocator {
    bytes: AtomicUsize,
    allocations: AtomicUsize,
}

impl CountingAllocator {
    /// Makes an allocator with both counters at zero.
    #[expect(clippy::new_without_default, reason = "a static needs a const function")]
    pub const fn new() -> Self {
        Self { bytes: AtomicUsize::new(0), allocations: AtomicUsize::new(0) }
    }

    /// Returns how many bytes are allocated now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Returns how many allocations were not freed.
    pub fn allocations(&self) -> usize {
        self.allocations.load(Relaxed)
    }

    /// Counts an allocation, unless it failed.
    fn note(&self, place: *mut u8, layout: Layout) -> *mut u8 {
        if !place.is_null() {
            self.bytes.fetch_add(layout.size(), Relaxed);
            self.allocations.fetch_add(1, Relaxed);
        }
        place
    }
}

// SAFETY: all calls are passed on to `System` with unchanged arguments; the counters do not affect
// any allocation.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of this same function.
        self.note(unsafe { System.alloc(layout) }, layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of this same function.
        self.note(unsafe { System.alloc_zeroed(layout) }, layout)
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        self.bytes.fetch_sub(layout.size(), Relaxed);
        self.allocations.fetch_sub(1, Relaxed);
        // SAFETY: the caller fulfils the contract of this same function, and `place` is System's.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller fulfils the contract of this same function, and `place` is System's.
        let moved = unsafe { System.realloc(place, layout, bytes) };
        if !moved.is_null() {
            self.bytes.fetch_add(bytes, Relaxed);
            self.bytes.fetch_sub(layout.size(), Relaxed);
        }
        moved
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_not_counted_any_more() {
        let memory = CountingAllocator::new();
        let layout = Layout::from_size_align(100, 8).unwrap();
        let larger = Layout::from_size_align(250, 8).unwrap();
        // SAFETY: the layouts are those of the allocations, and nothing is used afterwards.
        unsafe {
            let (one, other) = (memory.alloc(layout), memory.alloc_zeroed(layout));
            assert_eq!((memory.bytes(), memory.allocations()), (200, 2));
            let one = memory.realloc(one, layout, larger.size());
            assert_eq!((memory.bytes(), memory.allocations()), (350, 2));
            memory.dealloc(one, larger);
            memory.dealloc(other, layout);
        }
        assert_eq!((memory.bytes(), memory.allocations()), (0, 0));
    }
}
