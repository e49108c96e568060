//! Carries out a session's decisions: its target, its fabric, groups.

use std::{
    collections::BTreeMap,
    io,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    thread,
    time::Instant,
};

use rdmc::{Application, Context, Error, Group};

use super::{
    deferred::{Deferred, Free},
    destination::{prepare, start_hasher},
    error::ReceiveError,
    link::Links,
    listing::{Listing, ListingMember},
    listings::Held,
    machine::{Effects, UNEXPECTED_CHUNKS},
    membership::{Copy, Member},
    reading::{Checker, Reading},
    root_link::{Event, RootLink},
};
use crate::{
    Target, Verified,
    changes::Changes,
    claim::Owner,
    copy::PublishedCopy,
    hash::{HashOptions, PrefixHasher},
    messages::{Offer, Start, ToRoot, WaitedFor},
    ranges::Ranges,
    resident::peak_resident_bytes,
    resume::{ChunkDigests, Chunking},
    sending::send_ranges,
    stream_message::StreamMessage,
};

/// The reason of links that end because this receiver publishes its copy, or is done otherwise.
const LEFT: &str = "the member has left";

pub(super) struct Io<'a> {
    root: &'a RootLink<'a>,
    offer: Offer,
    /// Of a tree, until its target is prepared.
    listing: Option<Listing>,
    target: Option<Target>,
    /// Of its listing, which the target has decoded.
    _held: Option<Held>,
    /// Once the root has chosen a fabric.
    context: Option<Arc<Context>>,
    /// Once the root has compared the existing data.
    copy: Option<HashedCopy>,
    /// Joined groups.
    groups: BTreeMap<u64, Arc<Group>>,
    /// Of what is fetched, whose groups are links.
    links: Option<Links>,
    /// The source, of which this host reads shares.
    reading: Option<Reading>,
    begun: Instant,
}

/// The growing copy and its hasher.
struct HashedCopy {
    copy: Copy,
    /// Until it is published.
    _hasher: Option<PrefixHasher>,
}

impl<'a> Io<'a> {
    pub(super) fn new(root: &'a RootLink<'a>, offer: Offer, listing: Option<Listing>) -> Self {
        let links = offer.by_links.then(Links::default);
        Self {
            root,
            offer,
            listing,
            target: None,
            _held: None,
            context: None,
            copy: None,
            groups: BTreeMap::new(),
            links,
            reading: None,
            begun: Instant::now(),
        }
    }

    /// The destination, once prepared.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.target.as_ref().map(|target| target.path().to_owned())
    }

    /// Reports to the root how long this receiver has waited for members of its groups.
    pub(super) fn report_waits(&self) -> Result<(), ReceiveError> {
        let Some(context) = &self.context else { return Ok(()) };
        // A closed context has failed its groups, which is reported by events.
        for (group, waited) in context.waited().unwrap_or_default() {
            let waited = waited.into_iter().map(WaitedFor::from).collect();
            self.root.send(&ToRoot::Waited { group, waited })?;
        }
        Ok(())
    }

    /// Gives messages that wait for their place in the copy memory, if that is free now.
    pub(super) fn accept_deferred(&self) -> Result<(), ReceiveError> {
        let Some(HashedCopy { copy, .. }) = &self.copy else { return Ok(()) };
        let (now, is_joined) = (self.begun.elapsed(), |group| self.groups.contains_key(&group));
        let free = copy.deferred.take_free(now, is_joined).map_err(ReceiveError::Storage)?;
        for Free { group, message, region } in free {
            if let Some(group) = self.groups.get(&group)
                && let Err(error) = group.accept(message, region)
            {
                // One that has ended reports that itself.
                group.abort(&error.to_string());
            }
        }
        Ok(())
    }

    fn forget_deferred(&self, group: u64) {
        self.copy.iter().for_each(|hashed| hashed.copy.deferred.forget(group));
    }

    /// Ends all groups; keeps the partial copy or removes it.
    pub(super) fn close(mut self, keep: bool) {
        self.end_all();
        if let Some(target) = self.target.filter(|_| keep) {
            target.keep();
        }
    }

    /// Ends everything that accesses the target.
    fn end_all(&mut self) {
        self.end_groups();
        self.context = None;
    }

    fn end_groups(&mut self) {
        self.reading = None;
        if let Some(links) = &mut self.links {
            // Their threads have these groups as well.
            self.groups.values().for_each(|group| group.abort(LEFT));
            links.join();
        }
        self.groups.clear();
        self.copy = None;
    }

    /// Sends the published copy to others from now on.
    fn share(&mut self, published: &PublishedCopy) -> Result<(), ReceiveError> {
        let bytes = Arc::new(AtomicU64::new(0));
        // Nothing more comes that would have to be hashed.
        let (in_place, _) = mpsc::channel();
        let (region, deferred) = (published.region()?, Deferred::default());
        let copy = Copy { region, has: Arc::default(), bytes, in_place, deferred };
        copy.add((0, copy.region.len() as u64));
        self.copy = Some(HashedCopy { copy, _hasher: None });
        Ok(())
    }

    /// Joins with these callbacks.
    fn start_joining(&self, start: &Start, member: impl Application) -> Result<(), String> {
        let mut settings = start.group.settings().map_err(|error| error.to_string())?;
        settings.report_blocks = true;
        let number = start.group.number;
        self.join_by(number, move |context| context.create_group_with(settings, member))
    }

    /// Joins on a thread that ends by the context's own deadline.
    fn join_by(
        &self,
        number: u64,
        create: impl FnOnce(&Context) -> Result<Group, Error> + Send + 'static,
    ) -> Result<(), String> {
        let Some(context) = self.context.clone() else { return Err("no fabric is started".into()) };
        let joining = self.root.join(self.groups.len())?;
        let events = self.root.events.clone();
        let join = move || {
            let joined = create(&context);
            drop(joining);
            // Fails only if the session has ended.
            let _ = events.send(Event::Joined(number, joined));
        };
        thread::Builder::new()
            .name("rdmc-join".into())
            .spawn(join)
            .map(drop)
            .map_err(|error| format!("cannot start a thread: {error}"))
    }

    fn target(&mut self) -> Result<&mut Target, ReceiveError> {
        self.target.as_mut().ok_or_else(no_target)
    }

    fn take_target(&mut self) -> Result<Target, ReceiveError> {
        self.target.take().ok_or_else(no_target)
    }

    /// The error of an operation that ended early: it has failed, or why it was interrupted.
    fn interrupted_or(&self, error: impl Into<ReceiveError>) -> ReceiveError {
        match self.root.interrupted.load(Ordering::Relaxed) {
            true => self.root.interruption(),
            false => error.into(),
        }
    }
}

fn no_target() -> ReceiveError {
    ReceiveError::System("there is no target".into())
}

impl Effects for Io<'_> {
    type Group = Group;

    fn add_group(&mut self, number: u64, group: Group) {
        self.groups.insert(number, Arc::new(group));
    }

    fn remove_group(&mut self, number: u64) {
        self.groups.remove(&number);
        self.reading.iter_mut().for_each(|reading| reading.end(number));
        self.forget_deferred(number);
    }

    fn discard_group(&mut self, number: u64, _group: Group) {
        // Dropping it ends it.
        self.forget_deferred(number);
    }

    fn send_message(&mut self, message: &ToRoot) -> Result<(), Error> {
        self.root.control.send(message)
    }

    fn add_listing(&mut self, part: &[u8]) -> Result<bool, ReceiveError> {
        self.root.settings.reception.advanced(part.len() as u64);
        match &mut self.listing {
            Some(listing) => listing.add(part),
            None => Err(ReceiveError::System("there is no list of files".into())),
        }
    }

    fn take_relayed_listing(&mut self) -> bool {
        self.listing.as_mut().is_some_and(Listing::take_relayed)
    }

    fn prepare(&mut self) -> Result<(Ranges, Option<ChunkDigests>), ReceiveError> {
        let offer = &self.offer;
        let settings = self.root.settings;
        settings.check_size(offer.manifest.bytes)?;
        let owner = Owner::here(&offer.terms.secret, &settings.host);
        let target = {
            let (listing, held) = self.listing.take().map(Listing::into_encoded).unzip();
            self._held = held;
            let stop = &self.root.interrupted;
            let listed = listing.clone().filter(|_| offer.remote.is_some() && !offer.dry_run);
            let prepared = prepare(settings, offer, listing, &owner, stop);
            let target = prepared.map_err(|error| self.interrupted_or(error))?;
            let lacks = !target.kept().covers((0, offer.manifest.bytes));
            if let (Some(remote), Some(urls), Some(listed), true) =
                (&offer.remote, &settings.urls, listed, lacks)
            {
                self.reading = Some(Reading::open(&**urls, remote, &listed)?);
            }
            target
        };
        settings.reception.stepped();
        let target = self.target.insert(target);
        let kept = target.kept();
        let digests = target.chunk_digests(&self.root.interrupted);
        digests.map(|digests| (kept, digests)).map_err(|error| self.interrupted_or(error))
    }

    fn changes(&self) -> Changes {
        self.target.as_ref().map(Target::changes).unwrap_or_default()
    }

    fn fabrics(&self) -> Vec<String> {
        self.root.fabrics()
    }

    fn start_fabric(&mut self, fabric: &str) -> Result<u16, ReceiveError> {
        // The listing may have come over it already.
        if self.context.as_ref().is_none_or(|context| context.fabric().name() != fabric) {
            let context = self.root.start_context(fabric, &self.offer.terms)?;
            self.context = Some(Arc::new(context));
        }
        Ok(self.context.as_ref().map_or(0, |context| context.address().port()))
    }

    fn start_copy(&mut self, has: &Ranges) -> Result<bool, ReceiveError> {
        let stop = Arc::clone(&self.root.interrupted);
        let begun = self.target()?.begin(has, &stop);
        begun.map_err(|error| self.interrupted_or(error))?;
        let (events, bytes) = (self.root.events.clone(), Arc::clone(&self.root.received_bytes));
        let worked = Arc::clone(&self.root.worked);
        let options = HashOptions { worked, makes_holes: self.offer.has_holes, kept: has.clone() };
        let region = self.target()?.region()?;
        let checker = self.reading.as_ref().map(|it| it.checker(has, &region, &options.worked));
        let hashed = move |digest: io::Result<_>| {
            let checked = digest
                .and_then(|digest| checker.as_ref().map_or(Ok(()), Checker::run).map(|()| digest));
            drop(events.send(Event::OwnDigest(checked)));
        };
        let (hasher, in_place) = start_hasher(self.target()?, options, hashed)?;
        let deferred = Deferred::default();
        let copy = Copy { region, has: Arc::default(), bytes, in_place, deferred };
        let is_complete = copy.add_all(has);
        self.copy = Some(HashedCopy { copy, _hasher: Some(hasher) });
        let settings = self.root.settings;
        if settings.fetch.as_ref().is_some_and(|fetch| fetch.reports_files) {
            let files = self.target()?.verified_files(has);
            files.into_iter().for_each(|files| settings.reception.reports(files));
        }
        settings.reception.stepped();
        Ok(is_complete)
    }

    fn has(&self) -> Ranges {
        self.copy.as_ref().map(|hashed| hashed.copy.has()).unwrap_or_default()
    }

    fn check_storage(&self) -> Result<(), ReceiveError> {
        let files = self.target.as_ref().and_then(Target::files);
        match files.and_then(|files| files.failure()) {
            Some(failure) => Err(ReceiveError::Storage(failure)),
            None => Ok(()),
        }
    }

    fn explain(&mut self, error: &Error) -> String {
        self.root.explainer().explain(error)
    }

    fn join(&mut self, start: Start) -> Result<(), String> {
        self.root.check_group(&self.offer.terms, &start.group)?;
        // Also of those that only get it: a hostile root must not have them cut ranges of any length.
        if start.reads && self.reading.is_none() {
            return Err("is to take what is read at a URL, and lacks nothing of one".into());
        }
        let events = self.root.events.clone();
        let notify = move |event| drop(events.send(Event::Group(event)));
        match (&self.copy, &mut self.listing) {
            (Some(_), _) if self.links.is_some() => {
                let settings = start.link_settings().map_err(|error| error.to_string())?;
                self.join_by(start.group.number, move |context| context.create_group(settings))
            }
            (Some(hashed), _) => {
                let member = Member::new(&start, hashed.copy.clone(), notify);
                self.start_joining(&start, member)
            }
            (None, Some(listing)) => {
                let reception = Arc::clone(&self.root.settings.reception);
                let region = listing.region()?;
                let member = ListingMember::new(start.group.number, region, reception, notify);
                self.start_joining(&start, member)
            }
            (None, None) => Err("no fabric is started".into()),
        }
    }

    fn send_ranges(&mut self, number: u64, ranges: &Ranges) -> Result<(), Error> {
        match (self.groups.get(&number), &self.copy, &mut self.links) {
            (Some(group), Some(HashedCopy { copy, .. }), Some(links)) => {
                links.send(group, copy, ranges, self.root.events.clone())
            }
            (Some(group), Some(HashedCopy { copy, .. }), None) => {
                send_ranges(group, &copy.region, ranges)
            }
            _ => Ok(()),
        }
    }

    fn read_ranges(&mut self, number: u64, ranges: &Ranges) -> Result<(), Error> {
        match (self.groups.get(&number), &self.copy, &mut self.reading) {
            (Some(group), Some(HashedCopy { copy, .. }), Some(reading)) => {
                reading.read(group, copy, ranges, self.root.events.clone())
            }
            _ => Ok(()),
        }
    }

    fn await_close(&mut self, number: u64) {
        let Some(group) = self.groups.get(&number) else { return };
        match (&mut self.links, &self.copy) {
            (Some(links), Some(HashedCopy { copy, .. })) => {
                let (events, reception) = (&self.root.events, &self.root.settings.reception);
                if let Err(error) = links.receive(group, copy, events.clone(), reception) {
                    group.abort(&error.to_string());
                }
            }
            // A group that has failed already reports that by an event.
            _ => drop(group.start_close()),
        }
    }

    fn abort(&mut self, number: u64, reason: &str) {
        if let Some(group) = self.groups.get(&number) {
            group.abort(reason);
            self.links.iter().for_each(|links| links.leave(number));
        }
    }

    fn announce(&mut self, _message: StreamMessage) -> Result<(), ReceiveError> {
        Err(ReceiveError::System("the root announced a message of a stream".into()))
    }

    fn add_chunks(&mut self, digests: ChunkDigests) -> Result<(), ReceiveError> {
        let chunking = Chunking::of_links(self.offer.manifest.bytes);
        match &self.links {
            Some(links) => links.add_digests(chunking, digests),
            None => Err(ReceiveError::System(UNEXPECTED_CHUNKS.into())),
        }
    }

    fn written_digest(&self) -> Option<blake3::Hash> {
        None
    }

    fn store(&mut self, proof: &Verified) -> Result<(), ReceiveError> {
        self.target = Some(self.take_target()?.store(proof)?);
        Ok(())
    }

    fn publish(&mut self, proof: &Verified) -> Result<Option<bool>, ReceiveError> {
        self.root.settings.reception.verified(proof.digest());
        self.end_groups();
        let target = self.take_target()?;
        let (published, path) = (target.to_be_read(), target.path().to_owned());
        let was_there = target.publish(proof)?;
        self.root.settings.reception.published(path);
        match self.root.settings.shares() {
            // Not able to share is no failure.
            Some(_) => {
                self.share(&published).unwrap_or_else(|error| tracing::warn!(%error, "sharing"))
            }
            None => self.context = None,
        }
        Ok(Some(was_there))
    }

    fn peak_resident_bytes(&self) -> Option<u64> {
        peak_resident_bytes()
    }
}
