//! What there is below a directory, as entries of a tree.

use std::{
    ffi::OsStr,
    fs, io,
    ops::ControlFlow,
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
    vec,
};

use rustix::{
    fs::{AtFlags, CWD, Dir, Mode, OFlags, StatFs, fstatfs, openat, readlinkat, statat, statfs},
    io::Errno,
};
use tree::{Links, Listing, PATH_BYTES_MAX, compare};

use super::{
    error::SourceError,
    found::{Found, Link, Listed, Origin},
    lister::Lister,
    options::ListOptions,
    status::{Status, modified_ns},
};
use crate::place::{VERSION_DIGITS, is_hidden};

/// File systems whose files have contents when they are read, whatever their lengths say: those of proc, sysfs, control groups (both
/// versions), debugfs, tracefs, securityfs and configfs (linux/magic.h).
const GENERATED: [u64; 8] = [
    0x9fa0,
    0x6265_6572,
    0x27_e0eb,
    0x6367_7270,
    0x6462_6720,
    0x7472_6163,
    0x7363_6673,
    0x6265_6570,
];

/// A directory that is read.
struct Place<'a> {
    opened: &'a OwnedFd,
    path: &'a Path,
    /// In the tree.
    under: &'a [u8],
    root: u32,
}

/// A directory of which entries are still to be added.
struct Level {
    path: PathBuf,
    found: vec::IntoIter<Found>,
}

/// Takes entries while they are found.
pub(super) type Take<'a> = &'a mut dyn FnMut(Listed) -> ControlFlow<()>;

/// Finds the entries of a tree.
pub(super) struct Scan<'a> {
    options: &'a mut ListOptions,
    lister: Lister,
    /// All that was found, unless it is taken at once.
    found: Vec<Found>,
    take: Option<Take<'a>>,
    /// What takes entries wants no more.
    is_over: bool,
    has_links: bool,
    /// The path that patterns see: of a single directory its name with `/`, this many bytes, before the path in the tree.
    shown: Vec<u8>,
    prefix_bytes: usize,
}

impl<'a> Scan<'a> {
    /// `take`: takes each entry at once; then sources have to be added in the order of their names, and the scan ends at the first
    /// link, since what becomes of links depends on all that is in the tree.
    pub(super) fn new(options: &'a mut ListOptions, take: Option<Take<'a>>) -> Self {
        let lister = Lister::new(options.attributes);
        let (found, is_over, has_links, shown) = Default::default();
        Self { options, lister, found, take, is_over, has_links, shown, prefix_bytes: 0 }
    }

    /// Whether a link was found.
    pub(super) fn has_links(&self) -> bool {
        self.has_links
    }

    /// Adds what a directory contains, whose copy is the destination itself. Patterns see its name, unless only its contents are
    /// meant.
    ///
    /// Errors: the patterns leave it out.
    pub(super) fn add_single(&mut self, path: &Path) -> Result<(), SourceError> {
        if let Some(name) = name_of(path)? {
            if !self.options.selection.takes(&name, true) {
                return Err(SourceError::NothingLeft(path.to_owned()));
            }
            self.shown = [&name[..], b"/"].concat();
            self.prefix_bytes = self.shown.len();
        }
        self.add_contents(path, b"")
    }

    /// Adds what a directory contains, below a path of the tree.
    pub(super) fn add_contents(&mut self, top: &Path, under: &[u8]) -> Result<(), SourceError> {
        let real = fs::canonicalize(top).map_err(system(top, "examine"))?;
        self.lister.add_top(real, under);
        let root = self.lister.add_root(top, under.len());
        if self.is_over {
            return Ok(());
        }
        self.directory(top, under, root)
    }

    /// Adds a source under a name, unless the patterns leave it out: a file, or a directory with what it contains. Follows links.
    pub(super) fn add_named(&mut self, path: &Path, name: &[u8]) -> Result<(), SourceError> {
        let status = Status::from(&fs::metadata(path).map_err(system(path, "examine"))?);
        if !self.options.selection.takes(name, status.is_directory()) {
            return Ok(());
        }
        check_stored(path, &status)?;
        let root = self.lister.add_root(path, name.len());
        let found = found(|| path.to_owned(), name.to_vec(), root, status)?;
        self.add(found)?;
        if status.is_directory() { self.add_contents(path, name) } else { Ok(()) }
    }

    /// Adds what a directory contains, without recursion: a chain of directories may be as long as a path.
    fn directory(&mut self, path: &Path, under: &[u8], root: u32) -> Result<(), SourceError> {
        let mut levels = vec![self.read(path.to_owned(), OFlags::empty(), under, root)?];
        while let Some(Level { path, found }) = levels.last_mut() {
            let Some(found) = found.next().filter(|_| !self.is_over) else {
                levels.pop();
                continue;
            };
            let is_directory = found.link.is_none() && found.status.is_directory();
            let inner = is_directory.then(|| {
                let name = found.path.rsplit(|&byte| byte == b'/').next();
                let name = name.map_or(OsStr::new(""), OsStr::from_bytes);
                (path.join(name), found.path.clone())
            });
            self.add(found)?;
            if let Some((path, under)) = inner {
                levels.push(self.read(path, OFlags::NOFOLLOW, &under, root)?);
            }
        }
        Ok(())
    }

    /// What a directory contains, in the order of names. `under`: its path in the tree.
    fn read(
        &mut self,
        path: PathBuf,
        flags: OFlags,
        under: &[u8],
        root: u32,
    ) -> Result<Level, SourceError> {
        let flags = flags | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let failed = |error: Errno| system(&path, "read")(error.into());
        let opened = openat(CWD, &path, flags, Mode::empty()).map_err(failed)?;
        if fstatfs(&opened).is_ok_and(|found| is_generated(&found)) {
            return Err(SourceError::Generated(path));
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(&opened).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        let place = Place { opened: &opened, path: &path, under, root };
        let mut found = Vec::with_capacity(names.len());
        for name in &names {
            found.extend(self.entry(&place, OsStr::from_bytes(name))?);
        }
        // Not one descriptor for each level.
        drop(opened);
        Ok(Level { path, found: found.into_iter() })
    }

    /// What a name in a directory is, unless it is not sent.
    fn entry(&mut self, place: &Place<'_>, name: &OsStr) -> Result<Option<Found>, SourceError> {
        // Made only where it is needed: there may be millions of entries.
        let path = || place.path.join(name);
        if is_leftover(name) || self.options.leaves_out(place.path, name) {
            return Ok(None);
        }
        let status = statat(place.opened, name, AtFlags::SYMLINK_NOFOLLOW);
        let status = status.map_err(|error| system(&path(), "examine")(error.into()))?;
        let status = Status::from(&status);
        let in_tree = match place.under {
            [] => name.as_bytes().to_vec(),
            under => [under, b"/", name.as_bytes()].concat(),
        };
        self.shown.truncate(self.prefix_bytes);
        self.shown.extend_from_slice(&in_tree);
        if !self.options.selection.takes(&self.shown, status.is_directory()) {
            return Ok(None);
        }
        let bytes = place.path.as_os_str().len() + name.len();
        if bytes >= PATH_BYTES_MAX && path().as_os_str().len() > PATH_BYTES_MAX {
            return Err(SourceError::LongPath(path()));
        }
        match status.is_link() {
            true => self.link(place, name, &path(), in_tree, status).map(Some),
            false => found(path, in_tree, place.root, status).map(Some),
        }
    }

    fn add(&mut self, found: Found) -> Result<(), SourceError> {
        self.has_links |= found.link.is_some();
        match &mut self.take {
            None => self.found.push(found),
            Some(_) if self.is_over || self.has_links => self.is_over = true,
            Some(take) => self.is_over = take(self.lister.list(found)?).is_break(),
        }
        Ok(())
    }

    fn link(
        &self,
        place: &Place<'_>,
        name: &OsStr,
        real: &Path,
        path: Vec<u8>,
        own: Status,
    ) -> Result<Found, SourceError> {
        let text = readlinkat(place.opened, name, Vec::new());
        let text = text.map_err(|error| system(real, "read")(error.into()))?.into_bytes();
        let target = Path::new(OsStr::from_bytes(&text));
        let (modified_ns, owner) = (modified_ns(|| real.to_owned(), &own)?, own.owner);
        let (to, status) = match self.options.links {
            Links::Anywhere => (None, own),
            Links::Inside => {
                let to = fs::canonicalize(real).map_err(leads_nowhere(real, target))?;
                let status = Status::from(&fs::metadata(&to).map_err(system(real, "follow"))?);
                check_stored(&to, &status)?;
                (Some(to), status)
            }
        };
        let (link, root) = (Some(Box::new(Link { text, to })), place.root);
        Ok(Found { path, root, status, link, modified_ns, owner })
    }

    /// The tree, and its files with contents, in order.
    ///
    /// Errors: as [`Scan::for_each`]; it is too large.
    pub(super) fn finish(self, shown: &Path) -> Result<(Listing, Vec<Origin>), SourceError> {
        let (links, keeps) = (self.options.links, self.options.attributes.any());
        let mut entries = Vec::with_capacity(self.found.len());
        let (mut attributes, mut data, mut origins) = (Vec::new(), Vec::new(), Vec::new());
        self.for_each(shown, |listed| {
            attributes.extend(listed.attributes);
            if let Some(origin) = listed.origin {
                data.extend(origin.data().map(|data| (entries.len(), data)));
                origins.push(origin);
            }
            entries.push(listed.entry);
            ControlFlow::Continue(())
        })?;
        let listing = Listing::with_links(entries, links);
        let listing = listing.and_then(|listing| match keeps {
            true => listing.with_attributes(attributes),
            false => Ok(listing),
        });
        origins.shrink_to_fit();
        match listing.and_then(|listing| listing.with_data(data)) {
            Ok(listing) => Ok((listing, origins)),
            Err(error) => Err(SourceError::Tree { path: shown.to_owned(), error }),
        }
    }

    /// Gives all entries that were not taken at once in the order of a listing, until that breaks off.
    ///
    /// Errors: the patterns have left nothing; a link leads to a directory outside.
    pub(super) fn for_each(
        mut self,
        shown: &Path,
        mut take: impl FnMut(Listed) -> ControlFlow<()>,
    ) -> Result<(), SourceError> {
        if self.has_links {
            self.lister.learn_paths(&self.found);
        }
        self.found.sort_by(|one, other| compare(&one.path, &other.path));
        for found in self.found {
            if take(self.lister.list(found)?).is_break() {
                return Ok(());
            }
        }
        self.lister.check_any(shown)
    }
}

/// `real`: where it is on disk, for errors.
fn found(
    real: impl Fn() -> PathBuf,
    path: Vec<u8>,
    root: u32,
    status: Status,
) -> Result<Found, SourceError> {
    if !status.is_file() && !status.is_directory() {
        return Err(SourceError::Special { path: real(), kind: status.special() });
    }
    let (modified_ns, owner) = (modified_ns(real, &status)?, status.owner);
    Ok(Found { path, root, status, link: None, modified_ns, owner })
}

/// Whether a name is that of a temporary file or a lock that receivers of rdmc have left: never sent.
fn is_leftover(name: &OsStr) -> bool {
    let Some(name) = name.to_str().filter(|name| is_hidden(name)) else { return false };
    let end = name.rsplit('-').next().unwrap_or(name);
    end.len() != VERSION_DIGITS || end.bytes().all(|digit| digit.is_ascii_hexdigit())
}

/// The name of a source; `None` if what a directory contains is meant.
pub(super) fn name_of(path: &Path) -> Result<Option<Vec<u8>>, SourceError> {
    if is_contents(path) {
        return Ok(None);
    }
    let name = path.file_name().ok_or_else(|| SourceError::Name(path.to_owned()))?;
    Ok(Some(name.as_bytes().to_vec()))
}

/// Whether a path means what a directory contains and not the directory, as with rsync: it ends with `/`, `.` or `..`.
pub(super) fn is_contents(path: &Path) -> bool {
    let last = path.as_os_str().as_bytes().rsplit(|&byte| byte == b'/').next();
    matches!(last, Some(b"" | b"." | b".."))
}

/// Errors: a file whose contents are generated when they are read.
fn check_stored(path: &Path, status: &Status) -> Result<(), SourceError> {
    let may_be = status.is_file() && status.allocated_bytes == 0;
    match may_be && statfs(path).is_ok_and(|found| is_generated(&found)) {
        true => Err(SourceError::Generated(path.to_owned())),
        false => Ok(()),
    }
}

fn is_generated(system: &StatFs) -> bool {
    GENERATED.contains(&(system.f_type as u64))
}

/// The error for a link that cannot be followed.
fn leads_nowhere(path: &Path, target: &Path) -> impl FnOnce(io::Error) -> SourceError {
    let (path, target) = (path.to_owned(), target.to_owned());
    move |error| match Errno::from_io_error(&error) {
        Some(Errno::NOENT | Errno::NOTDIR) => SourceError::Dangling { path, target },
        Some(Errno::LOOP) => SourceError::Loop { path, target },
        _ => SourceError::System { path, what: "follow", error },
    }
}

pub(super) fn system(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> SourceError {
    let path = path.to_owned();
    move |error| match error.kind() {
        io::ErrorKind::NotFound => SourceError::Missing(path),
        _ => SourceError::System { path, what, error },
    }
}
