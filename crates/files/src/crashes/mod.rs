//! Sessions that are killed before any of their system calls, or in which one fails, and the sessions after them: of
//! files, new trees and trees that are updated.

mod attributes;
mod beside;
mod calls;
mod exchange;
mod killed;
mod removal;
mod storing;

use std::{
    collections::BTreeMap,
    ffi::OsStr,
    fs,
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use rustix::io::Errno;
use tree::{Attributes, Entry, Kind, Layout, Listing};

use crate::{
    disk::Disk,
    simulation::{CopySession, CopySource, Fate, Injection, Kept, Top},
};

const BYTES: usize = 10_000;
/// More calls than a session makes.
const CALLS_MAX: u64 = 500;
const TIME_NS: i64 = 1_000_000_000;

/// What is replicated.
#[derive(Clone)]
struct Source(CopySource);

impl std::ops::Deref for Source {
    type Target = CopySource;

    fn deref(&self) -> &CopySource {
        &self.0
    }
}

/// What is injected into a session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fault {
    None,
    /// This call and all after it have no effect, as after a kill.
    Crash(u64),
    /// Only this call fails.
    Error(u64, Errno),
    /// Something happens right before this call.
    Action(u64),
}

impl Fault {
    /// `action`: what another process does before the call of [`Fault::Action`].
    fn injection(self, action: impl FnOnce() + Send + 'static) -> Injection {
        let mut action = Some(action);
        let hook = move |call, _: Option<&OsStr>| match self {
            Self::Crash(at) if call == at => Fate::Killed,
            Self::Error(at, errno) if call == at => Fate::Fails(errno.raw_os_error()),
            Self::Action(at) if call == at => {
                action.take().into_iter().for_each(|action| action());
                Fate::Succeeds
            }
            _ => Fate::Succeeds,
        };
        Injection { hook: Box::new(hook), bug: None, folds_case: false }
    }
}

impl Source {
    /// A file full of one byte.
    fn file(fill: u8, mode: u16) -> Self {
        let kind = Kind::File { bytes: BYTES as u64 };
        let modified_ns = i64::from(fill) * TIME_NS;
        let entry = Entry { path: b"copy".to_vec(), kind, mode, modified_ns };
        let listing = Listing::new(vec![entry]).unwrap();
        let contents = vec![fill; BYTES];
        Self(CopySource {
            listing,
            contents,
            top: None,
            is_tree: false,
            by_contents: true,
            deletion: None,
            atomic: false,
            dry_run: false,
            stores: false,
            kept: None,
        })
    }

    /// A tree with everything that trees have; versions differ in some entries.
    fn tree(version: u8) -> Self {
        let file = |path: &str, bytes: u64, version: u8| Entry {
            path: path.into(),
            kind: Kind::File { bytes },
            mode: 0o640,
            modified_ns: i64::from(version) * TIME_NS,
        };
        let other = |path: &str, kind, mode| Entry {
            path: path.into(),
            kind,
            mode,
            modified_ns: 5 * TIME_NS,
        };
        let target = vec![b'0' + version];
        let entries = vec![
            file("changes", 3_000, version),
            other("d", Kind::Directory, 0o755),
            file("d/empty", 0, 5),
            // Long enough to be kept between what is missing.
            file("d/stays", 70_000, 5),
            other("link", Kind::Link { target }, 0o777),
            other("made anew", Kind::Directory, 0o555),
            file("made anew/1", 500, version),
            other("made anew/inner", Kind::Directory, 0o700),
            file("made anew/inner/2", 1, version),
            file("mode changes", 100, 5),
            other("name", Kind::Name { of: 0 }, 0o640),
        ];
        let listing = Listing::new(entries).unwrap();
        let layout = Layout::of(&listing);
        let mut contents = vec![0; layout.bytes() as usize];
        for (number, entry) in listing.entries().iter().enumerate() {
            let range = layout.range(number);
            contents[range.start as usize..range.end as usize]
                .fill((entry.modified_ns / TIME_NS) as u8);
        }
        let top = Some(Top { mode: 0o750, modified_ns: 9 * TIME_NS });
        Self(CopySource {
            listing,
            contents,
            top,
            is_tree: true,
            by_contents: false,
            deletion: None,
            atomic: false,
            dry_run: false,
            stores: false,
            kept: None,
        })
    }

    /// The same with owners, if this is root, access lists and `user.*` attributes, which differ by version.
    fn owned(self, version: u8) -> Self {
        let user = rustix::process::geteuid();
        let owner = match user.is_root() {
            true => (60_000 + u32::from(version), 61_000),
            false => (user.as_raw(), rustix::process::getegid().as_raw()),
        };
        self.attributed(version, Some(owner))
    }

    fn attributed(self, version: u8, owner: Option<(u32, u32)>) -> Self {
        let (user, group) = owner.unzip();
        let of = |entry: Option<&Entry>| {
            let mode = entry.map_or(0o750, |entry| entry.mode);
            let is_directory = entry.is_none_or(|entry| entry.kind == Kind::Directory);
            let mut extended = vec![(b"user.version".to_vec(), vec![version])];
            if mode & 0o070 != 0 {
                extended
                    .insert(0, (ACCESS.to_vec(), access_list(mode, 1_000 + u32::from(version))));
            }
            if is_directory {
                extended
                    .insert(extended.len() - 1, (DEFAULT_ACCESS.to_vec(), access_list(0o750, 7)));
            }
            if entry.is_some_and(|it| matches!(it.kind, Kind::Link { .. } | Kind::Name { .. })) {
                extended.clear();
            }
            Attributes { user, group, extended }
        };
        let all: Vec<Attributes> = self.listing.entries().iter().map(|it| of(Some(it))).collect();
        let own = if self.is_tree { of(None) } else { all[0].clone() };
        let kept = Some(Kept { access: true, extended: true, own, names: Vec::new() });
        let listing = self.listing.clone().with_attributes(all).unwrap();
        Self(CopySource { listing, kept, ..self.0 })
    }

    fn assert_has_attributes(&self, path: &Path, expected: &Attributes, at: &str) {
        let stat = fs::symlink_metadata(path).unwrap();
        assert_eq!(stat.uid(), expected.user.unwrap_or(stat.uid()), "{at}");
        assert_eq!(stat.gid(), expected.group.unwrap_or(stat.gid()), "{at}");
        let mut found = Vec::new();
        if !stat.is_symlink() {
            let opened = fs::File::open(path).unwrap();
            for name in Disk::extended_names(&opened).unwrap() {
                let value = Disk::extended(&opened, &name).unwrap();
                found.push((name, value));
            }
        }
        found.retain(|(name, _)| name.starts_with(b"user.") || tree::is_access(name));
        found.sort_unstable();
        assert_eq!(found, expected.extended, "{at}");
    }

    /// A tree that has nothing of the others.
    fn other() -> Self {
        let kind = Kind::File { bytes: 0 };
        let entry = Entry { path: b"other".to_vec(), kind, mode: 0o600, modified_ns: TIME_NS };
        let listing = Listing::new(vec![entry]).unwrap();
        Self::tree(7).with(|it| (it.listing, it.contents) = (listing, Vec::new()))
    }

    /// The same with another mode of all files.
    fn with_modes(self, mode: u16) -> Self {
        let mut entries = self.listing.entries().to_vec();
        let files = entries.iter_mut().filter(|entry| entry.kind != Kind::Directory);
        files.for_each(|entry| entry.mode = mode);
        let listing = Listing::new(entries).unwrap();
        self.with(|it| it.listing = listing)
    }

    /// The same with other options.
    fn with(mut self, change: impl FnOnce(&mut CopySource)) -> Self {
        change(&mut self.0);
        self
    }

    /// A session from the offer to the published copy.
    fn session(&self, path: &Path, fault: Fault) -> CopySession {
        self.session_beside(path, fault, || {})
    }

    /// The same beside another process, which acts before the call of [`Fault::Action`].
    fn session_beside(
        &self,
        path: &Path,
        fault: Fault,
        action: impl FnOnce() + Send + 'static,
    ) -> CopySession {
        self.0.session(path, fault.injection(action))
    }

    /// What is at a path is the copy, with these extra entries.
    fn assert_is_at(&self, path: &Path, extras: &Extras, after: &str) {
        let hidden = hidden_below(path.parent().unwrap());
        assert!(hidden.is_empty(), "{after}: {hidden:?} is left");
        if self.is_tree {
            let (top, stat) = (self.top.unwrap(), fs::metadata(path).unwrap());
            assert_eq!(stat.permissions().mode() & 0o7777, top.mode, "{after}");
            assert_eq!(nanoseconds(&stat), top.modified_ns, "{after}");
            if let Some(kept) = &self.kept {
                self.assert_has_attributes(path, &kept.own, after);
            }
        }
        for (number, entry) in self.listing.entries().iter().enumerate() {
            let text = std::str::from_utf8(&entry.path).unwrap();
            let path = if self.is_tree { path.join(text) } else { path.to_owned() };
            let at = format!("{after}: {}", path.display());
            let stat = fs::symlink_metadata(&path).unwrap_or_else(|error| panic!("{at}: {error}"));
            if !matches!(entry.kind, Kind::Name { .. }) {
                assert_eq!(nanoseconds(&stat), entry.modified_ns, "{at}");
            }
            if let Some(attributes) = self.listing.attributes(number)
                && !matches!(entry.kind, Kind::Name { .. })
            {
                self.assert_has_attributes(&path, attributes, &at);
            }
            match &entry.kind {
                Kind::Link { target } => {
                    let text = fs::read_link(&path).unwrap().into_os_string().into_string();
                    assert_eq!(text.unwrap().as_bytes(), target, "{at}");
                    continue;
                }
                Kind::Name { of } => {
                    let first = &self.listing.entries()[*of as usize].path;
                    let first = path.parent().unwrap().join(std::str::from_utf8(first).unwrap());
                    assert_eq!(stat.ino(), fs::metadata(first).unwrap().ino(), "{at}");
                }
                Kind::Directory => assert!(stat.is_dir(), "{at}"),
                Kind::File { .. } => {
                    let expected = self.contents_of(number);
                    assert!(fs::read(&path).unwrap() == *expected, "{at}");
                }
            }
            assert_eq!(stat.permissions().mode() & 0o7777, u32::from(entry.mode), "{at}");
        }
        extras.assert_are_there(after);
    }
}

const ACCESS: &[u8] = b"system.posix_acl_access";
const DEFAULT_ACCESS: &[u8] = b"system.posix_acl_default";

/// An access list of this mode with one more user, who may read.
fn access_list(mode: u16, user: u32) -> Vec<u8> {
    let none = u32::MAX;
    let entries = [
        (1, mode >> 6, none),
        (2, 4, user),
        (4, mode >> 3, none),
        (0x10, mode >> 3, none),
        (0x20, mode, none),
    ];
    let mut list = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend([u16::to_le_bytes(tag), u16::to_le_bytes(permissions & 7)].as_flattened());
        list.extend(id.to_le_bytes());
    }
    list
}

fn nanoseconds(metadata: &fs::Metadata) -> i64 {
    metadata.mtime() * TIME_NS + metadata.mtime_nsec()
}

/// Names of rdmc below a directory.
fn hidden_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap().to_string_lossy().contains(".rdmc-") {
            found.push(path);
        } else if path.is_dir() && !path.is_symlink() {
            found.extend(hidden_below(&path));
        }
    }
    found
}

/// Entries that only the host has: they stay as they are.
#[derive(Default)]
struct Extras(BTreeMap<PathBuf, (u64, u32, u32, i64)>);

impl Extras {
    /// Makes some in an existing tree.
    fn made_in(top: &Path) -> Self {
        fs::create_dir_all(top.join("own/inner")).unwrap();
        fs::write(top.join("own/inner/file"), "own").unwrap();
        fs::write(top.join("d/own"), "own").unwrap();
        fs::set_permissions(top.join("own"), fs::Permissions::from_mode(0o2711)).unwrap();
        symlink("nowhere", top.join("own link")).unwrap();
        let paths = ["own", "own/inner", "own/inner/file", "d/own", "own link"];
        let of = |path: &str| (top.join(path), identity(&top.join(path)));
        Self(paths.into_iter().map(of).collect())
    }

    fn assert_are_there(&self, after: &str) {
        for (path, known) in &self.0 {
            assert_eq!(identity(path), *known, "{after}: {}", path.display());
        }
    }
}

/// Inode, mode, number of names and time.
fn identity(path: &Path) -> (u64, u32, u32, i64) {
    let stat = fs::symlink_metadata(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    (stat.ino(), stat.mode(), stat.nlink() as u32, nanoseconds(&stat))
}

/// What has a name before a session.
enum Before {
    Nothing,
    /// A file with these contents and this mode.
    File(Vec<u8>, u32),
    /// Another version of the tree, with entries of its own, some of which are in the way.
    Tree(u8),
    /// A version of the tree, without anything else.
    Copy(u8),
    /// As [`Self::Tree`], with attributes.
    Owned(u8),
}

impl Before {
    fn make(&self, path: &Path) -> Extras {
        match self {
            Self::Nothing => Extras::default(),
            Self::File(contents, mode) => {
                fs::write(path, contents).unwrap();
                fs::set_permissions(path, fs::Permissions::from_mode(*mode)).unwrap();
                Extras::default()
            }
            Self::Copy(version) => {
                Source::tree(*version).session(path, Fault::None).outcome.unwrap();
                Extras::default()
            }
            Self::Owned(version) | Self::Tree(version) => {
                let source = match self {
                    Self::Owned(_) => Source::tree(*version).owned(*version + 1),
                    _ => Source::tree(*version),
                };
                source.session(path, Fault::None).outcome.unwrap();
                let writable = fs::Permissions::from_mode(0o700);
                fs::set_permissions(path.join("made anew"), writable).unwrap();
                fs::remove_dir_all(path.join("made anew")).unwrap();
                // A directory has to come here.
                fs::write(path.join("made anew"), "a file").unwrap();
                let mode = fs::Permissions::from_mode(0o600);
                fs::set_permissions(path.join("mode changes"), mode).unwrap();
                Extras::made_in(path)
            }
        }
    }
}

/// Runs one session for each call, with a fault at that call. `judge` gets the path, the session, what only the host has, and
/// a text for messages.
fn at_every_call(
    source: &Source,
    before: &Before,
    fault: impl Fn(u64) -> Fault,
    mut judge: impl FnMut(&Path, &CopySession, &Extras, &str),
) {
    for call in 0..CALLS_MAX {
        let directory = in_memory();
        let path = directory.path().join("copy");
        let extras = before.make(&path);
        let old = contents_below(&path);
        let session = source.session(&path, fault(call));
        let is_reached = call < session.faults.calls();
        let after = format!("{:?}: {:?}", fault(call), session.outcome);
        extras.assert_are_there(&after);
        source.assert_old_or_new(&path, &old, &after);
        judge(&path, &session, &extras, &after);
        if !is_reached {
            // The least number of calls of a whole session.
            assert!(call > 5, "{call}");
            session.outcome.unwrap();
            return;
        }
    }
    panic!("a session makes more than {CALLS_MAX} calls");
}

/// Runs a session in which a call fails with this error, for each call, and another one after it, which has to complete the copy;
/// one that failed while it published is resumed without any data.
fn is_complete_after_an_error_at_any_call(source: &Source, before: &Before, errno: Errno) {
    let fault = |call| Fault::Error(call, errno);
    at_every_call(source, before, fault, |path, session, extras, after| {
        let is_publishing = session.verified_at.is_some() && session.outcome.is_err();
        let again = source.session(path, Fault::None);
        if is_publishing {
            assert_eq!(again.received, Some(0), "{after}: sent again");
        }
        again.outcome.unwrap_or_else(|error| panic!("{after}: {error}"));
        source.assert_is_at(path, extras, after);
    });
}

/// A directory in memory, where there is one: sessions write everything to disk.
fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// The contents of files at or below a path.
fn contents_below(path: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    let Ok(stat) = fs::symlink_metadata(path) else { return found };
    if stat.is_file() {
        found.insert(path.to_owned(), fs::read(path).unwrap());
    } else if stat.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            if !path.file_name().unwrap().to_string_lossy().contains(".rdmc-") {
                found.append(&mut contents_below(&path));
            }
        }
    }
    found
}

impl Source {
    /// Each file has its old contents or its new ones; none is missing that was there.
    fn assert_old_or_new(&self, path: &Path, old: &BTreeMap<PathBuf, Vec<u8>>, after: &str) {
        let found = contents_below(path);
        for (number, entry) in self.listing.entries().iter().enumerate() {
            let text = std::str::from_utf8(&entry.path).unwrap();
            let path = if self.is_tree { path.join(text) } else { path.to_owned() };
            let new = self.contents_of(number);
            match (found.get(&path), old.get(&path)) {
                (Some(found), Some(old)) => {
                    assert!(found == old || *found == *new, "{after}: {path:?} is neither");
                }
                (Some(found), None) => assert!(*found == *new, "{after}: {path:?}"),
                // A file where a directory comes is removed for it.
                (None, Some(_)) => assert_eq!(entry.kind, Kind::Directory, "{after}: {path:?}"),
                (None, None) => {}
            }
        }
    }
}
