//! Makes entries of a listing of what is found.

use std::{
    collections::HashMap,
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use tree::{Entry, Kind, check_link};

use super::{
    attributes::KeptAttributes,
    error::SourceError,
    found::{Found, Link, Listed, Origin, Root},
    status::modified_ns,
};

/// Makes entries of a listing of what is found, given in the order of the listing.
///
/// Links into the tree stay links. Others become what they lead to; further ones to the same file, and further names of a file, become
/// hard links.
pub(super) struct Lister {
    kept: KeptAttributes,
    roots: Vec<Root>,
    /// Real paths of the sources with their paths in the tree: links into them stay links.
    tops: Vec<(PathBuf, Vec<u8>)>,
    /// Of a tree with links: whether what has a path is one.
    paths: HashMap<Vec<u8>, bool>,
    /// The first entry of each file, by device and inode.
    first_names: HashMap<(u64, u64), u32>,
    /// How many entries there are so far.
    entries: u32,
}

impl Lister {
    pub(super) fn new(kept: KeptAttributes) -> Self {
        let (roots, tops, paths, first_names) = Default::default();
        Self { kept, roots, tops, paths, first_names, entries: 0 }
    }

    /// Adds a source; returns its number.
    pub(super) fn add_root(&mut self, path: &Path, under_bytes: usize) -> u32 {
        self.roots.push(Root { path: path.to_owned(), under_bytes });
        self.roots.len() as u32 - 1
    }

    /// Adds a directory whose contents are sent, by its path without links and its path in the tree.
    pub(super) fn add_top(&mut self, real: PathBuf, under: &[u8]) {
        self.tops.push((real, under.to_vec()));
    }

    /// Errors: there was neither a directory nor an entry.
    pub(super) fn check_any(&self, shown: &Path) -> Result<(), SourceError> {
        match self.tops.is_empty() && self.entries == 0 {
            true => Err(SourceError::NothingLeft(shown.to_owned())),
            false => Ok(()),
        }
    }

    /// Learns what a tree with links has, all of it, before the first entry.
    pub(super) fn learn_paths(&mut self, found: &[Found]) {
        self.paths = found.iter().map(|it| (it.path.clone(), it.link.is_some())).collect();
    }

    /// The next entry.
    ///
    /// Errors: a link leads to a directory outside; attributes cannot be read.
    pub(super) fn list(&mut self, found: Found) -> Result<Listed, SourceError> {
        let number = self.entries;
        self.entries += 1;
        let target = found.link.as_ref().and_then(|link| self.target(&found, link));
        let status = &found.status;
        let first = match target.is_none() && status.is_file() {
            true => *self.first_names.entry((status.device, status.inode)).or_insert(number),
            false => number,
        };
        let followed = found.link.as_ref().filter(|_| target.is_none());
        let real = || match followed.and_then(|link| link.to.as_ref()) {
            Some(to) => to.clone(),
            None => self.real(&found),
        };
        let mut origin = None;
        let kind = match (target, followed) {
            (Some(target), _) => Kind::Link { target },
            (None, _) if status.is_file() => {
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
                let (path, kind) = (self.real(&found), status.special());
                return Err(SourceError::Special { path, kind });
            }
        };
        let (modified_ns, mode_bits) = match kind {
            Kind::Link { .. } => (found.modified_ns, 0o777),
            // Without the sticky bit everybody who may write a directory could remove others' files.
            Kind::Directory => (found.modified_ns, 0o1777),
            _ if followed.is_some() => (modified_ns(|| self.real(&found), status)?, 0o777),
            _ => (found.modified_ns, 0o777),
        };
        let mode = (status.mode & mode_bits) as u16;
        let owner = if followed.is_some() { status.owner } else { found.owner };
        let attributes =
            self.kept.any().then(|| self.kept.of(&real(), &kind, owner)).transpose()?;
        let entry = Entry { path: found.path, mode, modified_ns, kind };
        Ok(Listed { entry, attributes, origin })
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

    /// The text of a link that stays one.
    fn target(&self, found: &Found, link: &Link) -> Option<Vec<u8>> {
        let paths = &self.paths;
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
