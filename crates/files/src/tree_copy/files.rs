//! The files of a copy while it is received.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io,
    os::{
        fd::OwnedFd,
        unix::{ffi::OsStrExt, fs::FileExt},
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use rdmc::Storage;
use rustix::fs::{AtFlags, Mode, OFlags, fstat, openat, statat};
use tree::{Layout, Listing};

use super::parents::Parents;
use crate::{
    open_files::{OpenFiles, read_pieces},
    ranges::Ranges,
};

/// Staged files are private until they are published.
const MODE: Mode = Mode::from_raw_mode(0o600);

/// The files of a tree: those that are kept where they are, the others in the hidden directory.
pub(crate) struct CopyFiles {
    pub(super) listing: Arc<Listing>,
    pub(super) layout: Arc<Layout>,
    /// Files are kept for their contents, whatever their times.
    pub(super) by_contents: bool,
    /// The existing tree, if some files are kept.
    pub(super) existing: Option<Arc<OwnedFd>>,
    /// By the number of the file.
    pub(super) kept: Vec<bool>,
    /// Has all directories of the tree; `None` if nothing is received.
    staged: Option<Arc<OwnedFd>>,
    open: OpenFiles,
    /// Digests of files that were written as a whole, by number, until [`CopyFiles::digest_of_written`] takes them: small
    /// files are not opened again to be read.
    written: Mutex<HashMap<usize, blake3::Hash>>,
    /// The destination, for messages.
    path: PathBuf,
}

impl CopyFiles {
    pub(super) fn new(
        (listing, layout): (&Arc<Listing>, &Arc<Layout>),
        existing: Option<Arc<OwnedFd>>,
        kept: Vec<bool>,
        staged: Option<Arc<OwnedFd>>,
        (by_contents, path): (bool, &Path),
    ) -> Self {
        Self {
            listing: Arc::clone(listing),
            layout: Arc::clone(layout),
            by_contents,
            existing,
            kept,
            staged,
            open: OpenFiles::default(),
            written: Mutex::default(),
            path: path.to_owned(),
        }
    }

    /// The path of a file in the tree.
    pub(super) fn path_of(&self, file: usize) -> &[u8] {
        &self.listing.entries()[self.layout.entry(file)].path
    }

    /// The path of a file on disk, for messages.
    pub(super) fn shown(&self, file: usize) -> PathBuf {
        self.path.join(std::ffi::OsStr::from_bytes(self.path_of(file)))
    }

    /// The bytes that are there: of kept files all, of others as far as they reach.
    pub(super) fn there(&self) -> Ranges {
        let mut there = Ranges::default();
        let mut parents = self.staged.as_deref().map(Parents::new);
        for (file, &is_kept) in self.kept.iter().enumerate() {
            let range = self.layout.range_of(file);
            let end = match is_kept {
                true => range.end,
                false => {
                    let length = |parents: &mut Parents<'_>| {
                        let (directory, name) = parents.of(self.path_of(file)).ok()?;
                        Some(
                            statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).ok()?.st_size as u64,
                        )
                    };
                    let bytes = parents.as_mut().and_then(length).unwrap_or(0);
                    range.end.min(range.start.saturating_add(bytes))
                }
            };
            there.add((range.start, end));
        }
        there
    }

    /// Opens a staged file; creates it if it is not there.
    pub(super) fn open_staged(&self, file: usize, flags: OFlags) -> io::Result<File> {
        // Its directories are this session's or an earlier one's of the same listing: no links.
        let path = std::ffi::OsStr::from_bytes(self.path_of(file));
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let Some(staged) = &self.staged else { return Err(io::ErrorKind::NotFound.into()) };
        let opened = openat(&**staged, path, flags, MODE);
        Ok(opened.map_err(|error| self.error(file, error.into()))?.into())
    }

    /// The digest of a file that was written as a whole; once.
    pub(super) fn digest_of_written(&self, file: usize) -> Option<blake3::Hash> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner).remove(&file)
    }

    fn open_kept(&self, file: usize) -> io::Result<File> {
        let Some(existing) = &self.existing else { return Err(io::ErrorKind::NotFound.into()) };
        let mut parents = Parents::new(existing);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = parents
            .of(self.path_of(file))
            .and_then(|(directory, name)| openat(directory, name, flags, Mode::empty()))
            .map_err(|error| self.error(file, error.into()))?;
        let stat = fstat(&opened)?;
        let range = self.layout.range_of(file);
        if stat.st_size as u64 != range.end - range.start {
            return Err(self.error(file, io::Error::other("it was changed meanwhile")));
        }
        Ok(opened.into())
    }

    pub(super) fn error(&self, file: usize, error: io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.shown(file).display()))
    }
}

impl fmt::Debug for CopyFiles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} files", self.kept.len())
    }
}

impl Storage for CopyFiles {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        read_pieces(&self.layout, into, offset, |piece, part| {
            let file = self.open.get(piece.file, false, || match self.kept[piece.file] {
                true => self.open_kept(piece.file),
                false => self.open_staged(piece.file, OFlags::RDWR),
            })?;
            file.read_exact_at(part, piece.in_file.start)
                .map_err(|error| self.error(piece.file, error))
        })
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        for piece in self.layout.pieces(offset..offset + bytes.len() as u64) {
            if self.kept[piece.file] {
                // Sent together with what is missing; it is there already.
                continue;
            }
            let from = (piece.in_object.start - offset) as usize;
            let part = &bytes[from..][..(piece.in_file.end - piece.in_file.start) as usize];
            let range = self.layout.range_of(piece.file);
            let is_whole = part.len() as u64 == range.end - range.start;
            let file = self.open.get(piece.file, is_whole, || {
                self.open_staged(piece.file, OFlags::RDWR | OFlags::CREATE)
            })?;
            file.write_all_at(part, piece.in_file.start)
                .map_err(|error| self.error(piece.file, error))?;
            if is_whole {
                let digest = blake3::hash(part);
                let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
                written.insert(piece.file, digest);
            }
        }
        Ok(())
    }

    fn name(&self) -> String {
        self.path.display().to_string()
    }
}
