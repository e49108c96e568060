//! What a program has allocated and not given back, for tests that look for leaks.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

/// The system's allocator, which counts. A test program makes it its own:
///
/// ```
/// use transport_contract::CountingAllocator;
///
/// #[global_allocator]
/// static MEMORY: CountingAllocator = CountingAllocator::new();
/// ```
///
/// It counts what is allocated in Rust, by all threads; neither thread stacks, nor mapped files, nor
/// what libraries in other languages allocate.
#[derive(Debug)]
pub struct CountingAllocator {
    bytes: AtomicUsize,
    allocations: AtomicUsize,
}

impl CountingAllocator {
    /// Nothing is allocated yet.
    #[expect(clippy::new_without_default, reason = "a static needs a const function")]
    pub const fn new() -> Self {
        Self { bytes: AtomicUsize::new(0), allocations: AtomicUsize::new(0) }
    }

    /// Bytes that are allocated now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Allocations that have not been given back.
    pub fn allocations(&self) -> usize {
        self.allocations.load(Relaxed)
    }

    /// Notes an allocation, unless it failed.
    fn note(&self, place: *mut u8, layout: Layout) -> *mut u8 {
        if !place.is_null() {
            self.bytes.fetch_add(layout.size(), Relaxed);
            self.allocations.fetch_add(1, Relaxed);
        }
        place
    }
}

// SAFETY: `System` does all of it, with the very arguments that come; the counters are no part of
// any allocation.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this same function.
        self.note(unsafe { System.alloc(layout) }, layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this same function.
        self.note(unsafe { System.alloc_zeroed(layout) }, layout)
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        self.bytes.fetch_sub(layout.size(), Relaxed);
        self.allocations.fetch_sub(1, Relaxed);
        // SAFETY: the caller keeps the contract of this same function, and `place` is System's.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract of this same function, and `place` is System's.
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
        // SAFETY: the layouts are those of what is given back, and nothing is used afterwards.
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
