//! The root's side of a session.
//!
//! One thread, the caller's, decides everything in [`Push::run`]; others only feed it [`Event`]s.
//! The phases, in order: receivers come in and prepare their targets; rounds, until a group has
//! closed with success; publishing.

mod bench;
mod doorway;
mod host;
mod round;
mod settings;

use std::{
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::{Duration, Instant},
};

use rdmc::{
    Context, ContextSettings, Error, Fabric, Failure, Group, Offload,
    bootstrap::{Channel, Deadline},
    choice::Choice,
};

use bench::Happening;
pub use bench::{
    Bench, BenchEvent, BenchPlan, BenchReport, MEASURED_BYTES_MAX, Measurement, Subject,
};
use doorway::Doorway;
use host::{Heartbeat, Host};
use round::Round;
pub use settings::{
    HostPlan, HostReport, HostState, PushError, PushEvent, PushReport, PushSettings, Reach,
};

use crate::{
    Source, SourceError,
    messages::{BenchTerms, Offer, ToReceiver, ToRoot},
};

/// How long a receiver may take to prepare its target: reserving space can be slow.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(120);
/// How long verifying, and then writing to disk, may take once all bytes are everywhere.
const FINISH_TIMEOUT: Duration = Duration::from_secs(900);
/// How long receivers may take to hang up after their last message.
const FAREWELL: Duration = Duration::from_secs(3);
/// How long all members may take to join a group.
const JOIN_TIMEOUT: Duration = Duration::from_secs(15);

/// A push that is ready to run: it listens for receivers.
pub struct Push {
    settings: PushSettings,
    /// What is replicated; none if it is only measured.
    source: Option<Arc<Source>>,
    /// Once the fabric is chosen.
    context: OnceLock<Arc<Context>>,
    doorway: Doorway,
    events: Sender<Event>,
    inbox: Receiver<Event>,
}

/// Reaches into a running push from other threads.
#[derive(Clone, Debug)]
pub struct PushHandle {
    events: Sender<Event>,
}

/// Whatever a push waits for.
#[derive(Debug)]
enum Event {
    /// A receiver is there.
    Came(usize, Channel),
    Said(usize, ToRoot),
    /// A receiver's control connection has ended, in this way.
    Gone(usize, String),
    /// A receiver will not come, for this reason.
    HostFailed(usize, String),
    Digest(Result<blake3::Hash, SourceError>),
    Joined(u64, Result<Group, Error>),
    /// A round's group has closed with success, or failed.
    Ended(u64, Result<(), Failure>),
    /// In a measurement.
    Measured(u64, Happening),
    Cancel,
}

impl PushHandle {
    /// Reports that a host's receiver cannot be started or has ended. Only matters if the host has
    /// not appeared yet; afterwards its own connection tells.
    pub fn host_failed(&self, host: usize, reason: impl Into<String>) {
        let _ = self.events.send(Event::HostFailed(host, reason.into()));
    }

    /// Ends the push: receivers are told, and remove what they have.
    pub fn cancel(&self) {
        let _ = self.events.send(Event::Cancel);
    }
}

impl Push {
    /// Starts to listen for receivers.
    ///
    /// Errors: a setting is out of range; the system refuses.
    pub fn open(source: Source, settings: PushSettings) -> Result<Self, PushError> {
        settings.check(source.manifest().bytes)?;
        Self::listen(Some(Arc::new(source)), settings)
    }

    fn listen(source: Option<Arc<Source>>, settings: PushSettings) -> Result<Self, PushError> {
        let (events, inbox) = mpsc::channel();
        let names = settings.hosts.iter().map(|host| host.name.clone()).collect();
        let doorway =
            Doorway::open(settings.local_only, settings.secret.clone(), names, events.clone())?;
        let push = Self { settings, source, context: OnceLock::new(), doorway, events, inbox };
        // Without the fabric that was asked for, nobody needs to be started.
        if let Some(fabric) = &push.settings.fabric {
            push.use_fabric(fabric.clone())?;
        }
        Ok(push)
    }

    fn use_fabric(&self, fabric: Fabric) -> Result<(), Error> {
        // The context listens the way the doorway could.
        let listen = SocketAddr::new(self.doorway.address.ip(), 0);
        let mut settings = ContextSettings::new(listen, self.settings.secret.clone());
        settings.fabric = fabric;
        settings.streams = self.settings.streams;
        settings.completion = self.settings.completion;
        settings.connect_timeout = JOIN_TIMEOUT;
        let _ = self.context.set(Arc::new(Context::start(settings)?));
        Ok(())
    }

    /// The TCP port that receivers call.
    pub fn control_port(&self) -> u16 {
        self.doorway.address.port()
    }

    /// A handle for other threads.
    pub fn handle(&self) -> PushHandle {
        PushHandle { events: self.events.clone() }
    }

    /// What a receiver hears first.
    fn first_words(&self, plan: &HostPlan) -> ToReceiver {
        let streams = self.settings.streams;
        let completion = self.settings.completion.to_string();
        match &self.source {
            Some(source) => ToReceiver::Offer(Offer {
                manifest: source.manifest().clone(),
                destination: plan.destination.clone(),
                streams,
                completion,
            }),
            None => ToReceiver::Bench(BenchTerms { streams, completion }),
        }
    }

    /// How much there is to replicate.
    fn bytes(&self) -> u64 {
        self.source.as_ref().map_or(0, |source| source.manifest().bytes)
    }

    fn check_unchanged(&self) -> Result<(), SourceError> {
        self.source.as_ref().map_or(Ok(()), |source| source.check_unchanged())
    }

    /// Replicates, verifies and publishes. Blocks until that has succeeded or failed at every host
    /// and all have been told; `observe` is called on this thread.
    pub fn run(self, observe: &mut dyn FnMut(PushEvent)) -> PushReport {
        let started = Instant::now();
        let mut run = Run::new(&self, observe);
        let error = run.run().err();
        run.stop_hashing.store(true, Ordering::Relaxed);
        run.end(error.as_ref());
        let hosts: Vec<HostReport> = run.hosts.iter().map(Host::report).collect();
        let replication = hosts.iter().filter_map(|host| host.replication).max();
        let (members, offload, choice) = (run.members, run.offload, run.choice);
        let fabric = self.context.get().map(|context| context.fabric().clone());
        let total = started.elapsed();
        PushReport { hosts, members, choice, fabric, offload, replication, total, error }
    }
}

/// A push that is running.
struct Run<'a> {
    push: &'a Push,
    heartbeat: Heartbeat,
    hosts: Vec<Host>,
    /// Of the source, once it is known: computed once, used in every round.
    digest: Option<blake3::Hash>,
    stop_hashing: Arc<AtomicBool>,
    round: Option<Round>,
    members: usize,
    choice: Option<Choice>,
    /// Of the last group that stood.
    offload: Option<Offload>,
    observe: &'a mut dyn FnMut(PushEvent),
}

impl<'a> Run<'a> {
    fn new(push: &'a Push, observe: &'a mut dyn FnMut(PushEvent)) -> Self {
        Self {
            push,
            heartbeat: Heartbeat::default(),
            hosts: push.settings.hosts.iter().cloned().map(Host::new).collect(),
            digest: None,
            stop_hashing: Arc::default(),
            round: None,
            members: 0,
            choice: None,
            offload: None,
            observe,
        }
    }

    fn run(&mut self) -> Result<(), PushError> {
        self.heartbeat.start()?;
        self.gather()?;
        self.start_hashing()?;
        // Each failed round costs at least one host, so this ends.
        while self.hosts.iter().any(Host::is_ready) {
            if self.run_round()? {
                return self.publish();
            }
        }
        Ok(())
    }

    /// Until every host is ready or has failed.
    fn gather(&mut self) -> Result<(), PushError> {
        let timeout = self.push.settings.start_timeout;
        for (index, host) in self.push.settings.hosts.iter().enumerate() {
            if let Reach::Listens(address) = &host.reach {
                let secret = self.push.settings.secret.clone();
                let events = self.push.events.clone();
                doorway::call(index, address.clone(), secret, timeout, events)
                    .map_err(|error| system("starting a thread", error))?;
            }
        }
        let deadline = Deadline::after(timeout);
        self.wait_while(deadline, |run| run.any(&HostState::Awaited))?;
        let late = format!("did not call back within {} s", timeout.as_secs_f64());
        self.fail_all(&HostState::Awaited, &late);
        let deadline = Deadline::after(PREPARE_TIMEOUT);
        self.wait_while(deadline, |run| run.hosts.iter().any(Host::is_unprepared))?;
        for index in 0..self.hosts.len() {
            if self.hosts[index].is_unprepared() {
                self.fail(index, "did not prepare its target in time");
            }
        }
        self.start_fabric()
    }

    /// Has everybody start the fabric that was asked for, or the best that all have.
    fn start_fabric(&mut self) -> Result<(), PushError> {
        if !self.any(&HostState::Preparing) {
            return Ok(());
        }
        if self.push.context.get().is_none() {
            let common = |fabric: &Fabric| {
                let name = fabric.name();
                self.hosts.iter().flat_map(|host| &host.fabrics).all(|all| all.contains(&name))
            };
            let streams = self.push.settings.streams;
            let fabrics = if streams > 1 { vec![Fabric::Tcp] } else { Fabric::candidates() };
            let best = fabrics.into_iter().find(common).unwrap_or_default();
            self.push.use_fabric(best)?;
        }
        let Some(context) = self.push.context.get() else { return Ok(()) };
        self.tell_all(&ToReceiver::Use { fabric: context.fabric().name() });
        self.wait_while(Deadline::after(JOIN_TIMEOUT), |run| run.any(&HostState::Preparing))?;
        self.fail_all(&HostState::Preparing, "did not start its fabric in time");
        Ok(())
    }

    fn start_hashing(&self) -> Result<(), PushError> {
        let Some(source) = self.push.source.clone() else { return Ok(()) };
        let events = self.push.events.clone();
        let stop = Arc::clone(&self.stop_hashing);
        let hash = move || drop(events.send(Event::Digest(source.digest(&stop))));
        thread::Builder::new()
            .name("rdmc-hash".into())
            .spawn(hash)
            .map(drop)
            .map_err(|error| system("starting a thread", error).into())
    }

    /// Every group member has verified its copy, or has failed.
    fn publish(&mut self) -> Result<(), PushError> {
        self.push.check_unchanged()?;
        for index in 0..self.hosts.len() {
            if self.hosts[index].compared == Some(false) {
                let reason = "its copy differs from the source although the source has not \
                              changed: check that machine's memory and network";
                self.fail(index, reason);
            }
        }
        (self.observe)(PushEvent::Publishing);
        self.tell_all(&ToReceiver::Publish);
        let deadline = Deadline::after(FINISH_TIMEOUT);
        self.wait_while(deadline, |run| run.hosts.iter().any(Host::is_ready))?;
        self.fail_all(&HostState::Received, "did not publish its copy in time");
        Ok(())
    }

    /// Tells receivers that it is over, and waits a little for them to hang up.
    fn end(&mut self, error: Option<&PushError>) {
        if let Some(error) = error {
            let reason = match error {
                PushError::Cancelled => "interrupted at the root".to_owned(),
                other => other.to_string(),
            };
            for index in 0..self.hosts.len() {
                if self.hosts[index].is_open() {
                    self.fail(index, &reason);
                }
            }
            if let Some(round) = &self.round {
                round.abort(&reason);
            }
        }
        self.tell_all(&ToReceiver::Finish);
        let deadline = Deadline::after(FAREWELL);
        let connected = |run: &Self| run.hosts.iter().any(Host::is_connected);
        while connected(self) && !deadline.left().is_zero() {
            if let Ok(Event::Gone(index, _)) = self.push.inbox.recv_timeout(deadline.left()) {
                self.hosts[index].hang_up();
            }
        }
        self.hosts.iter_mut().for_each(Host::hang_up);
        self.heartbeat.stop();
    }

    fn any(&self, state: &HostState) -> bool {
        self.hosts.iter().any(|host| host.state == *state)
    }

    /// Handles events as long as `waiting` says so, or until the deadline.
    fn wait_while(
        &mut self,
        deadline: Deadline,
        waiting: impl Fn(&Self) -> bool,
    ) -> Result<(), PushError> {
        while waiting(self) && !deadline.left().is_zero() {
            if let Ok(event) = self.push.inbox.recv_timeout(deadline.left()) {
                self.handle(event)?;
            }
        }
        Ok(())
    }

    fn handle(&mut self, event: Event) -> Result<(), PushError> {
        match event {
            Event::Came(index, channel) => self.welcome(index, channel),
            Event::Said(index, message) => self.hear(index, message),
            Event::Gone(index, how) => {
                self.hosts[index].hang_up();
                if self.hosts[index].is_open() {
                    self.fail(index, &format!("its receiver was lost: {how}"));
                }
            }
            Event::HostFailed(index, reason) => {
                if self.hosts[index].state == HostState::Awaited {
                    self.fail(index, &reason);
                }
            }
            Event::Digest(digest) => {
                self.digest = Some(digest?);
                self.send_digest()?;
            }
            Event::Joined(number, outcome) => self.joined(number, outcome)?,
            Event::Ended(number, outcome) => {
                if let Some(round) = self.round_numbered(number) {
                    round.ended.get_or_insert(outcome);
                }
            }
            // Of a measurement that is over.
            Event::Measured(..) => {}
            Event::Cancel => return Err(PushError::Cancelled),
        }
        Ok(())
    }

    fn welcome(&mut self, index: usize, mut channel: Channel) {
        if self.hosts[index].state != HostState::Awaited {
            let reason = "this host has been heard of already: is it running twice?".to_owned();
            let deadline = Deadline::after(Duration::from_secs(1));
            let _ = channel.send(&ToReceiver::Abort { reason }, deadline);
            return;
        }
        let first = self.push.first_words(&self.hosts[index].plan);
        match self.hosts[index].welcome(index, channel, &first, &self.push.events) {
            Ok(control) => {
                self.heartbeat.add(&control);
                self.set(index, HostState::Preparing);
            }
            Err(error) => self.fail(index, &error.to_string()),
        }
    }

    fn hear(&mut self, index: usize, message: ToRoot) {
        let round = self.round.as_ref().map(|round| round.number);
        match message {
            ToRoot::Prepared { fabrics } => self.hosts[index].fabrics = Some(fabrics),
            ToRoot::Ready { port } if self.hosts[index].state == HostState::Preparing => {
                self.hosts[index].port = port;
                self.set(index, HostState::Ready);
            }
            ToRoot::Progress { bytes } if bytes > self.hosts[index].bytes => {
                self.hosts[index].bytes = bytes;
                (self.observe)(PushEvent::Progress { host: index, bytes });
            }
            ToRoot::Received { round: number } if round == Some(number) => {
                self.hosts[index].replication = self.round.as_ref().and_then(Round::elapsed);
                self.set(index, HostState::Received);
            }
            ToRoot::Compared { round: number, equal } if round == Some(number) => {
                self.hosts[index].compared = Some(equal);
            }
            ToRoot::RoundFailed { round: number, member, detail } if round == Some(number) => {
                if let Some(round) = &mut self.round {
                    round.reports.insert(index, (member, detail.clone()));
                    round.abort(&detail);
                }
            }
            ToRoot::Published { peak_resident_bytes } => {
                self.hosts[index].peak_resident_bytes = peak_resident_bytes;
                if self.hosts[index].compared == Some(true) {
                    self.set(index, HostState::Published);
                }
            }
            ToRoot::Failed { reason } if self.hosts[index].is_open() => self.fail(index, &reason),
            // Heartbeats, and words of rounds that are over.
            _ => {}
        }
    }

    fn set(&mut self, index: usize, state: HostState) {
        self.hosts[index].state = state.clone();
        (self.observe)(PushEvent::Host { host: index, state });
    }

    /// Gives a host up; if its round is still on, it cannot be finished.
    fn fail(&mut self, index: usize, reason: &str) {
        tracing::debug!(host = self.hosts[index].plan.name, reason, "host failed");
        self.hosts[index].tell(&ToReceiver::Abort { reason: reason.to_owned() });
        self.set(index, HostState::Failed(reason.to_owned()));
        if let Some(round) = &mut self.round
            && round.hosts.contains(&index)
        {
            round.give_up(&format!("{}: {reason}", self.hosts[index].plan.name));
        }
    }

    fn fail_all(&mut self, state: &HostState, reason: &str) {
        for index in 0..self.hosts.len() {
            if self.hosts[index].state == *state {
                self.fail(index, reason);
            }
        }
    }

    /// To every host that has not failed.
    fn tell_all(&self, message: &ToReceiver) {
        let hosts = self.hosts.iter();
        hosts
            .filter(|host| !matches!(host.state, HostState::Failed(_)))
            .for_each(|host| host.tell(message));
    }

    /// Where members reach the root: the address that most of them have called, unless told.
    fn own_address(&self) -> SocketAddr {
        let counted = |address: &IpAddr| {
            self.hosts
                .iter()
                .filter(|host| host.is_ready() && host.own_ip == Some(*address))
                .count()
        };
        let called = self.hosts.iter().filter_map(|host| host.own_ip).max_by_key(counted);
        let listening = self.push.context.get().map(|context| context.address());
        let listening = listening.unwrap_or(self.push.doorway.address);
        let address = self.push.settings.advertise.or(called).unwrap_or(listening.ip());
        SocketAddr::new(address, listening.port())
    }
}

fn system(what: &str, error: std::io::Error) -> Error {
    Error::System { what: what.to_owned(), error }
}
