//! Which of the inodes at a host a session may change, and how.

use std::collections::{BTreeSet, HashMap};

use files::simulation::{CopySource, is_hidden};
use tree::Kind;

use super::{
    record::Record,
    scenario::{COPY, CopyScenario},
    snapshot::{Node, NodeKind, Snapshot, inner, split},
};

/// What a path is to a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Role {
    /// The top of the tree.
    Top,
    /// This entry of the listing.
    Entry(usize),
    /// Nothing: it must stay as it is.
    Other,
}

/// The inodes of a session.
#[derive(Debug)]
pub(super) struct Roles<'a> {
    source: &'a CopySource,
    folds_case: bool,
    /// Paths in the tree of directories that the session has found or made, by inode: it may have them open, wherever they are
    /// moved.
    directories: HashMap<u64, BTreeSet<String>>,
    /// Modes before the session, by inode: it gives a user's directories their owner's permissions while it works.
    modes: HashMap<u64, u32>,
    /// The mode of the destination then.
    top_mode: Option<u32>,
    /// Entries of files and links that it has found.
    files: HashMap<u64, BTreeSet<usize>>,
}

impl<'a> Roles<'a> {
    pub(super) fn of(scenario: &CopyScenario, record: &'a Record) -> Self {
        let (source, folds_case) = (&record.source, scenario.folds_case);
        let (directories, files) = (HashMap::new(), HashMap::new());
        let nodes = record.start.nodes.values();
        let modes = nodes.map(|node| (node.inode, node.mode)).collect();
        let top_mode = record.start.get(COPY).map(|node| node.mode);
        let mut roles = Self { source, folds_case, directories, modes, top_mode, files };
        let mut before = &record.start;
        roles.find(&record.start, |_, _| true);
        for act in &record.acts {
            roles.find(&act.before, |_, node| !has(before, node.inode));
            let is_late = act.call >= record.session.looked_at;
            let looked = record.look();
            // What comes where no directory was becomes that of the copy.
            let is_new =
                |path: &str| looked.find(path, folds_case).is_none_or(|it| !it.is_directory());
            roles.find(&act.after, |path, node| !is_late || node.is_directory() && is_new(path));
            before = &act.after;
        }
        roles.find(&record.end, |_, node| !has(before, node.inode));
        roles
    }

    /// Adds what is at paths of the tree.
    fn find(&mut self, snapshot: &Snapshot, is_wanted: impl Fn(&str, &Node) -> bool) {
        let staged = snapshot.hidden.iter().map(|(path, node)| (staged(path), node));
        let there = snapshot.nodes.iter().map(|(path, node)| (path.as_str(), node));
        let there = there.filter_map(|(path, node)| Some((self.in_tree(path)?, (path, node))));
        let there: Vec<_> = there.collect();
        for (inner, (path, node)) in there {
            if is_wanted(path, node) {
                self.add(inner, node);
            }
        }
        for (inner, node) in staged {
            if node.is_directory() {
                self.add(inner, node);
            }
        }
    }

    fn in_tree<'p>(&self, path: &'p str) -> Option<&'p str> {
        match (self.source.is_tree, path) {
            (false, path) => Some(path),
            (true, COPY) => Some(""),
            (true, path) => path.strip_prefix(COPY)?.strip_prefix('/'),
        }
    }

    fn add(&mut self, inner: &str, node: &Node) {
        let entry = self.entry(inner);
        let is_listed =
            |number: usize| self.source.listing.entries()[number].kind == Kind::Directory;
        match node.kind {
            NodeKind::Directory if inner.is_empty() || entry.is_some_and(is_listed) => {
                let name = entry.map_or("", |it| {
                    let path = &self.source.listing.entries()[it].path;
                    std::str::from_utf8(path).unwrap_or("")
                });
                self.directories.entry(node.inode).or_default().insert(name.to_owned());
            }
            NodeKind::File | NodeKind::Link => {
                if let Some(entry) = entry {
                    self.files.entry(node.inode).or_default().insert(entry);
                }
            }
            _ => {}
        }
    }

    /// The entry of a path in the tree.
    fn entry(&self, path: &str) -> Option<usize> {
        let listing = &self.source.listing;
        let same = |entry: &tree::Entry| {
            self.folds_case && entry.path.eq_ignore_ascii_case(path.as_bytes())
        };
        listing.find(path.as_bytes()).or_else(|| listing.entries().iter().position(same))
    }

    /// Whether a path is that of an entry, whatever directory it is in.
    pub(super) fn lists(&self, path: &str) -> bool {
        self.in_tree(path).is_some_and(|path| self.entry(path).is_some())
    }

    /// What a path is, by the directory that it is in.
    pub(super) fn role(&self, snapshot: &Snapshot, path: &str) -> Role {
        if self.source.is_tree && path == COPY {
            return Role::Top;
        }
        let (directory, name) = split(path);
        let known = snapshot.get(directory).and_then(|node| self.directories.get(&node.inode));
        let entry = |directory: &String| self.entry(&inner(directory, name));
        known.into_iter().flatten().find_map(entry).map_or(Role::Other, Role::Entry)
    }

    /// Whether the session may have given something these attributes; `is_linked`: it has a name that is none of the copy's.
    pub(super) fn may_set(&self, before: &Node, now: &Node, is_linked: bool) -> bool {
        let is_mode = |mode: u32| [mode, before.mode].contains(&now.mode);
        if before.is_directory() {
            // The time changes with what is in it.
            let directories = self.directories.get(&before.inode).into_iter().flatten();
            let started = self.modes.get(&before.inode).copied().unwrap_or(before.mode | 0o2000);
            return directories.into_iter().any(|path| {
                let own = match path.as_str() {
                    "" => self.source.top.map(|top| top.mode).or(self.top_mode),
                    path => {
                        self.entry(path).map(|it| self.source.listing.entries()[it].mode.into())
                    }
                };
                let own = own.unwrap_or(before.mode) & 0o1777;
                // Somebody may have taken the set-group-id bit since it was looked at.
                [own | before.mode & 0o2000, own | started & 0o2000, before.mode | 0o700, started]
                    .into_iter()
                    .any(is_mode)
            });
        }
        let entries = self.files.get(&before.inode).into_iter().flatten();
        !is_linked
            && entries.into_iter().any(|&entry| {
                let entry = &self.source.listing.entries()[entry];
                is_mode(u32::from(entry.mode) & 0o777)
                    && [entry.modified_ns, before.modified_ns].contains(&now.modified_ns)
            })
    }

    /// Whether it has the mode that it had before the session.
    pub(super) fn is_restored(&self, node: &Node) -> bool {
        self.modes.get(&node.inode) == Some(&node.mode)
    }

    /// Whether it is a directory of the copy.
    pub(super) fn is_directory(&self, node: &Node) -> bool {
        self.directories.contains_key(&node.inode)
    }

    /// Whether it is what the copy has for an entry, whatever its attributes.
    pub(super) fn is_copy(&self, entry: usize, node: &Node) -> bool {
        match &self.source.listing.entries()[entry].kind {
            Kind::Directory => node.is_directory(),
            Kind::File { .. } | Kind::Name { .. } => {
                node.kind == NodeKind::File && node.bytes == *self.source.contents_of(entry)
            }
            Kind::Link { target } => node.kind == NodeKind::Link && node.bytes == *target,
        }
    }
}

fn has(snapshot: &Snapshot, inode: u64) -> bool {
    snapshot.nodes.values().any(|node| node.inode == inode)
}

/// The path in the tree of what is staged.
fn staged(path: &str) -> &str {
    let mut rest = path;
    let mut end = 0;
    for name in path.split('/') {
        end += name.len() + 1;
        if is_hidden(name) {
            rest = path.get(end..).unwrap_or("");
        }
    }
    rest
}
