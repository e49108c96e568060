//! The contents of a copy while it is received.

use std::{
    collections::HashMap,
    fmt,
    fs::File,
    io,
    os::unix::fs::FileExt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use rdmc::Storage;
use rustix::{
    fs::{OFlags, fstat},
    io::Errno,
};

use tree::{Entry, Kind};

use super::{
    apply::{Attributes, set_attributes},
    error::{TargetError, refusal},
    order::Order,
    parents::{Parents, folded, split},
    staging::Staged,
};
use crate::{
    disk::{Directory, start_writeback},
    holes::data_in,
    open_files::{OpenFiles, read_pieces},
    ranges::Ranges,
    resume::Chunking,
};

/// Of shorter staged files of an earlier session all bytes are taken to be there.
const SPARSE_BYTES_MIN: u64 = 1 << 20;

/// The files of a copy: those that stay where they are, the others where they are staged.
pub(crate) struct CopyFiles {
    pub(super) order: Arc<Order>,
    /// The directory with the entries that are there, if there is one.
    pub(super) existing: Option<Directory>,
    /// By the number of the entry: it is staged.
    pub(super) stages: Vec<bool>,
    /// `None` if nothing is received.
    pub(super) staged: Option<Staged>,
    /// By the number of the entry: what is staged is there. A file that is not there has to be created, which fails if
    /// another one of the listing has its name on this file system.
    is_there: Mutex<Vec<bool>>,
    /// By the number of the entry: the inode of a file that was written as a whole and has its mode and time; 0 of others.
    finished: Mutex<Vec<u64>>,
    open: OpenFiles,
    /// Digests of files that were written as a whole, by number, until [`CopyFiles::digest_of_written`] takes them: small
    /// files are not opened again to be read.
    written: Mutex<HashMap<usize, blake3::Hash>>,
    /// The first error of reading and writing.
    failure: OnceLock<String>,
}

impl CopyFiles {
    pub(super) fn new(
        order: &Arc<Order>,
        existing: Option<Directory>,
        stages: Vec<bool>,
        staged: Option<(Staged, Vec<bool>)>,
    ) -> Self {
        let (staged, is_there) = staged.unzip();
        let finished = vec![0; if staged.is_some() { stages.len() } else { 0 }];
        Self {
            order: Arc::clone(order),
            existing,
            stages,
            staged,
            is_there: Mutex::new(is_there.unwrap_or_default()),
            finished: Mutex::new(finished),
            open: OpenFiles::default(),
            written: Mutex::default(),
            failure: OnceLock::new(),
        }
    }

    /// The path of a file in the tree.
    fn path_of(&self, file: usize) -> &[u8] {
        &self.order.entries()[self.order.layout.entry(file)].path
    }

    /// Whether a file is received.
    pub(super) fn is_staged(&self, file: usize) -> bool {
        self.stages[self.order.layout.entry(file)]
    }

    /// The bytes that are there: of files that stay all, of others what an earlier session wrote, by whole chunks.
    pub(super) fn there(&self) -> Ranges {
        let mut there = Ranges::default();
        let chunking = Chunking::of(self.order.bytes());
        for file in 0..self.order.layout.files() {
            let range = self.order.layout.range_of(file);
            if !self.is_staged(file) {
                there.add((range.start, range.end));
                continue;
            }
            let whole = |position: u64| chunking.range((position / chunking.chunk_bytes) as u32);
            let (data, length) = self.data_of(file);
            for (start, end) in data.iter() {
                let (start, end) = (range.start + start, range.start + end);
                let end = whole(end - 1).1.min(range.start + length);
                there.add((whole(start).0.max(range.start), end));
            }
        }
        there
    }

    /// Whether all bytes of a staged file were written.
    pub(super) fn is_whole(&self, file: usize) -> bool {
        let range = self.order.layout.range_of(file);
        self.data_of(file).0.covers((0, range.end - range.start))
    }

    /// Which bytes of a staged file were written, and its length as far as it is that of the source.
    fn data_of(&self, file: usize) -> (Ranges, u64) {
        let mut data = Ranges::default();
        let entry = self.order.layout.entry(file);
        if !lock(&self.is_there).get(entry).is_some_and(|&is_there| is_there) {
            return (data, 0);
        }
        let Ok(opened) = self.open_staged(entry, OFlags::RDWR) else { return (data, 0) };
        let length = fstat(&opened).map_or(0, |stat| stat.st_size as u64);
        let (layout, range) = (&self.order.layout, self.order.layout.range_of(file));
        if layout.has_holes(file) {
            // It has its length from the start.
            for found in data_in(&opened, 0..length) {
                for part in layout.in_object(file, found) {
                    data.add((part.start - range.start, part.end - range.start));
                }
            }
            return (data, range.end - range.start);
        }
        let bytes = length.min(range.end - range.start);
        if bytes < SPARSE_BYTES_MIN {
            data.add((0, bytes));
            return (data, bytes);
        }
        data.extend(data_in(&opened, 0..bytes).map(|found| (found.start, found.end)));
        (data, bytes)
    }

    /// The space that a staged entry of an earlier session has, in bytes.
    pub(super) fn staged_bytes(&self, entry: usize) -> u64 {
        if !lock(&self.is_there).get(entry).is_some_and(|&is_there| is_there) {
            return 0;
        }
        let path = &self.order.entries()[entry].path;
        let stat = self.staged.as_ref().and_then(|staged| {
            let (directory, name) = staged.of(path);
            directory.stat(name).ok()
        });
        stat.map_or(0, |stat| stat.st_blocks as u64 * 512)
    }

    /// Opens a staged file by the number of its entry. With [`OFlags::CREATE`] creates it unless it is there.
    ///
    /// Errors: another entry has its name on this file system; the system's.
    pub(super) fn open_staged(&self, entry: usize, flags: OFlags) -> io::Result<File> {
        let path = &self.order.entries()[entry].path;
        let Some(staged) = &self.staged else { return Err(io::ErrorKind::NotFound.into()) };
        let (directory, name) = staged.of(path);
        let creates = flags.contains(OFlags::CREATE);
        let mut is_there = lock(&self.is_there);
        let opened = match is_there.get_mut(entry) {
            Some(is_there) if creates && !*is_there => {
                let created = directory.create(name, self.order.staged_mode(entry));
                *is_there = created.is_ok();
                created
            }
            _ => directory.open(name, flags - OFlags::CREATE),
        };
        drop(is_there);
        opened.map_err(|error| io::Error::other(self.create_error(entry, error)))
    }

    /// The error for an entry that cannot be created where it is staged.
    pub(super) fn create_error(&self, entry: usize, error: Errno) -> TargetError {
        let entries = self.order.entries();
        let path = self.order.shown(&entries[entry].path);
        let unsupported = |what| {
            let (path, error) = (path.clone(), error.into());
            TargetError::Unsupported { path, what, remedy: "--exclude it", error }
        };
        match (error, &entries[entry].kind) {
            (Errno::EXIST, _) => match self.other_name(entry) {
                Some(other) => {
                    let one = self.order.shown(&entries[other].path);
                    TargetError::Collision { one, other: path }
                }
                None => refusal(&path, "create", 0, error.into()),
            },
            (Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP, Kind::Name { .. }) => {
                unsupported("hard links")
            }
            (Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP, Kind::Link { .. }) => {
                unsupported("symbolic links")
            }
            (Errno::XDEV, Kind::Name { .. }) => unsupported("link to a file of another one"),
            (Errno::NOENT, _) if self.is_staging_removed(&entries[entry].path) => {
                TargetError::Storage {
                    path,
                    what: "create",
                    error: io::Error::other("what was staged was removed"),
                }
            }
            // The directory is there.
            (Errno::INVAL | Errno::ILSEQ | Errno::NAMETOOLONG | Errno::NOENT, _) => {
                TargetError::refused_name(path, error)
            }
            (error, _) => refusal(&path, "create", 0, error.into()),
        }
    }

    fn is_staging_removed(&self, path: &[u8]) -> bool {
        let directory = self.staged.as_ref().map(|staged| staged.of(path).0);
        directory.is_some_and(|it| it.own_stat().is_ok_and(|stat| stat.st_nlink == 0))
    }

    /// The entry whose name is this entry's on the file system on which both are staged.
    fn other_name(&self, entry: usize) -> Option<usize> {
        let staged = self.staged.as_ref()?;
        let path = |number: usize| self.order.entries()[number].path.as_slice();
        let inode = |number: usize| {
            let (directory, name) = staged.of(path(number));
            directory.stat(name).ok().map(|stat| stat.st_ino)
        };
        // Some file systems make up inodes.
        let (own, name) = (inode(entry), folded(path(entry)));
        let others = (0..self.order.entries().len()).filter(|&other| other != entry);
        let beside: Vec<usize> =
            others.filter(|&other| split(path(other)).0 == split(path(entry)).0).collect();
        let same_file = || beside.iter().find(|&&other| own.is_some() && inode(other) == own);
        beside.iter().find(|&&other| folded(path(other)) == name).or_else(same_file).copied()
    }

    /// Copies bytes of an existing file into the staged one.
    pub(super) fn copy(&self, from: &File, file: usize, range: (u64, u64)) -> io::Result<()> {
        let entry = self.order.layout.entry(file);
        let create = || self.open_staged(entry, OFlags::RDWR | OFlags::CREATE);
        let to = self.open.get(file, create)?;
        let Some(staged) = &self.staged else { return Err(io::ErrorKind::NotFound.into()) };
        staged.of(self.path_of(file)).0.disk().copy(from, &to, range)?;
        start_writeback(&to, range);
        Ok(())
    }

    /// The inode of a staged file that has its mode and time already; `None` of others.
    pub(super) fn finished(&self, entry: usize) -> Option<u64> {
        lock(&self.finished).get(entry).copied().filter(|&inode| inode != 0)
    }

    /// Gives a file that was just written as a whole its mode and time while it is open, as cp(1) and tar(1) do, where nobody else can
    /// see it.
    fn finish(&self, entry: usize, file: &File, directory: &Directory) -> io::Result<()> {
        if !self.order.finishes_early(entry) {
            return Ok(());
        }
        let Entry { path, mode, modified_ns, .. } = &self.order.entries()[entry];
        let (mode, modified_ns) = (u32::from(*mode), *modified_ns);
        let set = set_attributes(directory, file, Attributes { mode, modified_ns, wanted: None });
        let inode = set.map_err(|error| io::Error::other(error.named(&self.order, path)))?;
        if let Some(finished) = lock(&self.finished).get_mut(entry) {
            *finished = inode;
        }
        Ok(())
    }

    /// A file gets other bytes, and another time.
    fn unfinish(&self, entry: usize) {
        if let Some(finished) = lock(&self.finished).get_mut(entry) {
            *finished = 0;
        }
    }

    /// The digest of a file that was written as a whole; once.
    pub(super) fn digest_of_written(&self, file: usize) -> Option<blake3::Hash> {
        lock(&self.written).remove(&file)
    }

    /// Opens a file that is there.
    ///
    /// Errors: it has another length; the system's.
    pub(super) fn open_existing(&self, file: usize) -> io::Result<File> {
        let Some(existing) = &self.existing else { return Err(io::ErrorKind::NotFound.into()) };
        let mut parents = Parents::new(existing);
        let opened = parents
            .of(self.path_of(file))
            .and_then(|(directory, name)| directory.open(name, OFlags::RDONLY))
            .map_err(|error| self.error(file, "open", error.into()))?;
        let stat = fstat(&opened)?;
        let bytes = self.order.entries()[self.order.layout.entry(file)].bytes();
        if Some(stat.st_size as u64) != bytes {
            return Err(self.error(file, "read", io::Error::other("it was changed meanwhile")));
        }
        Ok(opened)
    }

    /// A file that is received or stays, for reading and writing what arrives.
    pub(super) fn open_file(&self, file: usize) -> io::Result<File> {
        match self.is_staged(file) {
            true => self.open_staged(self.order.layout.entry(file), OFlags::RDWR),
            false => self.open_existing(file),
        }
    }

    /// Names the file in an error.
    pub(super) fn error(&self, file: usize, what: &'static str, error: io::Error) -> io::Error {
        let path = self.order.shown(self.path_of(file));
        let error = match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::other("the file has shrunk"),
            _ => error,
        };
        io::Error::new(error.kind(), TargetError::Storage { path, what, error })
    }

    /// Why what is received could not be written or read first: a failed group does not say it in full.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.get().cloned()
    }

    fn note(&self, outcome: io::Result<()>) -> io::Result<()> {
        outcome.inspect_err(|error| {
            self.failure.get_or_init(|| error.to_string());
        })
    }

    /// Reads the data of an open file: from a position in its part of the object on.
    pub(super) fn read_data(
        &self,
        file: usize,
        opened: &File,
        into: &mut [u8],
        at: u64,
    ) -> io::Result<()> {
        if !self.order.layout.has_holes(file) {
            return opened.read_exact_at(into, at);
        }
        let start = self.order.layout.range_of(file).start;
        read_pieces(&self.order.layout, into, start + at, |piece, part| {
            opened.read_exact_at(part, piece.in_file.start)
        })
    }

    fn read(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        read_pieces(&self.order.layout, into, offset, |piece, part| {
            let file = self.open.get(piece.file, || self.open_file(piece.file))?;
            file.read_exact_at(part, piece.in_file.start)
                .map_err(|error| self.error(piece.file, "read", error))
        })
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        for piece in self.order.layout.pieces(offset..offset + bytes.len() as u64) {
            if !self.stages[piece.entry] {
                // Sent together with what is missing; it is there already.
                continue;
            }
            let from = (piece.in_object.start - offset) as usize;
            let part = &bytes[from..][..(piece.in_file.end - piece.in_file.start) as usize];
            let range = self.order.layout.range_of(piece.file);
            let is_whole = part.len() as u64 == range.end - range.start
                && !self.order.layout.has_holes(piece.file);
            let create = || self.open_staged(piece.entry, OFlags::RDWR | OFlags::CREATE);
            let file = match is_whole {
                true => Arc::new(create()?),
                false => self.open.get(piece.file, create)?,
            };
            let Some(staged) = &self.staged else { return Err(io::ErrorKind::NotFound.into()) };
            let (directory, _) = staged.of(self.path_of(piece.file));
            let write = directory.disk().write(&file, part, piece.in_file.start);
            write.map_err(|error| self.error(piece.file, "write", error))?;
            match is_whole && !self.order.is_file {
                true => {
                    self.finish(piece.entry, &file, directory)?;
                    lock(&self.written).insert(piece.file, blake3::hash(part));
                }
                false => self.unfinish(piece.entry),
            }
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Debug for CopyFiles {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} entries", self.stages.len())
    }
}

impl Storage for CopyFiles {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        self.note(self.read(into, offset))
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.note(self.write(bytes, offset))
    }

    fn name(&self) -> String {
        let first = self.order.entries().first().filter(|_| self.order.is_file);
        let path: PathBuf = self.order.shown(first.map_or(&[], |entry| &entry.path));
        path.display().to_string()
    }
}
