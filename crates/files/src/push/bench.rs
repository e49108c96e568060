//! Measurements of messages from memory to memory, over the same groups as a push.
//!
//! The session is a push without a file: receivers connect in the same way, then join groups for one measurement
//! after another.

use std::{
    collections::BTreeSet,
    net::SocketAddr,
    thread,
    time::{Duration, Instant},
};

use plan::choice::Choice;
use rdmc::{Algorithm, Application, Fabric, Failure, Group, Incoming, Region};
use session::Deadline;

pub use crate::messages::MEASURED_BYTES_MAX;

use super::{
    collective::CollectiveRun,
    effects::Effects,
    inbox::{Event, Events, Input, MeasureEvent, PushHandle},
    io::new_number,
    prepared::Prepared,
    run::Run,
    settings::{HostState, PushError, PushEvent, PushSettings},
};
use crate::{
    CollectiveMeasurement, CollectivePlan,
    messages::{Measure, Start, ToReceiver, ToRoot, join_predicate, predicate},
    ranges::RangeList,
    system::system,
};

/// How long a group may take to close once all messages have arrived.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long one message may take; a group without any progress fails sooner.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(900);

/// What is measured.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BenchPlan {
    /// Message length for bandwidth, to each host alone and to all; at most [`MEASURED_BYTES_MAX`].
    pub bytes: u64,
    /// Measurements of each bandwidth, after one message that does not count.
    pub repeats: u32,
    /// Message lengths for latency.
    pub latency_bytes: Vec<u64>,
    /// Measurements of each latency, after one message that does not count.
    pub latency_repeats: u32,
    /// Collective operations of a team, which are measured instead of everything else.
    pub collective: Option<CollectivePlan>,
}

/// What a measurement is of. Hosts are identified by their index in [`PushSettings::hosts`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Subject {
    /// Messages to one host; time from sending until its confirmation arrives at the root.
    Unicast(usize),
    /// Messages to all hosts; time from sending until the last confirmation arrives at the root.
    Multicast,
    /// Messages that one host returns; half of the round trip between applications.
    Latency(usize),
}

/// One measurement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Measurement {
    /// What of.
    pub subject: Subject,
    /// Length of each message.
    pub bytes: u64,
    /// Members of the group, the root included.
    pub members: usize,
    /// Algorithm and block size.
    pub choice: Choice,
    /// The time of each message, in order.
    pub times: Vec<Duration>,
}

/// Events of a running bench.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BenchEvent {
    /// A host is ready, or has failed.
    Host {
        /// Which.
        host: usize,
        /// Its new state.
        state: HostState,
    },
    /// A measurement starts.
    Measuring {
        /// What is measured.
        subject: Subject,
        /// Length of each message.
        bytes: u64,
    },
    /// The measurement of a collective operation starts.
    Collective {
        /// Length of the message.
        bytes: u64,
    },
}

/// How a bench ended.
#[derive(Debug)]
pub struct BenchReport {
    /// For each host, in the order of [`PushSettings::hosts`]: why it has failed, if it has.
    pub failures: Vec<Option<String>>,
    /// All measurements, in order.
    pub measurements: Vec<Measurement>,
    /// Measurements of a collective operation, in order.
    pub collectives: Vec<CollectiveMeasurement>,
    /// The network that was used; `None` if none was chosen.
    pub fabric: Option<Fabric>,
    /// Why it ended early, if one reason covers all hosts.
    pub error: Option<PushError>,
}

/// A bench that is ready to run and listens for receivers.
pub struct Bench {
    push: Prepared,
    plan: BenchPlan,
}

impl Bench {
    /// Starts to listen for receivers. The hosts' destinations are ignored.
    ///
    /// Errors: a setting is out of range; the system refuses.
    pub fn open(settings: PushSettings, plan: BenchPlan) -> Result<Self, PushError> {
        let longest = plan.latency_bytes.iter().copied().chain([plan.bytes]).max().unwrap_or(0);
        if longest > MEASURED_BYTES_MAX {
            let what = format!("{longest} bytes are too long; use {MEASURED_BYTES_MAX} or less");
            return Err(PushError::Setting(what));
        }
        if let Some(algorithm) = settings.algorithm.filter(|algorithm| algorithm.needs_racks()) {
            let what = format!("a bench has no racks, which {algorithm} needs");
            return Err(PushError::Setting(what));
        }
        if settings.algorithm == Some(Algorithm::InSwitch) {
            let what = "a bench uses no switches, which in-switch needs".to_owned();
            return Err(PushError::Setting(what));
        }
        settings.check(longest)?;
        if let Some(Err(what)) = plan.collective.as_ref().map(CollectivePlan::check) {
            return Err(PushError::Setting(what));
        }
        Ok(Self { push: Prepared::listen(None, settings)?, plan })
    }

    /// The TCP port that receivers connect to.
    pub fn control_port(&self) -> u16 {
        self.push.control_port()
    }

    /// A handle for other threads.
    pub fn handle(&self) -> PushHandle {
        self.push.handle()
    }

    /// Measures. Blocks until everything is measured or has failed, and all receivers have the last message. Calls
    /// `observe` on this thread.
    pub fn run(self, observe: &mut dyn FnMut(BenchEvent)) -> BenchReport {
        let observe = std::cell::RefCell::new(observe);
        let mut on_push = |event| {
            if let PushEvent::Host { host, state } = event {
                (observe.borrow_mut())(BenchEvent::Host { host, state });
            }
        };
        let mut session = Session { run: Run::new(&self.push, &mut on_push), push: &self.push };
        let (mut measurements, mut collectives) = (Vec::new(), Vec::new());
        let mut observe = |event| (observe.borrow_mut())(event);
        let outcome = match &self.plan.collective {
            Some(plan) => CollectiveRun { run: &mut session.run, plan }.measure_all(
                &mut collectives,
                &mut |bytes| {
                    observe(BenchEvent::Collective { bytes });
                },
            ),
            None => session.measure_all(&self.plan, &mut measurements, &mut observe),
        };
        let error = outcome.err();
        let mut run = session.run;
        let error = error.and_then(|error| {
            run.core.stop(&mut run.io, error);
            run.core.outcome().err()
        });
        run.end();
        let failure = |state: HostState| match state {
            HostState::Failed(reason) => Some(reason),
            _ => None,
        };
        let failures = run.core.hosts.iter().map(|host| failure(host.state())).collect();
        let fabric = self.push.context.get().map(|context| context.fabric().clone());
        BenchReport { failures, measurements, collectives, fabric, error }
    }
}

/// A running measurement.
struct Measuring {
    number: u64,
    hosts: Vec<usize>,
    groups: Option<(Group, Option<Group>)>,
    joined: BTreeSet<usize>,
    /// Hosts that have confirmed the current message.
    received: BTreeSet<usize>,
    /// When the last of them did.
    done_at: Option<Instant>,
    failure: Option<String>,
}

impl Measuring {
    fn fail(&mut self, why: String) {
        self.failure.get_or_insert(why);
    }

    fn abort(&self, reason: &str) {
        let groups = self.groups.iter().flat_map(|(out, back)| [Some(out), back.as_ref()]);
        groups.flatten().for_each(|group| group.abort(reason));
    }
}

/// Why a measurement failed.
enum MeasureError {
    /// The bench cannot continue.
    Bench(PushError),
    /// Only this measurement has failed, for this reason.
    Measurement(String),
}

impl<E: Into<PushError>> From<E> for MeasureError {
    fn from(error: E) -> Self {
        Self::Bench(error.into())
    }
}

/// A bench that runs.
struct Session<'a> {
    run: Run<'a>,
    push: &'a Prepared,
}

impl Session<'_> {
    fn measure_all(
        &mut self,
        plan: &BenchPlan,
        measurements: &mut Vec<Measurement>,
        observe: &mut dyn FnMut(BenchEvent),
    ) -> Result<(), PushError> {
        self.run.gather()?;
        let all = 0..self.run.core.hosts.len();
        let mut subjects = Vec::new();
        for &bytes in &plan.latency_bytes {
            subjects.extend(all.clone().map(|host| (Subject::Latency(host), bytes)));
        }
        subjects.extend(all.map(|host| (Subject::Unicast(host), plan.bytes)));
        subjects.push((Subject::Multicast, plan.bytes));
        for (subject, bytes) in subjects {
            let hosts = self.ready_hosts(subject);
            if hosts.is_empty() {
                continue;
            }
            observe(BenchEvent::Measuring { subject, bytes });
            let Some(context) = self.push.context.get() else { return Ok(()) };
            let members = hosts.len() + 1;
            let choice = self.push.settings.choose(
                self.push.settings.algorithm,
                &vec![0; members],
                bytes,
                context.fabric(),
            );
            let repeats = match subject {
                Subject::Latency(_) => plan.latency_repeats,
                _ => plan.repeats,
            };
            match self.measure(subject, hosts, bytes, repeats) {
                Ok(times) => {
                    measurements.push(Measurement { subject, bytes, members, choice, times });
                }
                Err(MeasureError::Bench(error)) => return Err(error),
                Err(MeasureError::Measurement(why)) => match subject {
                    Subject::Unicast(host) | Subject::Latency(host) => {
                        if self.run.core.hosts[host].is_ready() {
                            self.run.core.fail(&mut self.run.io, host, &format!("it {why}"));
                        }
                    }
                    Subject::Multicast => return Err(PushError::Group(why)),
                },
            }
        }
        Ok(())
    }

    fn ready_hosts(&self, subject: Subject) -> Vec<usize> {
        let wanted = |host: usize| match subject {
            Subject::Unicast(only) | Subject::Latency(only) => host == only,
            Subject::Multicast => true,
        };
        let all = 0..self.run.core.hosts.len();
        all.filter(|&host| wanted(host) && self.run.core.hosts[host].is_ready()).collect()
    }

    /// Times of all messages but the first.
    fn measure(
        &mut self,
        subject: Subject,
        hosts: Vec<usize>,
        bytes: u64,
        repeats: u32,
    ) -> Result<Vec<Duration>, MeasureError> {
        let mut measuring = Measuring {
            number: new_number()?,
            hosts,
            groups: None,
            joined: BTreeSet::new(),
            received: BTreeSet::new(),
            done_at: None,
            failure: None,
        };
        let outcome = self.measure_in(&mut measuring, subject, bytes, repeats);
        if outcome.is_err() {
            measuring.abort("the measurement has failed");
            let leave = ToReceiver::Leave { group: measuring.number };
            measuring.hosts.iter().for_each(|&host| self.run.io.send_message(host, &leave));
        }
        outcome
    }

    fn measure_in(
        &mut self,
        measuring: &mut Measuring,
        subject: Subject,
        bytes: u64,
        repeats: u32,
    ) -> Result<Vec<Duration>, MeasureError> {
        let is_latency = matches!(subject, Subject::Latency(_));
        self.start_measuring(measuring, is_latency, bytes)?;
        let joining = self.push.settings.join_timeout();
        self.wait_measuring(measuring, joining, "did not join the group in time", |m| {
            m.groups.is_some() && m.joined.len() == m.hosts.len()
        })?;
        // The same memory each time, as at the receivers.
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let region = Region::from_vec(vec![1; length]);
        if let Some(context) = self.push.context.get() {
            let registered = context.register(&region);
            registered.map_err(|error| MeasureError::Measurement(error.to_string()))?;
        }
        let mut times = Vec::new();
        for _ in 0..=repeats {
            measuring.received.clear();
            measuring.done_at = None;
            let sent_at = Instant::now();
            if let Some((group, _)) = &measuring.groups {
                group
                    .try_send(region.clone())
                    .map_err(|e| MeasureError::Measurement(e.to_string()))?;
            }
            let late = "did not get a message in time";
            self.wait_measuring(measuring, MESSAGE_TIMEOUT, late, |m| m.done_at.is_some())?;
            let time = measuring.done_at.unwrap_or(sent_at) - sent_at;
            times.push(if is_latency { time / 2 } else { time });
        }
        times.remove(0);
        if let Some((out, back)) = measuring.groups.take() {
            for group in [Some(out), back].into_iter().flatten() {
                let closed = group.close(CLOSE_TIMEOUT);
                closed.map_err(|error| MeasureError::Measurement(error.to_string()))?;
            }
        }
        Ok(times)
    }

    /// Starts the groups at the hosts, and joins them on a thread that ends by the context's own deadline.
    fn start_measuring(
        &mut self,
        measuring: &Measuring,
        is_latency: bool,
        bytes: u64,
    ) -> Result<(), MeasureError> {
        let settings = &self.push.settings;
        let mut addresses = vec![self.run.core.hosts.own_address(self.run.io.address())];
        for &host in &measuring.hosts {
            let host = &self.run.core.hosts[host];
            addresses.extend(host.ip.map(|ip| SocketAddr::new(ip, host.port)));
        }
        let Some(context) = self.push.context.get().cloned() else { return Ok(()) };
        let racks = vec![0; addresses.len()];
        let choice = settings.choose(settings.algorithm, &racks, bytes, context.fabric());
        let window = settings.window(addresses.len(), choice.block_bytes);
        let start = |number, rank, addresses: Vec<SocketAddr>, algorithm: Algorithm| Start {
            group: number,
            rank,
            ranges: RangeList::default(),
            racks: vec![0; addresses.len()],
            addresses,
            algorithm: algorithm.code(),
            block_bytes: choice.block_bytes,
            window_receives: window.receives,
            window_sends: window.sends,
            // One at a time: all messages use the same memory.
            messages_in_flight: 1,
            offload: settings.offload,
        };
        let back_addresses: Vec<_> = addresses.iter().rev().copied().collect();
        let back_number = new_number()?;
        let out = |rank| start(measuring.number, rank, addresses.clone(), choice.algorithm);
        let back = |rank| {
            let back = || start(back_number, rank, back_addresses.clone(), Algorithm::Sequential);
            is_latency.then(back)
        };
        for (rank, &host) in (1..).zip(&measuring.hosts) {
            let measure = Measure { start: out(rank), bytes, echo: back(0) };
            self.run.io.send_message(host, &ToReceiver::Measure(measure));
        }
        let (out, back) = (out(0), back(1));
        let events = self.push.events.clone();
        let number = measuring.number;
        let join = move || {
            let callbacks = |memory| RootCallbacks { number, memory, events: events.clone() };
            let joined = (|| {
                let settings = out.group_settings()?;
                let group = context.create_group_with(settings, callbacks(None))?;
                let Some(back) = back else { return Ok((group, None)) };
                let length = usize::try_from(bytes).unwrap_or(usize::MAX);
                let memory = Some(Region::from_vec(vec![1; length]));
                let settings = back.group_settings()?;
                let back = context.create_group_with(settings, callbacks(memory))?;
                Ok((group, Some(back)))
            })();
            let _ = events.send(Input::Measured(number, MeasureEvent::Joined(joined)));
        };
        let thread = thread::Builder::new().name("rdmc-join".into()).spawn(join);
        thread.map_err(|error| system("starting a thread", error))?;
        Ok(())
    }

    /// Handles events until `done`, or until the measurement or one of its hosts fails.
    fn wait_measuring(
        &mut self,
        measuring: &mut Measuring,
        timeout: Duration,
        late: &str,
        done: impl Fn(&Measuring) -> bool,
    ) -> Result<(), MeasureError> {
        let deadline = Deadline::after(timeout);
        while !done(measuring) {
            if deadline.left().is_zero() {
                measuring.fail(late.to_owned());
            } else if let Some(input) = self.run.next(Some(deadline)) {
                self.note(measuring, input)?;
            }
            let hosts = &self.run.core.hosts;
            let lost = measuring.hosts.iter().find(|&&host| !hosts[host].is_ready());
            if let Some(HostState::Failed(why)) = lost.map(|&host| hosts[host].state()) {
                measuring.fail(why);
            }
            if let Some(why) = &measuring.failure {
                return Err(MeasureError::Measurement(why.clone()));
            }
        }
        Ok(())
    }

    fn note(&mut self, measuring: &mut Measuring, input: Input) -> Result<(), PushError> {
        match input {
            Input::Measured(number, event) if number == measuring.number => match event {
                MeasureEvent::Joined(Ok(groups)) => measuring.groups = Some(groups),
                MeasureEvent::Joined(Err(error)) => measuring.fail(join_predicate(&error)),
                MeasureEvent::Echoed(at) => measuring.done_at = Some(at),
                MeasureEvent::Failed(failure) => measuring.fail(predicate(&failure)),
                // Of no group.
                MeasureEvent::Collective(_) => {}
            },
            Input::Event(Event::Message { host, message: ToRoot::Joined { group }, .. })
                if group == measuring.number =>
            {
                measuring.joined.insert(host);
            }
            Input::Event(Event::Message { host, message: ToRoot::Received { group }, .. })
                if group == measuring.number =>
            {
                measuring.received.insert(host);
                if measuring.received.len() == measuring.hosts.len() {
                    measuring.done_at = Some(Instant::now());
                }
            }
            Input::Event(Event::Message {
                host,
                message: ToRoot::GroupFailed { group, detail, .. },
                ..
            }) if group == measuring.number => {
                let name = &self.run.core.hosts[host].plan.name;
                measuring.fail(format!("failed at {name}: {detail}"));
            }
            // Of an earlier measurement, or of no bench.
            Input::Measured(..) => {}
            Input::Event(event) => self.run.handle(event)?,
        }
        Ok(())
    }
}

/// The root's callbacks in both groups of a measurement.
struct RootCallbacks {
    number: u64,
    /// For returned messages.
    memory: Option<Region>,
    events: Events,
}

impl RootCallbacks {
    fn send(&self, event: MeasureEvent) {
        // Fails only if the bench has ended.
        let _ = self.events.send(Input::Measured(self.number, event));
    }
}

impl Application for RootCallbacks {
    fn incoming(&mut self, _message: u64, bytes: u64) -> Incoming {
        match &self.memory {
            Some(memory) if memory.len() as u64 == bytes => Incoming::Into(memory.clone()),
            _ => Incoming::Refuse(format!("a message of {bytes} bytes was not expected")),
        }
    }

    fn received(&mut self, _message: u64) {
        if self.memory.is_some() {
            self.send(MeasureEvent::Echoed(Instant::now()));
        }
    }

    fn complete(&mut self, _message: u64, _region: Region) {}

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        self.send(MeasureEvent::Failed(failure.clone()));
    }
}
