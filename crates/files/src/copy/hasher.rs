//! The digest of a copy of a tree, computed while it is received.

use std::{
    io,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::Receiver,
    },
};

use super::files::CopyFiles;
use crate::{
    digests::CopyDigest,
    hash::{Growing, HashOptions, take_arrived},
    pieces::PIECE_BYTES,
    ranges::{ByteRange, Ranges},
};

/// What has arrived of a tree.
struct Arrivals<'a> {
    here: Ranges,
    in_place: &'a Receiver<(u64, u64)>,
    stop: &'a AtomicBool,
}

/// Digests the files of which the kept bytes (of `options`) lack a part, one after another, as their bytes arrive
/// (`in_place`: offsets and lengths). `None` if it was stopped, or the sender was dropped, before the end.
pub(crate) fn follow(
    files: &CopyFiles,
    in_place: &Receiver<(u64, u64)>,
    stop: &AtomicBool,
    options: &HashOptions,
) -> io::Result<Option<blake3::Hash>> {
    let mut arrivals = Arrivals { here: Ranges::default(), in_place, stop };
    let mut copy = CopyDigest::default();
    for number in 0..files.order.layout.files() {
        let range = files.order.layout.range_of(number);
        let holds = (range.start, range.end);
        if options.kept.covers(holds) {
            continue;
        }
        if !arrivals.wait_for((holds.0, holds.1.min(holds.0 + PIECE_BYTES))) {
            return Ok(None);
        }
        let known = match options.makes_holes {
            true => None,
            false => files.digest_of_written(number),
        };
        let digest = match known {
            Some(known) => {
                options.worked.fetch_add(holds.1 - holds.0, Ordering::Relaxed);
                Some(known)
            }
            None => match arrivals.digest(files, number, holds, options) {
                Err(_) if stop.load(Ordering::Relaxed) => None,
                digest => digest?,
            },
        };
        let Some(digest) = digest else { return Ok(None) };
        copy.add(holds.0, &digest);
    }
    Ok(Some(copy.finish()))
}

impl Arrivals<'_> {
    /// Waits until a range is here; false if it was stopped before.
    fn wait_for(&mut self, range: ByteRange) -> bool {
        while !self.here.covers(range) {
            if !take_arrived(&mut self.here, self.in_place) {
                return false;
            }
        }
        !self.stop.load(Ordering::Relaxed)
    }

    /// The digest of a file that is the part `holds` of the object; `None` if there will be no more bytes.
    fn digest(
        &mut self,
        files: &CopyFiles,
        number: usize,
        holds: ByteRange,
        options: &HashOptions,
    ) -> io::Result<Option<blake3::Hash>> {
        let file = files.open_file(number)?;
        let read = |into: &mut [u8], at| {
            files
                .read_data(number, &file, into, at)
                .map_err(|error| files.error(number, "read", error))?;
            options.on_read(&file, into, at);
            Ok(())
        };
        let mut growing = Growing::new(&file, holds, &options.kept, read);
        while !growing.is_done() {
            let available = self.here.reach(holds.0).min(holds.1) - holds.0;
            if !growing.advance(available, self.stop)?
                && !take_arrived(&mut self.here, self.in_place)
            {
                return Ok(None);
            }
        }
        growing.digest().map(Some)
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        path::{Path, PathBuf},
        sync::{Arc, mpsc::channel},
    };

    use rdmc::Storage;
    use tree::{Entry, Kind, Listing};

    use super::*;
    use crate::{
        claim::{Claim, Owner},
        copy::{order::Order, staging::Staging, there::There},
        disk::advice::{Advised, take},
        messages::TreeOffer,
        place::Place,
    };

    const MIB: u64 = 1 << 20;

    fn files_in(directory: &Path, lengths: &[(&str, u64)]) -> CopyFiles {
        let entry = |&(name, bytes): &(&str, u64)| Entry {
            path: name.into(),
            kind: Kind::File { bytes },
            mode: 0o600,
            modified_ns: 0,
        };
        let listing = Listing::new(lengths.iter().map(entry).collect()).unwrap();
        let encoded = listing.encode().unwrap();
        let order =
            Arc::new(Order::of_tree("", &encoded, &TreeOffer::default(), directory).unwrap());
        let place = Place::anywhere(&directory.join("copy")).unwrap();
        let there = There::nothing(&order);
        let claim = Claim::take(&place, &Owner::of_no_push("")).unwrap();
        let staging = Staging::create(&place, &order, None, &there, &claim).unwrap();
        let staged = (staging.staged.clone(), vec![false; lengths.len()]);
        staging.keep();
        CopyFiles::new(&order, None, vec![true; lengths.len()], Some(staged))
    }

    /// The staging directory.
    fn staged(directory: &Path) -> PathBuf {
        let hidden = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        hidden.filter(|path| path.is_dir()).last().unwrap()
    }

    #[test]
    fn large_files_are_written_to_disk_by_steps_and_small_ones_at_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let lengths = [("a", 17 * MIB + 1), ("b", 1_000), ("c", 3 * MIB)];
        let files = files_in(directory.path(), &lengths);
        let bytes = lengths.iter().map(|(_, bytes)| bytes).sum::<u64>();
        let contents: Vec<u8> = (0..bytes).map(|at| (at % 249) as u8).collect();
        let kept: Ranges = [(0, 2 * MIB)].into_iter().collect();
        let options = HashOptions { kept, ..HashOptions::default() };
        let (sender, in_place) = channel();
        let block = MIB as usize;
        for start in (0..contents.len()).step_by(block).rev() {
            let part = &contents[start..contents.len().min(start + block)];
            files.write_at(part, start as u64).unwrap();
            sender.send((start as u64, part.len() as u64)).unwrap();
        }
        take();
        let digest = follow(&files, &in_place, &AtomicBool::new(false), &options);
        let mut expected = CopyDigest::default();
        let mut start = 0;
        for (name, length) in lengths {
            let part = &contents[start as usize..(start + length) as usize];
            assert!(fs::read(staged(directory.path()).join(name)).unwrap() == part, "{name}");
            expected.add(start, &blake3::hash(part));
            start += length;
        }
        assert_eq!(digest.unwrap(), Some(expected.finish()));
        let steps =
            [(2 * MIB, 8 * MIB), (8 * MIB, 16 * MIB), (16 * MIB, 17 * MIB + 1), (0, 3 * MIB)];
        assert_eq!(take(), steps.map(Advised::Writeback));
        let worked = options.worked.load(Ordering::Relaxed);
        assert_eq!(worked, bytes);
    }

    #[test]
    fn a_file_that_is_written_again_in_part_gets_its_time_again() {
        let directory = tempfile::tempdir().unwrap();
        let files = files_in(directory.path(), &[("a", 1_000), ("b", 10)]);
        files.write_at(&[1; 1_010], 0).unwrap();
        let modified = || {
            let file = fs::metadata(staged(directory.path()).join("a")).unwrap();
            file.modified().unwrap()
        };
        assert_eq!(modified(), std::time::UNIX_EPOCH);
        assert!(files.finished(0).is_some() && files.finished(1).is_some());
        files.write_at(&[2; 10], 5).unwrap();
        assert!(files.finished(0).is_none() && files.finished(1).is_some());
        files.write_at(&[3; 1_000], 0).unwrap();
        assert!(files.finished(0).is_some() && modified() == std::time::UNIX_EPOCH);
    }

    #[test]
    fn it_ends_without_a_digest_where_bytes_are_missing() {
        let directory = tempfile::tempdir().unwrap();
        let files = files_in(directory.path(), &[("a", 5 * MIB)]);
        for start in [0, 3 * MIB] {
            files.write_at(&vec![1; 2 * MIB as usize], start).unwrap();
        }
        for (arrived, stops) in [(3, false), (5, true)] {
            let (sender, in_place) = channel();
            sender.send((0, arrived * MIB)).unwrap();
            drop(sender);
            let stop = AtomicBool::new(stops);
            let digest = follow(&files, &in_place, &stop, &HashOptions::default());
            assert_eq!(digest.unwrap(), None);
        }
    }
}
