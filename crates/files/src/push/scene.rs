//! What a coordinator wants done, done: control connections, groups, threads.

use std::{
    collections::BTreeMap,
    io,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc,
        atomic::AtomicBool,
        mpsc::{self, Sender},
    },
    thread,
    time::Duration,
};

use rdmc::{
    Application, Error, Fabric, Failure, Group, Incoming, Offload, Protection, Region, Waited,
    bootstrap::{Channel, Deadline},
};

use super::{
    doorway,
    inbox::{Event, Events},
    prepared::Prepared,
    settings::{HostPlan, PushError, PushEvent, Reach},
    stage::Stage,
};
use crate::{
    Source,
    control::{Control, silence},
    leftover::{Chunks, Leftover},
    messages::{Start, ToReceiver},
    ranges::Ranges,
    sending::send_parts,
    system::system,
};

/// How often receivers hear that the root is alive, whatever it is doing.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// How long receivers may take to read last words.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The connection to one host.
struct Line {
    number: u64,
    control: Control,
}

pub(super) struct Scene<'a> {
    push: &'a Prepared,
    observe: &'a mut dyn FnMut(PushEvent),
    lines: Vec<Option<Line>>,
    /// Connections of hosts that were given up, until these have heard it.
    leaving: Vec<Control>,
    lines_made: u64,
    /// The root's groups that stand.
    groups: BTreeMap<u64, Group>,
    /// Of the last group that stood.
    pub(super) offload: Option<Offload>,
    /// The thread that compares what hosts have, once there is something to compare.
    checker: Option<Sender<Check>>,
    /// Ends all reading of the source.
    pub(super) stop: Arc<AtomicBool>,
}

struct Check {
    host: usize,
    connection: u64,
    leftover: Leftover,
}

impl<'a> Scene<'a> {
    pub(super) fn new(push: &'a Prepared, observe: &'a mut dyn FnMut(PushEvent)) -> Self {
        Self {
            push,
            observe,
            lines: push.settings.hosts.iter().map(|_| None).collect(),
            leaving: Vec::new(),
            lines_made: 0,
            groups: BTreeMap::new(),
            offload: None,
            checker: None,
            stop: Arc::default(),
        }
    }

    /// Starts to call the hosts that listen.
    pub(super) fn start(&mut self) -> Result<(), PushError> {
        for host in 0..self.push.settings.hosts.len() {
            self.call(host, 0)?;
        }
        Ok(())
    }

    /// Calls a host that listens.
    fn call(&self, host: usize, start: u32) -> Result<(), PushError> {
        let settings = &self.push.settings;
        // Those that have joined are not among them, and come by themselves.
        let reach = settings.hosts.get(host).map(|plan| &plan.reach);
        let Some(Reach::Listens(address)) = reach else { return Ok(()) };
        let Some(credentials) = settings.credentials.clone() else { return Ok(()) };
        let (address, events) = (address.clone(), self.push.events.clone());
        doorway::call((host, start), address, credentials, settings.start_timeout, events)
            .map_err(|error| system("starting a thread", error).into())
    }

    pub(super) fn say_farewell(&mut self) {
        for line in self.lines.iter().flatten() {
            let _ = line.control.send(&ToReceiver::Finish);
        }
    }

    /// Ends all connections and threads.
    pub(super) fn close(&mut self) {
        self.groups.clear();
        let ending = self.lines.iter_mut().filter_map(Option::take).map(|line| line.control);
        self.leaving.extend(ending);
        // All have the same time, whoever comes first.
        self.leaving.iter().for_each(Control::finish);
        let deadline = Deadline::after(LAST_WORDS);
        self.leaving.drain(..).for_each(|control| control.close(deadline));
    }

    fn start_checker(&self) -> Result<Sender<Check>, PushError> {
        let (sender, inbox) = mpsc::channel::<Check>();
        let (events, stop) = (self.push.events.clone(), Arc::clone(&self.stop));
        let (source, bytes) = (self.push.source.clone(), self.push.bytes());
        let check = move || {
            let mut chunks = Chunks::new(bytes);
            for Check { host, connection, leftover } in inbox {
                let Some(source) = &source else { return };
                let right = source.matching(&mut chunks, &leftover, &stop);
                let _ = events.send(Event::Checked { host, connection, right }.into());
            }
        };
        thread::Builder::new()
            .name("rdmc-check".into())
            .spawn(check)
            .map_err(|error| system("starting a thread", error))?;
        Ok(sender)
    }

    fn source(&self) -> Result<&Source, PushError> {
        let missing = || PushError::Setting("there is no file in a measurement".into());
        self.push.source.as_deref().ok_or_else(missing)
    }
}

impl Stage for Scene<'_> {
    type Connection = Channel;
    type Group = Group;

    fn welcome(
        &mut self,
        host: usize,
        channel: Channel,
        plan: &HostPlan,
    ) -> Result<(IpAddr, IpAddr), Error> {
        let ip = channel.peer().ip().to_canonical();
        let own = channel.local_address().map_err(|error| system("finding an address", error))?;
        self.lines_made += 1;
        let number = self.lines_made;
        let events = self.push.events.clone();
        let failure_deadline = self.push.settings.failure_deadline;
        let take = move |message| {
            let gone = |how| Event::Gone { host, connection: number, how };
            let event = match message {
                Ok(message) => Event::Said { host, connection: number, message },
                Err(Error::Timeout { .. }) => {
                    let silence_s = silence(failure_deadline).as_secs_f64();
                    gone(format!("nothing was heard of it for {silence_s} s"))
                }
                Err(error) => gone(error.to_string()),
            };
            events.send(event.into()).is_ok()
        };
        let alive = (ToReceiver::Alive, HEARTBEAT);
        let control = Control::start_beating(channel, failure_deadline, alive, take)
            .map_err(|error| system("starting a control connection", error))?;
        control.send(&self.push.first_words(plan))?;
        self.lines[host] = Some(Line { number, control });
        Ok((ip, own.ip().to_canonical()))
    }

    fn turn_away(&mut self, mut channel: Channel, reason: &str) {
        let reason = reason.to_owned();
        let deadline = Deadline::after(Duration::from_secs(1));
        let _ = channel.send(&ToReceiver::Abort { reason, keep: true }, deadline);
    }

    fn add_host(&mut self, _connection: &Channel) {
        self.lines.push(None);
    }

    fn is_current(&self, host: usize, connection: u64) -> bool {
        self.lines[host].as_ref().is_some_and(|line| line.number == connection)
    }

    fn hang_up(&mut self, host: usize, connection: u64) -> bool {
        let is_current = self.is_current(host, connection);
        if is_current && let Some(line) = self.lines[host].take() {
            line.control.hang_up();
        }
        is_current
    }

    fn connected(&self) -> Vec<usize> {
        (0..self.lines.len()).filter(|&host| self.lines[host].is_some()).collect()
    }

    fn stands(&mut self, number: u64, group: Group) {
        self.offload = Some(group.offload());
        self.groups.insert(number, group);
    }

    fn let_go(&mut self, _number: u64, _group: Group) {
        // Dropping it does that.
    }

    fn ended(&mut self, number: u64) {
        self.groups.remove(&number);
    }

    fn tell(&mut self, host: usize, message: &ToReceiver) {
        if let Some(line) = &self.lines[host] {
            let _ = line.control.send(message);
        }
    }

    fn leave(&mut self, host: usize) {
        if let Some(line) = self.lines[host].take() {
            line.control.finish();
            self.leaving.push(line.control);
        }
    }

    fn expect_again(&mut self, host: usize, start: u32) {
        if let Err(error) = self.call(host, start) {
            let reason = error.to_string();
            let _ = self.push.events.send(Event::HostFailed { host, start, reason }.into());
        }
    }

    fn observe(&mut self, event: PushEvent) {
        (self.observe)(event);
    }

    fn check(&mut self, host: usize, leftover: Leftover) {
        let Some(line) = &self.lines[host] else { return };
        let connection = line.number;
        if self.checker.is_none() {
            self.checker = self.start_checker().ok();
        }
        let check = Check { host, connection, leftover };
        let refused = match &self.checker {
            Some(checker) => checker.send(check).is_err(),
            None => true,
        };
        if refused {
            // Without the thread everything is sent.
            let right = Ok(Ranges::default());
            let _ = self.push.events.send(Event::Checked { host, connection, right }.into());
        }
    }

    fn check_source(&mut self) -> Result<(), PushError> {
        Ok(self.push.check_unchanged()?)
    }

    fn digest(&mut self) -> Result<(), PushError> {
        let Some(source) = self.push.source.clone() else { return Ok(()) };
        let events = self.push.events.clone();
        let stop = Arc::clone(&self.stop);
        let hash = move || drop(events.send(Event::Digest(source.digest(&stop)).into()));
        thread::Builder::new()
            .name("rdmc-hash".into())
            .spawn(hash)
            .map(drop)
            .map_err(|error| system("starting a thread", error).into())
    }

    fn reads_differently(&self) -> PushError {
        match &self.push.source {
            Some(source) => source.reads_differently().into(),
            None => PushError::Group("the source changed".into()),
        }
    }

    fn start_fabric(&mut self, common: &dyn Fn(&Fabric) -> bool) -> Result<Fabric, PushError> {
        if self.push.context.get().is_none() {
            let settings = &self.push.settings;
            let only_tcp = settings.streams > 1 || settings.protection == Protection::Encrypt;
            let fabrics = if only_tcp { vec![Fabric::Tcp] } else { Fabric::candidates() };
            let best = fabrics.into_iter().find(common).unwrap_or_default();
            self.push.use_fabric(best)?;
        }
        Ok(self.push.context.get().map(|context| context.fabric().clone()).unwrap_or_default())
    }

    fn address(&self) -> SocketAddr {
        let context = self.push.context.get();
        context.map_or(self.push.doorway.address, |context| context.address())
    }

    fn group_number(&mut self) -> Result<u64, PushError> {
        Ok(new_number()?)
    }

    /// Joins on a thread that ends by the context's own deadline.
    fn join(&mut self, start: &Start) -> Result<(), PushError> {
        let settings = start.group_settings()?;
        let number = start.round;
        let Some(context) = self.push.context.get().cloned() else { return Ok(()) };
        let events = self.push.events.clone();
        let sending = Sending { number, events: events.clone() };
        let join = move || {
            let group = context.create_group_with(settings, sending);
            let _ = events.send(Event::Joined(number, group).into());
        };
        thread::Builder::new()
            .name("rdmc-join".into())
            .spawn(join)
            .map(drop)
            .map_err(|error| system("starting a thread", error).into())
    }

    fn send(&mut self, number: u64, ranges: &Ranges) -> Result<(), PushError> {
        let region = self.source()?.region()?;
        let Some(group) = self.groups.get(&number) else { return Ok(()) };
        send_parts(group, &region, ranges)?;
        Ok(())
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

/// Names a group.
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
