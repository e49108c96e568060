//! Replicates a stream whose length is known at its end: what a reader gives goes to all hosts as messages of groups.
//!
//! What some host has not written yet is kept, so that a new group of the others goes on from there when a host is
//! lost; hosts that write slowly hold the reader back.

use std::{
    collections::{BTreeSet, VecDeque},
    io::Read,
    net::SocketAddr,
    sync::mpsc::{SyncSender, sync_channel},
    thread,
    time::{Duration, Instant},
};

use rdmc::{Error, Fabric, Group, GroupSettings, Region};
use session::Deadline;

use super::{
    bench::RootCallbacks,
    effects::Effects,
    host::{Host, Step},
    inbox::{Event, Input, MeasureEvent, PushHandle},
    io::new_number,
    prepared::Prepared,
    run::Run,
    settings::{HostState, PushError, PushEvent, PushSettings},
};
use crate::{
    messages::{Blamed, Start, ToReceiver, ToRoot, join_predicate, predicate},
    ranges::RangeList,
    system::system,
};

/// The most that is read at once.
const READ_BYTES: usize = 256 << 10;
/// What is sent as one message while others are under way; less if none is.
const MESSAGE_BYTES: usize = 4 << 20;
/// The most that is kept because some host has not written it: the root's memory.
const KEPT_BYTES_MAX: u64 = 128 << 20;
/// The most reads that have not been taken up.
const READS_MAX: usize = 16;
/// How long the members of a failed group may take to report what they have.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often groups may fail one after another without any host to blame, or any progress.
const FAILURES_MAX: u32 = 3;

/// How a stream ended.
#[derive(Debug)]
pub struct StreamReport {
    /// In the order of [`PushSettings::hosts`].
    pub hosts: Vec<StreamHost>,
    /// How much was read.
    pub bytes: u64,
    /// How much is at every host that has not failed: the good prefix.
    pub prefix_bytes: u64,
    /// The BLAKE3 digest of everything, if the reader has ended.
    pub digest: Option<blake3::Hash>,
    /// The network that was used; `None` if none was chosen.
    pub fabric: Option<Fabric>,
    /// Including start and verification.
    pub total: Duration,
    /// Why it ended early, if one reason covers all hosts.
    pub error: Option<PushError>,
}

/// How a stream ended for one host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StreamHost {
    /// Its name.
    pub name: String,
    /// [`HostState::Published`] (written out, and verified), [`HostState::Failed`] or [`HostState::Unknown`].
    pub state: HostState,
    /// How much it has written out, as far as it has said.
    pub bytes: u64,
}

impl StreamReport {
    /// How many hosts have everything, verified.
    pub fn published(&self) -> usize {
        self.hosts.iter().filter(|host| host.state == HostState::Published).count()
    }
}

/// A stream that is ready to run and listens for receivers.
pub struct Stream {
    push: Prepared,
}

impl Stream {
    /// Starts to listen for receivers.
    ///
    /// Errors: a setting is out of range, or has no meaning for a stream; the system refuses.
    pub fn open(settings: PushSettings) -> Result<Self, PushError> {
        let refuse = |what: &str| Err(PushError::Setting(what.to_owned()));
        if settings.admission.is_some() || settings.retries > 0 {
            return refuse("hosts cannot join a stream or return to it: what is past is gone");
        }
        if settings.dry_run {
            return refuse("a stream has no dry run: what comes is not known");
        }
        if settings.algorithm == Some(rdmc::Algorithm::InSwitch) {
            return refuse("a stream uses no switches, which in-switch needs");
        }
        settings.check(0)?;
        Ok(Self { push: Prepared::listen(None, settings)?.into_stream() })
    }

    /// The TCP port that receivers connect to.
    pub fn control_port(&self) -> u16 {
        self.push.control_port()
    }

    /// A handle for other threads.
    pub fn handle(&self) -> PushHandle {
        self.push.handle()
    }

    /// Replicates what `input` gives until it ends. Blocks until every host has everything or has failed, and all
    /// receivers have the last message. Reads on a thread of its own, which may outlive this call by one read. Calls
    /// `observe` on this thread.
    pub fn run(
        self,
        input: impl Read + Send + 'static,
        observe: &mut dyn FnMut(PushEvent),
    ) -> StreamReport {
        let started = Instant::now();
        let run = Run::new(&self.push, observe);
        let mut session = Session {
            run,
            push: &self.push,
            stream: Kept::default(),
            permits: None,
            last: None,
            stopped_at: None,
        };
        let error = session.replicate(input).err().and_then(|error| {
            session.stop(error);
            session.run.core.outcome().err()
        });
        session.permits = None;
        let prefix_bytes = session.stopped_at.unwrap_or_else(|| session.prefix());
        let Session { mut run, stream, .. } = session;
        run.end();
        let of_host = |host: &Host| {
            let report = host.report();
            StreamHost { name: report.name, state: report.state, bytes: host.bytes }
        };
        let hosts: Vec<StreamHost> = run.core.hosts.iter().map(of_host).collect();
        StreamReport {
            bytes: stream.end,
            prefix_bytes,
            digest: stream.has_ended.then(|| stream.digest.finalize()),
            fabric: self.push.context.get().map(|context| context.fabric().clone()),
            total: started.elapsed(),
            hosts,
            error,
        }
    }
}

/// What was read and is not at all hosts.
#[derive(Default)]
struct Kept {
    /// Messages, with their places in the stream.
    messages: VecDeque<(u64, Region)>,
    /// Read, and not in a message.
    pending: Vec<u8>,
    /// How much was read.
    end: u64,
    has_ended: bool,
    digest: blake3::Hasher,
}

impl Kept {
    fn add(&mut self, bytes: &[u8]) {
        self.digest.update(bytes);
        self.pending.extend_from_slice(bytes);
        self.end += bytes.len() as u64;
    }

    /// The end of the last message.
    fn messages_end(&self) -> u64 {
        self.end - self.pending.len() as u64
    }

    fn take_message(&mut self) -> Region {
        let at = self.messages_end();
        let region = Region::from_vec(std::mem::take(&mut self.pending));
        self.messages.push_back((at, region.clone()));
        region
    }

    /// All hosts have written this much.
    fn release(&mut self, prefix: u64) {
        while let Some((at, region)) = self.messages.front()
            && at + region.len() as u64 <= prefix
        {
            self.messages.pop_front();
        }
    }

    /// How much is kept.
    fn bytes(&self) -> u64 {
        self.messages.front().map_or(self.pending.len() as u64, |(at, _)| self.end - at)
    }
}

/// One group of the stream.
struct Round {
    number: u64,
    /// By rank, from 1 on.
    hosts: Vec<usize>,
    group: Option<Group>,
    joined: BTreeSet<usize>,
    /// Hosts that have reported that it failed.
    reported: BTreeSet<usize>,
    failure: Option<String>,
    blamed: Option<usize>,
    /// The place in the stream where it began.
    from: u64,
}

impl Round {
    fn fail(&mut self, why: String, blamed: Option<usize>) {
        self.failure.get_or_insert(why);
        self.blamed = self.blamed.or(blamed);
    }

    /// The host that a member blames.
    fn host_of(&self, blamed: Option<Blamed>) -> Option<usize> {
        let rank = blamed?.member.checked_sub(1)?;
        self.hosts.get(rank as usize).copied()
    }
}

/// A stream that runs.
struct Session<'a> {
    run: Run<'a>,
    push: &'a Prepared,
    stream: Kept,
    /// Each lets the reader read once.
    permits: Option<(SyncSender<()>, usize)>,
    /// The round in which the stream has ended: its group is kept until all is over.
    last: Option<Round>,
    /// How much all hosts had when the stream ended early.
    stopped_at: Option<u64>,
}

impl Session<'_> {
    fn replicate(&mut self, input: impl Read + Send + 'static) -> Result<(), PushError> {
        self.run.gather()?;
        self.start_reader(input)?;
        let mut failures = 0;
        loop {
            let hosts = self.ready();
            if hosts.is_empty() {
                return Err(PushError::Group("no host is left".into()));
            }
            let from = self.prefix();
            // The slowest host may be gone.
            self.stream.release(from);
            let mut round = self.start_round(hosts)?;
            match self.send_all(&mut round) {
                Ok(true) => {
                    self.last = Some(round);
                    return self.verify();
                }
                Ok(false) => {}
                Err(error) => {
                    self.abort(&round, "the stream has ended early");
                    return Err(error);
                }
            }
            self.conclude(&mut round)?;
            failures = if self.prefix() > from { 1 } else { failures + 1 };
            if failures > FAILURES_MAX {
                let why = round.failure.unwrap_or_default();
                return Err(PushError::Group(why));
            }
        }
    }

    /// Gives all hosts up, and tells them how much is good everywhere.
    fn stop(&mut self, error: PushError) {
        let prefix = self.prefix();
        self.stopped_at = Some(prefix);
        let reason = format!("{error}; the first {prefix} bytes are at all hosts that are left");
        let hosts = &self.run.core.hosts;
        let open: Vec<usize> = (0..hosts.len()).filter(|&host| hosts[host].is_open()).collect();
        for host in open {
            self.run.core.fail(&mut self.run.io, host, &reason);
        }
        self.run.core.stop(&mut self.run.io, error);
    }

    fn ready(&self) -> Vec<usize> {
        let hosts = &self.run.core.hosts;
        (0..hosts.len()).filter(|&host| hosts[host].is_ready()).collect()
    }

    /// How much all hosts that have not failed have written.
    fn prefix(&self) -> u64 {
        let alive = |host: &&Host| host.is_open() || host.step == Step::Published;
        let hosts = self.run.core.hosts.iter().filter(alive);
        hosts.map(|host| host.bytes).min().unwrap_or(0).min(self.stream.end)
    }

    fn start_reader(&mut self, mut input: impl Read + Send + 'static) -> Result<(), PushError> {
        let (permits, permitted) = sync_channel::<()>(READS_MAX);
        let events = self.push.events.clone();
        let read = move || {
            let mut buffer = vec![0; READ_BYTES];
            while permitted.recv().is_ok() {
                let read = loop {
                    match input.read(&mut buffer) {
                        Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                        read => break read.map(|count| buffer[..count].to_vec()),
                    }
                };
                let is_last = read.as_ref().map_or(true, Vec::is_empty);
                if events.send(Input::Read(read)).is_err() || is_last {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("rdmc-read".into()).spawn(read);
        thread.map_err(|error| system("starting a thread", error))?;
        self.permits = Some((permits, 0));
        Ok(())
    }

    /// Lets the reader go on if there is room.
    fn permit(&mut self) {
        let may_take = self.stream.bytes() < KEPT_BYTES_MAX && !self.stream.has_ended;
        let Some((permits, given)) = &mut self.permits else { return };
        while may_take && *given < READS_MAX && permits.try_send(()).is_ok() {
            *given += 1;
        }
    }

    /// Starts a group of these hosts from the prefix on.
    fn start_round(&mut self, hosts: Vec<usize>) -> Result<Round, PushError> {
        let settings = &self.push.settings;
        let mut addresses = vec![self.run.core.hosts.own_address(self.run.io.address())];
        let mut racks = vec![settings.root_rack];
        for &host in &hosts {
            let host = &self.run.core.hosts[host];
            addresses.extend(host.ip.map(|ip| SocketAddr::new(ip, host.port)));
            racks.push(host.plan.rack);
        }
        let Some(context) = self.push.context.get().cloned() else {
            return Err(PushError::Group("no network was chosen".into()));
        };
        let bytes = MESSAGE_BYTES as u64;
        let members = addresses.len();
        let choice = settings.choose(settings.algorithm, &racks, bytes, context.fabric());
        let window = settings.window(members, choice.block_bytes);
        let mut start = Start {
            group: new_number()?,
            rank: 0,
            ranges: RangeList::default(),
            addresses,
            racks,
            algorithm: choice.algorithm.code(),
            block_bytes: choice.block_bytes,
            window_receives: window.receives,
            window_sends: window.sends,
            messages_in_flight: 8,
            offload: settings.offload,
        };
        let from = self.stream.messages.front().map_or(self.stream.messages_end(), |(at, _)| *at);
        let (number, own) = (start.group, stream_settings(&start)?);
        for &host in &hosts {
            start.rank += 1;
            self.run.io.send_message(host, &ToReceiver::Take { start: start.clone(), from });
        }
        let events = self.push.events.clone();
        let join = move || {
            let callbacks = RootCallbacks::of_sender(number, events.clone());
            let joined = context.create_group_with(own, callbacks).map(|group| (group, None));
            let _ = events.send(Input::Measured(number, MeasureEvent::Joined(joined)));
        };
        let thread = thread::Builder::new().name("rdmc-join".into()).spawn(join);
        thread.map_err(|error| system("starting a thread", error))?;
        let (joined, reported) = (BTreeSet::new(), BTreeSet::new());
        let (group, failure, blamed) = (None, None, None);
        Ok(Round { number, hosts, group, joined, reported, failure, blamed, from })
    }

    /// Sends what is kept and what is read; true at the end of the stream, when all hosts have written it.
    fn send_all(&mut self, round: &mut Round) -> Result<bool, PushError> {
        let deadline = Deadline::after(self.push.settings.join_timeout());
        while round.failure.is_none() && !is_joined(round) {
            if deadline.left().is_zero() {
                round.fail("it took too long to join".into(), None);
            }
            self.take_event(round, Some(deadline))?;
        }
        let Some(group) = &round.group else { return Ok(false) };
        for (_, region) in &self.stream.messages {
            if let Err(error) = group.try_send(region.clone()) {
                round.fail(error.to_string(), None);
                return Ok(false);
            }
        }
        let mut is_closing = false;
        while round.failure.is_none() {
            let prefix = self.prefix();
            self.stream.release(prefix);
            self.permit();
            let is_idle = self.stream.messages.is_empty();
            let pending = self.stream.pending.len();
            let is_due = pending >= MESSAGE_BYTES || is_idle || self.stream.has_ended;
            if pending > 0 && is_due {
                let region = self.stream.take_message();
                if let Some(Err(error)) = round.group.as_ref().map(|group| group.try_send(region)) {
                    round.fail(error.to_string(), None);
                }
            }
            if self.stream.has_ended && !is_closing {
                is_closing = true;
                // A group that has failed reports that by an event.
                let _ = round.group.as_ref().map(Group::start_close);
            }
            if is_closing && prefix == self.stream.end {
                return Ok(true);
            }
            self.take_event(round, None)?;
        }
        Ok(false)
    }

    /// Waits for an event and handles it. Errors: those that end the stream.
    fn take_event(
        &mut self,
        round: &mut Round,
        deadline: Option<Deadline>,
    ) -> Result<(), PushError> {
        if let Some(input) = self.run.next(deadline) {
            self.note(round, input)?;
        }
        self.run.core.gather(&mut self.run.io)?;
        let hosts = &self.run.core.hosts;
        if let Some(&host) = round.hosts.iter().find(|&&host| !hosts[host].is_ready()) {
            let reason = match hosts[host].state() {
                HostState::Failed(reason) => reason,
                _ => "was lost".to_owned(),
            };
            round.fail(format!("{}: {reason}", hosts[host].plan.name), None);
        }
        Ok(())
    }

    fn note(&mut self, round: &mut Round, input: Input) -> Result<(), PushError> {
        match input {
            Input::Read(read) => {
                if let Some((_, given)) = &mut self.permits {
                    *given -= 1;
                }
                match read {
                    Ok(bytes) if bytes.is_empty() => self.stream.has_ended = true,
                    Ok(bytes) => self.stream.add(&bytes),
                    Err(error) => return Err(PushError::Input(error)),
                }
            }
            Input::Measured(number, event) if number == round.number => match event {
                MeasureEvent::Joined(Ok((group, _))) => round.group = Some(group),
                MeasureEvent::Joined(Err(error)) => {
                    let blamed = match &error {
                        Error::Member { member, .. } => {
                            round.host_of(Some(Blamed { member: *member, noticed_by: None }))
                        }
                        _ => None,
                    };
                    round.fail(join_predicate(&error), blamed);
                }
                MeasureEvent::Failed(failure) => {
                    let blamed = round.host_of(crate::messages::blamed(&failure));
                    round.fail(predicate(&failure), blamed);
                }
                MeasureEvent::Echoed(_) | MeasureEvent::Collective(_) => {}
            },
            Input::Measured(..) => {}
            Input::Event(Event::Message {
                host,
                message: ToRoot::Joined { group: number },
                ..
            }) if number == round.number => {
                round.joined.insert(host);
            }
            Input::Event(Event::Message {
                host,
                message: ToRoot::GroupFailed { group: number, blamed, detail, has },
                ..
            }) => {
                if number == round.number {
                    round.reported.insert(host);
                    let name = &self.run.core.hosts[host].plan.name;
                    let blamed = round.host_of(blamed);
                    round.fail(format!("failed at {name}: {detail}"), blamed);
                    let written = has.within(self.stream.end).prefix();
                    let known = &mut self.run.core.hosts[host];
                    known.bytes = known.bytes.max(written);
                }
            }
            Input::Event(event) => self.run.handle(event)?,
        }
        Ok(())
    }

    fn abort(&mut self, round: &Round, reason: &str) {
        if let Some(group) = &round.group {
            group.abort(reason);
        }
        for &host in &round.hosts {
            self.run.io.send_message(host, &ToReceiver::Leave { group: round.number });
        }
    }

    /// After a failed group: waits for what its members have, and gives up those that are lost or blamed.
    fn conclude(&mut self, round: &mut Round) -> Result<(), PushError> {
        self.abort(round, crate::messages::GIVEN_UP);
        let deadline = Deadline::after(REPORT_TIMEOUT + self.push.settings.failure_deadline);
        let missing = |session: &Self, round: &Round| -> Vec<usize> {
            let is_missing = |host: &usize| {
                session.run.core.hosts[*host].is_ready() && !round.reported.contains(host)
            };
            round.hosts.iter().copied().filter(is_missing).collect()
        };
        while !missing(self, round).is_empty() && !deadline.left().is_zero() {
            self.take_event(round, Some(deadline))?;
        }
        let why = round.failure.clone().unwrap_or_default();
        tracing::info!(from = round.from, why, "a group of the stream has failed");
        let lost = round.hosts.iter().any(|&host| !self.run.core.hosts[host].is_ready());
        for host in missing(self, round) {
            let reason = format!("it no longer answers: {why}");
            self.run.core.fail(&mut self.run.io, host, &reason);
        }
        if let Some(host) = round.blamed.filter(|_| !lost)
            && self.run.core.hosts[host].is_ready()
        {
            self.run.core.fail(&mut self.run.io, host, &format!("it {why}"));
        }
        Ok(())
    }

    /// Lets all hosts compare their digests and publish. Errors: those that end the stream.
    fn verify(&mut self) -> Result<(), PushError> {
        let digest = self.stream.digest.finalize();
        let now = self.run.core.now;
        for host in self.ready() {
            self.run.core.hosts.set_complete(&mut self.run.io, host, now);
            self.run.core.hosts.compare(&mut self.run.io, host, digest, now);
        }
        while self.run.core.hosts.iter().any(Host::is_open) {
            if let Some(Input::Event(event)) = self.run.next(None) {
                self.run.handle(event)?;
            }
            self.run.core.gather(&mut self.run.io)?;
            let now = self.run.core.now;
            for host in 0..self.run.core.hosts.len() {
                match self.run.core.hosts[host].step {
                    Step::Mismatch => {
                        let reason = "what it wrote differs from what was read here";
                        self.run.core.fail(&mut self.run.io, host, reason);
                    }
                    Step::Verified => self.run.core.hosts.publish(&mut self.run.io, host, now),
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

fn is_joined(round: &Round) -> bool {
    round.group.is_some() && round.joined.len() == round.hosts.len()
}

/// The group's settings at any member.
pub(crate) fn stream_settings(start: &Start) -> Result<GroupSettings, Error> {
    let mut settings = start.group_settings()?;
    // A consumer may pause for as long as it likes; members that die are noticed all the same.
    settings.stall_timeout = Duration::MAX;
    settings.receive_bytes_max = RECEIVE_BYTES_MAX;
    Ok(settings)
}

/// What a receiver holds of messages that its consumer has not taken.
const RECEIVE_BYTES_MAX: u64 = 64 << 20;
