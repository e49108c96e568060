//! What a receiver's session wants done, done: its target, its fabric, groups.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    thread,
};

use rdmc::{Context, Error, Fabric, Group};

use super::{
    error::ReceiveError,
    membership::{Copy, Member},
    root_link::{Event, RootLink},
    session::Stage,
};
use crate::{
    Target, TargetError, Verified,
    claim::Owner,
    hash::{Besides, PrefixHasher},
    leftover::Leftover,
    messages::{Offer, Start, ToRoot, WaitedFor},
    ranges::Ranges,
    resident::peak_resident_bytes,
    sending::send_parts,
};

pub(super) struct Scene<'a> {
    root: &'a RootLink<'a>,
    target: Option<Target>,
    /// The source has holes, and so has the copy.
    makes_holes: bool,
    /// Once the root has chosen.
    context: Option<Arc<Context>>,
    /// Once it is known what is right of it.
    copy: Option<Following>,
    /// Groups that stand.
    groups: BTreeMap<u64, Group>,
}

/// The copy while it grows, with whoever hashes what has come.
struct Following {
    copy: Copy,
    _hasher: PrefixHasher,
}

impl<'a> Scene<'a> {
    pub(super) fn new(root: &'a RootLink<'a>) -> Self {
        Self {
            root,
            target: None,
            makes_holes: false,
            context: None,
            copy: None,
            groups: BTreeMap::new(),
        }
    }

    /// Where the copy goes.
    pub(super) fn path(&self) -> Option<PathBuf> {
        self.target.as_ref().map(|target| target.path().to_owned())
    }

    /// Tells the root whom this receiver has waited for in the groups that are under way.
    pub(super) fn tell_waiting(&self) -> Result<(), ReceiveError> {
        let Some(context) = &self.context else { return Ok(()) };
        // A context that is closed has failed its groups, which is told anyway.
        for (round, waited) in context.waited().unwrap_or_default() {
            let waited = waited.into_iter().map(WaitedFor::from).collect();
            self.root.tell(&ToRoot::Waited { round, waited })?;
        }
        Ok(())
    }

    /// Ends all groups, and keeps what has come for a later session, or removes it.
    pub(super) fn close(mut self, keep: bool) {
        self.end_all();
        if let Some(target) = self.target.filter(|_| keep) {
            target.keep();
        }
    }

    /// Nobody is to touch the target any more.
    fn end_all(&mut self) {
        self.context = None;
        self.groups.clear();
        self.copy = None;
    }

    fn target(&mut self) -> Result<&mut Target, ReceiveError> {
        self.target.as_mut().ok_or_else(|| ReceiveError::System("there is no target".into()))
    }

    /// What it means that reading or copying has ended early.
    fn interrupted_or(&self, error: TargetError) -> ReceiveError {
        match self.root.settings.stop.load(Ordering::Relaxed) {
            true => ReceiveError::Stopped,
            false => error.into(),
        }
    }
}

impl Stage for Scene<'_> {
    type Group = Group;

    fn stands(&mut self, number: u64, group: Group) {
        self.groups.insert(number, group);
    }

    fn ended(&mut self, number: u64) {
        self.groups.remove(&number);
    }

    fn let_go(&mut self, _number: u64, _group: Group) {
        // Dropping it does that.
    }

    fn tell(&mut self, message: &ToRoot) -> Result<(), Error> {
        self.root.control.send(message)
    }

    fn prepare(&mut self, offer: &Offer) -> Result<Option<Leftover>, ReceiveError> {
        self.root.check_size(offer.manifest.bytes)?;
        self.makes_holes = offer.has_holes;
        let settings = self.root.settings;
        let place = settings.placement.place(&offer.destination)?;
        let owner = Owner::here(&offer.terms.secret, &settings.host);
        let target = Target::prepare(place, offer.manifest.clone(), &owner, &offer.probe)?;
        let leftover = self.target.insert(target).leftover(&settings.stop);
        leftover.map_err(|error| self.interrupted_or(error))
    }

    fn fabrics(&self) -> Vec<String> {
        Fabric::candidates().iter().map(Fabric::name).collect()
    }

    fn start_fabric(&mut self, offer: &Offer, fabric: &str) -> Result<u16, ReceiveError> {
        let context = Arc::new(self.root.start_context(fabric, &offer.terms)?);
        let port = context.address().port();
        self.context = Some(context);
        Ok(port)
    }

    fn start_copy(&mut self, has: &Ranges) -> Result<bool, ReceiveError> {
        let stop = Arc::clone(&self.root.settings.stop);
        let begun = self.target()?.begin(has, &stop);
        begun.map_err(|error| self.interrupted_or(error))?;
        let (events, bytes) = (self.root.events.clone(), Arc::clone(&self.root.received_bytes));
        let worked = Arc::clone(&self.root.worked);
        let besides = Besides { worked, makes_holes: self.makes_holes };
        let target = self.target()?;
        let hashed = move |digest| drop(events.send(Event::OwnDigest(digest)));
        let (file, length) = (target.file()?, target.manifest().bytes);
        let (hasher, in_place) = PrefixHasher::start(file, length, besides, hashed)
            .map_err(|error| ReceiveError::System(format!("cannot start a thread: {error}")))?;
        let copy = Copy { region: target.region(), has: Arc::default(), bytes, in_place };
        let is_whole = copy.add_all(has);
        self.copy = Some(Following { copy, _hasher: hasher });
        Ok(is_whole)
    }

    fn has(&self) -> Ranges {
        self.copy.as_ref().map(|following| following.copy.has()).unwrap_or_default()
    }

    /// Joins on a thread that ends by the context's own deadline for that.
    fn join(&mut self, start: Start) -> Result<(), String> {
        let (Some(context), Some(following)) = (self.context.clone(), &self.copy) else {
            return Err("no fabric is started".into());
        };
        let mut settings = start.group_settings().map_err(|error| error.to_string())?;
        settings.report_blocks = true;
        let (number, events) = (start.round, self.root.events.clone());
        let news = events.clone();
        let tell = move |what| drop(news.send(Event::Group(what)));
        let member = Member::new(&start, following.copy.clone(), tell);
        let join = move || {
            let joined = context.create_group_with(settings, member);
            // A session that has ended wants to hear no more.
            let _ = events.send(Event::Joined(number, joined));
        };
        thread::Builder::new()
            .name("rdmc-join".into())
            .spawn(join)
            .map(drop)
            .map_err(|error| format!("cannot start a thread: {error}"))
    }

    fn send(&mut self, number: u64, ranges: &Ranges) -> Result<(), Error> {
        match (self.groups.get(&number), &self.copy) {
            (Some(group), Some(Following { copy, .. })) => send_parts(group, &copy.region, ranges),
            _ => Ok(()),
        }
    }

    fn await_close(&mut self, number: u64) {
        if let Some(group) = self.groups.get(&number) {
            // A group that has failed already says so itself.
            let _ = group.start_close();
        }
    }

    fn abort(&mut self, number: u64, reason: &str) {
        if let Some(group) = self.groups.get(&number) {
            group.abort(reason);
        }
    }

    fn publish(&mut self, proof: &Verified) -> Result<bool, ReceiveError> {
        self.end_all();
        match self.target.take() {
            Some(target) => Ok(target.publish(proof)?),
            None => Err(ReceiveError::System("there is no target".into())),
        }
    }

    fn peak_resident_bytes(&self) -> Option<u64> {
        peak_resident_bytes()
    }
}
