//! What a receiver reads of a source at a URL, for itself and for the members of a group.

use std::{
    collections::BTreeMap,
    fmt, io,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
        mpsc::{self, Sender},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rdmc::{Error, Group, LeaseError, Region};

use super::{
    error::ReceiveError,
    membership::{Copy, MemberEvent},
    root_link::Event,
    settings::ReadsUrls,
};
use crate::{
    messages::{RemoteOffer, pieces},
    ranges::{ByteRange, Ranges},
    source::ListedRemote,
    subtrees::{SubtreeDigest, SubtreeHasher, Subtrees},
    system::system,
};

/// How long a range that another group uses is waited for before it is tried again.
const AGAIN: Duration = Duration::from_millis(1);

/// The source at a URL, and the thread that reads it for one group after another.
pub(super) struct Reading {
    remote: Arc<ListedRemote>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    /// Each ends the reading for a group.
    stops: BTreeMap<u64, Arc<AtomicBool>>,
    /// Ends the comparison with checksums.
    is_closed: Arc<AtomicBool>,
}

/// What is read for a group.
struct Job {
    group: Arc<Group>,
    copy: Copy,
    ranges: Ranges,
    stop: Arc<AtomicBool>,
    events: Sender<Event>,
}

/// Compares a copy with the checksums of its source.
pub(super) struct Checker {
    remote: Arc<ListedRemote>,
    kept: Ranges,
    region: Region,
    worked: Arc<AtomicU64>,
    is_closed: Arc<AtomicBool>,
}

impl Reading {
    /// Opens what was offered, with this listing. Blocks until the source has answered.
    ///
    /// Errors: it cannot be read here, or is not what the root has listed.
    pub(super) fn open(
        urls: &dyn ReadsUrls,
        offer: &RemoteOffer,
        listing: &[u8],
    ) -> Result<Self, ReceiveError> {
        let opened = urls.open(&offer.url, offer.as_hub_cache);
        let remote = opened
            .and_then(|(entries, contents)| ListedRemote::open(offer, listing, &entries, contents));
        let remote = Arc::new(remote.map_err(ReceiveError::Url)?);
        let (jobs, thread, stops, is_closed) = Default::default();
        Ok(Self { remote, jobs, thread, stops, is_closed })
    }

    /// Reads ranges for a group, which it closes then, once those for earlier ones are read.
    ///
    /// Errors: no thread.
    pub(super) fn read(
        &mut self,
        group: &Arc<Group>,
        copy: &Copy,
        ranges: &Ranges,
        events: Sender<Event>,
    ) -> Result<(), Error> {
        let stop = Arc::<AtomicBool>::default();
        self.stops.insert(group.settings().number, Arc::clone(&stop));
        let (group, copy, ranges) = (Arc::clone(group), copy.clone(), ranges.clone());
        let job = Job { group, copy, ranges, stop, events };
        let jobs = match &self.jobs {
            Some(jobs) => jobs,
            None => {
                let (jobs, queue) = mpsc::channel::<Job>();
                let remote = Arc::clone(&self.remote);
                let subtrees = remote.subtrees();
                let body = move || queue.iter().for_each(|job| job.run(&remote, &subtrees));
                let thread = thread::Builder::new().name("rdmc-url".into()).spawn(body);
                self.thread = Some(thread.map_err(|error| system("starting a thread", error))?);
                self.jobs.insert(jobs)
            }
        };
        // The thread ends after this only.
        let _ = jobs.send(job);
        Ok(())
    }

    /// Ends the reading for a group.
    pub(super) fn end(&mut self, group: u64) {
        self.stops.remove(&group).into_iter().for_each(|stop| stop.store(true, Ordering::Relaxed));
    }

    /// What compares a copy that had these ranges before.
    pub(super) fn checker(
        &self,
        kept: &Ranges,
        region: &Region,
        worked: &Arc<AtomicU64>,
    ) -> Checker {
        Checker {
            remote: Arc::clone(&self.remote),
            kept: kept.clone(),
            region: region.clone(),
            worked: Arc::clone(worked),
            is_closed: Arc::clone(&self.is_closed),
        }
    }
}

impl Drop for Reading {
    /// Ends everything that accesses the copy.
    fn drop(&mut self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.stops.values().for_each(|stop| stop.store(true, Ordering::Relaxed));
        self.remote.stop();
        self.jobs = None;
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Job {
    fn run(&self, remote: &ListedRemote, subtrees: &Subtrees) {
        let mut digests = Digests { subtrees, open: None };
        let read = remote.read(&pieces(&self.ranges), &self.stop, |at, bytes| {
            self.take(at, bytes, digests.of(at, bytes))
        });
        match read {
            // A group that has failed reports that by its callbacks, as one that was stopped.
            Ok(true) => drop(self.group.start_close()),
            Ok(false) => {}
            Err(_) if self.stop.load(Ordering::Relaxed) => {}
            Err(error) => self.notify(Event::Failed(ReceiveError::Url(error.to_string()))),
        }
    }

    /// Fails only if the session has ended.
    fn notify(&self, event: Event) {
        let _ = self.events.send(event);
    }

    /// Writes bytes into the copy, and sends them on. False if that is not possible: the group ends.
    fn take(&self, at: u64, bytes: &[u8], digests: Vec<(u64, SubtreeDigest)>) -> bool {
        let range = at as usize..at as usize + bytes.len();
        let written = again(&self.stop, || self.copy.region.write_stored(range.clone()))
            .and_then(|lease| lease.copy_from(bytes));
        if let Err(error) = written {
            return self.fail(&error);
        }
        if self.copy.add((at, at + bytes.len() as u64)) {
            self.notify(Event::Group(MemberEvent::Complete));
        }
        if !digests.is_empty() {
            // Before what reports the end of the group.
            self.notify(Event::Read(digests));
        }
        match self.copy.region.slice(range) {
            Ok(part) => match self.group.try_send(part) {
                Ok(_) => true,
                Err(error) => self.fail(&error),
            },
            Err(error) => self.fail(&error),
        }
    }

    /// Ends the group; the session finds an error of storage itself.
    fn fail(&self, reason: &dyn fmt::Display) -> bool {
        self.group.abort(&reason.to_string());
        false
    }
}

impl Checker {
    /// Blocks while it reads the copy. Errors: it differs from a checksum; unreadable; the session has ended.
    pub(super) fn run(&self) -> io::Result<()> {
        let read = |into: &mut [u8], at: u64| {
            let range = at as usize..at as usize + into.len();
            again(&self.is_closed, || self.region.read_stored(range.clone()))?.copy_to(into)
        };
        let worked = |bytes| {
            self.worked.fetch_add(bytes, Ordering::Relaxed);
        };
        self.remote.check(&self.kept, read, worked, &self.is_closed)
    }
}

/// Takes a lease, and waits while a conflicting one is held. Errors: those of leases; `stop` while it waits.
fn again<L>(stop: &AtomicBool, lease: impl Fn() -> Result<L, LeaseError>) -> io::Result<L> {
    loop {
        match lease() {
            Err(LeaseError::InUse { .. }) if !stop.load(Ordering::Relaxed) => thread::sleep(AGAIN),
            taken => return taken.map_err(io::Error::other),
        }
    }
}

/// Digests of what is read in order.
struct Digests<'a> {
    subtrees: &'a Subtrees,
    /// The subtree that is not whole yet, and its range.
    open: Option<(SubtreeHasher, ByteRange)>,
}

impl Digests<'_> {
    /// Those of the subtrees that end in these bytes. A subtree without its beginning has none.
    fn of(&mut self, start: u64, bytes: &[u8]) -> Vec<(u64, SubtreeDigest)> {
        let (mut at, mut rest, mut digests) = (start, bytes, Vec::new());
        while !rest.is_empty() {
            let subtree = self.subtrees.at(at);
            let (part, after) = rest.split_at(
                usize::try_from(subtree.1 - at).map_or(rest.len(), |left| left.min(rest.len())),
            );
            if at == subtree.0 {
                self.open = Some((SubtreeHasher::new(self.subtrees, at), subtree));
            }
            if let Some((hasher, _)) = self.open.as_mut().filter(|(_, open)| *open == subtree) {
                hasher.update(part);
            }
            at += part.len() as u64;
            if at == subtree.1
                && let Some((hasher, _)) = self.open.take().filter(|(_, open)| *open == subtree)
            {
                digests.push((subtree.0, hasher.finish()));
            }
            rest = after;
            if part.is_empty() {
                break;
            }
        }
        digests
    }
}
