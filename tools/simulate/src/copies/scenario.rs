//! Copies at one host, as plain data.

use std::{fmt, ops::Range};

use files::simulation::{CopySource, Deletion, Top};
use serde::{Deserialize, Serialize};
use tree::{Entry, Kind, Links, Listing, compare};

/// The name of the destination in the directory of a run.
pub(super) const COPY: &str = "copy";
/// Where what a second writer moves away goes; nothing of it is any push's.
pub(super) const BESIDE: &str = "beside";
/// Files of this end are excluded from removal.
pub(super) const KEPT: &str = "*.keep";
/// Stands for what the call is about, in the path of an action.
pub(super) const THIS: &str = "?";

/// A host, what it has, and sessions that copy versions of a source to it, one after another.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct CopyScenario {
    /// The seed that it was drawn from.
    pub seed: u64,
    /// The source is a tree, not a file.
    pub is_tree: bool,
    /// Existing files are compared by contents (`--checksum`).
    pub by_contents: bool,
    /// An existing directory is exchanged (`--atomic`).
    pub atomic: bool,
    /// The copy is stored before it is published (`--all-or-none`).
    #[serde(default)]
    pub stores: bool,
    /// What only the host has is removed (`--delete`).
    pub deletes: bool,
    /// Mode and time of the tree's top; without them it is a directory that sources go into.
    pub top: Option<(u32, i64)>,
    /// The host's file system does not distinguish case.
    pub folds_case: bool,
    /// Versions of the source.
    pub versions: Vec<Vec<Thing>>,
    /// What the host has before, in this order.
    pub before: Vec<Thing>,
    /// The sessions; after them sessions of the last one's version without faults, until one succeeds.
    pub sessions: Vec<CopySessionPlan>,
}

/// An entry of a source, by its path in the tree, or of the host, by its path in the directory of the run.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Thing {
    /// With `/` between names.
    pub path: String,
    /// What it is.
    pub what: What,
    /// Permission bits.
    pub mode: u16,
    /// Modification time in seconds since 1970.
    pub modified_s: i64,
}

/// What an entry is.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum What {
    /// A directory.
    Directory,
    /// A file of this length of one byte, repeated.
    File { bytes: u32, fill: u8 },
    /// A file in a tree of which only the middle third is no hole, and has this byte.
    Sparse { bytes: u32, fill: u8 },
    /// A further name of the file of this path.
    Name(String),
    /// A symbolic link with this text.
    Link(String),
}

impl What {
    /// Whether it is a file, with or without holes.
    pub(super) fn is_file(&self) -> bool {
        matches!(self, Self::File { .. } | Self::Sparse { .. })
    }

    /// Where a sparse file has data: in its middle third.
    pub(super) fn data(&self) -> Range<u64> {
        match self {
            Self::Sparse { bytes, .. } => u64::from(*bytes / 3)..u64::from(*bytes / 3 * 2),
            _ => 0..0,
        }
    }
}

/// One session.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CopySessionPlan {
    /// The number of the source's version.
    pub version: usize,
    /// What happens before its calls.
    pub faults: Vec<PlannedCopyFault>,
}

/// What happens before a call.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PlannedCopyFault {
    /// The number of the call in its session, from 0.
    pub call: u64,
    /// Only calls on what is open count.
    #[serde(default)]
    pub on_open: bool,
    /// What happens.
    pub what: CopyFault,
}

/// What can happen before a call. Paths are those in the directory of the run; `?` stands for what the call is about.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum CopyFault {
    /// The process is killed.
    Kill,
    /// The call fails with this number of the system's error.
    Fail(i32),
    /// Another process writes other bytes to a file; its time and length stay.
    Write(String),
    /// Another process makes a file, as soon as nothing has the name.
    Create(String),
    /// Another process renames a new file over what is there.
    Replace(String),
    /// Another process removes a file, or a directory with all that is in it.
    Remove(String),
    /// Another process renames something.
    Move(String, String),
    /// Another process changes a mode.
    ChangeMode(String, u32),
    /// Another process makes a directory with a file in it, as soon as nothing has the name.
    MakeDirectory(String),
    /// Another process gives a file a further name.
    Link(String, String),
    /// Another process moves something away, and makes a link to a private directory or file of the same type there.
    SwapForLink(String),
    /// Another process moves something away, and makes a private directory there.
    SwapForDirectory(String),
}

impl CopyFault {
    /// Names of all kinds.
    pub const KINDS: [&str; 12] = [
        "kill",
        "error",
        "write",
        "create",
        "replace",
        "remove",
        "move",
        "mode",
        "directory",
        "link",
        "swap for a link",
        "swap for a directory",
    ];

    /// Returns the index of its kind in [`CopyFault::KINDS`].
    pub fn kind(&self) -> usize {
        match self {
            Self::Kill => 0,
            Self::Fail(_) => 1,
            Self::Write(_) => 2,
            Self::Create(_) => 3,
            Self::Replace(_) => 4,
            Self::Remove(_) => 5,
            Self::Move(..) => 6,
            Self::ChangeMode(..) => 7,
            Self::MakeDirectory(_) => 8,
            Self::Link(..) => 9,
            Self::SwapForLink(_) => 10,
            Self::SwapForDirectory(_) => 11,
        }
    }
}

impl CopyScenario {
    /// Returns whether it can be run.
    pub fn check(&self) -> Result<(), String> {
        if self.sessions.is_empty() {
            return Err("there is no session".to_owned());
        }
        for plan in &self.sessions {
            self.source(plan.version)?;
        }
        let is_option = self.top.is_some() || self.atomic || self.deletes;
        if !self.is_tree && is_option {
            return Err("these options are of trees".to_owned());
        }
        Ok(())
    }

    /// Returns a version of the source.
    pub(super) fn source(&self, version: usize) -> Result<CopySource, String> {
        let things = self.versions.get(version).ok_or("there is no such version")?;
        let mut things: Vec<&Thing> = things.iter().collect();
        things.sort_by(|one, other| compare(one.path.as_bytes(), other.path.as_bytes()));
        if !self.is_tree && things.len() != 1 {
            return Err("a file is one entry".to_owned());
        }
        let (mut contents, mut data) = (Vec::new(), Vec::new());
        let mut entries = Vec::new();
        for thing in &things {
            let kind = match &thing.what {
                What::Directory => Kind::Directory,
                What::File { bytes, fill } => {
                    contents.resize(contents.len() + *bytes as usize, *fill);
                    Kind::File { bytes: u64::from(*bytes) }
                }
                sparse @ What::Sparse { bytes, fill } => {
                    let range = sparse.data();
                    contents.resize(contents.len() + range.clone().count(), *fill);
                    data.push((
                        entries.len(),
                        Vec::from_iter((!range.is_empty()).then_some(range)),
                    ));
                    Kind::File { bytes: u64::from(*bytes) }
                }
                What::Name(first) => {
                    let of = things.iter().position(|other| other.path == *first);
                    Kind::Name { of: of.ok_or("there is no such file")? as u32 }
                }
                What::Link(target) => Kind::Link { target: target.clone().into_bytes() },
            };
            let modified_ns = thing.modified_s * 1_000_000_000;
            let path = thing.path.clone().into_bytes();
            entries.push(Entry { path, mode: thing.mode, modified_ns, kind });
        }
        let listing = Listing::with_links(entries, Links::Anywhere)
            .and_then(|listing| listing.with_data(data))
            .map_err(|error| error.to_string())?;
        let patterns = vec![(false, KEPT.to_owned())];
        let deletion =
            self.deletes.then_some(Deletion { at_top: true, prefix: Vec::new(), patterns });
        let top = self
            .top
            .map(|(mode, modified_s)| Top { mode, modified_ns: modified_s * 1_000_000_000 });
        Ok(CopySource {
            listing,
            contents,
            top,
            is_tree: self.is_tree,
            by_contents: self.by_contents || !self.is_tree,
            deletion,
            atomic: self.atomic,
            dry_run: false,
            stores: self.stores,
            kept: None,
        })
    }
}

impl fmt::Display for Thing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, what, mode, modified_s } = self;
        match what {
            What::Directory => write!(f, "{path}/ {mode:o} {modified_s}"),
            What::File { bytes, fill } => {
                write!(f, "{path} {mode:o} {modified_s}, {bytes} of {fill}")
            }
            What::Sparse { bytes, fill } => {
                write!(f, "{path} {mode:o} {modified_s}, {bytes} with {fill} in the middle")
            }
            What::Name(first) => write!(f, "{path} = {first}"),
            What::Link(target) => write!(f, "{path} -> {target} {modified_s}"),
        }
    }
}

impl fmt::Display for CopyScenario {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = [
            (self.is_tree, "a tree"),
            (!self.is_tree, "a file"),
            (self.by_contents, "--checksum"),
            (self.atomic, "--atomic"),
            (self.stores, "--all-or-none"),
            (self.deletes, "--delete"),
            (self.folds_case, "no case"),
        ];
        let options = options.iter().filter(|(is_on, _)| *is_on).map(|(_, name)| *name);
        write!(f, "seed {}: {}", self.seed, options.collect::<Vec<_>>().join(", "))?;
        if let Some((mode, modified_s)) = self.top {
            write!(f, ", top {mode:o} {modified_s}")?;
        }
        for (version, things) in self.versions.iter().enumerate() {
            write!(f, "\nversion {version}:")?;
            things.iter().try_for_each(|thing| write!(f, "\n  {thing}"))?;
        }
        write!(f, "\nthe host has:")?;
        self.before.iter().try_for_each(|thing| write!(f, "\n  {thing}"))?;
        for (number, plan) in self.sessions.iter().enumerate() {
            write!(f, "\nsession {number}, version {}:", plan.version)?;
            for PlannedCopyFault { call, on_open, what } in &plan.faults {
                let calls = if *on_open { "call on what is open" } else { "call" };
                write!(f, " before {calls} {call} {what:?};")?;
            }
        }
        Ok(())
    }
}
