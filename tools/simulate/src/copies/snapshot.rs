//! What a directory has, as anybody sees it.

use std::{
    collections::{BTreeMap, HashMap},
    fs, io,
    os::{
        fd::OwnedFd,
        unix::fs::{MetadataExt, OpenOptionsExt},
    },
    path::Path,
};

use files::simulation::is_hidden;
use rustix::fs::OFlags;

/// What has a name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Node {
    pub(super) inode: u64,
    pub(super) kind: NodeKind,
    /// Permission bits; of links 0.
    pub(super) mode: u32,
    pub(super) modified_ns: i64,
    /// Seconds and nanoseconds.
    pub(super) changed: (i64, i64),
    pub(super) names: u64,
    /// A file's contents, a link's text.
    pub(super) bytes: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum NodeKind {
    Directory,
    File,
    Link,
}

impl Node {
    /// Whether it has the same contents and attributes, and is the same inode.
    pub(super) fn is_untouched(&self, before: &Self) -> bool {
        let facts = |it: &Self| (it.inode, it.kind, it.mode, it.modified_ns);
        facts(self) == facts(before) && self.bytes == before.bytes
    }

    pub(super) fn is_directory(&self) -> bool {
        self.kind == NodeKind::Directory
    }
}

/// All that is below a directory, by its path there; the directory itself has the empty path.
#[derive(Clone, Debug, Default)]
pub(super) struct Snapshot {
    pub(super) nodes: BTreeMap<String, Node>,
    /// What is rdmc's own by its name, or in such a directory.
    pub(super) hidden: BTreeMap<String, Node>,
}

/// Inodes that were seen, held so that no other file gets their numbers.
pub(super) type Seen = HashMap<u64, OwnedFd>;

impl Snapshot {
    /// Looks; what vanishes meanwhile is an error. `folds_case`: names are those in small letters.
    pub(super) fn take(top: &Path, folds_case: bool, seen: &mut Seen) -> io::Result<Self> {
        let mut found = Self::default();
        found.add(top, String::new(), false, seen)?;
        if folds_case {
            let folded = |(path, node): (String, Node)| (path.to_ascii_lowercase(), node);
            found.nodes = found.nodes.into_iter().map(folded).collect();
        }
        Ok(found)
    }

    fn add(&mut self, at: &Path, path: String, hidden: bool, seen: &mut Seen) -> io::Result<()> {
        let stat = fs::symlink_metadata(at)?;
        let kind = stat.file_type();
        let (kind, bytes) = match (kind.is_dir(), kind.is_file()) {
            (true, _) => (NodeKind::Directory, Vec::new()),
            (_, true) => (NodeKind::File, fs::read(at)?),
            _ => (NodeKind::Link, fs::read_link(at)?.into_os_string().into_encoded_bytes()),
        };
        if let std::collections::hash_map::Entry::Vacant(slot) = seen.entry(stat.ino()) {
            let flags = (OFlags::PATH | OFlags::NOFOLLOW).bits();
            let held = fs::File::options().read(true).custom_flags(flags.cast_signed()).open(at)?;
            slot.insert(held.into());
        }
        let mode = if kind == NodeKind::Link { 0 } else { stat.mode() & 0o7777 };
        let modified_ns = stat.mtime() * 1_000_000_000 + stat.mtime_nsec();
        let changed = (stat.ctime(), stat.ctime_nsec());
        let (inode, names) = (stat.ino(), stat.nlink());
        let node = Node { inode, kind, mode, modified_ns, changed, names, bytes };
        let into = if hidden { &mut self.hidden } else { &mut self.nodes };
        into.insert(path.clone(), node);
        if kind == NodeKind::Directory {
            for entry in fs::read_dir(at)? {
                let name = entry?.file_name();
                let name = name.to_string_lossy();
                let inner = inner(&path, &name);
                self.add(&at.join(&*name), inner, hidden || is_hidden(&name), seen)?;
            }
        }
        Ok(())
    }

    /// What has this inode, under any of its names.
    pub(super) fn of_inode(&self, inode: u64) -> Option<&Node> {
        self.nodes.values().chain(self.hidden.values()).find(|node| node.inode == inode)
    }

    pub(super) fn get(&self, path: &str) -> Option<&Node> {
        self.nodes.get(path)
    }

    /// The same by a path in any letters.
    pub(super) fn find(&self, path: &str, folds_case: bool) -> Option<&Node> {
        match folds_case {
            true => self.get(&path.to_ascii_lowercase()),
            false => self.get(path),
        }
    }

    /// Paths whose nodes differ from those of an earlier one, or are in one only.
    pub(super) fn changed_since<'a>(&'a self, before: &'a Self) -> Vec<&'a str> {
        let is_changed = |path: &&String| match (self.get(path), before.get(path)) {
            (Some(now), Some(before)) => !now.is_untouched(before),
            (now, before) => now.is_some() || before.is_some(),
        };
        let gone = before.nodes.keys().filter(|path| self.get(path).is_none());
        self.nodes.keys().chain(gone).filter(is_changed).map(String::as_str).collect()
    }
}

/// The path of a name in a directory.
pub(super) fn inner(directory: &str, name: &str) -> String {
    match directory {
        "" => name.to_owned(),
        directory => format!("{directory}/{name}"),
    }
}

/// The directory and the last name of a path.
pub(super) fn split(path: &str) -> (&str, &str) {
    path.rsplit_once('/').unwrap_or(("", path))
}
