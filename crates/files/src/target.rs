//! The copy that a receiver makes: hidden until it is complete and verified.

use std::{
    fs::File,
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use rdmc::{Region, RegionError};
use rustix::{fs::FileType, io::Errno};

use crate::{
    Manifest,
    changes::{Change, Changes},
    claim::{Claim, ClaimError, Owner},
    disk::{Disk, start_writeback},
    existing::Existing,
    place::{NAME_BYTES_MAX, Place, PlaceError},
    ranges::Ranges,
    resume::ChunkDigests,
    temporary::Temporary,
};

/// Bytes copied between checks of the stop flag.
const COPIED_BYTES: usize = 64 << 20;

/// A file to be published at a path: a temporary file `.NAME.rdmc-VERSION` in the same directory.
///
/// Until it is published or dropped no process can make another target for the path, of any version of any source: it
/// holds a lock on `.NAME.rdmc-lock`, which ends with its process.
///
/// Its space is reserved at the start, so that a full disk is detected before the transfer. (Where a file system cannot
/// reserve, or is in memory, free space is checked once.) Dropping it unpublished removes the temporary file; [`Target::keep`] leaves it
/// for a later session, which finds it by the version of the source: its name, length and modification time.
#[derive(Debug)]
pub struct Target {
    place: Place,
    manifest: Manifest,
    contents: Contents,
    region: Region,
    /// The last field, so that it is dropped last.
    claim: Claim,
}

/// The file with the bytes.
#[derive(Debug)]
enum Contents {
    /// The file that has the name already.
    Existing(Existing),
    Temporary(Temporary),
}

impl Contents {
    fn as_file(&self) -> &File {
        match self {
            Self::Existing(existing) => existing.as_file(),
            Self::Temporary(temporary) => temporary.as_file(),
        }
    }
}

/// Why a copy cannot be made or published.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TargetError {
    /// The directory of the path does not exist.
    #[error("the directory {} does not exist; create it first (--mkdir makes it where a push starts the receiver), or choose another --dest", .0.display())]
    MissingParent(PathBuf),
    /// Something that is not a regular file has the name.
    #[error("{} is {kind} and will not be replaced; name a file as --dest", path.display())]
    InTheWay {
        /// Which.
        path: PathBuf,
        /// What it is, with an article.
        kind: &'static str,
    },
    /// A directory would have to become something else.
    #[error("{} is a directory, and {what} is to have its name; remove it first, or choose another --dest", path.display())]
    DirectoryInTheWay {
        /// Which.
        path: PathBuf,
        /// What it is to become, with an article.
        what: &'static str,
    },
    /// A file system that cannot exchange directories.
    #[error(
        "{} cannot be replaced as a whole on this file system ({error}); --inplace writes into it file by file",
        path.display()
    )]
    NoExchange {
        /// Which.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The listing of a tree is no tree.
    #[error("the root's list of files is refused: {0}")]
    Listing(#[from] tree::ListingError),
    /// The path does not end with a file's name.
    #[error("{:?} does not name a file; name one as --dest", .0.display().to_string())]
    NoName(PathBuf),
    /// The name is too long for common file systems.
    #[error("the name of {} is longer than {NAME_BYTES_MAX} bytes; choose a shorter --dest", .0.display())]
    LongName(PathBuf),
    /// It is not below the receiver's directory.
    #[error("{} leads out of this receiver's directory by a symbolic link; choose another --dest", .0.display())]
    Outside(PathBuf),
    /// Not enough space.
    #[error("no space for {bytes} bytes in {}; free some, or choose another --dest", directory.display())]
    NoSpace {
        /// Where.
        directory: PathBuf,
        /// How much is needed.
        bytes: u64,
    },
    /// More than this user's quota.
    #[error("{bytes} bytes in {} are more than this user's quota; free some, or choose another --dest", directory.display())]
    Quota {
        /// Where.
        directory: PathBuf,
        /// How much is needed.
        bytes: u64,
    },
    /// No inodes left.
    #[error("no more files can be created in {}: its file system has no inodes left; remove files, or choose another --dest", .0.display())]
    NoInodes(PathBuf),
    /// Longer than files can be there.
    #[error(
        "{bytes} bytes are more than a file in {} can have, by its file system or a limit of the receiver (ulimit -f); \
         raise it, or choose another --dest",
        directory.display()
    )]
    TooLong {
        /// Where.
        directory: PathBuf,
        /// How long it is to be.
        bytes: u64,
    },
    /// A read-only file system.
    #[error("the file system of {} is read-only; choose another --dest, or mount it for writing", .0.display())]
    ReadOnly(PathBuf),
    /// A file system without locks, on which two pushes could write at the same time.
    #[error("the file system of {} has no file locks; choose another --dest, or mount it with them (flock)", .0.display())]
    NoLocks(PathBuf),
    /// Another push owns it.
    #[error("{} is being written already{owner}; wait for that push, or end it", path.display())]
    Busy {
        /// Which.
        path: PathBuf,
        /// The host and process of the owner, if known; follows the word "already".
        owner: String,
    },
    /// Another host of the same push owns it.
    #[error(
        "{} is being written already{owner}, in the same push: both hosts share a file system; name only one of them, \
         or put {{host}} into --dest",
        path.display()
    )]
    Shared {
        /// Which.
        path: PathBuf,
        /// The host and process of the owner; follows the word "already".
        owner: String,
        /// The host's name.
        host: String,
    },
    /// No permission to write there.
    #[error("no permission to write in {}; choose another --dest or another user", .0.display())]
    NoPermission(PathBuf),
    /// An existing file that was equal to the source has changed.
    #[error("{} was changed while it was compared; run the push again", .0.display())]
    Changed(PathBuf),
    /// The digests of copy and source differ.
    #[error("the copy differs from what was sent: its digest is {received}, not {sent}")]
    Mismatch {
        /// Of the copy.
        received: blake3::Hash,
        /// Of the source.
        sent: blake3::Hash,
    },
    /// An error of the system.
    #[error("cannot {what} {}: {error}", path.display())]
    System {
        /// Which file or directory.
        path: PathBuf,
        /// The operation, as a verb.
        what: &'static str,
        /// The error.
        error: io::Error,
    },
    /// The temporary file cannot be written in blocks.
    #[error("{}: {error}", path.display())]
    Map {
        /// The destination.
        path: PathBuf,
        /// Why.
        error: RegionError,
    },
}

impl TargetError {
    /// The error for a path whose place cannot be opened.
    pub(crate) fn no_place(path: &Path, error: PlaceError) -> Self {
        let directory = path.parent().unwrap_or(path);
        match error {
            PlaceError::NoName => Self::NoName(path.to_owned()),
            PlaceError::Outside => Self::Outside(path.to_owned()),
            PlaceError::Directory(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::MissingParent(directory.to_owned())
            }
            PlaceError::Directory(error) => refusal(directory, "write in", 0, error),
        }
    }
}

/// Proof that a copy's digest equals the source's; made by [`Verified::compare`] only.
#[derive(Debug)]
pub struct Verified(());

impl Verified {
    /// Compares digests. Errors: [`TargetError::Mismatch`].
    pub fn compare(received: blake3::Hash, sent: blake3::Hash) -> Result<Self, TargetError> {
        if received == sent { Ok(Self(())) } else { Err(TargetError::Mismatch { received, sent }) }
    }
}

impl Target {
    /// Creates the temporary file, or opens that of an earlier session, and reserves its space.
    ///
    /// Blocks while it reserves, and up to 3 seconds for another session of the path that is ending. Errors: the
    /// directory is missing, full or not writable; another push owns the path; the path cannot be replaced.
    pub fn create(path: &Path, manifest: Manifest) -> Result<Self, TargetError> {
        let place = Place::anywhere(path).map_err(|error| TargetError::no_place(path, error))?;
        Self::create_at(place, manifest, &Owner::of_no_push(""))
    }

    /// The same at a place that is open already.
    pub(crate) fn create_at(
        place: Place,
        manifest: Manifest,
        owner: &Owner,
    ) -> Result<Self, TargetError> {
        let claim = claim_for_file(&place, owner)?;
        let (contents, region) = receive(&place, &manifest, &claim)?;
        Ok(Self { place, manifest, contents, region, claim })
    }

    /// The same, but if there is a file at the path that may equal the source (by the root's [`crate::hash::probe`]),
    /// creates nothing before [`Target::begin`].
    pub(crate) fn prepare(
        place: Place,
        manifest: Manifest,
        owner: &Owner,
        probe: &[u8; 32],
    ) -> Result<Self, TargetError> {
        let claim = claim_for_file(&place, owner)?;
        let (contents, region) = match Existing::find(&place, &manifest, probe) {
            Some(existing) => {
                let region = Region::from_file(existing.as_file(), manifest.bytes)
                    .map_err(|error| TargetError::Map { path: place.path().to_owned(), error })?;
                (Contents::Existing(existing), region)
            }
            None => receive(&place, &manifest, &claim)?,
        };
        Ok(Self { place, manifest, contents, region, claim })
    }

    /// What happens to the file of this name: the only entry.
    pub(crate) fn changes(&self) -> Changes {
        let mut changes = Changes::new(true);
        match &self.contents {
            Contents::Existing(existing) if existing.is_finished => {
                changes.add_if_equal(0, Change::Kept);
            }
            Contents::Existing(_) => changes.add_if_equal(0, Change::Attributes),
            _ if self.place.occupant().is_some() => changes.add(0, Change::Contents),
            _ => changes.add(0, Change::New),
        }
        changes
    }

    /// Digests of its existing chunks, for the root to compare. `None` if there are none.
    ///
    /// Blocks while it reads, or until `stop`. Errors: the system's; as for [`Target::create`].
    pub(crate) fn chunk_digests(
        &mut self,
        stop: &AtomicBool,
    ) -> Result<Option<ChunkDigests>, TargetError> {
        let bytes = self.manifest.bytes;
        if let Contents::Existing(existing) = &self.contents {
            match ChunkDigests::of_whole(existing.as_file(), bytes, stop) {
                Err(_) if !stop.load(Ordering::Relaxed) => {
                    let (contents, region) = receive(&self.place, &self.manifest, &self.claim)?;
                    (self.contents, self.region) = (contents, region);
                }
                digests => return digests.map_err(self.system("read what is there of")),
            }
        }
        let digests = match &self.contents {
            Contents::Temporary(temporary) if temporary.is_old => {
                ChunkDigests::of(temporary.as_file(), bytes, stop)
            }
            _ => Ok(None),
        };
        digests.map_err(self.system("read what is there of"))
    }

    /// Takes over the ranges that match the source. Unless an existing file stays, copies them into a new temporary
    /// file.
    ///
    /// Blocks while it copies, or until `stop`. Errors: as for [`Target::create`].
    pub(crate) fn begin(&mut self, has: &Ranges, stop: &AtomicBool) -> Result<(), TargetError> {
        let Contents::Existing(existing) = &self.contents else { return Ok(()) };
        if existing.may_stay && has.covers((0, self.manifest.bytes)) {
            return Ok(());
        }
        let (contents, region) = receive(&self.place, &self.manifest, &self.claim)?;
        for (start, end) in has.iter() {
            for piece in (start..end).step_by(COPIED_BYTES) {
                let piece = (piece, end.min(piece + COPIED_BYTES as u64));
                let copied = match stop.load(Ordering::Relaxed) {
                    true => Err(Errno::INTR),
                    false => self.place.disk().copy(existing.as_file(), contents.as_file(), piece),
                };
                copied.map_err(self.system("copy what is there of"))?;
                start_writeback(contents.as_file(), piece);
            }
        }
        (self.contents, self.region) = (contents, region);
        Ok(())
    }

    /// Leaves the temporary file for a later session.
    pub fn keep(self) {
        if let Contents::Temporary(temporary) = self.contents {
            temporary.keep();
        }
    }

    /// The same for a file that an earlier session has left; removes a new one.
    pub(crate) fn keep_old(self) {
        if let Contents::Temporary(temporary) = self.contents
            && temporary.is_old
        {
            temporary.keep();
        }
    }

    /// Sets the modification time that the copy is to have.
    pub(crate) fn set_modified_ns(&mut self, modified_ns: i64) {
        self.manifest.modified_ns = modified_ns;
    }

    /// The source's name, length and attributes.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The destination.
    pub fn path(&self) -> &Path {
        self.place.path()
    }

    /// The region of the temporary file, of exactly the source's length. Read-only for an existing file.
    pub fn region(&self) -> Region {
        self.region.clone()
    }

    /// The file, for reading what has arrived. Errors: no descriptor.
    pub fn file(&self) -> Result<File, TargetError> {
        self.contents.as_file().try_clone().map_err(self.system("open"))
    }

    /// Gives the file its mode, modification time and name, and returns once all of it is on disk. Replaces the file
    /// that had the name, atomically. True if that file is the copy already. Blocks for the disk.
    ///
    /// Errors: the system's; then the temporary file is removed and the old file is unchanged.
    pub fn publish(self, _proof: &Verified) -> Result<bool, TargetError> {
        if let Contents::Existing(existing) = &self.contents {
            let is_same = existing.publish(&self.place, &self.manifest);
            if !is_same.map_err(self.system("write to disk"))? {
                return Err(TargetError::Changed(self.place.path().to_owned()));
            }
            self.place.remove_temporaries(None);
            return Ok(true);
        }
        let (disk, file) = (self.place.disk(), self.contents.as_file());
        // The long part first: the file is private until its mode is set.
        disk.sync(file).map_err(self.system("write to disk"))?;
        disk.set_modified(file, self.manifest.modified())
            .map_err(self.system("set the modification time of"))?;
        // Never set-user-id and the like, whatever the manifest has.
        disk.set_mode(file, self.manifest.mode & 0o777).map_err(self.system("set the mode of"))?;
        disk.sync(file).map_err(self.system("write to disk"))?;
        check_replaceable(&self.place)?;
        let renamed = self.system("rename the temporary file to");
        let Self { place, contents, claim, .. } = self;
        if let Contents::Temporary(temporary) = contents {
            temporary.publish(&place).map_err(renamed)?;
        }
        // The rename has to reach the disk as well.
        let synced = place.disk().sync_names().map_err(|error| TargetError::System {
            path: place.directory().to_owned(),
            what: "write to disk the directory",
            error: error.into(),
        });
        drop(claim);
        synced.map(|()| false)
    }

    fn system<E: Into<io::Error>>(
        &self,
        what: &'static str,
    ) -> impl FnOnce(E) -> TargetError + use<E> {
        let path = self.place.path().to_owned();
        move |error| TargetError::System { path, what, error: error.into() }
    }
}

/// Before the transfer; otherwise the rename after it would fail.
fn check_name(place: &Place) -> Result<(), TargetError> {
    if place.name().len() > NAME_BYTES_MAX {
        return Err(TargetError::LongName(place.path().to_owned()));
    }
    Ok(())
}

/// Only a regular file or a link to one may be replaced.
fn check_replaceable(place: &Place) -> Result<(), TargetError> {
    let kind = match place.occupant() {
        None | Some(FileType::RegularFile) => return Ok(()),
        Some(FileType::Directory) => "a directory",
        Some(_) => "not a regular file",
    };
    Err(TargetError::InTheWay { path: place.path().to_owned(), kind })
}

/// Identifies the version of a source by its manifest. Existing data is compared in any case.
fn version(manifest: &Manifest) -> Vec<u8> {
    let numbers = [manifest.bytes.to_le_bytes(), manifest.modified_ns.to_le_bytes()];
    [numbers.as_flattened(), manifest.name.as_bytes()].concat()
}

/// Claims a place for a file whose name can be written.
fn claim_for_file(place: &Place, owner: &Owner) -> Result<Claim, TargetError> {
    check_name(place)?;
    check_replaceable(place)?;
    claim(place, owner)
}

/// Claims a place.
pub(crate) fn claim(place: &Place, owner: &Owner) -> Result<Claim, TargetError> {
    check_name(place)?;
    let path = || place.path().to_owned();
    Claim::take(place, owner).map_err(|error| match error {
        ClaimError::Busy(owner) => {
            let owner = owner.map(|owner| format!(" {owner}")).unwrap_or_default();
            TargetError::Busy { path: path(), owner }
        }
        ClaimError::Shared(owner) => {
            let host = owner.host().to_owned();
            TargetError::Shared { path: path(), owner: format!(" {owner}"), host }
        }
        ClaimError::System(Errno::OPNOTSUPP | Errno::NOSYS | Errno::NOLCK) => {
            TargetError::NoLocks(place.directory().to_owned())
        }
        ClaimError::System(error) => no_file(place, error),
    })
}

/// Opens a temporary file and reserves its space.
fn receive(
    place: &Place,
    manifest: &Manifest,
    claim: &Claim,
) -> Result<(Contents, Region), TargetError> {
    let directory = place.directory();
    let refused = |what| move |error: Errno| refusal(directory, what, manifest.bytes, error.into());
    let temporary =
        Temporary::open(place, &version(manifest), claim).map_err(|error| no_file(place, error))?;
    let file = temporary.as_file();
    if file.metadata().is_ok_and(|metadata| metadata.len() > manifest.bytes) {
        place.disk().set_len(file, 0).map_err(refused("write in"))?;
    }
    reserve(place.disk(), file, manifest.bytes).map_err(refused("reserve space in"))?;
    let region = Region::from_file_writable(file, manifest.bytes)
        .map_err(|error| TargetError::Map { path: place.path().to_owned(), error })?;
    Ok((Contents::Temporary(temporary), region))
}

fn reserve(disk: &Disk, file: &File, bytes: u64) -> Result<(), Errno> {
    if bytes == 0 {
        return Ok(());
    }
    // Checked first, since a failing reservation may fill the disk before it gives up. Existing data of an earlier
    // session has its space already.
    let there = file.metadata().map_or(0, |metadata| metadata.blocks() * 512);
    let free = disk.free()?;
    if free.f_bavail.saturating_mul(free.f_frsize) < bytes.saturating_sub(there) {
        return Err(Errno::NOSPC);
    }
    if disk.is_memory() {
        return disk.set_len(file, bytes);
    }
    loop {
        match disk.reserve(file, bytes) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => return disk.set_len(file, bytes),
            reserved => return reserved,
        }
    }
}

/// The error for a file that cannot be created.
pub(crate) fn no_file(place: &Place, error: Errno) -> TargetError {
    let directory = place.directory();
    // File systems without a fixed number of inodes report 0 for both.
    let has_inodes =
        place.disk().free().map_or(true, |free| free.f_files == 0 || free.f_favail > 0);
    if error == Errno::NOSPC && !has_inodes {
        return TargetError::NoInodes(directory.to_owned());
    }
    refusal(directory, "create a file in", 0, error.into())
}

/// The error with a remedy, if there is one for this kind.
pub(crate) fn refusal(
    directory: &Path,
    what: &'static str,
    bytes: u64,
    error: io::Error,
) -> TargetError {
    let path = directory.to_owned();
    match error.kind() {
        io::ErrorKind::StorageFull => TargetError::NoSpace { directory: path, bytes },
        io::ErrorKind::QuotaExceeded => TargetError::Quota { directory: path, bytes },
        io::ErrorKind::FileTooLarge => TargetError::TooLong { directory: path, bytes },
        io::ErrorKind::ReadOnlyFilesystem => TargetError::ReadOnly(path),
        io::ErrorKind::PermissionDenied => TargetError::NoPermission(path),
        _ => TargetError::System { path, what, error },
    }
}

#[cfg(test)]
mod tests {
    use std::{fs::Permissions, os::unix::fs::PermissionsExt};

    use super::*;
    use crate::{
        disk::advice::{Advised, take},
        hash::probe,
    };

    #[test]
    fn what_is_copied_of_an_existing_file_is_written_to_disk() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("copy");
        std::fs::write(&path, [7; 10_000]).unwrap();
        // It cannot stay, as others could write to it.
        std::fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let probe = probe(&File::open(&path).unwrap(), 10_000).unwrap();
        let manifest = Manifest { name: "a".into(), bytes: 10_000, mode: 0o600, modified_ns: 0 };
        let place = Place::anywhere(&path).unwrap();
        let mut target = Target::prepare(place, manifest, &Owner::of_no_push(""), &probe).unwrap();
        take();
        let has = [(0, 4_000), (5_000, 10_000)];
        target.begin(&has.into_iter().collect(), &AtomicBool::new(false)).unwrap();
        assert_eq!(take(), has.map(Advised::Writeback));
    }
}
