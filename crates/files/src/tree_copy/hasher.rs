//! The digest of a copy of a tree, computed while it is received.

use std::{
    io,
    os::unix::fs::FileExt,
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc::Receiver,
    },
};

use rustix::fs::OFlags;

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
    for number in 0..files.layout.files() {
        let range = files.layout.range_of(number);
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
            None => match arrivals.digest(files, (number, holds), options) {
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
        (number, holds): (usize, ByteRange),
        options: &HashOptions,
    ) -> io::Result<Option<blake3::Hash>> {
        let file = files.open_staged(number, OFlags::RDWR)?;
        let read = |into: &mut [u8], at| {
            file.read_exact_at(into, at).map_err(|error| files.error(number, error))?;
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
