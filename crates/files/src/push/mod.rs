//! The root's side of a session.
//!
//! [`coordinator::Coordinator`] decides everything. Here it is driven: by one thread, the caller's, in
//! [`Push::run`]; others only feed it [`Event`]s. What it wants done is done by [`scene::Scene`].

mod aftermath;
mod attempt;
mod bench;
#[doc(hidden)]
mod coordinator;
mod descriptors;
pub(crate) mod doorway;
#[doc(hidden)]
mod host;
mod pace;
mod parts;
mod patience;
mod regroup;
mod retry;
mod scene;
mod settings;
#[cfg(test)]
mod simulation;
mod stop;

use std::{
    net::SocketAddr,
    sync::{
        Arc, OnceLock,
        atomic::Ordering,
        mpsc::{self, Receiver, Sender},
    },
    time::{Duration, Instant},
};

use rdmc::{
    Algorithm, Context, ContextSettings, Error, Fabric, Failure, Group,
    bootstrap::{Channel, Deadline},
};

use bench::Happening;
pub use bench::{
    Bench, BenchEvent, BenchPlan, BenchReport, MEASURED_BYTES_MAX, Measurement, Subject,
};
pub use coordinator::{Coordinator, Stage};
use doorway::Doorway;
pub use host::{Host, Step};
use scene::Scene;
pub use settings::{
    Admission, HostPlan, HostReport, HostState, PushError, PushEvent, PushReport, PushSettings,
    Reach,
};

use crate::{
    Source, SourceError,
    messages::{JOIN_TIMEOUT, Offer, Terms, ToReceiver, ToRoot},
    ranges::Ranges,
};

/// How long receivers may take to hang up after their last message.
const FAREWELL: Duration = Duration::from_secs(3);
/// The same for hosts that were given up: many of them cannot hear it any more.
const LOST_FAREWELL: Duration = Duration::from_millis(300);
/// Hosts of one push, with those that have joined it.
const HOSTS_MAX: usize = 10_000;
/// How long nothing may happen before everything is looked at anyway.
const IDLE: Duration = Duration::from_secs(60);

/// A push that is ready to run: it listens for receivers.
pub struct Push {
    settings: PushSettings,
    /// What is replicated; none if it is only measured.
    source: Option<Arc<Source>>,
    /// Of the source.
    probe: [u8; 32],
    /// Once the fabric is chosen.
    context: OnceLock<Arc<Context>>,
    doorway: Doorway,
    /// For receivers that join.
    admission: Option<Doorway>,
    events: Sender<Event>,
    inbox: Receiver<Event>,
}

/// Reaches into a running push from other threads.
#[derive(Clone, Debug)]
pub struct PushHandle {
    events: Sender<Event>,
}

/// Whatever a push waits for. Connections to the same host are told apart by their numbers.
#[derive(Debug)]
enum Event {
    /// A receiver is there.
    Came(usize, Channel),
    /// A receiver of this name wants to join.
    Asks(String, Channel),
    Said {
        host: usize,
        connection: u64,
        message: ToRoot,
    },
    /// A receiver's control connection has ended, in this way.
    Gone {
        host: usize,
        connection: u64,
        how: String,
    },
    /// A receiver will not come, for this reason, after so many that were lost.
    HostFailed {
        host: usize,
        start: u32,
        reason: String,
    },
    /// What a host has of an earlier session was compared.
    Checked {
        host: usize,
        connection: u64,
        right: Result<Ranges, SourceError>,
    },
    Digest(Result<blake3::Hash, SourceError>),
    Joined(u64, Result<Group, Error>),
    /// A group has closed with success, or failed.
    Ended(u64, Result<(), Failure>),
    /// In a measurement.
    Measured(u64, Happening),
    Cancel,
}

impl PushHandle {
    /// Reports that a host's receiver cannot be started or has ended; `start` is 0 for the first, and
    /// for others as [`PushEvent::Retry`] has told. Only matters if it has not appeared yet;
    /// afterwards its own connection tells.
    pub fn host_failed(&self, host: usize, start: u32, reason: impl Into<String>) {
        let _ = self.events.send(Event::HostFailed { host, start, reason: reason.into() });
    }

    /// Ends the push: receivers are told, and keep what they have for a later one. Hosts that publish
    /// their copies just then are waited for, 10 s at most; cancelling again ends that, too. A bench
    /// ends at once.
    pub fn cancel(&self) {
        let _ = self.events.send(Event::Cancel);
    }
}

impl Push {
    /// Starts to listen for receivers.
    ///
    /// Errors: a setting is out of range; this process may not open enough files for so many hosts; the
    /// system refuses.
    pub fn open(source: Source, mut settings: PushSettings) -> Result<Self, PushError> {
        settings.check(source.manifest().bytes)?;
        if settings.algorithm == Some(Algorithm::InSwitch) {
            // Switches copy beside it.
            settings.fabric = Some(Fabric::Tcp);
        }
        Self::listen(Some(Arc::new(source)), settings)
    }

    fn listen(source: Option<Arc<Source>>, settings: PushSettings) -> Result<Self, PushError> {
        settings.check_descriptors()?;
        let (events, inbox) = mpsc::channel();
        let names = settings.hosts.iter().map(|host| host.name.clone()).collect();
        let doorway =
            Doorway::open(settings.local_only, settings.secret.clone(), names, events.clone())?;
        let admission = match (&settings.admission, &settings.credentials) {
            (Some(admission), Some(credentials)) => {
                Some(Doorway::open_to_all(admission.listen, credentials.clone(), events.clone())?)
            }
            _ => None,
        };
        let context = OnceLock::new();
        let probe = source.as_ref().map(|source| source.probe()).transpose()?.unwrap_or_default();
        let push = Self { settings, source, probe, context, doorway, admission, events, inbox };
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
        settings.protection = self.settings.protection;
        settings.connect_timeout = JOIN_TIMEOUT;
        settings.tcp.silence_timeout_ms = self.settings.failure_deadline.as_millis() as u64;
        settings.switches = self.settings.switches.clone();
        let _ = self.context.set(Arc::new(Context::start(settings)?));
        Ok(())
    }

    /// The TCP port that receivers call.
    pub fn control_port(&self) -> u16 {
        self.doorway.address.port()
    }

    /// Where receivers that join call, if they are let in.
    pub fn admission_address(&self) -> Option<SocketAddr> {
        self.admission.as_ref().map(|doorway| doorway.address)
    }

    /// A handle for other threads.
    pub fn handle(&self) -> PushHandle {
        PushHandle { events: self.events.clone() }
    }

    /// What a receiver hears first.
    fn first_words(&self, plan: &HostPlan) -> ToReceiver {
        let terms = Terms {
            streams: self.settings.streams,
            completion: self.settings.completion.to_string(),
            protection: self.settings.protection.to_string(),
            failure_deadline_ms: self.settings.failure_deadline.as_millis() as u32,
            secret: self.settings.secret.clone(),
        };
        match &self.source {
            Some(source) => ToReceiver::Offer(Offer {
                manifest: source.manifest().clone(),
                destination: plan.destination.clone(),
                probe: self.probe,
                has_holes: source.has_holes(),
                terms,
            }),
            None => ToReceiver::Bench(terms),
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
        let error = run.replicate().err();
        run.scene.stop.store(true, Ordering::Relaxed);
        run.end();
        let hosts: Vec<HostReport> = run.core.hosts.iter().map(host::Host::report).collect();
        let replication = hosts.iter().filter_map(|host| host.replication).max();
        let (members, offload, choice) = (run.core.members, run.scene.offload, run.core.choice);
        let fell_back = run.core.fell_back.take();
        let fabric = self.context.get().map(|context| context.fabric().clone());
        let total = started.elapsed();
        PushReport { hosts, members, choice, fabric, offload, fell_back, replication, total, error }
    }
}

/// A session that is running: a push, or a bench.
struct Run<'a> {
    push: &'a Push,
    started: Instant,
    core: Coordinator<'a>,
    scene: Scene<'a>,
}

impl<'a> Run<'a> {
    fn new(push: &'a Push, observe: &'a mut dyn FnMut(PushEvent)) -> Self {
        let core = Coordinator::new(&push.settings, push.bytes());
        Self { push, started: Instant::now(), core, scene: Scene::new(push, observe) }
    }

    fn replicate(&mut self) -> Result<(), PushError> {
        let begun = self.scene.start().and_then(|()| self.scene.digest());
        begun.unwrap_or_else(|error| self.core.stop(&mut self.scene, error));
        while !self.core.is_over() {
            let handled = self.handle_next(None).and_then(|()| self.core.advance(&mut self.scene));
            handled.unwrap_or_else(|error| self.core.stop(&mut self.scene, error));
        }
        self.core.outcome()
    }

    /// Until every host is ready or has failed; for a bench.
    fn gather(&mut self) -> Result<(), PushError> {
        self.scene.start()?;
        while self.core.is_gathering() {
            self.handle_next(None)?;
            self.core.gather(&mut self.scene)?;
        }
        Ok(())
    }

    /// Tells receivers that it is over, and waits a little for them to hang up.
    fn end(&mut self) {
        self.scene.say_farewell();
        let (served, lost) = (Deadline::after(FAREWELL), Deadline::after(LOST_FAREWELL));
        let patience = |host: usize| match self.core.hosts[host].step {
            host::Step::Failed(_) | host::Step::Unknown(_) => lost.left(),
            _ => served.left(),
        };
        while let Some(left) = self.scene.connected().map(patience).max()
            && !left.is_zero()
        {
            if let Ok(Event::Gone { host, connection, .. }) = self.push.inbox.recv_timeout(left) {
                self.scene.hang_up(host, connection);
            }
        }
        self.scene.close();
    }

    /// Waits for one event, until then or until the coordinator wants to look at the clock.
    fn next(&mut self, deadline: Option<Deadline>) -> Option<Event> {
        // The coordinator's time passes while nothing happens, too.
        let now = self.started.elapsed();
        let until = self.core.deadline().map_or(IDLE, |at| at.saturating_sub(now).min(IDLE));
        let wait = deadline.map_or(until, |deadline| deadline.left().min(until));
        let event = self.push.inbox.recv_timeout(wait).ok();
        self.core.now = self.started.elapsed();
        event
    }

    fn handle_next(&mut self, deadline: Option<Deadline>) -> Result<(), PushError> {
        match self.next(deadline) {
            Some(event) => self.handle(event),
            None => Ok(()),
        }
    }

    /// Lets a receiver in that has come by itself. Errors: why not.
    fn admit(&mut self, name: String) -> Result<usize, &'static str> {
        let Self { core, scene, push, .. } = self;
        let known = core.hosts.iter().position(|host| host.plan.name == name);
        if let Some(host) = known.filter(|&host| core.expects(host)) {
            return Ok(host);
        }
        let Some(admission) = &push.settings.admission else { return Err("nobody may join") };
        if core.stopped.is_some() {
            return Err("the push is being ended");
        }
        if known.is_some_and(|host| core.hosts[host].is_open()) {
            return Err("a host of this name takes part already; see --name");
        }
        if core.hosts.len() >= HOSTS_MAX {
            return Err("too many hosts take part");
        }
        let host = core.admit(admission.plan(name.clone(), push.settings.root_rack));
        scene.make_room();
        scene.observe(PushEvent::Joined { host, name });
        Ok(host)
    }

    fn handle(&mut self, event: Event) -> Result<(), PushError> {
        let Self { core, scene, push, .. } = self;
        match event {
            Event::Came(host, channel) => {
                if core.expects(host) {
                    let first = push.first_words(&core.hosts[host].plan);
                    match scene.welcome(host, channel, &first) {
                        Ok((ip, own_ip)) => core.came(scene, host, ip, own_ip),
                        Err(error) => core.fail(scene, host, &error.to_string()),
                    }
                } else {
                    Scene::turn_away(channel, "it has been heard of already: is it running twice?");
                }
            }
            Event::Asks(name, channel) => match self.admit(name) {
                Ok(host) => return self.handle(Event::Came(host, channel)),
                Err(reason) => Scene::turn_away(channel, reason),
            },
            Event::Said { host, connection, message } => {
                if scene.is_current(host, connection) {
                    core.said(scene, host, message);
                }
            }
            Event::Gone { host, connection, how } => {
                if scene.hang_up(host, connection) {
                    core.gone(scene, host, &how);
                }
            }
            Event::HostFailed { host, start, reason } => {
                core.not_started(scene, host, start, &reason);
            }
            Event::Checked { host, connection, right } => {
                if scene.is_current(host, connection) {
                    core.checked(scene, host, right?);
                }
            }
            Event::Digest(digest) => core.digested(scene, digest?)?,
            Event::Joined(group, Ok(handle)) => {
                // One that comes too late is dropped, and fails at all its members.
                if core.is_joining(group) {
                    scene.stands(group, handle);
                    core.joined(scene, group, Ok(()))?;
                }
            }
            Event::Joined(group, Err(error)) => core.joined(scene, group, Err(error))?,
            Event::Ended(group, outcome) => {
                scene.ended(group);
                core.ended(scene, group, outcome);
            }
            // Of a measurement that is over.
            Event::Measured(..) => {}
            Event::Cancel => return Err(PushError::Cancelled),
        }
        Ok(())
    }
}

fn system(what: &str, error: std::io::Error) -> Error {
    Error::System { what: what.to_owned(), error }
}
