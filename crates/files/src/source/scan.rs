//! What there is below a directory, as entries of a tree.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs, io,
    ops::{ControlFlow, Range},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    path::{Path, PathBuf},
};

use rustix::{
    fs::{
        AtFlags, CWD, Dir, FileType, Mode, OFlags, StatFs, fstatfs, openat, readlinkat, statat,
        statfs,
    },
    io::Errno,
};
use tree::{Attributes, Entry, Kind, Links, Listing, PATH_BYTES_MAX, check_link, compare};

use super::{
    error::SourceError,
    holes::{data_of, has_only, may_have_holes},
    identity::Identity,
    options::ListOptions,
    status::Status,
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

/// What was found under one path.
struct Found {
    /// In the tree.
    path: Vec<u8>,
    /// The source in [`Scan::roots`].
    root: u32,
    /// Of the entry itself; of a link that is followed, of what it leads to.
    status: Status,
    link: Option<Box<Link>>,
    /// Of the entry itself.
    modified_ns: i64,
    /// User and group of the entry itself.
    owner: (u32, u32),
}

/// A source, on disk and in the tree.
struct Root {
    path: PathBuf,
    under_bytes: usize,
}

struct Link {
    text: Vec<u8>,
    /// The path without links that it leads to; `None` if it is sent as it is.
    to: Option<PathBuf>,
}

/// A file whose contents are sent.
pub(super) struct Origin {
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
    /// It seems to have holes.
    has_holes: bool,
}

impl Origin {
    fn new(path: PathBuf, status: &Status) -> Self {
        Self { path, identity: Identity::of(status), has_holes: may_have_holes(status) }
    }

    /// Where it has data, if it has holes.
    fn data(&self) -> Option<Vec<Range<u64>>> {
        self.has_holes.then(|| data_of(&self.path, self.identity.bytes())).flatten()
    }

    /// Whether it reads as zeros outside of these ranges.
    pub(super) fn has_only(&self, data: &[Range<u64>]) -> bool {
        has_only(&self.path, data, self.identity.bytes())
    }
}

/// An entry of a tree, with what its listing has of it and where its contents are.
pub(super) struct Listed {
    pub(super) entry: Entry,
    /// If they are kept.
    pub(super) attributes: Option<Attributes>,
    /// Of a file with contents.
    pub(super) origin: Option<Origin>,
}

/// A directory that is read.
struct Place<'a> {
    opened: &'a OwnedFd,
    path: &'a Path,
    /// In the tree.
    under: &'a [u8],
    root: u32,
}

/// Finds the entries of a tree.
pub(super) struct Scan<'a> {
    options: &'a mut ListOptions,
    found: Vec<Found>,
    roots: Vec<Root>,
    /// Real paths of the sources with their paths in the tree: links into them stay links.
    tops: Vec<(PathBuf, Vec<u8>)>,
    /// Of a single directory: its name with `/`, which patterns see before the paths of the tree.
    prefix: Vec<u8>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(options: &'a mut ListOptions) -> Self {
        let (found, roots, tops, prefix) = Default::default();
        Self { options, found, roots, tops, prefix }
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
            self.prefix = [&name[..], b"/"].concat();
        }
        self.add_contents(path, b"")
    }

    /// Adds what a directory contains, below a path of the tree.
    pub(super) fn add_contents(&mut self, top: &Path, under: &[u8]) -> Result<(), SourceError> {
        let real = fs::canonicalize(top).map_err(system(top, "examine"))?;
        self.tops.push((real, under.to_vec()));
        let root = self.add_root(top, under.len());
        self.directory(top, OFlags::empty(), under, root)
    }

    /// Adds a source under a name, unless the patterns leave it out: a file, or a directory with what it contains. Follows links.
    pub(super) fn add_named(&mut self, path: &Path, name: &[u8]) -> Result<(), SourceError> {
        let status = Status::from(&fs::metadata(path).map_err(system(path, "examine"))?);
        if !self.options.selection.takes(name, status.is_directory()) {
            return Ok(());
        }
        check_stored(path, &status)?;
        let root = self.add_root(path, name.len());
        self.add(path, name.to_vec(), root, status)?;
        if status.is_directory() { self.add_contents(path, name) } else { Ok(()) }
    }

    fn add_root(&mut self, path: &Path, under_bytes: usize) -> u32 {
        self.roots.push(Root { path: path.to_owned(), under_bytes });
        self.roots.len() as u32 - 1
    }

    /// Adds what a directory contains.
    fn directory(
        &mut self,
        path: &Path,
        flags: OFlags,
        under: &[u8],
        root: u32,
    ) -> Result<(), SourceError> {
        let flags = flags | OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let failed = |error: Errno| system(path, "read")(error.into());
        let opened = openat(CWD, path, flags, Mode::empty()).map_err(failed)?;
        if fstatfs(&opened).is_ok_and(|found| is_generated(&found)) {
            return Err(SourceError::Generated(path.to_owned()));
        }
        let mut names = Vec::new();
        for entry in Dir::read_from(&opened).map_err(failed)? {
            let name = entry.map_err(failed)?.file_name().to_bytes().to_vec();
            if name != b"." && name != b".." {
                names.push(name);
            }
        }
        names.sort_unstable();
        let place = Place { opened: &opened, path, under, root };
        let mut inner = Vec::new();
        for name in &names {
            inner.extend(self.entry(&place, OsStr::from_bytes(name))?);
        }
        // Not one descriptor for each level.
        drop(opened);
        for (path, under) in inner {
            self.directory(&path, OFlags::NOFOLLOW, &under, root)?;
        }
        Ok(())
    }

    /// Adds an entry; returns a directory's path, and its path in the tree.
    fn entry(
        &mut self,
        place: &Place<'_>,
        name: &OsStr,
    ) -> Result<Option<(PathBuf, Vec<u8>)>, SourceError> {
        let path = place.path.join(name);
        if is_leftover(name) || self.options.leaves_out(&path) {
            return Ok(None);
        }
        let status = statat(place.opened, name, AtFlags::SYMLINK_NOFOLLOW);
        let status = status.map_err(|error| system(&path, "examine")(error.into()))?;
        let status = Status::from(&status);
        let in_tree = match place.under {
            [] => name.as_bytes().to_vec(),
            under => [under, b"/", name.as_bytes()].concat(),
        };
        let shown = [&self.prefix[..], &in_tree].concat();
        if !self.options.selection.takes(&shown, status.is_directory()) {
            return Ok(None);
        }
        if path.as_os_str().len() > PATH_BYTES_MAX {
            return Err(SourceError::LongPath(path));
        }
        if status.is_link() {
            self.add_link(place, (name, &path), in_tree, status)?;
            return Ok(None);
        }
        self.add(&path, in_tree.clone(), place.root, status)?;
        Ok(status.is_directory().then_some((path, in_tree)))
    }

    fn add(
        &mut self,
        real: &Path,
        path: Vec<u8>,
        root: u32,
        status: Status,
    ) -> Result<(), SourceError> {
        if !status.is_file() && !status.is_directory() {
            return Err(SourceError::Special { path: real.to_owned(), kind: special(&status) });
        }
        let (modified_ns, owner) = (modified_ns(real, &status)?, status.owner);
        self.found.push(Found { path, root, status, link: None, modified_ns, owner });
        Ok(())
    }

    fn add_link(
        &mut self,
        place: &Place<'_>,
        (name, real): (&OsStr, &Path),
        path: Vec<u8>,
        own: Status,
    ) -> Result<(), SourceError> {
        let text = readlinkat(place.opened, name, Vec::new());
        let text = text.map_err(|error| system(real, "read")(error.into()))?.into_bytes();
        let target = Path::new(OsStr::from_bytes(&text));
        let (modified_ns, owner) = (modified_ns(real, &own)?, own.owner);
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
        self.found.push(Found { path, root, status, link, modified_ns, owner });
        Ok(())
    }

    /// Where an entry is on disk.
    fn real(&self, found: &Found) -> PathBuf {
        let root = &self.roots[found.root as usize];
        let below = &found.path[root.under_bytes..];
        let below = below.strip_prefix(b"/").unwrap_or(below);
        match below {
            // Joining nothing adds a `/`.
            [] => root.path.clone(),
            below => root.path.join(OsStr::from_bytes(below)),
        }
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
        match listing.and_then(|listing| listing.with_data(data)) {
            Ok(listing) => Ok((listing, origins)),
            Err(error) => Err(SourceError::Tree { path: shown.to_owned(), error }),
        }
    }

    /// Gives all entries in the order of a listing, until that breaks off.
    ///
    /// Links into the tree stay links. Others become what they lead to; further ones to the same file, and further
    /// names of a file, become hard links.
    ///
    /// Errors: the patterns have left nothing; a link leads to a directory outside.
    pub(super) fn for_each(
        mut self,
        shown: &Path,
        mut take: impl FnMut(Listed) -> ControlFlow<()>,
    ) -> Result<(), SourceError> {
        if self.found.is_empty() && self.tops.is_empty() {
            return Err(SourceError::NothingLeft(shown.to_owned()));
        }
        let has_links = self.found.iter().any(|found| found.link.is_some());
        // By path: whether it is a link.
        let paths = self.found.iter().filter(|_| has_links);
        let paths = paths.map(|found| (found.path.clone(), found.link.is_some())).collect();
        let mut first_names: HashMap<(u64, u64), u32> = HashMap::new();
        self.found.sort_by(|one, other| compare(&one.path, &other.path));
        for (number, found) in (0_u32..).zip(std::mem::take(&mut self.found)) {
            let target = found.link.as_ref().and_then(|link| self.target(&found, link, &paths));
            let status = &found.status;
            let followed = found.link.as_ref().filter(|_| target.is_none());
            let real = || match followed.and_then(|link| link.to.as_ref()) {
                Some(to) => to.clone(),
                None => self.real(&found),
            };
            let mut origin = None;
            let kind = match (target, followed) {
                (Some(target), _) => Kind::Link { target },
                (None, _) if status.is_file() => {
                    let first = *first_names.entry((status.device, status.inode)).or_insert(number);
                    let has_contents = first == number && status.bytes > 0;
                    origin = has_contents.then(|| Origin::new(real(), status));
                    match first == number {
                        true => Kind::File { bytes: status.bytes },
                        false => Kind::Name { of: first },
                    }
                }
                (None, None) => Kind::Directory,
                (None, Some(_)) if status.is_directory() => {
                    let (path, target) = (self.real(&found), real());
                    return Err(SourceError::DirectoryOutside { path, target });
                }
                (None, Some(_)) => {
                    let (path, kind) = (self.real(&found), special(status));
                    return Err(SourceError::Special { path, kind });
                }
            };
            let (modified_ns, mode_bits) = match kind {
                Kind::Link { .. } => (found.modified_ns, 0o777),
                // Without the sticky bit everybody who may write a directory could remove others' files.
                Kind::Directory => (found.modified_ns, 0o1777),
                _ if followed.is_some() => (modified_ns(&self.real(&found), status)?, 0o777),
                _ => (found.modified_ns, 0o777),
            };
            let mode = (status.mode & mode_bits) as u16;
            let kept = self.options.attributes;
            let owner = if followed.is_some() { status.owner } else { found.owner };
            let attributes = kept.any().then(|| kept.of(&real(), &kind, owner)).transpose()?;
            let entry = Entry { path: found.path.clone(), mode, modified_ns, kind };
            if take(Listed { entry, attributes, origin }).is_break() {
                return Ok(());
            }
        }
        Ok(())
    }

    /// The text of a link that stays one. `paths`: whether an entry is a link.
    fn target(
        &self,
        found: &Found,
        link: &Link,
        paths: &HashMap<Vec<u8>, bool>,
    ) -> Option<Vec<u8>> {
        let Some(to) = &link.to else { return Some(link.text.clone()) };
        let source = &found.path[..self.roots[found.root as usize].under_bytes];
        let final_target =
            self.in_tree(to).filter(|path| path.is_empty() || paths.contains_key(path));
        // By its text it may lead to another link, and stays one wherever that leads. What it says of other sources than its own
        // need not be so here: they may be in different directories.
        let next = next_of(&found.path, &link.text);
        let next =
            next.filter(|next| Some(next) == final_target.as_ref() || is_below(next, source));
        let is_there = final_target.is_some();
        match next.is_some_and(|next| arrives(&next, source, paths, is_there)) {
            true => Some(link.text.clone()),
            false => Some(relative(&found.path, &final_target?)),
        }
    }

    /// The path in the tree of a path on disk without links.
    fn in_tree(&self, real: &Path) -> Option<Vec<u8>> {
        self.tops.iter().find_map(|(top, under)| {
            let below = real.strip_prefix(top).ok()?.as_os_str().as_bytes();
            Some(match (under.as_slice(), below) {
                ([], below) => below.to_vec(),
                (under, b"") => under.to_vec(),
                (under, below) => [under, b"/", below].concat(),
            })
        })
    }
}

/// Whether a path is that of a source, or below.
fn is_below(path: &[u8], source: &[u8]) -> bool {
    let below = path.strip_prefix(source);
    below.is_some_and(|below| source.is_empty() || below.is_empty() || below.starts_with(b"/"))
}

/// Whether the copy has something at a path: an entry, or the source's top. Or it goes through a link of the copy: to something
/// that `is_there`.
fn arrives(path: &[u8], source: &[u8], paths: &HashMap<Vec<u8>, bool>, is_there: bool) -> bool {
    if path == source {
        return true;
    }
    let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    for end in ends {
        match paths.get(&path[..end]) {
            Some(true) => return is_there,
            Some(false) => {}
            None => return false,
        }
    }
    paths.contains_key(path)
}

/// The path in the tree that the link at `path` names, by its text alone; `None` if that leads out, or back up after a
/// name, which may be a link.
fn next_of(path: &[u8], text: &[u8]) -> Option<Vec<u8>> {
    check_link(path, text).ok()?;
    let mut names: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    names.pop();
    for name in text.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop()),
            name => names.push(name),
        }
    }
    Some(names.join(&b'/'))
}

/// The text of a link at `path` to `target`, both in the tree.
fn relative(path: &[u8], target: &[u8]) -> Vec<u8> {
    let directories = path.iter().filter(|&&byte| byte == b'/').count();
    let up = vec![&b".."[..]; directories];
    match target {
        [] if up.is_empty() => b".".to_vec(),
        [] => up.join(&b'/'),
        target => [&up[..], &[target]].concat().join(&b'/'),
    }
}

/// Errors: it is beyond what is sent, of 292 years before and after 1970.
pub(super) fn modified_ns(path: &Path, status: &Status) -> Result<i64, SourceError> {
    let (seconds, nanoseconds) = status.modified;
    let seconds_ns = seconds.checked_mul(1_000_000_000);
    seconds_ns
        .and_then(|seconds_ns| seconds_ns.checked_add(nanoseconds))
        .ok_or_else(|| SourceError::Time { path: path.to_owned(), seconds })
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

fn special(status: &Status) -> &'static str {
    match status.kind {
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        _ => "a device",
    }
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
