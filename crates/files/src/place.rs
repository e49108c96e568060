//! Where a copy goes: a name in a directory that is held open, so that nobody can put another
//! directory in its place between a check and the use.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, Metadata},
    io,
    os::fd::OwnedFd,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Component, Path, PathBuf},
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use rustix::{
    fs::{
        AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags, flock, fstat, fsync,
        open, openat, openat2, renameat, statat, unlinkat,
    },
    io::Errno,
    process::geteuid,
};

/// The longest file name in bytes that common file systems take.
pub(crate) const NAME_BYTES_MAX: usize = 255;
/// What a temporary name adds to the name: `.`, [`MARK`] and the version.
const SUFFIX_BYTES: usize = 1 + MARK.len() + VERSION_DIGITS;
const MARK: &str = ".rdmc-";
/// Hexadecimal digits that tell versions of a source apart.
pub(crate) const VERSION_DIGITS: usize = 12;
/// So often a lookup is tried that others keep changing.
const TRIES: usize = 64;
/// How long a receiver that is lost may take to let go of its temporary file.
const PATIENCE: Duration = Duration::from_secs(3);
const PAUSE: Duration = Duration::from_millis(50);

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A name in a directory.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    directory: Arc<OwnedFd>,
    name: OsString,
    /// For messages; nothing is looked up by it.
    path: PathBuf,
}

/// Why a place cannot be had; errors of the system are about the directory.
#[derive(Debug)]
pub(crate) enum PlaceError {
    /// It does not end with a file's name.
    NoName,
    /// A symbolic link leads out of where it has to be.
    Outside,
    Directory(io::Error),
}

impl Place {
    /// The place that a path names, links and all.
    pub(crate) fn anywhere(path: &Path) -> Result<Self, PlaceError> {
        let name = path.file_name().ok_or(PlaceError::NoName)?;
        let directory = open(directory_of(path), DIRECTORY, Mode::empty())
            .map_err(|error| PlaceError::Directory(error.into()))?;
        Ok(Self::new(directory, name, path))
    }

    /// The place that a relative path without `..` names below a directory. Symbolic links on the
    /// way may be followed as long as they stay below it.
    pub(crate) fn below(root: &Path, relative: &Path) -> Result<Self, PlaceError> {
        let name = relative.file_name().ok_or(PlaceError::NoName)?;
        let refused = |error: Errno| match error {
            Errno::XDEV | Errno::LOOP => PlaceError::Outside,
            error => PlaceError::Directory(error.into()),
        };
        let start = open(root, DIRECTORY, Mode::empty()).map_err(refused)?;
        let directory = open_beneath(&start, directory_of(relative)).map_err(refused)?;
        Ok(Self::new(directory, name, &root.join(relative)))
    }

    fn new(directory: OwnedFd, name: &OsStr, path: &Path) -> Self {
        Self { directory: Arc::new(directory), name: name.to_owned(), path: path.to_owned() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn directory(&self) -> &Path {
        directory_of(&self.path)
    }

    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// Where the directory is now.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn real_directory(&self) -> io::Result<PathBuf> {
        std::fs::read_link(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(&*self.directory)
        ))
    }

    /// What has the name, or what a link of that name leads to; `None` if nothing has.
    pub(crate) fn occupant(&self) -> Option<FileType> {
        let stat = statat(&*self.directory, &self.name, AtFlags::empty()).ok()?;
        Some(FileType::from_raw_mode(stat.st_mode))
    }

    /// Opens, or makes for its owner alone, the temporary file `.NAME.rdmc-VERSION` in the directory,
    /// locked so that only this process uses it; and removes those of other versions that nobody
    /// uses. `version` has [`VERSION_DIGITS`] hexadecimal digits.
    pub(crate) fn temporary(&self, version: &str) -> Result<Temporary, TemporaryError> {
        let prefix = prefix(&self.name);
        let own = Self { name: format!("{prefix}{version}").into(), ..self.clone() };
        self.remove_others(&prefix, &own.name);
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            let (file, is_old) = own.open_temporary()?;
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                // Whoever had it may have removed it between opening and locking.
                Ok(()) if !own.names(&file) => {}
                Ok(()) => return Ok(Temporary { file, place: Some(own), is_old }),
                Err(Errno::WOULDBLOCK) => thread::sleep(PAUSE),
                Err(error) => return Err(io::Error::from(error).into()),
            }
        }
        Err(TemporaryError::Busy(self.directory().join(&own.name)))
    }

    /// Tells also whether it was there already. Never follows a link: others may be able to make one
    /// in a shared directory.
    fn open_temporary(&self) -> io::Result<(File, bool)> {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let new = flags | OFlags::CREATE | OFlags::EXCL;
        match openat(&*self.directory, &self.name, new, Mode::RUSR | Mode::WUSR) {
            Ok(file) => Ok((file.into(), false)),
            Err(Errno::EXIST) => {
                let file: File = openat(&*self.directory, &self.name, flags, Mode::empty())?.into();
                if is_own(&file.metadata()?) {
                    return Ok((file, true));
                }
                let what = "is in the way and not a file of this user's alone; remove it";
                Err(io::Error::other(format!("{:?} {what}", self.name)))
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the name leads to this file, and not to another of that name.
    fn names(&self, file: &File) -> bool {
        let named = statat(&*self.directory, &self.name, AtFlags::SYMLINK_NOFOLLOW);
        match (fstat(file), named) {
            (Ok(opened), Ok(named)) => {
                (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino)
            }
            _ => false,
        }
    }

    /// Removes temporary files of dead sessions; failing to remove one does no harm.
    fn remove_others(&self, prefix: &str, own: &OsStr) {
        let Ok(entries) = Dir::read_from(&*self.directory) else { return };
        for entry in entries.flatten() {
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let is_version = |rest: &str| {
                rest.len() == VERSION_DIGITS && rest.bytes().all(|b| b.is_ascii_hexdigit())
            };
            let is_other =
                name.to_str().and_then(|name| name.strip_prefix(prefix)).is_some_and(is_version);
            if !is_other || name == own {
                continue;
            }
            let other = Self { name: name.to_owned(), ..self.clone() };
            if let Ok((file, true)) = other.open_temporary()
                && flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok()
                && other.names(&file)
            {
                tracing::info!(?name, "removing what a dead session has left");
                let _ = unlinkat(&*self.directory, name, AtFlags::empty());
            }
        }
    }

    /// The file that has the name, for reading; not a link.
    pub(crate) fn open_occupant(&self) -> io::Result<File> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        Ok(openat(&*self.directory, &self.name, flags, Mode::empty())?.into())
    }

    /// Writes to disk which names the directory has.
    pub(crate) fn sync_directory(&self) -> io::Result<()> {
        fsync(&*self.directory).map_err(Into::into)
    }
}

/// Why there is no temporary file.
#[derive(Debug)]
pub(crate) enum TemporaryError {
    /// Another process receives the same file.
    Busy(PathBuf),
    System(io::Error),
}

impl From<io::Error> for TemporaryError {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

/// A file that is removed when dropped, unless it got its name or is to stay.
#[derive(Debug)]
pub(crate) struct Temporary {
    file: File,
    place: Option<Place>,
    /// It was there already.
    pub(crate) is_old: bool,
}

impl Temporary {
    pub(crate) fn as_file(&self) -> &File {
        &self.file
    }

    /// Leaves it where it is.
    pub(crate) fn keep(mut self) {
        self.place = None;
    }

    /// Gives the file the name of a place in the same directory, in one step. Whatever had the name
    /// is replaced; if it is a link, the link is, and what it leads to stays as it is.
    pub(crate) fn publish(mut self, place: &Place) -> io::Result<()> {
        let Some(own) = &self.place else { return Ok(()) };
        renameat(&*own.directory, &own.name, &*place.directory, &place.name)?;
        self.place = None;
        Ok(())
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(Place { directory, name, .. }) = &self.place {
            // Gone already, or a disk that fails: nothing is left to do.
            let _ = unlinkat(&**directory, name, AtFlags::empty());
        }
    }
}

/// Whether this could be the name of somebody's temporary file.
pub(crate) fn is_temporary(name: &str) -> bool {
    name.starts_with('.')
        && name.rsplit_once(MARK).is_some_and(|(_, version)| version.len() == VERSION_DIGITS)
}

/// What temporary names of this one begin with: as much of it as leaves room for the rest.
fn prefix(name: &OsStr) -> String {
    let name = name.to_string_lossy();
    format!(".{}{MARK}", &name[..name.floor_char_boundary(NAME_BYTES_MAX - SUFFIX_BYTES)])
}

/// Whether nobody else can write or read this file, or has another name for it: in a shared directory
/// others may be able to put one of theirs where a temporary file is looked for.
fn is_own(metadata: &Metadata) -> bool {
    let is_private = metadata.mode() & 0o077 == 0 && metadata.nlink() == 1;
    metadata.is_file() && is_private && metadata.uid() == geteuid().as_raw()
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Opens a directory below another. The kernel makes sure that the way does not leave it, whoever
/// changes links meanwhile.
fn open_beneath(start: &OwnedFd, relative: &Path) -> Result<OwnedFd, Errno> {
    let flags = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..TRIES {
        match openat2(start, relative, DIRECTORY, Mode::empty(), flags) {
            // Somebody renames directories on the way: the kernel cannot tell, and asks again.
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Linux before 5.6, or a sandbox that does not know the call.
            Err(Errno::NOSYS | Errno::PERM) => return walk_beneath(start, relative),
            opened => return opened,
        }
    }
    Err(Errno::AGAIN)
}

/// The same step by step, where the kernel cannot do it: no symbolic link is followed at all.
fn walk_beneath(start: &OwnedFd, relative: &Path) -> Result<OwnedFd, Errno> {
    let mut directory = openat(start, ".", DIRECTORY, Mode::empty())?;
    for part in relative.components() {
        match part {
            Component::CurDir => {}
            Component::Normal(name) => {
                let opened = openat(&directory, name, DIRECTORY | OFlags::NOFOLLOW, Mode::empty());
                directory = opened.map_err(|error| match is_link(&directory, name) {
                    true => Errno::LOOP,
                    false => error,
                })?;
            }
            _ => return Err(Errno::XDEV),
        }
    }
    Ok(directory)
}

fn is_link(directory: &OwnedFd, name: &OsStr) -> bool {
    statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)
        .is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Symlink)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{PermissionsExt, symlink},
    };

    use super::*;

    #[test]
    fn ways_that_leave_are_refused_with_and_without_the_kernels_help() {
        let outside = tempfile::tempdir().unwrap();
        let room = tempfile::tempdir().unwrap();
        fs::create_dir_all(room.path().join("a/b")).unwrap();
        fs::write(room.path().join("file"), "").unwrap();
        symlink(outside.path(), room.path().join("absolute")).unwrap();
        symlink("../..", room.path().join("a/up")).unwrap();
        symlink("a/b", room.path().join("inside")).unwrap();
        symlink("loop", room.path().join("loop")).unwrap();
        symlink("/proc/self/root", room.path().join("magic")).unwrap();
        let start = open(room.path(), DIRECTORY, Mode::empty()).unwrap();
        for opener in [open_beneath, walk_beneath] {
            let error = |way: &str| opener(&start, Path::new(way)).err();
            assert_eq!(error("."), None);
            assert_eq!(error("a/./b"), None);
            assert_eq!(error("missing"), Some(Errno::NOENT));
            assert_eq!(error("file"), Some(Errno::NOTDIR));
            assert!(matches!(error("/"), Some(Errno::XDEV)));
            assert!(matches!(error("a/../.."), Some(Errno::XDEV)));
            for way in ["absolute", "a/up", "a/up/x", "loop", "magic", "magic/etc"] {
                assert!(matches!(error(way), Some(Errno::XDEV | Errno::LOOP)), "{way}");
            }
        }
        assert!(open_beneath(&start, Path::new("inside")).is_ok());
        assert_eq!(walk_beneath(&start, Path::new("inside")).err(), Some(Errno::LOOP));
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = fs::read_dir(directory).unwrap().flatten();
        entries.map(|entry| entry.file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn a_kept_file_is_found_again_and_another_version_removes_it() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::anywhere(&directory.path().join("copy")).unwrap();
        let first = place.temporary("000000000001").unwrap();
        assert!(!first.is_old);
        let busy = place.temporary("000000000001");
        assert!(matches!(busy, Err(TemporaryError::Busy(_))));
        // Another version leaves one alone that is in use.
        drop(place.temporary("000000000002").unwrap());
        assert_eq!(names(directory.path()), [".copy.rdmc-000000000001"]);
        first.keep();
        let again = place.temporary("000000000001").unwrap();
        assert!(again.is_old);
        again.keep();
        let other = place.temporary("000000000002").unwrap();
        assert_eq!(names(directory.path()), [".copy.rdmc-000000000002"]);
        drop(other);
        assert!(names(directory.path()).is_empty());
    }

    #[test]
    fn a_link_in_the_place_of_a_temporary_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let victim = directory.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, directory.path().join(".copy.rdmc-000000000001")).unwrap();
        let place = Place::anywhere(&directory.path().join("copy")).unwrap();
        assert!(matches!(place.temporary("000000000001"), Err(TemporaryError::System(_))));
        // Nor is it followed when it is of another version.
        drop(place.temporary("000000000002").unwrap());
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    }

    #[test]
    fn a_file_that_others_may_write_is_not_gone_on_with() {
        let directory = tempfile::tempdir().unwrap();
        let place = Place::anywhere(&directory.path().join("copy")).unwrap();
        let path = directory.path().join(".copy.rdmc-000000000001");
        let is_refused =
            || matches!(place.temporary("000000000001"), Err(TemporaryError::System(_)));
        fs::write(&path, "theirs").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o620)).unwrap();
        assert!(is_refused());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let other_name = directory.path().join("other");
        fs::hard_link(&path, &other_name).unwrap();
        assert!(is_refused());
        assert_eq!(fs::read(&path).unwrap(), b"theirs");
        fs::remove_file(other_name).unwrap();
        assert!(place.temporary("000000000001").unwrap().is_old);
    }

    #[test]
    fn temporary_names_are_known_and_fit() {
        for name in ["a", &"n".repeat(255), &"\u{e4}".repeat(127)] {
            let temporary = format!("{}0123456789ab", prefix(OsStr::new(name)));
            assert!(temporary.len() <= NAME_BYTES_MAX);
            assert!(is_temporary(&temporary), "{temporary:?}");
        }
        for name in ["a", ".a", ".rdmc-abcdef.txt", "a.rdmc-0123456789ab", ".a.rdmc-abc"] {
            assert!(!is_temporary(name), "{name}");
        }
    }
}
