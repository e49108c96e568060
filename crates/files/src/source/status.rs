//! What the system reports about an entry.

use std::{fs::Metadata, os::unix::fs::MetadataExt, path::PathBuf};

use rustix::fs::{FileType, Stat};

use super::error::SourceError;

/// What the system reports about an entry, as far as it is needed: a third of the system's own structure, since a scan has one for each
/// entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Status {
    pub(super) kind: FileType,
    /// With the kind's bits.
    pub(super) mode: u32,
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) bytes: u64,
    pub(super) allocated_bytes: u64,
    /// Seconds since 1970, and nanoseconds.
    pub(super) modified: (i64, i64),
    /// User and group.
    pub(super) owner: (u32, u32),
}

impl Status {
    pub(super) fn is_directory(&self) -> bool {
        self.kind == FileType::Directory
    }

    pub(super) fn is_file(&self) -> bool {
        self.kind == FileType::RegularFile
    }

    pub(super) fn is_link(&self) -> bool {
        self.kind == FileType::Symlink
    }

    /// What is neither file nor directory nor link, with an article.
    pub(super) fn special(&self) -> &'static str {
        match self.kind {
            FileType::Fifo => "a pipe",
            FileType::Socket => "a socket",
            _ => "a device",
        }
    }
}

/// Errors: it is beyond what is sent, of 292 years before and after 1970.
pub(super) fn modified_ns(path: impl Fn() -> PathBuf, status: &Status) -> Result<i64, SourceError> {
    let (seconds, nanoseconds) = status.modified;
    let seconds_ns = seconds.checked_mul(1_000_000_000);
    seconds_ns
        .and_then(|seconds_ns| seconds_ns.checked_add(nanoseconds))
        .ok_or_else(|| SourceError::Time { path: path(), seconds })
}

impl From<&Metadata> for Status {
    fn from(metadata: &Metadata) -> Self {
        Self {
            kind: FileType::from_raw_mode(metadata.mode()),
            mode: metadata.mode(),
            device: metadata.dev(),
            inode: metadata.ino(),
            bytes: metadata.len(),
            allocated_bytes: metadata.blocks().saturating_mul(512),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            owner: (metadata.uid(), metadata.gid()),
        }
    }
}

impl From<&Stat> for Status {
    fn from(stat: &Stat) -> Self {
        Self {
            kind: FileType::from_raw_mode(stat.st_mode),
            mode: stat.st_mode,
            device: stat.st_dev,
            inode: stat.st_ino,
            bytes: stat.st_size as u64,
            allocated_bytes: (stat.st_blocks as u64).saturating_mul(512),
            modified: (stat.st_mtime, stat.st_mtime_nsec as i64),
            owner: (stat.st_uid, stat.st_gid),
        }
    }
}
