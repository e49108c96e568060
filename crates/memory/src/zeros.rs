//! Allocation of zeroed memory.

use std::alloc::{Layout, alloc_zeroed};

use rustix::mm::{Advice, madvise};

/// The size on x86-64, and on arm64 with pages of 4 KiB; where it is larger, the advice has no
/// effect.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Allocates zeros in pages that are not populated yet, huge ones if the system has them: fewer
/// page faults, and fewer pages to pin when the memory is registered.
pub(crate) fn zeros(bytes: usize) -> Vec<u8> {
    let mut vector = vec![0; bytes];
    ask_for_huge_pages(&mut vector);
    vector
}

/// As [`zeros`], but returns `None` if the system cannot allocate so much.
pub(crate) fn try_zeros(bytes: usize) -> Option<Vec<u8>> {
    if bytes == 0 {
        return Some(Vec::new());
    }
    let layout = Layout::array::<u8>(bytes).ok()?;
    // SAFETY: the layout is not empty.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        return None;
    }
    // SAFETY: the global allocator has returned `bytes` bytes, with the alignment of a byte, that
    // are all initialized.
    let mut vector = unsafe { Vec::from_raw_parts(start, bytes, bytes) };
    ask_for_huge_pages(&mut vector);
    Some(vector)
}

fn ask_for_huge_pages(vector: &mut [u8]) {
    let bytes = vector.len();
    // Only whole huge pages: the start has to be that of a page, of whatever size.
    let skip = vector.as_ptr().align_offset(HUGE_PAGE_BYTES);
    let whole_bytes = bytes.saturating_sub(skip) / HUGE_PAGE_BYTES * HUGE_PAGE_BYTES;
    if whole_bytes > 0 {
        let start = vector[skip..].as_mut_ptr().cast();
        // SAFETY: these pages are inside the vector, and advice changes neither their contents nor
        // their protection. A system without huge pages returns an error, which changes nothing
        // either.
        let _ = unsafe { madvise(start, whole_bytes, Advice::LinuxHugepage) };
    }
}
