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

/// As [`zeros`], for memory that may never be used: none of its whole pages is populated, although the allocator may have
/// given memory that was in use before, and cleared it.
pub(crate) fn unused_zeros(bytes: usize) -> Vec<u8> {
    let mut vector = zeros(bytes);
    // SAFETY: this reads a constant of the system. Not rustix's, which reads the auxiliary vector: valgrind's has
    // addresses that are not the program's.
    let page_bytes =
        usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(1 << 16);
    let skip = vector.as_ptr().align_offset(page_bytes);
    let whole_bytes = bytes.saturating_sub(skip) / page_bytes * page_bytes;
    // Miri has no such call, which changes no contents.
    if whole_bytes > 0 && !cfg!(miri) {
        let start = vector[skip..].as_mut_ptr().cast();
        // SAFETY: these pages are inside the vector, which nothing else refers to. Allocators give private memory of
        // no file, so the next access finds zeros again, as it would without the advice. An error changes nothing.
        let _ = unsafe { madvise(start, whole_bytes, Advice::LinuxDontNeed) };
    }
    vector
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
