//! What there is below a directory, as entries of a tree.

use std::{
    collections::HashMap,
    ffi::OsStr,
    fs::{self, Metadata},
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use rustix::io::Errno;
use tree::{Entry, Kind, Links, Listing, check_link, compare};

use super::{error::SourceError, holes::data_of, identity::Identity, options::ListOptions};
use crate::place::{VERSION_DIGITS, is_hidden};

/// What was found under one path.
struct Found {
    /// In the tree.
    path: Vec<u8>,
    /// How much of it is the path of its source.
    under_bytes: usize,
    /// On disk; of a link that is replaced by what it leads to, that.
    real: PathBuf,
    /// Of the entry itself; of a link that is followed, of what it leads to.
    metadata: Metadata,
    link: Option<Link>,
    /// Of the entry itself.
    modified_ns: i64,
    /// User and group of the entry itself.
    owner: (u32, u32),
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
}

/// Finds the entries of a tree.
pub(super) struct Scan<'a> {
    options: &'a mut ListOptions,
    found: Vec<Found>,
    /// Real paths of the sources with their paths in the tree: links into them stay links.
    tops: Vec<(PathBuf, Vec<u8>)>,
    /// Of a single directory: its name with `/`, which patterns see before the paths of the tree.
    prefix: Vec<u8>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(options: &'a mut ListOptions) -> Self {
        let (found, tops, prefix) = Default::default();
        Self { options, found, tops, prefix }
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
        self.directory(top, under, under.len())
    }

    /// Adds a source under a name, unless the patterns leave it out: a file, or a directory with what it contains. Follows links.
    pub(super) fn add_named(&mut self, path: &Path, name: &[u8]) -> Result<(), SourceError> {
        let metadata = fs::metadata(path).map_err(system(path, "examine"))?;
        let is_directory = metadata.is_dir();
        if !self.options.selection.takes(name, is_directory) {
            return Ok(());
        }
        self.add(path.to_owned(), name.to_vec(), name.len(), metadata)?;
        if is_directory { self.add_contents(path, name) } else { Ok(()) }
    }

    fn directory(
        &mut self,
        real: &Path,
        under: &[u8],
        under_bytes: usize,
    ) -> Result<(), SourceError> {
        let entries = fs::read_dir(real).map_err(system(real, "read"))?;
        let names = entries.map(|entry| Ok(entry?.file_name()));
        let mut names = names.collect::<io::Result<Vec<_>>>().map_err(system(real, "read"))?;
        names.sort_unstable_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
        for name in names {
            if is_leftover(&name) {
                continue;
            }
            let path = real.join(&name);
            if self.options.leaves_out(&path) {
                continue;
            }
            let metadata = fs::symlink_metadata(&path).map_err(system(&path, "examine"))?;
            let in_tree = match under {
                [] => name.as_bytes().to_vec(),
                under => [under, b"/", name.as_bytes()].concat(),
            };
            let shown = [&self.prefix[..], &in_tree].concat();
            if !self.options.selection.takes(&shown, metadata.is_dir()) {
                continue;
            }
            if metadata.is_symlink() {
                self.add_link(path, in_tree, under_bytes, metadata)?;
            } else if metadata.is_dir() {
                self.add(path.clone(), in_tree.clone(), under_bytes, metadata)?;
                self.directory(&path, &in_tree, under_bytes)?;
            } else {
                self.add(path, in_tree, under_bytes, metadata)?;
            }
        }
        Ok(())
    }

    fn add(
        &mut self,
        real: PathBuf,
        path: Vec<u8>,
        under_bytes: usize,
        metadata: Metadata,
    ) -> Result<(), SourceError> {
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(SourceError::Special { path: real, kind: special(&metadata) });
        }
        let (modified_ns, owner) = (modified_ns(&real, &metadata)?, owner_of(&metadata));
        let link = None;
        self.found.push(Found { path, under_bytes, real, metadata, link, modified_ns, owner });
        Ok(())
    }

    fn add_link(
        &mut self,
        real: PathBuf,
        path: Vec<u8>,
        under_bytes: usize,
        own: Metadata,
    ) -> Result<(), SourceError> {
        let target = fs::read_link(&real).map_err(system(&real, "read"))?;
        let (modified_ns, owner) = (modified_ns(&real, &own)?, owner_of(&own));
        let (to, metadata) = match self.options.links {
            Links::Anywhere => (None, own),
            Links::Inside => {
                let to = fs::canonicalize(&real).map_err(leads_nowhere(&real, &target))?;
                let metadata = fs::metadata(&to).map_err(system(&real, "follow"))?;
                (Some(to), metadata)
            }
        };
        let link = Some(Link { text: target.into_os_string().into_vec(), to });
        self.found.push(Found { path, under_bytes, real, metadata, link, modified_ns, owner });
        Ok(())
    }

    /// The tree, and its files with contents, in order.
    ///
    /// Links into the tree stay links. Others become what they lead to; further ones to the same file, and further
    /// names of a file, become hard links.
    ///
    /// Errors: the patterns have left nothing; a link leads to a directory outside; it is too large.
    pub(super) fn finish(mut self, shown: &Path) -> Result<(Listing, Vec<Origin>), SourceError> {
        if self.found.is_empty() && self.tops.is_empty() {
            return Err(SourceError::NothingLeft(shown.to_owned()));
        }
        let has_links = self.found.iter().any(|found| found.link.is_some());
        // By path: whether it is a link.
        let paths = self.found.iter().filter(|_| has_links);
        let paths = paths.map(|found| (found.path.clone(), found.link.is_some())).collect();
        let mut first_names: HashMap<(u64, u64), u32> = HashMap::new();
        let (mut entries, mut origins) = (Vec::with_capacity(self.found.len()), Vec::new());
        let (kept, mut attributes) = (self.options.attributes, Vec::new());
        let mut data = Vec::new();
        self.found.sort_by(|one, other| compare(&one.path, &other.path));
        for found in std::mem::take(&mut self.found) {
            let target = found.link.as_ref().and_then(|link| self.target(&found, link, &paths));
            let metadata = &found.metadata;
            let followed = found.link.as_ref().filter(|_| target.is_none());
            let path = followed.and_then(|link| link.to.as_ref()).unwrap_or(&found.real);
            let kind = match (target, followed) {
                (Some(target), _) => Kind::Link { target },
                (None, _) if metadata.is_file() => {
                    let number = entries.len() as u32;
                    let key = (metadata.dev(), metadata.ino());
                    let first = *first_names.entry(key).or_insert(number);
                    if first == number {
                        if metadata.len() > 0 {
                            if let Some(found) = data_of(path, metadata) {
                                data.push((entries.len(), found));
                            }
                            let path = path.clone();
                            origins.push(Origin { path, identity: Identity::of(metadata) });
                        }
                        Kind::File { bytes: metadata.len() }
                    } else {
                        Kind::Name { of: first }
                    }
                }
                (None, None) => Kind::Directory,
                (None, Some(_)) if metadata.is_dir() => {
                    let target = path.clone();
                    return Err(SourceError::DirectoryOutside { path: found.real, target });
                }
                (None, Some(_)) => {
                    let kind = special(metadata);
                    return Err(SourceError::Special { path: found.real, kind });
                }
            };
            let (modified_ns, mode_bits) = match kind {
                Kind::Link { .. } => (found.modified_ns, 0o777),
                // Without the sticky bit everybody who may write a directory could remove others' files.
                Kind::Directory => (found.modified_ns, 0o1777),
                _ => (modified_ns(&found.real, metadata)?, 0o777),
            };
            let mode = (metadata.mode() & mode_bits) as u16;
            if kept.any() {
                let owner = if followed.is_some() { owner_of(metadata) } else { found.owner };
                attributes.push(kept.of(path, &kind, owner)?);
            }
            entries.push(Entry { path: found.path, mode, modified_ns, kind });
        }
        let listing = Listing::with_links(entries, self.options.links);
        let listing = listing.and_then(|listing| match kept.any() {
            true => listing.with_attributes(attributes),
            false => Ok(listing),
        });
        match listing.and_then(|listing| listing.with_data(data)) {
            Ok(listing) => Ok((listing, origins)),
            Err(error) => Err(SourceError::Tree { path: shown.to_owned(), error }),
        }
    }

    /// The text of a link that stays one. `paths`: whether an entry is a link.
    fn target(
        &self,
        found: &Found,
        link: &Link,
        paths: &HashMap<Vec<u8>, bool>,
    ) -> Option<Vec<u8>> {
        let Some(to) = &link.to else { return Some(link.text.clone()) };
        let source = &found.path[..found.under_bytes];
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

fn owner_of(metadata: &Metadata) -> (u32, u32) {
    (metadata.uid(), metadata.gid())
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
pub(super) fn modified_ns(path: &Path, metadata: &Metadata) -> Result<i64, SourceError> {
    let seconds_ns = metadata.mtime().checked_mul(1_000_000_000);
    seconds_ns
        .and_then(|seconds_ns| seconds_ns.checked_add(metadata.mtime_nsec()))
        .ok_or_else(|| SourceError::Time { path: path.to_owned(), seconds: metadata.mtime() })
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

fn special(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
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
