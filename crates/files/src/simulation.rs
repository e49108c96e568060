//! A receiver's copy from the offer to its publication without a network, for tests and the simulator
//! (`tools/simulate`). Not a public interface.

use std::{
    borrow::Cow,
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{self, Write},
    os::unix::ffi::OsStrExt,
    path::Path,
    sync::atomic::AtomicBool,
};

use rdmc::Storage;
use rustix::{
    fs::{MemfdFlags, memfd_create},
    io::Errno,
};
use tree::{Kind, Layout, Listing};

use crate::{
    Manifest, Target, TargetError, Verified,
    claim::Owner,
    copy::{Order, Spot},
    hash::{digest_range, probe},
    messages::TreeOffer,
    place::Place,
    resume::SourceChunks,
};
pub use crate::{
    faults::{Bug, Fate, Faults, Hook},
    messages::{Deletion, Top},
    owners::Kept,
};

/// What is replicated.
#[derive(Clone, Debug)]
pub struct CopySource {
    /// A tree's; of a file one entry with the destination's name.
    pub listing: Listing,
    /// The contents of all files, one after another ([`Layout`]).
    pub contents: Vec<u8>,
    /// Of a tree.
    pub top: Option<Top>,
    /// Not a file.
    pub is_tree: bool,
    /// As by `--checksum`.
    pub by_contents: bool,
    /// As by `--delete`.
    pub deletion: Option<Deletion>,
    /// As by `--atomic`.
    pub atomic: bool,
    /// As by `--dry-run`.
    pub dry_run: bool,
    /// As by `--all-or-none`: the copy is stored before it is published.
    pub stores: bool,
    /// As by `--owner` and its like.
    pub kept: Option<Kept>,
}

/// Whether this has the form of a temporary file's or a lock's name.
pub fn is_hidden(name: &str) -> bool {
    crate::place::is_hidden(name)
}

/// What is injected into a session.
pub struct Injection {
    /// What happens before calls.
    pub hook: Hook,
    /// A planted bug.
    pub bug: Option<Bug>,
    /// The file system seems to distinguish no case.
    pub folds_case: bool,
}

impl std::fmt::Debug for Injection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{:?}", self.bug)
    }
}

/// What came of a session.
#[derive(Debug)]
pub struct CopySession {
    /// Whether the copy was there before. Of no meaning if it was killed.
    pub outcome: Result<bool, TargetError>,
    /// The calls.
    pub faults: Faults,
    /// Bytes that were received; `None` before they are known.
    pub received: Option<u64>,
    /// The number of the first call after what is there was looked at.
    pub looked_at: u64,
    /// The number of the first call after the copy was verified.
    pub verified_at: Option<u64>,
    /// The number of the first call of publishing.
    pub published_at: Option<u64>,
}

impl CopySource {
    /// Length of all contents in bytes.
    pub fn bytes(&self) -> u64 {
        self.contents.len() as u64
    }

    /// The contents of an entry, which may be a further name of a file: also its holes.
    pub fn contents_of(&self, number: usize) -> Cow<'_, [u8]> {
        let number = match self.listing.entries()[number].kind {
            Kind::Name { of } => of as usize,
            _ => number,
        };
        let range = Layout::of(&self.listing).range(number);
        let mut sent = &self.contents[range.start as usize..range.end as usize];
        let bytes = self.listing.entries()[number].bytes();
        let (Some(data), Some(bytes)) = (self.listing.data(number), bytes) else {
            return sent.into();
        };
        let mut whole = vec![0; bytes as usize];
        for range in data {
            let part = &mut whole[range.start as usize..range.end as usize];
            let (own, others) = sent.split_at(part.len());
            part.copy_from_slice(own);
            sent = others;
        }
        whole.into()
    }

    /// A session from the offer to the published copy, as the receiver runs it. Blocks until then.
    pub fn session(&self, path: &Path, injection: Injection) -> CopySession {
        let faults = Faults::default();
        let outcome = Err(TargetError::Changed(path.to_owned()));
        let mut session = CopySession {
            outcome,
            faults,
            received: None,
            looked_at: 0,
            verified_at: None,
            published_at: None,
        };
        session.outcome = self.run(path, injection, &mut session);
        session
    }

    fn run(
        &self,
        path: &Path,
        injection: Injection,
        session: &mut CopySession,
    ) -> Result<bool, TargetError> {
        let place = Place::anywhere(path).map_err(|error| TargetError::no_place(path, error))?;
        session.faults = place.parent().disk().faults.clone();
        session.faults.fold_case(injection.folds_case);
        session.faults.plant(injection.bug);
        session.faults.start(injection.hook);
        let target = self.prepare(place);
        session.looked_at = session.faults.calls();
        self.receive(target?, session)
    }

    /// A session that ends once it has looked.
    pub fn look(&self, path: &Path) -> Result<(), TargetError> {
        let place = Place::anywhere(path).map_err(|error| TargetError::no_place(path, error))?;
        self.prepare(place)?.keep();
        Ok(())
    }

    fn prepare(&self, place: Place) -> Result<Target, TargetError> {
        let owner = Owner::of_no_push("a");
        let first = self.listing.entries().first();
        let manifest = Manifest {
            name: "object".into(),
            bytes: self.bytes(),
            mode: first.map_or(0, |first| first.mode.into()),
            modified_ns: first.map_or(0, |first| first.modified_ns),
        };
        if !self.is_tree {
            let probe = self.probe().map_err(|error| TargetError::System {
                path: place.path().to_owned(),
                what: "probe",
                error,
            })?;
            let order = Order::of_file(&place, &manifest, Some(probe))?;
            let order = order.keeping(self.kept.as_ref())?;
            return Target::prepare_file(place, order, manifest, &owner);
        }
        let offer = TreeOffer {
            top: self.top,
            by_contents: self.by_contents,
            atomic: self.atomic,
            deletion: self.deletion.clone(),
            lists_changes: true,
            ..TreeOffer::default()
        };
        let (encoded, path) = (self.listing.encode()?, place.path().to_owned());
        let order = Order::of_tree("object", &encoded, &offer, &path)?.dry_run(self.dry_run);
        let order = order.keeping(self.kept.as_ref())?;
        let spot = match place.parent().open_directory(place.name()) {
            Ok(directory) => Spot::Inside(directory, Some(place)),
            Err(Errno::NOTDIR | Errno::LOOP) => {
                return Err(TargetError::InTheWay { path, kind: "no directory", remedy: "" });
            }
            Err(Errno::NOENT) => Spot::Name(place),
            Err(error) => {
                return Err(TargetError::System { path, what: "open", error: error.into() });
            }
        };
        let stop = AtomicBool::new(false);
        Target::prepare_tree(spot, &path, order, manifest, &owner, &stop)
    }

    fn probe(&self) -> io::Result<[u8; 32]> {
        let mut source = File::from(memfd_create("source", MemfdFlags::CLOEXEC)?);
        source.write_all(&self.contents)?;
        probe(&source, self.bytes())
    }

    fn receive(&self, mut target: Target, session: &mut CopySession) -> Result<bool, TargetError> {
        let go_on = AtomicBool::new(false);
        let mut has = target.kept();
        let read = |into: &mut [u8], at: u64| {
            into.copy_from_slice(&self.contents[at as usize..][..into.len()]);
            Ok(())
        };
        if let Some(digests) = target.chunk_digests(&go_on)? {
            let digest = |range| digest_range(read, range, &go_on);
            let right = SourceChunks::new(self.bytes()).matching(&digests, digest);
            has.extend(right.map_err(failed(&target, "compare"))?.iter());
        }
        target.begin(&has, &go_on)?;
        if session.faults.links_early() {
            self.link_early(target.path());
        }
        let region = target.region()?;
        let missing = has.missing(self.bytes());
        for (start, end) in missing.iter() {
            let middle = start + (end - start) / 2;
            for part in [start..middle, middle..end] {
                let part = part.start as usize..part.end as usize;
                if part.is_empty() {
                    continue;
                }
                let lease = region.write_stored(part.clone()).map_err(io::Error::other);
                let written = lease.and_then(|lease| lease.copy_from(&self.contents[part]));
                written.map_err(failed(&target, "write"))?;
            }
        }
        session.received = Some(missing.bytes());
        // A killed session compares nothing.
        if session.faults.is_killed() {
            return Err(TargetError::Changed(target.path().to_owned()));
        }
        let mut found = vec![0; self.contents.len()];
        if let Some(files) = target.files() {
            files.read_at(&mut found, 0).map_err(failed(&target, "read"))?;
        }
        let proof = Verified::compare(blake3::hash(&found), blake3::hash(&self.contents))?;
        session.verified_at = Some(session.faults.calls());
        if self.stores {
            target = target.store(&proof)?;
        }
        session.published_at = Some(session.faults.calls());
        target.publish(&proof)
    }

    /// The effect of [`Bug::LinksEarly`] on a directory that is to be exchanged.
    fn link_early(&self, path: &Path) {
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return };
        let prefix = format!(".{}.rdmc-", name.to_string_lossy());
        let is_staged = |name: &OsString| name.to_string_lossy().starts_with(&prefix);
        let Some(staged) = names(parent).into_iter().find(is_staged) else { return };
        let entries = self.listing.entries().iter();
        let inner = entries.filter(|entry| entry.kind == Kind::Directory);
        let inner = inner.map(|entry| Path::new(OsStr::from_bytes(&entry.path)));
        for directory in std::iter::once(Path::new("")).chain(inner) {
            for name in names(&path.join(directory)) {
                let name = directory.join(name);
                if self.listing.find(name.as_os_str().as_bytes()).is_none() {
                    // Not of directories.
                    let _ = fs::hard_link(path.join(&name), parent.join(&staged).join(&name));
                }
            }
        }
    }
}

fn names(directory: &Path) -> Vec<OsString> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.flatten().map(|entry| entry.file_name()).collect()
}

/// The error of the files of a copy, which may name one.
fn failed(target: &Target, what: &'static str) -> impl FnOnce(io::Error) -> TargetError + use<> {
    let known = target.files().and_then(|files| files.failure());
    let path = target.path().to_owned();
    move |error| match known {
        Some(known) => TargetError::System { path, what, error: io::Error::other(known) },
        None => TargetError::stored(error, what, &path),
    }
}
