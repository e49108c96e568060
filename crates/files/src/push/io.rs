//! Carries out a root's decisions: control connections, groups, threads.

use std::{
    collections::BTreeMap,
    io::{self, Read},
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
        mpsc::{self, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use rdmc::{
    Application, Error, Fabric, Failure, Group, Incoming, Offload, Protection, Region, Waited,
};
use session::{Channel, Deadline};

use super::{
    connect,
    effects::Effects,
    inbox::{Event, Events},
    prepared::Prepared,
    settings::{HostPlan, PushError, PushEvent, Reach},
    stream_source::StreamPart,
};
use crate::{
    Source, SourceError,
    changes::Changes,
    control::{Control, silence},
    link::LinkSender,
    messages::{Start, ToReceiver},
    ranges::Ranges,
    resume::{ChunkDigests, Chunking, SourceChunks},
    sending::{send_ranges, unless_ended},
    system::system,
};

/// The keepalive interval of control connections.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long receivers may take to read the last messages.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(1);

/// The most that is read of a stream at once.
const READ_BYTES: usize = 256 << 10;
/// Stack of a thread that lists the source: directories may lie in each other as deep as paths can be long.
const READING_STACK_BYTES: usize = 32 << 20;

/// The connection to one host.
struct Connection {
    number: u64,
    control: Control,
}

pub(super) struct Io<'a> {
    push: &'a Prepared,
    observe: &'a mut dyn FnMut(PushEvent),
    connections: Vec<Option<Connection>>,
    /// Connections of hosts that were given up, until queued messages are sent.
    finishing: Vec<Control>,
    connections_made: u64,
    /// Groups that the root has joined.
    groups: BTreeMap<u64, Arc<Group>>,
    /// Of the last of these groups.
    pub(super) offload: Option<Offload>,
    /// The thread that compares chunks with the source; started on first use.
    checker: Option<Sender<Check>>,
    /// Each lets the reader of a stream read once.
    permits: Option<Sender<()>>,
    /// Bytes that the root has sent in links.
    pub(super) sent: Arc<AtomicU64>,
    /// Ends all reading of the source.
    pub(super) stop: Arc<AtomicBool>,
}

struct Check {
    host: usize,
    connection: u64,
    digests: ChunkDigests,
}

impl<'a> Io<'a> {
    pub(super) fn new(push: &'a Prepared, observe: &'a mut dyn FnMut(PushEvent)) -> Self {
        Self {
            push,
            observe,
            connections: push.settings.hosts.iter().map(|_| None).collect(),
            finishing: Vec::new(),
            connections_made: 0,
            groups: BTreeMap::new(),
            offload: None,
            checker: None,
            permits: None,
            sent: Arc::default(),
            stop: Arc::default(),
        }
    }

    /// Starts to connect to the hosts that listen.
    pub(super) fn start(&mut self) -> Result<(), PushError> {
        for host in 0..self.push.settings.hosts.len() {
            self.connect(host, 0)?;
        }
        Ok(())
    }

    /// Starts to connect to a host if it listens.
    fn connect(&self, host: usize, start: u32) -> Result<(), PushError> {
        let settings = &self.push.settings;
        // Hosts that joined are not in the settings; they connect by themselves.
        let reach = settings.hosts.get(host).map(|plan| &plan.reach);
        let Some(Reach::Listens(address)) = reach else { return Ok(()) };
        let Some(credentials) = settings.credentials.clone() else { return Ok(()) };
        let (address, events) = (address.clone(), self.push.events.clone());
        connect::start(host, start, address, credentials, settings.start_timeout, events)
            .map_err(|error| system("starting a thread", error).into())
    }

    pub(super) fn send_finish(&mut self) {
        for connection in self.connections.iter().flatten() {
            let _ = connection.control.send(&ToReceiver::Finish);
        }
    }

    /// Ends all connections and threads.
    pub(super) fn close(&mut self) {
        if self.push.is_served {
            // The threads that send in them have them as well.
            self.groups.values().for_each(|group| group.abort("the session has ended"));
        }
        self.groups.clear();
        let open = self.connections.iter_mut().filter_map(Option::take);
        self.finishing.extend(open.map(|connection| connection.control));
        // Before the first wait, so that all have the same time.
        self.finishing.iter().for_each(Control::finish);
        let deadline = Deadline::after(FLUSH_TIMEOUT);
        self.finishing.drain(..).for_each(|control| control.close(deadline));
    }

    fn start_checker(&self) -> Result<Sender<Check>, PushError> {
        let (sender, inbox) = mpsc::channel::<Check>();
        let (events, stop) = (self.push.events.clone(), Arc::clone(&self.stop));
        let (source, bytes) = (self.push.source.clone(), self.push.bytes());
        let check = move || {
            let mut chunks = SourceChunks::new(bytes);
            for Check { host, connection, digests } in inbox {
                let Some(source) = &source else { return };
                let matching = source.matching(&mut chunks, &digests, &stop);
                let _ = events.send(Event::Compared { host, connection, matching }.into());
            }
        };
        thread::Builder::new()
            .name("rdmc-check".into())
            .spawn(check)
            .map_err(|error| system("starting a thread", error))?;
        Ok(sender)
    }

    /// Starts a thread that reads the source and reports how that ended.
    fn read_source(
        &self,
        name: &str,
        read: impl FnOnce() -> Event + Send + 'static,
    ) -> Result<(), PushError> {
        let events = self.push.events.clone();
        let spawned = thread::Builder::new()
            .name(name.into())
            .stack_size(READING_STACK_BYTES)
            .spawn(move || drop(events.send(read().into())));
        spawned.map(drop).map_err(|error| system("starting a thread", error).into())
    }

    /// Starts the thread that reads a stream. It may outlive the push by one read.
    pub(super) fn start_reader(
        &mut self,
        mut input: impl Read + Send + 'static,
    ) -> Result<(), PushError> {
        let (permits, permitted) = mpsc::channel::<()>();
        let events = self.push.events.clone();
        let read = move || {
            let (mut buffer, mut digest) = (vec![0; READ_BYTES], blake3::Hasher::new());
            while permitted.recv().is_ok() {
                let part = match input.read(&mut buffer) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                        Ok(StreamPart::Bytes(Vec::new()))
                    }
                    Ok(0) => Ok(StreamPart::End(digest.finalize())),
                    read => read.map(|count| {
                        digest.update(&buffer[..count]);
                        StreamPart::Bytes(buffer[..count].to_vec())
                    }),
                };
                let is_last = !matches!(part, Ok(StreamPart::Bytes(_)));
                if events.send(Event::Read(part).into()).is_err() || is_last {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("rdmc-read".into()).spawn(read);
        thread.map_err(|error| system("starting a thread", error))?;
        self.permits = Some(permits);
        Ok(())
    }

    /// Sends a host what it lacks, on a thread that ends with the group.
    fn send_in_link(&self, group: Arc<Group>, missing: &Ranges) -> Result<(), PushError> {
        let (number, events) = (group.settings().number, self.push.events.clone());
        let all: Ranges = [(0, self.push.bytes())].into_iter().collect();
        let sender = LinkSender {
            group,
            region: self.source()?.region()?,
            has: Box::new(move || all.clone()),
            arrivals: Arc::default(),
            sent: Arc::clone(&self.sent),
        };
        let done = move |outcome| drop(events.send(Event::Ended(number, outcome).into()));
        // It ends by itself: closing the context ends its group.
        Ok(sender.start(missing, done).map(drop)?)
    }

    fn source(&self) -> Result<&Source, PushError> {
        let missing = || PushError::Setting("this session has no file".into());
        self.push.source.as_deref().ok_or_else(missing)
    }
}

impl Effects for Io<'_> {
    type Connection = Channel;
    type Group = Group;

    fn accept(
        &mut self,
        host: usize,
        channel: Channel,
        plan: &HostPlan,
        relays_listing: bool,
    ) -> Result<(IpAddr, IpAddr), Error> {
        let ip = channel.peer().ip().to_canonical();
        let own = channel.local_address().map_err(|error| system("finding an address", error))?;
        self.connections_made += 1;
        let number = self.connections_made;
        let events = self.push.events.clone();
        let failure_deadline = self.push.settings.failure_deadline;
        let take = move |message, _| {
            let ended = |reason| Event::Disconnected { host, connection: number, reason };
            let event = match message {
                Ok(message) => Event::Message { host, connection: number, message },
                Err(Error::Timeout { .. }) => {
                    let silence_s = silence(failure_deadline).as_secs_f64();
                    ended(format!("no message from it for {silence_s} s"))
                }
                Err(error) => ended(error.to_string()),
            };
            events.send(event.into()).is_ok()
        };
        let alive = ToReceiver::Alive;
        let control =
            Control::start_with_keepalive(channel, failure_deadline, alive, HEARTBEAT, take)
                .map_err(|error| system("starting a control connection", error))?;
        control.send(&self.push.first_message(plan, own, relays_listing))?;
        if !relays_listing {
            control.send_each(self.push.listing())?;
        }
        self.connections[host] = Some(Connection { number, control });
        Ok((ip, own.ip().to_canonical()))
    }

    fn reject(&mut self, channel: Channel, reason: &str) {
        reject(channel, reason);
    }

    fn add_host(&mut self, _connection: &Channel) {
        self.connections.push(None);
    }

    fn is_current(&self, host: usize, connection: u64) -> bool {
        self.connections[host].as_ref().is_some_and(|current| current.number == connection)
    }

    fn disconnect(&mut self, host: usize, connection: u64) -> bool {
        let is_current = self.is_current(host, connection);
        if is_current && let Some(connection) = self.connections[host].take() {
            connection.control.disconnect();
        }
        is_current
    }

    fn connected(&self) -> Vec<usize> {
        (0..self.connections.len()).filter(|&host| self.connections[host].is_some()).collect()
    }

    fn add_group(&mut self, number: u64, group: Group) {
        self.offload = Some(group.offload());
        self.groups.insert(number, Arc::new(group));
    }

    fn discard_group(&mut self, _number: u64, _group: Group) {
        // Dropping it ends it.
    }

    fn remove_group(&mut self, number: u64) {
        self.groups.remove(&number);
    }

    fn send_message(&mut self, host: usize, message: &ToReceiver) {
        if let Some(connection) = &self.connections[host] {
            let _ = connection.control.send(message);
        }
    }

    fn send_listing(&mut self, host: usize) {
        if let Some(connection) = &self.connections[host] {
            let _ = connection.control.send_each(self.push.listing());
        }
    }

    fn finish_connection(&mut self, host: usize) {
        if let Some(connection) = self.connections[host].take() {
            connection.control.finish();
            // A server may have any number of hosts one after another.
            self.finishing.retain(|control| !control.has_finished());
            self.finishing.push(connection.control);
        }
    }

    fn expect_again(&mut self, host: usize, start: u32) {
        if let Err(error) = self.connect(host, start) {
            let reason = error.to_string();
            let _ = self.push.events.send(Event::HostFailed { host, start, reason }.into());
        }
    }

    fn observe(&mut self, event: PushEvent) {
        (self.observe)(event);
    }

    fn settle(&self, changes: Changes, has: &Ranges) -> Changes {
        let Some(source) = &self.push.source else { return changes };
        let entries = source.entries().unwrap_or(1) as u32;
        changes.settled(entries, |entry| has.covers(source.range_of(entry)))
    }

    fn compare(&mut self, host: usize, digests: ChunkDigests) {
        let Some(connection) = &self.connections[host] else { return };
        let connection = connection.number;
        if self.checker.is_none() {
            self.checker = self.start_checker().ok();
        }
        let check = Check { host, connection, digests };
        let refused = match &self.checker {
            Some(checker) => checker.send(check).is_err(),
            None => true,
        };
        if refused {
            // Without the thread nothing counts as matching, and everything is sent.
            let matching = Ok(Ranges::default());
            let _ = self.push.events.send(Event::Compared { host, connection, matching }.into());
        }
    }

    fn check_source(&mut self) -> Result<(), PushError> {
        Ok(self.push.check_unchanged()?)
    }

    fn digest_source(&mut self, ranges: &Ranges) -> Result<(), PushError> {
        let Some(source) = self.push.source.clone() else { return Ok(()) };
        let (stop, ranges) = (Arc::clone(&self.stop), ranges.clone());
        self.read_source("rdmc-hash", move || Event::Digest(source.digest(&ranges, &stop)))
    }

    fn digest_chunks(&mut self, ranges: &Ranges) -> Result<(), PushError> {
        let Some(source) = self.push.source.clone() else { return Ok(()) };
        let (stop, ranges, events) =
            (Arc::clone(&self.stop), ranges.clone(), self.push.events.clone());
        self.read_source("rdmc-chunks", move || {
            let send = |digests| drop(events.send(Event::Chunks(Ok(digests)).into()));
            Event::Chunks(read_chunks(&source, &ranges, &stop, send))
        })
    }

    fn look_at_source(&mut self) -> Result<(), PushError> {
        let Some(source) = self.push.source.clone() else { return Ok(()) };
        self.read_source("rdmc-look", move || Event::Looked(source.look_again()))
    }

    fn source_differs(&self) -> PushError {
        match &self.push.source {
            Some(source) => source.differs().into(),
            None => PushError::Group("the source changed".into()),
        }
    }

    fn start_fabric(&mut self, common: &dyn Fn(&Fabric) -> bool) -> Result<Fabric, PushError> {
        if self.push.context.get().is_none() {
            let settings = &self.push.settings;
            let only_tcp = settings.streams > 1
                || settings.protection == Some(Protection::Encrypt)
                || settings.rate_max.is_some();
            let fabrics = if only_tcp { vec![Fabric::Tcp] } else { Fabric::candidates() };
            let best = fabrics.into_iter().find(common).unwrap_or_default();
            self.push.use_fabric(best)?;
        }
        Ok(self.push.context.get().map(|context| context.fabric().clone()).unwrap_or_default())
    }

    fn address(&self) -> SocketAddr {
        let context = self.push.context.get();
        context.map_or(self.push.address, |context| context.address())
    }

    fn group_number(&mut self) -> Result<u64, PushError> {
        Ok(new_number()?)
    }

    /// Joins on a thread that ends by the context's own deadline.
    fn join(&mut self, start: &Start) -> Result<(), PushError> {
        let settings = self.push.group_settings(start)?;
        let number = start.group.number;
        let Some(context) = self.push.context.get().cloned() else { return Ok(()) };
        let events = self.push.events.clone();
        let sending = Sending { number, events: events.clone() };
        // The thread that sends in a link notices its end.
        let is_link = self.push.is_served;
        let join = move || {
            let group = match is_link {
                true => context.create_group(settings),
                false => context.create_group_with(settings, sending),
            };
            let _ = events.send(Event::Joined(number, group).into());
        };
        thread::Builder::new()
            .name("rdmc-join".into())
            .spawn(join)
            .map(drop)
            .map_err(|error| system("starting a thread", error).into())
    }

    fn send_ranges(&mut self, number: u64, ranges: &Ranges) -> Result<(), PushError> {
        let Some(group) = self.groups.get(&number) else { return Ok(()) };
        if self.push.is_served {
            return self.send_in_link(Arc::clone(group), ranges);
        }
        if ranges.is_empty() {
            let listing = Region::from_shared(self.push.encoded_listing());
            let all = [(0, listing.len() as u64)].into_iter().collect();
            return Ok(send_ranges(group, &listing, &all)?);
        }
        Ok(send_ranges(group, &self.source()?.region()?, ranges)?)
    }

    fn read(&mut self) {
        // One that has ended reads no more.
        let _ = self.permits.as_ref().map(|permits| permits.send(()));
    }

    fn send_region(&mut self, number: u64, region: &Region) -> Result<(), PushError> {
        let Some(group) = self.groups.get(&number) else { return Ok(()) };
        Ok(unless_ended(group.try_send(region.clone()).map(drop))?)
    }

    fn close(&mut self, number: u64) {
        // A group that has failed reports that by an event.
        let _ = self.groups.get(&number).map(|group| group.start_close());
    }

    fn waited(&mut self, number: u64) -> Vec<Waited> {
        let Some(context) = self.push.context.get() else { return Vec::new() };
        let groups = context.waited().unwrap_or_default().into_iter();
        groups.filter(|(group, _)| *group == number).flat_map(|(_, waited)| waited).collect()
    }

    fn abort(&mut self, number: u64, reason: &str) {
        if let Some(group) = self.groups.remove(&number) {
            group.abort(reason);
        }
    }
}

/// Ends the connection of a receiver that is refused, for this reason.
pub(super) fn reject(mut channel: Channel, reason: &str) {
    let reason = reason.to_owned();
    let deadline = Deadline::after(Duration::from_secs(1));
    let _ = channel.send(&ToReceiver::Abort { reason, keep: true }, deadline);
}

/// How often digests of chunks are sent while further ones are read.
const CHUNKS_INTERVAL: Duration = Duration::from_millis(10);

/// Reads the chunks in these ranges of the source, and gives those of the last moments each time; returns the rest.
fn read_chunks(
    source: &Source,
    ranges: &Ranges,
    stop: &AtomicBool,
    send: impl Fn(ChunkDigests),
) -> Result<ChunkDigests, SourceError> {
    let chunking = Chunking::of_links(source.manifest().bytes);
    let (mut read, mut since) = (Vec::new(), Instant::now());
    for chunk in ranges.iter().flat_map(|range| chunking.chunks_of(range)) {
        let digest = source.digest_part(chunking.range(chunk), stop)?;
        read.push((chunk, *digest.as_bytes()));
        if since.elapsed() >= CHUNKS_INTERVAL {
            since = Instant::now();
            send(ChunkDigests(std::mem::take(&mut read)));
        }
    }
    Ok(ChunkDigests(read))
}

/// A random number for a group.
pub(super) fn new_number() -> Result<u64, Error> {
    getrandom::u64().map_err(|error| system("getting random numbers", io::Error::other(error)))
}

/// The root's callbacks.
struct Sending {
    number: u64,
    events: Events,
}

impl Application for Sending {
    fn incoming(&mut self, _message: u64, _bytes: u64) -> Incoming {
        Incoming::Refuse("the root receives nothing".into())
    }

    fn complete(&mut self, _message: u64, _region: Region) {}

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        let _ = self.events.send(Event::Ended(self.number, Err(failure.clone())).into());
    }

    fn closed(&mut self) {
        let _ = self.events.send(Event::Ended(self.number, Ok(())).into());
    }
}
