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
    hash::{CHUNK_BYTES, HashOptions, make_holes},
    ranges::Ranges,
};

/// Digests the files that `has` lacks a part of, one after another, as their bytes arrive (`in_place`: offsets and lengths).
/// `None` if it was stopped, or the sender was dropped, before the end.
pub(crate) fn follow(
    files: &CopyFiles,
    has: &Ranges,
    in_place: &Receiver<(u64, u64)>,
    stop: &AtomicBool,
    options: &HashOptions,
) -> io::Result<Option<blake3::Hash>> {
    let mut here = Ranges::default();
    let mut copy = CopyDigest::default();
    let mut buffer = vec![0; CHUNK_BYTES];
    'files: for number in 0..files.layout.files() {
        let range = files.layout.range_of(number);
        if has.covers((range.start, range.end)) {
            continue;
        }
        let mut digest = blake3::Hasher::new();
        let mut opened = None;
        let mut position = range.start;
        while position < range.end {
            let chunk_end = range.end.min(position + CHUNK_BYTES as u64);
            while !here.covers((position, chunk_end)) {
                let Ok((offset, length)) = in_place.recv() else { return Ok(None) };
                let arrived = std::iter::once((offset, length)).chain(in_place.try_iter());
                here.extend(arrived.map(|(offset, length)| (offset, offset + length)));
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(None);
            }
            if position == range.start
                && !options.makes_holes
                && let Some(known) = files.digest_of_written(number)
            {
                options.worked.fetch_add(range.end - range.start, Ordering::Relaxed);
                copy.add(range.start, &known);
                continue 'files;
            }
            let file = match &mut opened {
                Some(file) => file,
                none => none.insert(files.open_staged(number, OFlags::RDWR)?),
            };
            let chunk = &mut buffer[..(chunk_end - position) as usize];
            let in_file = position - range.start;
            file.read_exact_at(chunk, in_file).map_err(|error| files.error(number, error))?;
            digest.update(chunk);
            options.worked.fetch_add(chunk.len() as u64, Ordering::Relaxed);
            if options.makes_holes {
                make_holes(file, in_file, chunk);
            }
            position = chunk_end;
        }
        copy.add(range.start, &digest.finalize());
    }
    Ok(Some(copy.finish()))
}
