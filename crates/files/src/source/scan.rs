//! What there is below a directory, as entries of a tree.

use std::{
    collections::HashMap,
    fs::{self, Metadata},
    io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::{FileTypeExt, MetadataExt},
    },
    path::{Path, PathBuf},
};

use rustix::io::Errno;
use tree::{Entry, Kind, Listing, Selection, check_link, compare};

use super::{error::SourceError, identity::Identity};

/// What was found under one path.
struct Found {
    /// In the tree.
    path: Vec<u8>,
    /// On disk; of a link that is replaced by what it leads to, that.
    real: PathBuf,
    /// Of the entry itself; of a link, of what it leads to.
    metadata: Metadata,
    /// Where a link leads: its text, and the path without links.
    link: Option<(Vec<u8>, PathBuf)>,
    /// Of the entry itself.
    modified_ns: i64,
}

/// A file whose contents are sent.
pub(super) struct Origin {
    pub(super) path: PathBuf,
    pub(super) identity: Identity,
}

/// Finds the entries of a tree.
pub(super) struct Scan<'a> {
    selection: &'a Selection,
    found: Vec<Found>,
    /// Real paths of the sources with their paths in the tree: links into them stay links.
    tops: Vec<(PathBuf, Vec<u8>)>,
    pub(super) has_holes: bool,
}

impl<'a> Scan<'a> {
    pub(super) fn new(selection: &'a Selection) -> Self {
        Self { selection, found: Vec::new(), tops: Vec::new(), has_holes: false }
    }

    /// Adds what a directory contains, below a path of the tree.
    pub(super) fn add_contents(&mut self, top: &Path, under: &[u8]) -> Result<(), SourceError> {
        let real = fs::canonicalize(top).map_err(system(top, "examine"))?;
        self.tops.push((real, under.to_vec()));
        self.directory(top, top, under)
    }

    /// Adds a source under a name: a file, or a directory with what it contains. Follows links.
    pub(super) fn add_named(&mut self, path: &Path, name: &[u8]) -> Result<(), SourceError> {
        let metadata = fs::metadata(path).map_err(system(path, "examine"))?;
        let is_directory = metadata.is_dir();
        self.add(path.to_owned(), name.to_vec(), metadata)?;
        if is_directory { self.add_contents(path, name) } else { Ok(()) }
    }

    /// `top`: the source, to whose paths patterns apply.
    fn directory(&mut self, top: &Path, real: &Path, under: &[u8]) -> Result<(), SourceError> {
        let entries = fs::read_dir(real).map_err(system(real, "read"))?;
        let names = entries.map(|entry| Ok(entry?.file_name()));
        let mut names = names.collect::<io::Result<Vec<_>>>().map_err(system(real, "read"))?;
        names.sort_unstable_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
        for name in names {
            let path = real.join(&name);
            let metadata = fs::symlink_metadata(&path).map_err(system(&path, "examine"))?;
            let below = path.strip_prefix(top).unwrap_or(&path).as_os_str().as_bytes();
            if !self.selection.takes(below, metadata.is_dir()) {
                continue;
            }
            let in_tree = match under {
                [] => name.as_bytes().to_vec(),
                under => [under, b"/", name.as_bytes()].concat(),
            };
            if metadata.is_symlink() {
                self.add_link(path, in_tree, &metadata)?;
            } else if metadata.is_dir() {
                self.add(path.clone(), in_tree.clone(), metadata)?;
                self.directory(top, &path, &in_tree)?;
            } else {
                self.add(path, in_tree, metadata)?;
            }
        }
        Ok(())
    }

    fn add(&mut self, real: PathBuf, path: Vec<u8>, metadata: Metadata) -> Result<(), SourceError> {
        if !metadata.is_file() && !metadata.is_dir() {
            return Err(SourceError::Special { path: real, kind: special(&metadata) });
        }
        self.has_holes |= metadata.is_file() && metadata.blocks() * 512 < metadata.len();
        let modified_ns = modified_ns(&metadata);
        self.found.push(Found { path, real, metadata, link: None, modified_ns });
        Ok(())
    }

    fn add_link(
        &mut self,
        path: PathBuf,
        in_tree: Vec<u8>,
        own: &Metadata,
    ) -> Result<(), SourceError> {
        let text = fs::read_link(&path).map_err(system(&path, "read"))?;
        let real = match fs::canonicalize(&path) {
            Ok(real) => real,
            Err(error)
                if matches!(
                    Errno::from_io_error(&error),
                    Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
                ) =>
            {
                return Err(SourceError::Dangling { path, target: text });
            }
            Err(error) => return Err(system(&path, "follow")(error)),
        };
        let metadata = fs::metadata(&real).map_err(system(&path, "follow"))?;
        let link = Some((text.into_os_string().into_vec(), real));
        let modified_ns = modified_ns(own);
        self.found.push(Found { path: in_tree, real: path, metadata, link, modified_ns });
        Ok(())
    }

    /// The tree, and its files with contents, in order.
    ///
    /// Links into the tree stay links. Others become what they lead to; further ones to the same file, and further
    /// names of a file, become hard links.
    pub(super) fn finish(mut self, shown: &Path) -> Result<(Listing, Vec<Origin>), SourceError> {
        let paths: std::collections::HashSet<Vec<u8>> =
            self.found.iter().map(|found| found.path.clone()).collect();
        let mut first_names: HashMap<(u64, u64), u32> = HashMap::new();
        let (mut entries, mut origins) = (Vec::with_capacity(self.found.len()), Vec::new());
        self.found.sort_by(|one, other| compare(&one.path, &other.path));
        for found in std::mem::take(&mut self.found) {
            let link = found.link.as_ref().and_then(|(text, real)| {
                // One that leads to another link of the tree stays one, too, wherever that leads.
                let ways = [self.in_tree(real), next_of(&found.path, text)];
                let target = ways.into_iter().flatten().find(|target| paths.contains(target))?;
                Some(match check_link(&found.path, text) {
                    Ok(()) => text.clone(),
                    Err(_) => relative(&found.path, &target),
                })
            });
            let metadata = &found.metadata;
            let kind = match link {
                Some(target) => Kind::Link { target },
                None if metadata.is_file() => {
                    let number = entries.len() as u32;
                    let key = (metadata.dev(), metadata.ino());
                    let first = *first_names.entry(key).or_insert(number);
                    if first == number {
                        if metadata.len() > 0 {
                            let path = found.link.map_or(found.real, |(_, real)| real);
                            origins.push(Origin { path, identity: Identity::of(metadata) });
                        }
                        Kind::File { bytes: metadata.len() }
                    } else {
                        Kind::Name { of: first }
                    }
                }
                None => match found.link {
                    None => Kind::Directory,
                    Some((_, target)) if metadata.is_dir() => {
                        return Err(SourceError::DirectoryOutside { path: found.real, target });
                    }
                    Some(_) => {
                        let kind = special(metadata);
                        return Err(SourceError::Special { path: found.real, kind });
                    }
                },
            };
            let modified_ns = match kind {
                Kind::Link { .. } => found.modified_ns,
                _ => modified_ns(metadata),
            };
            let mode = (metadata.mode() & 0o777) as u16;
            entries.push(Entry { path: found.path, mode, modified_ns, kind });
        }
        let listing = Listing::new(entries)
            .map_err(|error| SourceError::Tree { path: shown.to_owned(), error })?;
        Ok((listing, origins))
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

/// The path in the tree that the link at `path` names, by its text alone; `None` if that leads out, or back up after a
/// name, which may be a link.
fn next_of(path: &[u8], text: &[u8]) -> Option<Vec<u8>> {
    let mut names: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
    names.pop();
    let mut has_name = false;
    for name in text.split(|&byte| byte == b'/') {
        match name {
            b"" | b"." => {}
            b".." if has_name => return None,
            b".." => drop(names.pop()?),
            name => {
                has_name = true;
                names.push(name);
            }
        }
    }
    (!text.starts_with(b"/")).then(|| names.join(&b'/'))
}

/// The text of a link at `path` to `target`, both in the tree.
fn relative(path: &[u8], target: &[u8]) -> Vec<u8> {
    let directories = path.iter().filter(|&&byte| byte == b'/').count();
    [&b"../".repeat(directories)[..], target].concat()
}

pub(super) fn modified_ns(metadata: &Metadata) -> i64 {
    metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec())
}

fn special(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    match () {
        () if kind.is_fifo() => "a pipe",
        () if kind.is_socket() => "a socket",
        () => "a device",
    }
}

pub(super) fn system(path: &Path, what: &'static str) -> impl FnOnce(io::Error) -> SourceError {
    let path = path.to_owned();
    move |error| match error.kind() {
        io::ErrorKind::NotFound => SourceError::Missing(path),
        _ => SourceError::System { path, what, error },
    }
}
