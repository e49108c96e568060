//! Holes of files: where the file system knows that they read as zeros.

use std::{
    fs::File,
    iter::{from_fn, once},
    ops::Range,
    os::unix::fs::FileExt,
};

use rustix::{
    fs::{FallocateFlags, SeekFrom, fallocate, seek},
    io::Errno,
};

/// What is read at a time.
const BUFFER_BYTES: usize = 64 << 10;

/// The data in a range of a file, piece by piece; all of the range where the file system knows no holes. Changes the file's position.
pub(crate) fn data_in(file: &File, range: Range<u64>) -> impl Iterator<Item = Range<u64>> {
    let mut at = range.start;
    from_fn(move || {
        let start = match seek(file, SeekFrom::Data(at)) {
            Ok(start) => start.max(at),
            Err(Errno::NXIO) => return None,
            Err(_) => at,
        };
        let end = seek(file, SeekFrom::Hole(start)).unwrap_or(range.end).min(range.end);
        at = end;
        (start < end).then_some(start..end)
    })
}

/// Gives back the space of what was reserved and not written, where the file system knows that as holes. Changes the file's position.
pub(crate) fn release_holes(file: &File) {
    let bytes = file.metadata().map_or(0, |metadata| metadata.len());
    let data: Vec<Range<u64>> = data_in(file, 0..bytes).collect();
    for (start, end) in between(&data, bytes).filter(|(start, end)| start < end) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Fails on file systems without holes, which keep the space.
        let _ = fallocate(file, flags, start, end - start);
    }
}

/// Whether a file of this length reads as zeros outside of `data`, ascending ranges. What is a hole is not read.
pub(crate) fn has_zeros_outside(file: &File, data: &[Range<u64>], bytes: u64) -> bool {
    between(data, bytes).all(|(start, end)| is_zero(file, start..end))
}

/// What of a file of this length is not in these ascending ranges.
fn between(data: &[Range<u64>], bytes: u64) -> impl Iterator<Item = (u64, u64)> {
    let ends = data.iter().map(|range| range.end);
    let starts = data.iter().map(|range| range.start);
    once(0).chain(ends).zip(starts.chain([bytes]))
}

fn is_zero(file: &File, range: Range<u64>) -> bool {
    let mut buffer = vec![0; BUFFER_BYTES];
    data_in(file, range).all(|found| {
        found.clone().step_by(BUFFER_BYTES).all(|at| {
            let part = &mut buffer[..BUFFER_BYTES.min((found.end - at) as usize)];
            file.read_exact_at(part, at).is_ok() && part.iter().all(|&byte| byte == 0)
        })
    })
}
