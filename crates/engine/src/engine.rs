//! All groups of one context over one transport, without threads.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use relay::Waited;
use transport::{Completion, EndpointId, PostError, Region, Transport, Waker};

use crate::{
    counters::Counters,
    error::{Error, check_range},
    event::Event,
    group::Group,
    jobs::{AtOnce, Disks, Done},
    offload::Offload,
    settings::GroupSettings,
};

/// The groups of one context over one transport. One thread at a time calls it; only
/// [`Engine::progress`] waits.
pub struct Engine<T: Transport> {
    transport: T,
    groups: BTreeMap<u64, Group>,
    /// The group and the neighbour's rank of each endpoint.
    neighbours: HashMap<EndpointId, (u64, u32)>,
    /// Endpoints of groups that have ended that are not closed yet: the last words on them may not
    /// have arrived.
    leaving: HashSet<EndpointId>,
    completions: Vec<Completion>,
    /// Reads and writes messages that are in files.
    disks: Arc<dyn Disks>,
    done: Vec<Done>,
    groups_made: u64,
    /// Groups with calls or completions since events were last taken. With hundreds of groups most
    /// are idle, and cost nothing.
    touched: BTreeSet<u64>,
    /// No group can stall before this time.
    next_check: Option<Duration>,
    /// Of the groups that have ended.
    counters: Counters,
}

impl<T: Transport> Engine<T> {
    /// Makes an engine without groups. Blocks of messages in files are read and written within the
    /// calls of this engine.
    pub fn new(transport: T) -> Self {
        Self::with_disks(transport, Arc::new(AtOnce::default()))
    }

    /// Makes an engine whose files `disks` reads and writes; it must wake the transport when a job
    /// is done.
    pub fn with_disks(transport: T, disks: Arc<dyn Disks>) -> Self {
        Self {
            transport,
            groups: BTreeMap::new(),
            neighbours: HashMap::new(),
            leaving: HashSet::new(),
            completions: Vec::new(),
            disks,
            done: Vec::new(),
            groups_made: 0,
            touched: BTreeSet::new(),
            next_check: None,
            counters: Counters::default(),
        }
    }

    /// Prepares memory for posts: see [`Transport::register`].
    pub fn register(&mut self, region: &Region) -> Result<(), PostError> {
        self.transport.register(region)
    }

    /// Starts a group with connected links to each of its neighbours
    /// ([`GroupSettings::neighbours`]).
    ///
    /// Errors: [`Error::NumberInUse`], [`Error::OutOfRange`], [`Error::NoLink`], [`Error::Link`].
    pub fn create(
        &mut self,
        mut settings: GroupSettings,
        links: Vec<(u32, T::Link)>,
    ) -> Result<(), Error> {
        settings.check()?;
        let number = settings.number;
        if self.groups.contains_key(&number) {
            return Err(Error::NumberInUse(number));
        }
        let block_bytes = 1..=self.transport.block_bytes_max();
        check_range("block_bytes", settings.block_bytes, block_bytes)?;
        let offload = Offload::of(&settings, self.transport.triggered().is_some());
        if let Offload::Unavailable(reason) = offload {
            tracing::warn!(target: "rdmc::engine", group = number, reason, "the network does not relay by itself");
        }
        if self.transport.one_sided().is_none() {
            settings.small = None;
        }
        self.groups_made += 1;
        let disks = Arc::clone(&self.disks);
        let now = self.transport.now();
        let mut group = Group::new(settings, offload, now, disks, self.groups_made)?;
        let connected = self.connect(&mut group, links);
        if let Err(error) = connected.and_then(|()| group.expose_ring(&mut self.transport)) {
            group.transfers.peers.close(&mut self.transport);
            self.forget(&group);
            return Err(error);
        }
        group.carry_out(&mut self.transport);
        // The checks of other groups stay as early as they are.
        let check = group.next_check(self.transport.now()).into_iter();
        self.next_check = check.chain(self.next_check).min();
        self.groups.insert(number, group);
        self.touched.insert(number);
        Ok(())
    }

    fn connect(&mut self, group: &mut Group, links: Vec<(u32, T::Link)>) -> Result<(), Error> {
        for (rank, link) in links {
            let endpoint =
                self.transport.open(link).map_err(|error| Error::Link { member: rank, error })?;
            group.transfers.peers.insert(rank, endpoint);
            self.neighbours.insert(endpoint, (group.number(), rank));
        }
        match group.missing_neighbour() {
            Some(missing) => Err(Error::NoLink(missing)),
            None => Ok(()),
        }
    }

    /// Queues a message at the root and returns its number. [`Event::Complete`] or
    /// [`Event::Failed`] returns the region, of which no write lease is granted until then. If a part of
    /// it is in use already, the group fails.
    ///
    /// Errors: this member is not the root, too many blocks, group closed or failed. On an error
    /// nothing is queued.
    pub fn send(&mut self, group: u64, region: Region) -> Result<u64, Error> {
        self.with_group(group, |group, transport| group.send(region, transport.now()))
    }

    /// Provides memory for an [`Event::Incoming`] message, at least as long as the message.
    /// [`Event::Complete`] or [`Event::Failed`] returns the region; no write lease is granted of blocks
    /// that are in place until then. If a part of it is in use when the message needs it, the group fails.
    ///
    /// Errors: [`Error::RegionTooSmall`], [`Error::RegionReadOnly`] (another region may be
    /// provided); the message does not wait for memory.
    pub fn accept(&mut self, group: u64, message: u64, region: Region) -> Result<(), Error> {
        self.with_group(group, |group, transport| group.accept(message, region, transport.now()))
    }

    /// Reports that the application has copied the next message out of its [`crate::Slot`], and has
    /// received it and is done with it: no more events of it follow.
    ///
    /// Errors: the group has ended; the message is in no slot, or earlier ones are not complete.
    pub fn taken(&mut self, group: u64, message: u64) -> Result<(), Error> {
        self.with_group(group, |group, _| group.taken(message))
    }

    /// At the root: asks for [`Event::Delivered`] until this many messages have reached every member.
    ///
    /// Errors: this member is not the root; the group has ended.
    pub fn ask_delivered(&mut self, group: u64, count: u64) -> Result<(), Error> {
        self.with_group(group, |group, _| group.ask_delivered(count))
    }

    /// Starts to close a group. At the root no more messages can be sent; when all are complete
    /// everywhere each member gets [`Event::Closed`]. At other members the call only declares that
    /// this is awaited.
    ///
    /// Errors: the group has ended or is closing already.
    pub fn close(&mut self, group: u64) -> Result<(), Error> {
        self.with_group(group, |group, _| group.ask_to_close())
    }

    /// Makes a group fail at all members; the failure names this member.
    ///
    /// Errors: the group has ended.
    pub fn abort(&mut self, group: u64, detail: &str) -> Result<(), Error> {
        self.with_group(group, |group, transport| {
            group.abort(transport, detail);
            Ok(())
        })
    }

    /// Makes progress in all groups, waits up to `wait` if there is nothing to do, and appends
    /// events. Returns the number of completions.
    pub fn progress(&mut self, wait: Duration, events: &mut Vec<Event>) -> usize {
        let now = self.transport.now();
        let wait = self.next_check.map_or(wait, |check| wait.min(check.saturating_sub(now)));
        let wait = if self.is_due() { Duration::ZERO } else { wait };
        let refused = self.refused();

        let mut completions = std::mem::take(&mut self.completions);
        self.transport.poll(&mut completions, wait);
        let (now, mut count) = (self.transport.now(), completions.len());
        for completion in completions.drain(..) {
            self.route(completion, now);
        }
        self.completions = completions;
        for number in refused {
            if let Some(group) = self.groups.get_mut(&number) {
                group.fail_refused(&mut self.transport);
            }
        }
        count += self.take_done(now);

        if self.next_check.is_some_and(|check| now >= check) {
            for (&number, group) in &mut self.groups {
                group.check_stall(&mut self.transport, now);
                self.touched.insert(number);
            }
            self.plan_check(now);
        }
        let mut again = Vec::new();
        for number in std::mem::take(&mut self.touched) {
            let Some(group) = self.groups.get_mut(&number) else { continue };
            group.take_events(events);
            if group.is_refused() {
                again.push(number);
            }
            let deadline = group.failed_deadline().into_iter();
            self.next_check = deadline.chain(self.next_check).min();
            if group.has_ended()
                && let Some(group) = self.groups.remove(&number)
            {
                self.forget(&group);
                self.counters += group.transfers.counters;
            }
        }
        self.touched.extend(again);
        count
    }

    /// Returns whether [`Engine::progress`] has something to do, whatever the transport reports.
    pub fn is_due(&self) -> bool {
        let has_events = |number| self.groups.get(number).is_some_and(Group::has_events);
        self.touched.iter().any(has_events) || self.disks.has_done()
    }

    /// Returns the groups of which a post was refused before the next poll.
    fn refused(&self) -> Vec<u64> {
        let is_refused = |number: &u64| self.groups.get(number).is_some_and(Group::is_refused);
        self.touched.iter().copied().filter(is_refused).collect()
    }

    /// Processes finished jobs of files; with [`AtOnce`], also jobs that these submit. Returns how
    /// many there were.
    fn take_done(&mut self, now: Duration) -> usize {
        let mut count = 0;
        while self.disks.has_done() {
            let mut done = std::mem::take(&mut self.done);
            self.disks.take_done(&mut done);
            count += done.len();
            for done in done.drain(..) {
                let group = self.groups.get_mut(&done.lane.group);
                let Some(group) =
                    group.filter(|group| group.transfers.staging.jobs.lane() == done.lane)
                else {
                    continue;
                };
                self.touched.insert(done.lane.group);
                group.on_job_done(&mut self.transport, done, now);
            }
            self.done = done;
        }
        count
    }

    /// Stops passing on completions of a group that has ended, in particular to a new group of the
    /// same number.
    fn forget(&mut self, group: &Group) {
        for (_, endpoint) in group.transfers.peers.iter() {
            if self.neighbours.remove(&endpoint).is_some() {
                self.leaving.insert(endpoint);
            }
        }
    }

    /// Returns whether connections of groups that have ended are not closed yet: the last words on
    /// them, such as the cause of a failure, may not have arrived.
    pub fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// Returns when [`Engine::progress`] has to be called at the latest, by the transport's clock,
    /// even if nothing completes; `None` if it need not be.
    pub fn next_deadline(&self) -> Option<Duration> {
        self.next_check
    }

    /// Schedules the next check for stalls of all groups.
    fn plan_check(&mut self, now: Duration) {
        self.next_check = self.groups.values().filter_map(|group| group.next_check(now)).min();
    }

    /// Returns whether the network relays a group's blocks by itself.
    ///
    /// Errors: the group has ended.
    pub fn offload(&self, group: u64) -> Result<Offload, Error> {
        self.groups
            .get(&group)
            .map(|group| group.transfers.offload)
            .ok_or(Error::NoSuchGroup(group))
    }

    /// Returns the counters of all groups together.
    pub fn counters(&self) -> Counters {
        let mut counters = self.counters;
        self.groups.values().for_each(|group| counters += group.transfers.counters);
        counters
    }

    /// Returns how long this member has waited for its neighbours, in each group that has not
    /// ended.
    pub fn waited(&mut self) -> Vec<(u64, Vec<Waited>)> {
        let now = self.transport.now();
        self.groups
            .iter_mut()
            .map(|(&number, group)| (number, group.wait_times.waited(now)))
            .collect()
    }

    /// Returns the numbers of the groups that have not ended.
    pub fn groups(&self) -> impl Iterator<Item = u64> + '_ {
        self.groups.keys().copied()
    }

    /// Returns the numbers of the groups that have begun to end: the root has closed them, as far as this member knows, or
    /// they have failed. A group has closed at some member only if all are here, or have ended.
    pub fn ending(&self) -> impl Iterator<Item = u64> + '_ {
        self.groups.iter().filter(|(_, group)| group.is_ending()).map(|(&number, _)| number)
    }

    /// Returns a function that ends a wait in [`Engine::progress`] from another thread.
    pub fn waker(&self) -> Waker {
        self.transport.waker()
    }

    /// Returns the transport, to be ended. Groups that have not ended are dropped.
    pub fn into_transport(self) -> T {
        self.transport
    }

    /// Returns the transport, for its counters.
    pub fn transport(&self) -> &T {
        &self.transport
    }

    /// Returns the transport, for what it has besides the endpoints of groups.
    pub fn transport_mut(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Drops the transport and all groups, and returns the memory of messages that are not
    /// complete, by group number. For callers that have caught a panic of the engine.
    pub fn into_memory(self) -> HashMap<u64, Vec<(u64, Region)>> {
        // Nothing accesses the memory once the transport is dropped.
        drop(self.transport);
        let memory = |(number, mut group): (u64, Group)| {
            (number, group.transfers.messages.memory.take_all())
        };
        self.groups.into_iter().map(memory).collect()
    }

    fn route(&mut self, completion: Completion, now: Duration) {
        let (endpoint, last) = match &completion {
            Completion::Sent { endpoint, .. }
            | Completion::Arriving { endpoint, .. }
            | Completion::Received { endpoint, .. }
            | Completion::Control { endpoint, .. }
            | Completion::Written { endpoint, .. }
            | Completion::Halted { endpoint, .. }
            | Completion::Cancelled { endpoint, .. } => (*endpoint, false),
            Completion::Broken { endpoint, .. } | Completion::Closed { endpoint } => {
                (*endpoint, true)
            }
            _ => return,
        };
        let Some(&(number, rank)) = self.neighbours.get(&endpoint) else {
            if last {
                self.leaving.remove(&endpoint);
            }
            return;
        };
        if last {
            self.neighbours.remove(&endpoint);
        }
        if let Some(group) = self.groups.get_mut(&number) {
            self.touched.insert(number);
            group.on_completion(&mut self.transport, rank, completion, now);
        }
    }

    fn with_group<R>(
        &mut self,
        number: u64,
        act: impl FnOnce(&mut Group, &mut T) -> Result<R, Error>,
    ) -> Result<R, Error> {
        let group = self.groups.get_mut(&number).ok_or(Error::NoSuchGroup(number))?;
        self.touched.insert(number);
        group.note_progress(self.transport.now());
        let outcome = act(group, &mut self.transport);
        group.carry_out(&mut self.transport);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::{io, sync::Mutex};

    use transport::{Storage, Token};
    use transport_sim::{SimConfig, SimNet};

    use super::*;
    use crate::words::Word;
    use relay::Window;
    use schedule::{Algorithm, Schedule};

    struct Bytes(Mutex<Vec<u8>>);

    impl Storage for Bytes {
        fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
            into.copy_from_slice(&self.0.lock().unwrap()[offset as usize..][..into.len()]);
            Ok(())
        }

        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            self.0.lock().unwrap()[offset as usize..][..bytes.len()].copy_from_slice(bytes);
            Ok(())
        }

        fn name(&self) -> String {
            String::new()
        }
    }

    #[test]
    fn no_more_blocks_are_in_memory_than_the_windows_allow() {
        let network = SimNet::new(SimConfig::IDEAL, 1);
        let mut engines: Vec<_> = (0..3).map(|_| Engine::new(network.member())).collect();
        let ((first, second), (third, fourth)) = (network.connect(0, 1), network.connect(1, 2));
        let links = [vec![(1, first)], vec![(0, second), (2, third)], vec![(1, fourth)]];
        for ((rank, engine), links) in (0..).zip(&mut engines).zip(links) {
            let schedule = Schedule::new(Algorithm::Chain, 3, 0).unwrap();
            let mut settings = GroupSettings::new(1, rank, schedule);
            (settings.block_bytes, settings.small) = (10, None);
            settings.window = Window { receives: 3, sends: 2 };
            engine.create(settings, links).unwrap();
        }
        let disks = [9, 0, 0].map(|byte| Arc::new(Bytes(Mutex::new(vec![byte; 1_000]))));
        let region = |rank: usize| Region::from_storage(disks[rank].clone(), 1_000, true).unwrap();
        engines[0].send(1, region(0)).unwrap();
        loop {
            for (rank, engine) in engines.iter_mut().enumerate() {
                let mut events = Vec::new();
                engine.progress(Duration::ZERO, &mut events);
                for event in events {
                    if let Event::Incoming { message, .. } = event {
                        engine.accept(1, message, region(rank)).unwrap();
                    }
                }
                let blocks = &engine.groups[&1].transfers.staging.blocks;
                assert!(blocks.made <= 5, "{} blocks at member {rank}", blocks.made);
            }
            if network.step().is_none() && !engines.iter().any(|engine| engine.disks.has_done()) {
                break;
            }
        }
        assert!(disks.iter().all(|disk| *disk.0.lock().unwrap() == [9; 1_000]));
    }

    /// Messages 0 to 4 of this group are not relayed.
    #[test]
    fn an_error_names_a_message_by_the_number_that_it_has_everywhere() {
        let network = SimNet::new(SimConfig::IDEAL, 1);
        let (mut engine, mut root) = (Engine::new(network.member()), network.member());
        let (link, from_root) = network.connect(0, 1);
        let schedule = Schedule::new(Algorithm::Chain, 2, 0).unwrap();
        let mut settings = GroupSettings::new(1, 1, schedule);
        settings.block_bytes = 10;
        engine.create(settings, vec![(0, link)]).unwrap();
        let endpoint = root.open(from_root).unwrap();
        let announcement = Word::Announce { number: 5, bytes: 20, delivered: 0 };
        root.write_control(endpoint, &announcement.encode()).unwrap();
        let block = Region::zeroed(10);
        root.post_send(endpoint, block.read(0..10).unwrap(), 7, Token(0)).unwrap();
        let mut events = Vec::new();
        for _ in 0..2 {
            while network.step().is_some() {
                engine.progress(Duration::ZERO, &mut events);
            }
            root.close(endpoint);
        }
        let failure = events.into_iter().find_map(|event| match event {
            Event::Failed { failure, .. } => Some(failure),
            _ => None,
        });
        let detail = failure.unwrap().detail;
        assert!(detail.contains("sent block 7 of 10 bytes where step 0 of message 5"), "{detail}");
    }
}
