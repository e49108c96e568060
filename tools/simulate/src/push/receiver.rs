//! A receiver: its session, and the simulated effects of its decisions.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, mpsc},
};

use files::{
    Changes, Manifest, TargetError, Verified,
    machines::{
        ChunkDigests, Copy, CopyDigest, Deferred, FAILURE_DEADLINE, Introduction, ListingComes,
        Offer, Ranges, ReceiverEffects, ReceiverEvent, ReceiverMachine, Start, StreamMessage,
        StreamOffer, Terms, ToReceiver, ToRoot, TreeOffer, WaitedFor, Wanted, first, handle,
    },
    receiver::ReceiveError,
};
use rdmc::{Error, Region, Secret};

use super::{
    disk::Opened,
    line::{Line, Way, Word},
    process::{Note, Receiver, address},
    scenario::HostFaults,
    settings::name,
    storage::{bytes_of, stored},
    world::{Due, PROGRESS_NS, SECOND_NS, World},
};

/// How long the root may take to read a last message.
const LINGER_NS: u64 = 3 * SECOND_NS;
/// Why a receiver ends whose disk takes no more.
const DISK_FAULT: &str = "cannot write the copy: No space left on device (os error 28)";
/// The delay before reading is tried again.
const AGAIN_NS: u64 = SECOND_NS / 1_000;
/// A listing has several parts.
const LISTING_PART_BYTES: usize = 8_000;

impl World<'_> {
    /// Starts a receiver, which connects to the root.
    pub(super) fn start_receiver(&mut self, host: usize, start: u32) {
        let (now_ns, root) = (self.now_ns(), self.root.process);
        if self.root.is_closed || self.processes[root].is_dead() {
            return;
        }
        if self.scenario.hosts[host].is_absent && self.facts.pushes == 1 {
            if self.scenario.hosts[host].joins {
                return;
            }
            return self.note(root, Note::NotStarted { host, start });
        }
        if self.is_first() && self.push_ns() < self.scenario.hosts[host].faults.absent_ns {
            return self.note(root, Note::NotStarted { host, start });
        }
        let held_ns = self.machines[host + 1].held_until_ns.max(self.machines[0].held_until_ns);
        let until_ns = held_ns.max(self.cut_between_ns(0, host + 1));
        if until_ns > now_ns {
            // The process that starts it is delayed.
            return self.plan(until_ns, Due::Start { host, start });
        }
        let line = self.lines.len();
        let index =
            self.add_process(host + 1, Some(Receiver { host, line, ..Receiver::default() }));
        self.lines.push(Line::new(root, index, host));
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        let (host_name, names, token) = (name(host), Vec::new(), None);
        let shares = self.scenario.hosts[host].shares_ns.is_some();
        let wants = self.scenario.serves.then(|| Wanted::Object { path: "object".into(), shares });
        let hello = ToRoot::Hello(Introduction { host: host_name, names, address, token, wants });
        self.send_word(line, Way::ToRoot, Word::ToRoot(hello));
        self.plan(now_ns + PROGRESS_NS, Due::Progress(index));
        let fails_ns = self.scenario.hosts[host].faults.disk_fails_ns;
        if let Some(fails_ns) = fails_ns.filter(|_| self.is_first()) {
            self.plan(now_ns + fails_ns, Due::DiskFails(index));
        }
    }

    /// Lets all groups of a receiver fail that write into its copy.
    pub(super) fn disk_fails(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let (Some(engine), Some(receiver)) = (&mut process.engine, &mut process.receiver) else {
            return;
        };
        receiver.has_failed_disk = true;
        let groups: Vec<u64> = receiver.members.keys().copied().collect();
        for group in groups {
            // One that has ended reports that itself.
            let _ = engine.abort(group, DISK_FAULT);
        }
        self.look(index);
    }

    /// Sends the first message to a receiver.
    pub(super) fn offer(&mut self, line: usize, relays_listing: bool) {
        let host = self.lines[line].host;
        let manifest =
            Manifest { name: "object".into(), bytes: self.scenario.bytes, mode: 0, modified_ns: 0 };
        let terms = Terms {
            join_timeout_ms: 15_000,
            ports: None,
            root: SocketAddr::from(([127, 0, 0, 1], 1)),
            streams: 1,
            completion: String::new(),
            protection: String::new(),
            failure_deadline_ms: FAILURE_DEADLINE.as_millis() as u32,
            rate_max: None,
            secret: Secret::from_bytes([7; 32]),
        };
        if self.scenario.stream.is_some() {
            let (destination, mode, command) = (name(host), None, None);
            let offer = ToReceiver::Stream(StreamOffer { destination, mode, command, terms });
            return self.send_word(line, Way::ToReceiver, Word::ToReceiver(offer));
        }
        let (destination, probe, has_holes) = (name(host), [0; 32], false);
        let (kept, dry_run, remote) = (None, false, None);
        let listing = self.scenario.listing();
        let tree = (!listing.is_empty()).then(|| TreeOffer {
            listing_bytes: listing.len() as u64,
            relayed: relays_listing.then(|| *blake3::hash(&listing).as_bytes()),
            ..TreeOffer::default()
        });
        let by_links = self.scenario.serves;
        let offer = Offer {
            manifest,
            tree,
            kept,
            destination,
            probe,
            has_holes,
            dry_run,
            by_links,
            remote,
            terms,
        };
        self.send_word(line, Way::ToReceiver, Word::ToReceiver(ToReceiver::Offer(Box::new(offer))));
        if !relays_listing {
            self.send_listing(line);
        }
    }

    /// Sends the listing of a tree to a receiver.
    pub(super) fn send_listing(&mut self, line: usize) {
        for part in self.scenario.listing().chunks(LISTING_PART_BYTES) {
            let part = ToReceiver::Listing { part: part.to_vec() };
            self.send_word(line, Way::ToReceiver, Word::ToReceiver(part));
        }
    }

    /// Reports once a second which members it has waited for.
    pub(super) fn report_waited(&mut self, index: usize) {
        let now_ns = self.now_ns();
        let process = &mut self.processes[index];
        let (Some(engine), Some(receiver)) = (&mut process.engine, &mut process.receiver) else {
            return;
        };
        if now_ns < receiver.next_waited_report_ns {
            return;
        }
        receiver.next_waited_report_ns = now_ns + SECOND_NS;
        let line = receiver.line;
        for (group, waited) in engine.waited() {
            let waited = waited.into_iter().map(WaitedFor::from).collect();
            self.send_word(line, Way::ToRoot, Word::ToRoot(ToRoot::Waited { group, waited }));
        }
    }

    pub(super) fn handle_receiver(&mut self, index: usize) {
        while self.processes[index].busy_until_ns <= self.now_ns() {
            let Some(note) = self.processes[index].inbox.pop_front() else { break };
            let is_over = self.processes[index].is_over;
            let Some(receiver) = &mut self.processes[index].receiver else { return };
            if receiver.is_leaving {
                let is_last = matches!(
                    note,
                    Note::FromRoot(Err(_) | Ok(ToReceiver::Finish | ToReceiver::Abort { .. }))
                );
                if is_last {
                    self.leave(index);
                }
            } else if !is_over {
                let mut session = receiver.session.take();
                let outcome = AtHost { world: self, index }.handle_note(&mut session, note);
                if let Some(receiver) = &mut self.processes[index].receiver {
                    receiver.session = session;
                }
                match outcome {
                    Ok(false) => {}
                    Ok(true) => self.end_or_share(index),
                    // The copy is published.
                    Err(_) if self.is_sharing(index) => self.end_session(index, None),
                    Err(error) => self.end_session(index, Some(&error)),
                }
            }
        }
        self.look(index);
    }

    fn is_sharing(&self, index: usize) -> bool {
        self.processes[index].receiver.as_ref().is_some_and(|receiver| receiver.is_sharing)
    }

    /// The copy is published.
    fn end_or_share(&mut self, index: usize) {
        let Some(shares_ns) = self.host_of(index).shares_ns else {
            return self.end_session(index, None);
        };
        self.plan(self.now_ns() + shares_ns, Due::Shared(index));
        if let Some(receiver) = &mut self.processes[index].receiver {
            receiver.is_sharing = true;
        }
    }

    /// A host has sent its copy to others for long enough.
    pub(super) fn stop_sharing(&mut self, index: usize) {
        if self.processes[index].is_over || !self.is_sharing(index) {
            return;
        }
        if let Some(receiver) = &self.processes[index].receiver {
            self.send_word(receiver.line, Way::ToRoot, Word::ToRoot(ToRoot::Leaving));
        }
    }

    /// Ends the session: sends a last message, and releases all resources.
    pub(super) fn end_session(&mut self, index: usize, error: Option<&ReceiveError>) {
        let host = self.processes[index].machine - 1;
        self.remark(|| match error {
            Some(error) => format!("host {host}, process {index}: {error}"),
            None => format!("host {host}, process {index}: published"),
        });
        let Some(receiver) = &mut self.processes[index].receiver else { return };
        let line = receiver.line;
        receiver.keeps = Some(error.is_some_and(ReceiveError::keeps_partial));
        let last_message = error.and_then(ReceiveError::last_message);
        // The root knows that one that shares has published.
        let must_linger = error.is_none() && !receiver.is_sharing;
        receiver.is_leaving = must_linger || last_message.is_some();
        let is_leaving = receiver.is_leaving;
        self.close_engine(index);
        if let Some(word) = last_message {
            self.send_word(line, Way::ToRoot, Word::ToRoot(word));
        }
        if is_leaving {
            self.plan(self.now_ns() + LINGER_NS, Due::Linger(index));
        } else {
            self.close_end(line, Way::ToRoot);
        }
    }

    /// Ends a process once its last message has arrived, or the time for it has passed.
    pub(super) fn leave(&mut self, index: usize) {
        let Some(receiver) = &mut self.processes[index].receiver else {
            if index == self.root.process && !self.root.is_closed {
                self.close_root();
            }
            return;
        };
        if std::mem::take(&mut receiver.is_leaving) {
            let line = receiver.line;
            self.close_end(line, Way::ToRoot);
        }
    }

    /// Keeps or removes a target of an ended session once no group writes it.
    pub(super) fn settle_disk(&mut self, index: usize) {
        let process = &mut self.processes[index];
        let has_groups = process.engine.as_ref().is_some_and(|it| it.groups().next().is_some())
            || process.is_storing();
        let machine = process.machine;
        let Some(receiver) = &mut process.receiver else { return };
        let Some(keeps) = receiver.keeps.filter(|_| !has_groups) else { return };
        receiver.keeps = None;
        receiver.copy = None;
        let region = receiver.region.take();
        let disk = &mut self.machines[machine].disk;
        if disk.owner == Some(index) {
            disk.let_go(region.filter(|_| keeps).map(|region| contents(&region)));
        }
    }

    /// Processes the end of hashing of the bytes in place.
    pub(super) fn hashed(&mut self, index: usize) {
        let Some(receiver) = &self.processes[index].receiver else { return };
        let (Some(region), false) = (&receiver.region, self.processes[index].is_over) else {
            return;
        };
        match bytes_of(region) {
            Ok(copy) => {
                let own = match self.is_first() && self.host_of(index).faults.differs {
                    true => blake3::hash(b"another copy"),
                    false if self.scenario.files.is_empty() => blake3::hash(&copy),
                    false => {
                        let mut digest = CopyDigest::default();
                        let is_new =
                            |&(start, end): &(u64, u64)| !receiver.kept.covers((start, end));
                        for (start, end) in self.scenario.files().filter(is_new) {
                            digest.add(start, &blake3::hash(&copy[start as usize..end as usize]));
                        }
                        digest.finish()
                    }
                };
                let digest = self.planted_digest(own);
                self.note(index, Note::Hashed(digest));
            }
            // Small differences may come again; a file can be read meanwhile, this memory cannot.
            Err(_) => self.plan(self.now_ns() + AGAIN_NS, Due::Hashed(index)),
        }
    }

    /// Returns the ranges of files of a tree that a machine has under their names.
    fn kept_files(&mut self, machine: usize) -> Ranges {
        let (now_ns, source) = (self.now_ns(), Arc::clone(&self.source));
        let Some(there) = self.machines[machine].disk.published(now_ns) else {
            return Ranges::default();
        };
        let is_there = |&(start, end): &(u64, u64)| {
            let range = start as usize..end as usize;
            there[range.clone()] == source[range]
        };
        self.scenario.files().filter(is_there).collect()
    }

    /// Returns the parts of a file that were ever written, with their digests.
    fn partial(&self, file: &[u8]) -> Option<ChunkDigests> {
        let written = |position: u64| {
            let mut bytes = file.iter().zip(&self.source[..]).skip(position as usize);
            let ahead = bytes.position(|(byte, own)| *byte != !own);
            Ok(ahead.map(|ahead| position + ahead as u64))
        };
        let digest = |(start, end)| Ok(blake3::hash(&file[start as usize..end as usize]));
        ChunkDigests::of_chunks(self.cut(), written, digest).unwrap_or_default()
    }
}

/// Returns the bytes of a region; nothing while it is leased for writing, which no check accepts.
pub(super) fn contents(region: &Region) -> Vec<u8> {
    bytes_of(region).unwrap_or_default()
}

/// A receiver's surroundings, for its session.
struct AtHost<'w, 'a> {
    world: &'w mut World<'a>,
    index: usize,
}

impl AtHost<'_, '_> {
    /// Returns `true` once the copy is published.
    fn handle_note(
        &mut self,
        session: &mut Option<ReceiverMachine>,
        note: Note,
    ) -> Result<bool, ReceiveError> {
        let event = match note {
            Note::FromRoot(Ok(message)) => ReceiverEvent::Root(Ok(message)),
            Note::FromRoot(Err(how)) => {
                let address = address(0, self.world.root.process);
                ReceiverEvent::Root(Err(Error::Peer { address, cause: how.into() }))
            }
            Note::Joined(group, outcome) => ReceiverEvent::Joined(group, outcome),
            Note::News(news) => ReceiverEvent::Group(news),
            Note::Hashed(digest) => ReceiverEvent::OwnDigest(Ok(digest)),
            Note::ReadUrl(digests) => ReceiverEvent::Read(digests),
            Note::UrlFailed => ReceiverEvent::Failed(ReceiveError::Url("cannot be read".into())),
            // Notes for the root only.
            _ => return Ok(false),
        };
        if let Some(session) = session {
            // The root needs a host that shares no more.
            if let ReceiverEvent::Root(Ok(ToReceiver::Finish)) = event
                && self.receiver().is_sharing
            {
                let address = address(0, self.world.root.process);
                return Err(ReceiveError::Root(Error::Peer { address, cause: "finished".into() }));
            }
            return handle(session, self, event);
        }
        match first(event)? {
            Some(ToReceiver::Offer(offer)) => {
                let comes = match offer.tree {
                    None => ListingComes::Not,
                    Some(TreeOffer { relayed: None, .. }) => ListingComes::Directly,
                    Some(_) => ListingComes::InGroup,
                };
                *session = Some(ReceiverMachine::begin(self, offer.manifest.bytes, comes)?);
            }
            Some(ToReceiver::Stream(_)) => {
                *session = Some(ReceiverMachine::begin(self, u64::MAX, ListingComes::Not)?);
            }
            _ => {}
        }
        Ok(false)
    }

    fn is_stream(&self) -> bool {
        self.world.scenario.stream.is_some()
    }

    fn receiver(&mut self) -> &mut Receiver {
        self.world.processes[self.index].receiver.as_mut().expect("it is one")
    }

    /// Adds a host's irregular delay, in the first push.
    fn work_by_faults(&mut self, for_ns: impl Fn(&HostFaults) -> u64) {
        if self.world.is_first() {
            self.work(for_ns(&self.world.host_of(self.index).faults));
        }
    }

    fn forget_deferred(&mut self, group: u64) {
        self.receiver().copy.iter().for_each(|copy| copy.deferred.forget(group));
    }

    /// Blocks the decision thread for this time.
    fn work(&mut self, for_ns: u64) {
        let now_ns = self.world.now_ns();
        let busy = &mut self.world.processes[self.index].busy_until_ns;
        *busy = now_ns.max(*busy) + for_ns;
    }
}

impl ReceiverEffects for AtHost<'_, '_> {
    type Group = ();

    fn add_group(&mut self, group: u64, (): ()) {
        self.world.processes[self.index].standing.insert(group);
    }

    fn discard_group(&mut self, group: u64, (): ()) {
        self.forget_deferred(group);
        self.world.abort(self.index, group, "its application dropped the group");
    }

    fn remove_group(&mut self, group: u64) {
        self.forget_deferred(group);
        self.world.processes[self.index].standing.remove(&group);
    }

    fn send_message(&mut self, message: &ToRoot) -> Result<(), Error> {
        let line = self.receiver().line;
        if self.world.lines[line].pipe(Way::ToRoot).is_shut {
            let address = address(0, self.world.root.process);
            return Err(Error::Peer { address, cause: "connection reset".into() });
        }
        let is_lost = matches!(message, ToRoot::GroupFailed { .. })
            && self.world.is_first()
            && self.world.host_of(self.index).faults.is_mute;
        if !is_lost {
            self.world.send_word(line, Way::ToRoot, Word::ToRoot(message.clone()));
        }
        Ok(())
    }

    fn add_listing(&mut self, part: &[u8]) -> Result<bool, ReceiveError> {
        let wanted = self.world.scenario.listing();
        let has = &mut self.receiver().listing.0;
        has.extend_from_slice(part);
        Ok(*has == wanted)
    }

    fn take_relayed_listing(&mut self) -> bool {
        let wanted = self.world.scenario.listing();
        let listing = &mut self.receiver().listing;
        let came = listing.1.take().map(|region| contents(&region)).unwrap_or_default();
        if came == wanted {
            listing.0 = came;
        }
        listing.0 == wanted
    }

    fn prepare(&mut self) -> Result<(Ranges, Option<ChunkDigests>), ReceiveError> {
        let (index, machine) = (self.index, self.world.processes[self.index].machine);
        let listing = self.world.scenario.listing();
        if self.receiver().listing.0 != listing {
            self.world.facts.violated(format!("machine {machine} prepares without the listing"));
        }
        self.work(self.world.host_of(index).disk_ns);
        self.work_by_faults(|faults| faults.prepare_ns);
        if self.is_stream() {
            return Ok((Ranges::default(), None));
        }
        let (now_ns, source) = (self.world.now_ns(), Arc::clone(&self.world.source));
        let disk = &mut self.world.machines[machine].disk;
        if disk.is_busy(now_ns) {
            let path = PathBuf::from(name(machine - 1));
            return Err(TargetError::Busy { path, owner: String::new() }.into());
        }
        // Bytes that were never written are poisoned: each differs from the right one.
        let kept = self.world.kept_files(machine);
        let disk = &mut self.world.machines[machine].disk;
        let Opened { mut bytes, is_left } =
            disk.open(index, || source.iter().map(|&byte| !byte).collect());
        for (start, end) in kept.iter() {
            let range = start as usize..end as usize;
            bytes[range.clone()].copy_from_slice(&source[range]);
        }
        let partial = if is_left { self.world.partial(&bytes) } else { None };
        self.receiver().region = Some(match self.world.host_of(index).store_ns {
            0 => Region::from_vec(bytes),
            _ => stored(bytes),
        });
        Ok((kept, partial))
    }

    fn changes(&self) -> Changes {
        Changes::default()
    }

    fn fabrics(&self) -> Vec<String> {
        vec!["tcp".into()]
    }

    fn start_fabric(&mut self, fabric: &str) -> Result<u16, ReceiveError> {
        if fabric != "tcp" {
            self.world.facts.violated(format!("the root has chosen {fabric}"));
        }
        self.work_by_faults(|faults| faults.fabric_ns);
        let machine = self.world.processes[self.index].machine;
        Ok(address(machine, self.index).port())
    }

    fn start_copy(&mut self, has: &Ranges) -> Result<bool, ReceiveError> {
        let (sender, in_place) = mpsc::channel();
        let receiver = self.receiver();
        receiver.kept = has.clone();
        let Some(region) = receiver.region.clone() else { return Ok(false) };
        let (has_none, bytes) = (Default::default(), Default::default());
        let deferred = Deferred::default();
        let copy = Copy { region, has: has_none, bytes, in_place: sender, deferred };
        let is_whole = copy.add_all(has);
        receiver.known.extend(in_place.try_iter().map(|(start, length)| (start, start + length)));
        (receiver.copy, receiver.in_place) = (Some(copy), Some(in_place));
        self.world.start_hashing(self.index);
        Ok(is_whole)
    }

    fn has(&self) -> Ranges {
        let receiver = self.world.processes[self.index].receiver.as_ref();
        if self.is_stream() {
            let written = receiver.map_or(0, |receiver| receiver.stream.written.len());
            return [(0, written as u64)].into_iter().collect();
        }
        let copy = receiver.and_then(|receiver| receiver.copy.as_ref());
        copy.map(Copy::has).unwrap_or_default()
    }

    fn check_storage(&self) -> Result<(), ReceiveError> {
        let receiver = self.world.processes[self.index].receiver.as_ref();
        match receiver.is_some_and(|receiver| receiver.has_failed_disk) {
            true => Err(ReceiveError::Storage(DISK_FAULT.into())),
            false => Ok(()),
        }
    }

    fn join(&mut self, start: Start) -> Result<(), String> {
        if start.ranges.is_empty() && !self.is_stream() {
            let bytes = self.world.scenario.listing_bytes as usize;
            self.receiver().listing.1 = Some(Region::zeroed(bytes));
        }
        self.world.begin_join(self.index, start)
    }

    fn send_ranges(&mut self, group: u64, ranges: &Ranges) -> Result<(), Error> {
        if self.world.scenario.serves {
            self.world.send_in_link(self.index, group, ranges);
            return Ok(());
        }
        let has = self.has();
        if !ranges.iter().all(|range| has.covers(range)) {
            let machine = self.world.processes[self.index].machine;
            self.world.facts.violated(format!("machine {machine} is to send what it lacks"));
        }
        let Some(region) = self.receiver().region.clone() else { return Ok(()) };
        self.world.send_parts(self.index, group, &region, ranges)
    }

    fn read_ranges(&mut self, group: u64, ranges: &Ranges) -> Result<(), Error> {
        self.world.read_ranges(self.index, group, ranges);
        Ok(())
    }

    fn await_close(&mut self, group: u64) {
        if self.world.scenario.serves {
            return self.world.receive_in_link(self.index, group);
        }
        if let Some(engine) = &mut self.world.processes[self.index].engine {
            // A group that has ended reports that itself.
            let _ = engine.close(group);
        }
    }

    fn abort(&mut self, group: u64, reason: &str) {
        self.world.abort(self.index, group, reason);
        self.world.leave_link(self.index, group, reason);
        if self.is_stream() {
            self.world.leave_stream_group(self.index, group, reason);
        }
    }

    fn announce(&mut self, message: StreamMessage) -> Result<(), ReceiveError> {
        self.world.announce(self.index, message).map_err(ReceiveError::System)
    }

    fn add_chunks(&mut self, ChunkDigests(digests): ChunkDigests) -> Result<(), ReceiveError> {
        self.receiver().digests.extend(digests);
        self.world.take_chunks(self.index);
        Ok(())
    }

    fn written_digest(&self) -> Option<blake3::Hash> {
        let receiver = self.world.processes[self.index].receiver.as_ref();
        receiver.filter(|_| self.is_stream()).map(|receiver| receiver.stream.digest())
    }

    fn store(&mut self, _proof: &Verified) -> Result<(), ReceiveError> {
        let (index, machine) = (self.index, self.world.processes[self.index].machine);
        self.work(self.world.host_of(index).disk_ns);
        let Some(region) = self.receiver().region.clone() else { return Ok(()) };
        match bytes_of(&region) {
            Ok(copy) if copy[..] == self.world.source[..] => {
                self.world.facts.hosts[machine - 1].has_stored = true;
                self.world.machines[machine].disk.store(copy);
            }
            _ => self.world.facts.violated(format!("machine {machine} stores something else")),
        }
        Ok(())
    }

    fn publish(&mut self, _proof: &Verified) -> Result<Option<bool>, ReceiveError> {
        let (index, machine) = (self.index, self.world.processes[self.index].machine);
        let have_stored = self.world.facts.hosts.iter().all(|host| host.has_stored);
        if self.world.scenario.all_or_none && !have_stored {
            self.world.facts.violated(format!("machine {machine} publishes, and others may not"));
        }
        self.work(self.world.host_of(index).disk_ns);
        match self.world.host_of(index).shares_ns {
            Some(_) => self.world.end_groups(index),
            None => self.world.close_engine(index),
        }
        if self.is_stream() {
            self.world.publish_stream(index);
            return Ok(Some(false));
        }
        let Some(region) = self.receiver().region.clone() else { return Ok(Some(false)) };
        match bytes_of(&region) {
            Err(error) => self.world.facts.violated(format!("machine {machine}: {error}")),
            Ok(copy) if copy[..] != self.world.source[..] => {
                self.world.facts.violated(format!("machine {machine} publishes something else"));
            }
            // What was there no more when its copy was verified.
            Ok(_)
                if self.world.facts.hosts[machine - 1]
                    .verified_ns
                    .is_none_or(|at_ns| self.world.is_replaced(at_ns)) =>
            {
                self.world.facts.violated(format!(
                    "machine {machine} publishes what the source was before it was replaced"
                ));
            }
            Ok(copy) => {
                let until_ns = self.world.processes[index].busy_until_ns;
                let since_ns = until_ns - self.world.host_of(index).disk_ns;
                let syncs = self.world.syncs();
                let disk = &mut self.world.machines[machine].disk;
                disk.publish(copy, since_ns, until_ns, syncs);
                let now_ns = self.world.push_ns();
                let facts = &mut self.world.facts.hosts[machine - 1];
                (facts.has_published, facts.published_ns) = (true, Some(now_ns));
            }
        }
        Ok(Some(false))
    }

    fn peak_resident_bytes(&self) -> Option<u64> {
        None
    }
}
