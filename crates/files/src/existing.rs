//! An existing file under a copy's name: if it is equal to the source, nothing is sent or written.

use std::{
    fs::{File, Metadata},
    os::unix::fs::MetadataExt,
};

use rustix::{io::Errno, process::geteuid};

use crate::{Manifest, hash::probe, place::Place};

/// A file of the right length that may be the same object, which the root decides by its digests.
#[derive(Debug)]
pub(crate) struct Existing {
    file: File,
    known: Known,
    /// Whether it may stay if it is equal; otherwise it only is a source of equal chunks.
    pub(crate) may_stay: bool,
    /// It may stay, and its mode and time are those of the source.
    pub(crate) is_finished: bool,
}

/// Attributes that must not change while it is compared.
#[derive(PartialEq, Eq, Debug)]
struct Known {
    bytes: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Known {
    fn of(metadata: &Metadata) -> Self {
        Self {
            bytes: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

impl Existing {
    /// The file at a place, if its length and probe are those of the source. Reads 1 MiB at most.
    pub(crate) fn find(place: &Place, manifest: &Manifest, expected: &[u8; 32]) -> Option<Self> {
        let file = place.open_occupant().ok()?;
        let metadata = file.metadata().ok()?;
        let is_alike = metadata.is_file() && metadata.len() == manifest.bytes;
        if !is_alike || probe(&file, manifest.bytes).ok()? != *expected {
            return None;
        }
        let may_stay = may_stay(&metadata, manifest);
        let is_finished = may_stay && is_finished(&metadata, manifest);
        Some(Self { file, known: Known::of(&metadata), may_stay, is_finished })
    }

    pub(crate) fn as_file(&self) -> &File {
        &self.file
    }

    /// Sets mode and time where they differ, and returns once the file is on disk. False, without any change, if the
    /// file has changed since.
    ///
    /// Errors: the system's.
    pub(crate) fn publish(&self, place: &Place, manifest: &Manifest) -> Result<bool, Errno> {
        let metadata = self.file.metadata().map_err(|_| Errno::IO)?;
        let disk = place.disk();
        if !disk.is_named(&self.file, place.name()) || Known::of(&metadata) != self.known {
            return Ok(false);
        }
        if !has_time(&metadata, manifest) {
            disk.set_modified(&self.file, manifest.modified())?;
        }
        if !has_mode(&metadata, manifest) {
            disk.set_mode(&self.file, manifest.mode & 0o777)?;
        }
        disk.sync(&self.file)?;
        disk.sync_names()?;
        Ok(true)
    }
}

fn has_mode(metadata: &Metadata, manifest: &Manifest) -> bool {
    metadata.mode() & 0o7777 == manifest.mode & 0o777
}

fn has_time(metadata: &Metadata, manifest: &Manifest) -> bool {
    metadata.modified().is_ok_and(|time| time == manifest.modified())
}

/// Not if users whom the source's mode excludes can write to it, since it could change after verification; and not if
/// it needs another mode or time and has a second name, whose attributes would change.
fn may_stay(metadata: &Metadata, manifest: &Manifest) -> bool {
    let has_its_writers = metadata.mode() & 0o022 & !manifest.mode == 0;
    let is_own = metadata.uid() == geteuid().as_raw();
    is_own && has_its_writers && (is_finished(metadata, manifest) || metadata.nlink() == 1)
}

fn is_finished(metadata: &Metadata, manifest: &Manifest) -> bool {
    has_mode(metadata, manifest) && has_time(metadata, manifest)
}
