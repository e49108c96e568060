//! Where files have data.

use std::{
    fs::{File, OpenOptions},
    ops::Range,
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

use rustix::fs::OFlags;

use super::status::Status;
use crate::holes::{data_in, has_zeros_outside};

/// Shorter holes are sent, as zeros.
const HOLE_BYTES_MIN: u64 = 64 << 10;

/// Whether a file has less on disk than its length.
pub(super) fn may_have_holes(status: &Status) -> bool {
    status.bytes >= HOLE_BYTES_MIN && status.allocated_bytes < status.bytes
}

/// Where the file of this length at a path has data, if it has holes that are worth it. `None` as well if it cannot be read: that is
/// an error when it is sent.
pub(super) fn data_of(path: &Path, bytes: u64) -> Option<Vec<Range<u64>>> {
    let file = open(path)?;
    let mut data: Vec<Range<u64>> = Vec::new();
    for mut next in data_in(&file, 0..bytes) {
        let hole = next.start - data.last().map_or(0, |last| last.end);
        match data.last_mut() {
            Some(last) if hole < HOLE_BYTES_MIN => last.end = next.end,
            None if hole < HOLE_BYTES_MIN => {
                next.start = 0;
                data.push(next);
            }
            _ => data.push(next),
        }
    }
    if let Some(last) = data.last_mut().filter(|last| bytes - last.end < HOLE_BYTES_MIN) {
        last.end = bytes;
    }
    (data.first() != Some(&(0..bytes))).then_some(data)
}

/// Whether the file at a path reads as zeros outside of what was sent of it. False if it cannot be read.
pub(super) fn has_only(path: &Path, sent: &[Range<u64>], bytes: u64) -> bool {
    open(path).is_some_and(|file| has_zeros_outside(&file, sent, bytes))
}

fn open(path: &Path) -> Option<File> {
    let flags = (OFlags::NONBLOCK | OFlags::NOFOLLOW).bits().cast_signed();
    OpenOptions::new().read(true).custom_flags(flags).open(path).ok()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn data_and_short_holes_are_sent() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("f");
        let file = File::create(&path).unwrap();
        let (bytes, page) = (1 << 40, 4096);
        let long = HOLE_BYTES_MIN;
        file.set_len(bytes).unwrap();
        let data = || data_of(&path, path.metadata().unwrap().len());
        assert_eq!(data(), Some(vec![]));
        for at in [long, long + 2 * page, 10 * long, bytes - page] {
            file.write_all_at(&[1; 4096], at).unwrap();
        }
        let expected = [long..long + 3 * page, 10 * long..10 * long + page, bytes - page..bytes];
        assert_eq!(data(), Some(expected.to_vec()));
        // Short ones at both ends.
        file.set_len(12 * long - 1).unwrap();
        file.write_all_at(&[1; 4096], 11 * long).unwrap();
        file.write_all_at(&[1; 4096], page).unwrap();
        let data = data().unwrap();
        assert_eq!((data[0].start, data.last().unwrap().end), (0, 12 * long - 1), "{data:?}");
        std::fs::write(&path, vec![1; long as usize]).unwrap();
        assert_eq!(data_of(&path, path.metadata().unwrap().len()), None);
    }
}
