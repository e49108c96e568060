//! The place of a copy: a name in a directory that is held open, so that the directory cannot be replaced between a
//! check and its use.

use std::{
    ffi::{OsStr, OsString},
    fs::{File, Metadata},
    io,
    os::fd::OwnedFd,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Component, Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, open, openat, openat2, statat},
    io::Errno,
};

use crate::{disk::Directory, removal::remove_tree};

/// The longest file name of common file systems, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;
const MARK: &str = ".rdmc-";
/// The end of the name of a lock.
pub(crate) const LOCK: &str = "lock";
/// Ends of further names: of what is exchanged, its mark, its list, and of a file that is removed.
const STAGING_ENDS: [&str; 4] = ["old", "staged", "list", "removed"];
/// Hexadecimal digits of a source's version, at the end of the name of a temporary file.
pub(crate) const VERSION_DIGITS: usize = 12;
/// Attempts of a lookup while other processes rename directories.
const TRIES: usize = 64;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

/// A name in a directory; or a directory itself, in which its temporary files and its lock are then.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    parent: Directory,
    /// Empty for a directory itself.
    name: OsString,
    /// For messages only.
    path: PathBuf,
}

/// Why a place cannot be opened.
#[derive(Debug)]
pub(crate) enum PlaceError {
    /// The path does not end with a file's name.
    NoName,
    /// A symbolic link leads out of the permitted directory.
    Outside,
    /// The system's error for the directory.
    Directory(io::Error),
}

impl PlaceError {
    /// Whether the directory does not exist.
    pub(crate) fn is_missing(&self) -> bool {
        matches!(self, Self::Directory(error) if error.kind() == io::ErrorKind::NotFound)
    }
}

impl Place {
    /// The place of any path; follows links.
    pub(crate) fn anywhere(path: &Path) -> Result<Self, PlaceError> {
        let name = path.file_name().ok_or(PlaceError::NoName)?;
        let directory = open(directory_of(path), DIRECTORY, Mode::empty())
            .map_err(|error| PlaceError::Directory(error.into()))?;
        Ok(Self::new(directory, name, path))
    }

    /// The place of a relative path without `..` below a directory. Symbolic links on the path are followed if they
    /// stay below it.
    pub(crate) fn below(root: &Path, relative: &Path) -> Result<Self, PlaceError> {
        let name = relative.file_name().ok_or(PlaceError::NoName)?;
        let start = open(root, DIRECTORY, Mode::empty()).map_err(refused)?;
        let directory = open_beneath(&start, directory_of(relative)).map_err(refused)?;
        Ok(Self::new(directory, name, &root.join(relative)))
    }

    /// Opens a directory by any path; follows a symbolic link at its end only with `follows`.
    pub(crate) fn directory_anywhere(path: &Path, follows: bool) -> Result<Directory, PlaceError> {
        let flags = if follows { DIRECTORY } else { DIRECTORY | OFlags::NOFOLLOW };
        let opened = open(path, flags, Mode::empty());
        opened.map(Directory::new).map_err(|error| PlaceError::Directory(error.into()))
    }

    /// The same for a relative path without `..` below a directory, which no link may leave.
    pub(crate) fn directory_below(
        root: &Path,
        relative: &Path,
        follows: bool,
    ) -> Result<Directory, PlaceError> {
        if !follows {
            let place = Self::below(root, relative)?;
            let opened = place.parent.open_directory(&place.name);
            return opened.map_err(|error| PlaceError::Directory(error.into()));
        }
        let start = open(root, DIRECTORY, Mode::empty()).map_err(refused)?;
        open_beneath(&start, relative).map(Directory::new).map_err(refused)
    }

    fn new(directory: OwnedFd, name: &OsStr, path: &Path) -> Self {
        let parent = Directory::new(directory);
        Self { parent, name: name.to_owned(), path: path.to_owned() }
    }

    /// A directory that is open.
    pub(crate) fn inside(directory: Directory, path: &Path) -> Self {
        Self { parent: directory, name: OsString::new(), path: path.to_owned() }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The path of [`Place::parent`].
    pub(crate) fn directory(&self) -> &Path {
        if self.name.is_empty() { &self.path } else { directory_of(&self.path) }
    }

    /// Whether the directory that is open still has its path, which is looked up only to be compared.
    pub(crate) fn has_its_path(&self) -> Result<bool, Errno> {
        let own = self.parent.own_stat()?;
        let is_it = |found: Metadata| (found.dev(), found.ino()) == (own.st_dev, own.st_ino);
        Ok(std::fs::metadata(self.directory()).is_ok_and(is_it))
    }

    /// The directory in which temporary files are.
    pub(crate) fn parent(&self) -> &Directory {
        &self.parent
    }

    pub(crate) fn name(&self) -> &OsStr {
        &self.name
    }

    /// The directory's current path.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn real_directory(&self) -> io::Result<PathBuf> {
        std::fs::read_link(format!(
            "/proc/self/fd/{}",
            std::os::fd::AsRawFd::as_raw_fd(self.parent.as_fd())
        ))
    }

    /// The type of the file of this name, if there is one; follows links.
    pub(crate) fn occupant(&self) -> Option<FileType> {
        self.parent.kind(&self.name)
    }

    /// The hidden name `.NAME.rdmc-END`, or `.rdmc-END`, which no destination can have.
    pub(crate) fn hidden(&self, end: &str) -> OsString {
        (prefix(&self.name) + end).into()
    }

    /// Names of temporary files and directories of all versions.
    pub(crate) fn temporaries(&self) -> impl Iterator<Item = OsString> {
        let prefix = prefix(&self.name);
        let is_version = |end: &str| {
            end.len() == VERSION_DIGITS && end.bytes().all(|digit| digit.is_ascii_hexdigit())
        };
        self.parent.names().unwrap_or_default().into_iter().filter(move |name| {
            let end = name.to_str().and_then(|name| name.strip_prefix(&prefix));
            end.is_some_and(is_version)
        })
    }

    /// Removes them except for one; the caller must own the claim. Files that cannot be removed stay without effect.
    pub(crate) fn remove_temporaries(&self, but: Option<&OsStr>) {
        for name in self.temporaries().filter(|name| Some(name.as_os_str()) != but) {
            tracing::info!(?name, "removing a temporary file of an earlier session");
            // A copy of a tree is a directory.
            let _ = remove_tree(&self.parent, &name);
        }
    }

    /// Opens the file of this name for reading; not a link.
    pub(crate) fn open_occupant(&self) -> io::Result<File> {
        Ok(self.parent.open(&self.name, OFlags::RDONLY)?)
    }
}

/// Whether this has the form of a temporary file's or a lock's name.
pub(crate) fn is_hidden(name: &str) -> bool {
    let is_end =
        |end: &str| end.len() == VERSION_DIGITS || end == LOCK || STAGING_ENDS.contains(&end);
    name.starts_with('.') && name.rsplit_once(MARK).is_some_and(|(_, end)| is_end(end))
}

/// The start of a long path, for messages.
pub(crate) fn start(path: &Path) -> String {
    let bytes = path.as_os_str().as_bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(100)]).into_owned()
}

/// The prefix of hidden names for a name: the name itself, or if it is too long or not UTF-8 a part of it with a digest
/// of the whole.
fn prefix(name: &OsStr) -> String {
    if name.is_empty() {
        return MARK.to_owned();
    }
    let shown = name.to_string_lossy();
    let bytes_max = NAME_BYTES_MAX - 1 - MARK.len() - VERSION_DIGITS;
    if shown.len() <= bytes_max && shown.as_bytes() == name.as_bytes() {
        return format!(".{shown}{MARK}");
    }
    let digest = &blake3::hash(name.as_bytes()).to_hex()[..VERSION_DIGITS];
    let end = shown.floor_char_boundary(bytes_max - 1 - digest.len());
    format!(".{}~{digest}{MARK}", &shown[..end])
}

/// The error for a path below a directory.
fn refused(error: Errno) -> PlaceError {
    match error {
        Errno::XDEV | Errno::LOOP => PlaceError::Outside,
        error => PlaceError::Directory(error.into()),
    }
}

fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// Opens a directory below another. The kernel ensures that the path does not leave it, even if links change
/// meanwhile.
fn open_beneath(start: &OwnedFd, relative: &Path) -> Result<OwnedFd, Errno> {
    open_by_kernel(start, relative, DIRECTORY).unwrap_or_else(|| walk_beneath(start, relative))
}

/// Opens something below a directory with these flags. Not where `openat2` is missing.
pub(crate) fn open_beneath_as(
    start: &OwnedFd,
    relative: &Path,
    flags: OFlags,
) -> Result<OwnedFd, PlaceError> {
    open_by_kernel(start, relative, flags).unwrap_or(Err(Errno::NOSYS)).map_err(refused)
}

/// `None` where `openat2` is missing.
fn open_by_kernel(
    start: &OwnedFd,
    relative: &Path,
    open_flags: OFlags,
) -> Option<Result<OwnedFd, Errno>> {
    let flags = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..TRIES {
        match openat2(start, relative, open_flags, Mode::empty(), flags) {
            // A concurrent rename on the path: the kernel requires a retry.
            Err(Errno::AGAIN | Errno::INTR) => {}
            // Linux before 5.6, or a sandbox that blocks the call.
            Err(Errno::NOSYS | Errno::PERM) => return None,
            opened => return Some(opened),
        }
    }
    Some(Err(Errno::AGAIN))
}

/// The same component by component, without `openat2`: no symbolic link is followed.
pub(crate) fn walk_beneath(start: &OwnedFd, relative: &Path) -> Result<OwnedFd, Errno> {
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
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    #[test]
    fn paths_that_leave_are_refused_with_and_without_openat2() {
        let outside = tempfile::tempdir().unwrap();
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("a/b")).unwrap();
        fs::write(root.path().join("file"), "").unwrap();
        symlink(outside.path(), root.path().join("absolute")).unwrap();
        symlink("../..", root.path().join("a/up")).unwrap();
        symlink("a/b", root.path().join("inside")).unwrap();
        symlink("loop", root.path().join("loop")).unwrap();
        symlink("/proc/self/root", root.path().join("magic")).unwrap();
        let start = open(root.path(), DIRECTORY, Mode::empty()).unwrap();
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

    #[test]
    fn only_versions_of_this_name_are_removed() {
        let directory = tempfile::tempdir().unwrap();
        let others = ["copy", ".copy.rdmc-lock", ".copy2.rdmc-0123456789ab", ".copy.rdmc-other"];
        let own = [".copy.rdmc-0123456789ab", ".copy.rdmc-ba9876543210"];
        for name in others.iter().chain(&own) {
            fs::write(directory.path().join(name), "").unwrap();
        }
        let place = Place::anywhere(&directory.path().join("copy")).unwrap();
        let inside = Place::inside(place.parent().clone(), directory.path());
        fs::write(directory.path().join(inside.hidden("0123456789ab")), "").unwrap();
        inside.remove_temporaries(None);
        assert!(!directory.path().join(".rdmc-0123456789ab").exists());
        place.remove_temporaries(Some(OsStr::new(own[0])));
        assert!(directory.path().join(own[0]).exists());
        place.remove_temporaries(None);
        assert!(own.iter().all(|name| !directory.path().join(name).exists()));
        assert!(others.iter().all(|name| directory.path().join(name).exists()));
    }

    #[test]
    fn hidden_names_are_recognized_and_fit_and_differ() {
        let long = ["n".repeat(255), "n".repeat(254), "n".repeat(254) + "m", "\u{e4}".repeat(127)];
        let mut hidden = Vec::new();
        for name in long.iter().map(String::as_str).chain(["a"]) {
            hidden.push(prefix(OsStr::new(name)) + "0123456789ab");
            hidden.push(prefix(OsStr::new(name)) + LOCK);
        }
        for name in [&b"a\xff"[..], b"a\xfe"] {
            hidden.push(prefix(OsStr::from_bytes(name)) + LOCK);
        }
        assert!(hidden.iter().all(|name| name.len() <= NAME_BYTES_MAX && is_hidden(name)));
        let count = hidden.len();
        hidden.sort_unstable();
        hidden.dedup();
        assert_eq!(hidden.len(), count);
        for name in ["a", ".a", ".rdmc-abcdef.txt", "a.rdmc-0123456789ab", ".a.rdmc-abc"] {
            assert!(!is_hidden(name), "{name}");
        }
    }
}
