//! Space for what is received.

use std::{collections::BTreeMap, ops::Range};

use rustix::{fs::OFlags, io::Errno};

use super::{
    error::{TargetError, refusal},
    files::CopyFiles,
};
use crate::disk::Directory;

/// What is needed of one file system.
#[derive(Default)]
struct Need {
    bytes: u64,
    entries: u64,
}

/// Checks that there is space for what is staged, and reserves it for files of at least `bytes_min`.
///
/// Errors: no space, or no inodes, on one of the file systems.
pub(super) fn reserve(files: &CopyFiles, bytes_min: u64) -> Result<(), TargetError> {
    let Some(staged) = &files.staged else { return Ok(()) };
    let order = &files.order;
    let mut needs: BTreeMap<usize, Need> = BTreeMap::new();
    let staged_entries = || order.entries().iter().enumerate().filter(|(at, _)| files.stages[*at]);
    for (number, entry) in staged_entries() {
        let need = needs.entry(staged.area(&entry.path)).or_default();
        need.entries += 1;
        // Data of an earlier session has its space already.
        let range = order.layout.range(number);
        need.bytes += (range.end - range.start).saturating_sub(files.staged_bytes(number));
    }
    // Before anything is reserved, since a failing reservation may fill the disk before it gives up.
    for (area, directory) in staged.directories().enumerate() {
        let Some(need) = needs.get(&area) else { continue };
        // One that counts no space, as ramfs, reports 0.
        let Some(free) = directory.free().ok().filter(|free| free.f_blocks != 0) else { continue };
        if free.f_bavail.saturating_mul(free.f_frsize) < need.bytes {
            let directory = order.shown(staged.below(area));
            return Err(TargetError::NoSpace { directory, bytes: need.bytes });
        }
        // File systems without a fixed number of inodes report 0 for both.
        if free.f_files != 0 && free.f_favail < need.entries {
            return Err(TargetError::NoInodes(order.shown(staged.below(area))));
        }
    }
    for (number, entry) in staged_entries() {
        let data = order.listing.data(number);
        // Those with holes get their length here.
        let is_reserved = |bytes: &u64| *bytes >= bytes_min || data.is_some();
        let Some(bytes) = entry.bytes().filter(is_reserved) else { continue };
        let (directory, _) = staged.of(&entry.path);
        let path = order.shown(&entry.path);
        let file = files
            .open_staged(number, OFlags::RDWR | OFlags::CREATE)
            .map_err(|error| TargetError::stored(error, "create", &path))?;
        reserve_file(directory, &file, bytes, data)
            .map_err(|error| refusal(&path, "reserve space for", bytes, error.into()))?;
    }
    Ok(())
}

/// `data`: where it has data, if it has holes.
fn reserve_file(
    directory: &Directory,
    file: &std::fs::File,
    bytes: u64,
    data: Option<&[Range<u64>]>,
) -> Result<(), Errno> {
    let disk = directory.disk();
    if file.metadata().is_ok_and(|metadata| metadata.len() > bytes) {
        disk.set_len(file, 0)?;
    }
    if data.is_some() || directory.is_memory() {
        disk.set_len(file, bytes)?;
    }
    if directory.is_memory() {
        return Ok(());
    }
    let all = 0..bytes;
    for range in data.unwrap_or(std::slice::from_ref(&all)) {
        loop {
            match disk.reserve(file, range.clone()) {
                Ok(()) => break,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => return disk.set_len(file, bytes),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}
