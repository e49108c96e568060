//! A stream at its root.
//!
//! What some host has not written yet is kept, so that a new group of the others goes on from there when a host is
//! lost; hosts that write slowly hold the reader back.

use std::{
    collections::BTreeMap,
    io::Read,
    net::SocketAddr,
    sync::mpsc::{SyncSender, sync_channel},
    thread,
    time::Duration,
};

use rdmc::{Algorithm, Error, Group};
use session::Deadline;

use super::{
    effects::Effects,
    host::{Host, Step},
    inbox::{Event, Input, Part},
    io::{Sending, new_number},
    kept::Kept,
    prepared::Prepared,
    run::Run,
    settings::{HostState, PushError, PushEvent},
    stream_group::{StreamGroup, stream_settings},
    timeouts::Timeouts,
};
use crate::{
    messages::{ALTERED, Blamed, Start, ToReceiver, ToRoot, join_predicate, predicate},
    ranges::RangeList,
    system::system,
};

/// The most that is read at once.
const READ_BYTES: usize = 256 << 10;
/// For the choice of an algorithm: messages of this length.
const MESSAGE_BYTES: u64 = 4 << 20;
/// The most that is kept because some host has not written it: the root's memory.
const KEPT_BYTES_MAX: u64 = 128 << 20;
/// The most reads that have not been taken up.
const READS_MAX: usize = 16;
/// How long the members of a failed group may take to report what they have.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// How often groups may fail one after another without any host to blame, or any progress.
const FAILURES_MAX: u32 = 3;
/// Of a host without relays before it.
const ALTERED_IN_VAIN: &str = "bytes that it received were changed on their way, again after this machine sent them to it \
                               itself: its link, its memory or that of this machine is faulty";
/// How often hosts relay again after relays or links have changed bytes.
const ALTERATIONS_MAX: u32 = 3;

/// A stream that runs.
pub(super) struct StreamRoot<'a> {
    run: Run<'a>,
    push: &'a Prepared,
    stream: Kept,
    /// Each lets the reader read once.
    permits: Option<(SyncSender<()>, usize)>,
    /// The group in which the stream has ended: its group is kept until all is over.
    last: Option<StreamGroup>,
    /// How much all hosts had when the stream ended early.
    stopped_at: Option<u64>,
    /// How many groups have got other bytes than those that were sent.
    alterations: u32,
    /// The next group has no relays.
    is_direct: bool,
    /// The last lines of output of hosts' commands.
    pub(super) said: BTreeMap<usize, String>,
}

impl<'a> StreamRoot<'a> {
    pub(super) fn new(push: &'a Prepared, observe: &'a mut dyn FnMut(PushEvent)) -> Self {
        let (run, stream) = (Run::new(push, observe), Kept::default());
        let (permits, last, stopped_at) = (None, None, None);
        let (alterations, is_direct, said) = (0, false, BTreeMap::new());
        Self { run, push, stream, permits, last, stopped_at, alterations, is_direct, said }
    }

    /// Replicates what `input` gives until it ends and all hosts have published, or have failed.
    ///
    /// Errors: those that end the stream early.
    pub(super) fn replicate(&mut self, input: impl Read + Send + 'static) -> Result<(), PushError> {
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
            let mut group = self.start_group(hosts)?;
            match self.send_all(&mut group) {
                Ok(true) => {
                    self.last = Some(group);
                    return self.verify();
                }
                Ok(false) => {}
                Err(error) => {
                    self.abort(&group, "the stream has ended early");
                    return Err(error);
                }
            }
            self.conclude(&mut group)?;
            failures = if self.prefix() > from { 1 } else { failures + 1 };
            if failures > FAILURES_MAX {
                let why = group.failure.unwrap_or_default();
                return Err(PushError::Group(why));
            }
        }
    }

    /// Gives all hosts up, and tells them how much is good everywhere. Returns the error, unless all hosts had published.
    pub(super) fn stop(&mut self, error: PushError) -> Option<PushError> {
        let prefix = self.prefix();
        self.stopped_at = Some(prefix);
        let reason = format!("{error}; the first {prefix} bytes are at all hosts that were left");
        let hosts = &self.run.core.hosts;
        let open: Vec<usize> = (0..hosts.len()).filter(|&host| hosts[host].is_open()).collect();
        for host in open {
            self.run.core.fail(&mut self.run.io, host, &reason);
        }
        self.run.core.stop(&mut self.run.io, error);
        self.run.core.outcome().err()
    }

    /// Sends receivers the last message. Returns how much all hosts that were left have, how much was read, and the
    /// digest of everything if the reader has ended.
    pub(super) fn end(&mut self) -> (u64, u64, Option<blake3::Hash>) {
        self.permits = None;
        let prefix = self.stopped_at.unwrap_or_else(|| self.prefix());
        self.last = None;
        self.run.end();
        (prefix, self.stream.end, self.stream.digest)
    }

    pub(super) fn hosts(&self) -> impl Iterator<Item = &Host> {
        self.run.core.hosts.iter()
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
            let (mut buffer, mut digest) = (vec![0; READ_BYTES], blake3::Hasher::new());
            while permitted.recv().is_ok() {
                let part = match input.read(&mut buffer) {
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {
                        Ok(Part::Bytes(Vec::new()))
                    }
                    Ok(0) => Ok(Part::End(digest.finalize())),
                    read => read.map(|count| {
                        digest.update(&buffer[..count]);
                        Part::Bytes(buffer[..count].to_vec())
                    }),
                };
                let is_last = !matches!(part, Ok(Part::Bytes(_)));
                if events.send(Input::Read(part)).is_err() || is_last {
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
        let may_take = self.stream.bytes() < KEPT_BYTES_MAX && self.stream.digest.is_none();
        let Some((permits, given)) = &mut self.permits else { return };
        while may_take && *given < READS_MAX && permits.try_send(()).is_ok() {
            *given += 1;
        }
    }

    /// Starts a group of these hosts from the prefix on.
    fn start_group(&mut self, hosts: Vec<usize>) -> Result<StreamGroup, PushError> {
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
        let members = addresses.len();
        let algorithm =
            if self.is_direct { Some(Algorithm::Sequential) } else { settings.algorithm };
        let choice = settings.choose(algorithm, &racks, MESSAGE_BYTES, context.fabric());
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
            let callbacks = Sending { number, events: events.clone() };
            let joined = context.create_group_with(own, callbacks);
            let _ = events.send(Event::Joined(number, joined).into());
        };
        let thread = thread::Builder::new().name("rdmc-join".into()).spawn(join);
        thread.map_err(|error| system("starting a thread", error))?;
        let direct_until = self.is_direct.then(|| self.stream.messages_end());
        Ok(StreamGroup::new(number, hosts, (from, direct_until)))
    }

    /// Sends what is kept and what is read; true at the end of the stream, when all hosts have written it.
    fn send_all(&mut self, group: &mut StreamGroup) -> Result<bool, PushError> {
        let deadline = Deadline::after(self.push.settings.join_timeout());
        while group.failure.is_none() && !group.is_joined() {
            if deadline.left().is_zero() {
                group.fail("it took too long to join".into(), None);
            }
            self.take_event(group, Some(deadline))?;
        }
        for (_, region) in &self.stream.messages {
            group.send(region.clone());
        }
        let mut is_closing = false;
        while group.failure.is_none() {
            let prefix = self.prefix();
            self.stream.release(prefix);
            self.permit();
            if self.stream.is_due() {
                let (message, region) = self.stream.take_message();
                let message = ToReceiver::Announce(message);
                group.hosts.iter().for_each(|&host| self.run.io.send_message(host, &message));
                group.send(region);
            }
            if self.stream.digest.is_some() && !is_closing {
                is_closing = true;
                // A group that has failed reports that by an event.
                let _ = group.group.as_ref().map(Group::start_close);
            }
            if is_closing && prefix == self.stream.end {
                return Ok(true);
            }
            let is_repeated = group.direct_until.is_some_and(|until| prefix >= until);
            if is_repeated && !is_closing && self.alterations < ALTERATIONS_MAX {
                self.is_direct = false;
                group.fail("hosts relay again".into(), None);
                break;
            }
            self.take_event(group, self.stream.due_in().map(Deadline::after))?;
        }
        Ok(false)
    }

    /// Waits for an event and handles it. Errors: those that end the stream.
    fn take_event(
        &mut self,
        group: &mut StreamGroup,
        deadline: Option<Deadline>,
    ) -> Result<(), PushError> {
        if let Some(input) = self.run.next(deadline) {
            self.note(group, input)?;
        }
        self.run.core.gather(&mut self.run.io)?;
        let hosts = &self.run.core.hosts;
        if let Some(&host) = group.hosts.iter().find(|&&host| !hosts[host].is_ready()) {
            let reason = match hosts[host].state() {
                HostState::Failed(reason) => reason,
                _ => "was lost".to_owned(),
            };
            group.fail(format!("{}: {reason}", hosts[host].plan.name), None);
        }
        Ok(())
    }

    fn note(&mut self, group: &mut StreamGroup, input: Input) -> Result<(), PushError> {
        match input {
            Input::Read(read) => {
                if let Some((_, given)) = &mut self.permits {
                    *given -= 1;
                }
                match read {
                    Ok(Part::Bytes(bytes)) => self.stream.add(&bytes),
                    Ok(Part::End(digest)) => self.stream.digest = Some(digest),
                    Err(error) => return Err(PushError::Input(error)),
                }
            }
            Input::Event(Event::Joined(number, joined)) if number == group.number => match joined {
                Ok(joined) => group.group = Some(joined),
                Err(error) => {
                    let blamed = match &error {
                        Error::Member { member, .. } => {
                            group.host_of(Some(Blamed { member: *member, noticed_by: None }))
                        }
                        _ => None,
                    };
                    group.fail(join_predicate(&error), blamed);
                }
            },
            Input::Event(Event::Ended(number, Err(failure))) if number == group.number => {
                let blamed = group.host_of(crate::messages::blamed(&failure));
                group.fail(predicate(&failure), blamed);
            }
            // Of an earlier group, or closed.
            Input::Event(Event::Joined(..) | Event::Ended(..)) | Input::Woken => {}
            Input::Event(Event::Message {
                host,
                message: ToRoot::Joined { group: number },
                ..
            }) if number == group.number => {
                group.joined.insert(host);
            }
            Input::Event(Event::Message {
                host,
                message: ToRoot::GroupFailed { group: number, blamed, detail, has },
                ..
            }) => {
                if number == group.number {
                    group.reported.insert(host);
                    let name = &self.run.core.hosts[host].plan.name;
                    let blamed = group.host_of(blamed);
                    group.fail(format!("failed at {name}: {detail}"), blamed);
                    let written = has.within(self.stream.end).prefix();
                    let known = &mut self.run.core.hosts[host];
                    known.bytes = known.bytes.max(written);
                }
            }
            Input::Event(Event::Message {
                host,
                message: ToRoot::Altered { group: number, at },
                ..
            }) => {
                if number == group.number {
                    group.altered.insert(host);
                    self.run.io.observe(PushEvent::Altered { host, at });
                    let name = &self.run.core.hosts[host].plan.name;
                    group.fail(format!("failed at {name}: {ALTERED}"), None);
                }
            }
            Input::Event(event) => self.run.handle(event)?,
        }
        Ok(())
    }

    fn abort(&mut self, group: &StreamGroup, reason: &str) {
        if let Some(group) = &group.group {
            group.abort(reason);
        }
        for &host in &group.hosts {
            self.run.io.send_message(host, &ToReceiver::Leave { group: group.number });
        }
    }

    /// After a failed group: waits for what its members have, and gives up those that are lost or blamed.
    fn conclude(&mut self, group: &mut StreamGroup) -> Result<(), PushError> {
        self.abort(group, crate::messages::GIVEN_UP);
        let deadline = Deadline::after(REPORT_TIMEOUT + self.push.settings.failure_deadline);
        let missing = |root: &Self, group: &StreamGroup| -> Vec<usize> {
            let is_missing = |host: &usize| {
                root.run.core.hosts[*host].is_ready() && !group.reported.contains(host)
            };
            group.hosts.iter().copied().filter(is_missing).collect()
        };
        while !missing(self, group).is_empty() && !deadline.left().is_zero() {
            self.take_event(group, Some(deadline))?;
        }
        let why = group.failure.clone().unwrap_or_default();
        tracing::info!(from = group.from, why, "a group of the stream has failed");
        let lost = group.hosts.iter().any(|&host| !self.run.core.hosts[host].is_ready());
        for host in missing(self, group) {
            let reason = format!("it no longer answers: {why}");
            self.run.core.fail(&mut self.run.io, host, &reason);
        }
        if !group.altered.is_empty() {
            self.alterations += 1;
            self.is_direct = true;
        }
        for host in group.altered.iter().copied().filter(|_| group.direct_until.is_some()) {
            self.run.core.fail(&mut self.run.io, host, ALTERED_IN_VAIN);
        }
        if let Some(host) = group.blamed.filter(|_| !lost)
            && self.run.core.hosts[host].is_ready()
        {
            self.run.core.fail(&mut self.run.io, host, &format!("it {why}"));
        }
        Ok(())
    }

    /// A command may take as long as it likes after the end of the stream, while its host is heard of; a file's bytes have
    /// to get to the disk.
    fn extend(&mut self, event: &Event) {
        let Event::Message { host, .. } = *event else { return };
        let (now, bytes) = (self.run.core.now, self.stream.end);
        if let Step::Publishing(until) = &mut self.run.core.hosts[host].step {
            *until = now + Timeouts::new(bytes).sync_timeout();
        }
    }

    /// Lets all hosts compare their digests and publish. Errors: those that end the stream.
    fn verify(&mut self) -> Result<(), PushError> {
        let digest = self.stream.digest_of_pieces();
        let now = self.run.core.now;
        for host in self.ready() {
            self.run.core.hosts.set_complete(&mut self.run.io, host, now);
            self.run.core.hosts.compare(&mut self.run.io, host, digest, now);
        }
        while self.run.core.hosts.iter().any(Host::is_open) {
            match self.run.next(None) {
                Some(Input::Event(Event::Message {
                    host,
                    connection,
                    message: ToRoot::Said { line },
                })) if self.run.io.is_current(host, connection) => {
                    self.said.insert(host, line);
                }
                Some(Input::Event(event)) => {
                    self.extend(&event);
                    self.run.handle(event)?;
                }
                _ => {}
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
