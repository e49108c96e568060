//! Measurements of messages in groups, over the same networks as a push.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use files::{GroupTerms, HostState, PushError, join_predicate, predicate};
use rdmc::{Algorithm, Application, Choice, Failure, Group, Incoming, Region};
use session::Deadline;

use super::{
    measurement::{BenchEvent, BenchPlan, Measurement, Subject},
    session::{Event, Input, Reporter, Session, start_thread},
};
use crate::messages::{Answer, Measure, Request};

/// How long a group may take to close once all messages have arrived.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a host whose group has failed may take to say why, by its control connection.
const REPORT_TIMEOUT: Duration = Duration::from_secs(3);
/// How long one message may take; a group without any progress fails sooner.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(900);

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
    /// The first reason to end, and when it does: a host that is lost before has the reason.
    failure: Option<(String, Deadline)>,
}

impl Measuring {
    /// Ends it now.
    fn fail(&mut self, why: String) {
        self.failure = Some((why, Deadline::after(Duration::ZERO)));
    }

    /// A group has failed: at a member that has ended, whose last message comes by another connection, perhaps later.
    fn fail_group(&mut self, why: String) {
        self.failure.get_or_insert_with(|| (why, Deadline::after(REPORT_TIMEOUT)));
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

/// Measures everything, one after another. Adds what was measured, also before a failure.
///
/// Errors: nothing can be measured any more.
pub(super) fn measure_all(
    session: &mut Session<'_>,
    plan: &BenchPlan,
    measurements: &mut Vec<Measurement>,
    observe: &mut dyn FnMut(BenchEvent),
) -> Result<(), PushError> {
    session.root.gather()?;
    Groups { session }.measure_all(plan, measurements, observe)
}

/// Measurements in groups.
struct Groups<'a, 'b> {
    session: &'a mut Session<'b>,
}

impl Groups<'_, '_> {
    fn measure_all(
        &mut self,
        plan: &BenchPlan,
        measurements: &mut Vec<Measurement>,
        observe: &mut dyn FnMut(BenchEvent),
    ) -> Result<(), PushError> {
        let all = 0..self.session.gathering.settings().hosts.len();
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
            let members = hosts.len() + 1;
            let Some(choice) = self.choose(&hosts, bytes) else { return Ok(()) };
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
                        if self.session.root.is_ready(host) {
                            self.session.root.fail(host, &format!("it {why}"));
                        }
                    }
                    Subject::Multicast => return Err(PushError::Group(why)),
                },
            }
        }
        Ok(())
    }

    /// How a message of this length is sent to these hosts, which count as in one rack; `None` without a network.
    fn choose(&self, hosts: &[usize], bytes: u64) -> Option<Choice> {
        let gathering = self.session.gathering;
        let (settings, fabric) = (gathering.settings(), gathering.context()?.fabric());
        let own = self.session.root.addresses(&[]).first()?.ip();
        let racks = vec![0; hosts.len() + 1];
        Some(settings.choose(settings.algorithm, &racks, bytes, fabric, own))
    }

    fn ready_hosts(&self, subject: Subject) -> Vec<usize> {
        match subject {
            Subject::Unicast(only) | Subject::Latency(only) => {
                [only].into_iter().filter(|&host| self.session.root.is_ready(host)).collect()
            }
            Subject::Multicast => self.session.root.ready(),
        }
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
            number: self.session.root.number()?,
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
            let leave = Request::Leave { number: measuring.number };
            for &host in &measuring.hosts {
                self.session.send(host, &leave)?;
            }
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
        let joining = self.session.gathering.settings().join_timeout();
        self.wait_measuring(measuring, joining, "did not join the group in time", |m| {
            m.groups.is_some() && m.joined.len() == m.hosts.len()
        })?;
        // The same memory each time, as at the receivers.
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let region = Region::from_vec(vec![1; length]);
        if let Some(context) = self.session.gathering.context() {
            let registered = context.register(&region);
            registered.map_err(|error| MeasureError::Measurement(error.to_string()))?;
        }
        let late = "did not get a message in time";
        let mut times = Vec::new();
        for _ in 0..=repeats {
            measuring.received.clear();
            measuring.done_at = None;
            let sent_at = Instant::now();
            let sent = measuring.groups.as_ref().map(|(group, _)| group.try_send(region.clone()));
            if let Some(Err(error)) = sent {
                measuring.fail_group(error.to_string());
            }
            self.wait_measuring(measuring, MESSAGE_TIMEOUT, late, |m| m.done_at.is_some())?;
            let time = measuring.done_at.unwrap_or(sent_at) - sent_at;
            times.push(if is_latency { time / 2 } else { time });
        }
        times.remove(0);
        if let Some((out, back)) = measuring.groups.take() {
            for group in [Some(out), back].into_iter().flatten() {
                if let Err(error) = group.close(CLOSE_TIMEOUT) {
                    measuring.fail_group(error.to_string());
                }
                self.wait_measuring(measuring, CLOSE_TIMEOUT, late, |_| true)?;
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
        let gathering = self.session.gathering;
        let settings = gathering.settings();
        let Some(context) = gathering.context().cloned() else { return Ok(()) };
        let Some(choice) = self.choose(&measuring.hosts, bytes) else { return Ok(()) };
        let addresses = self.session.root.addresses(&measuring.hosts);
        let racks = vec![0; addresses.len()];
        let terms = settings.group_terms(measuring.number, &choice, addresses, racks);
        let back_terms = GroupTerms {
            number: self.session.root.number()?,
            addresses: terms.addresses.iter().rev().copied().collect(),
            algorithm: Algorithm::Sequential.code(),
            ..terms.clone()
        };
        let out = |rank| GroupTerms { rank, ..terms.clone() };
        let back = |rank| is_latency.then(|| GroupTerms { rank, ..back_terms.clone() });
        for (rank, &host) in (1..).zip(&measuring.hosts) {
            let measure = Measure { group: out(rank), bytes, echo: back(0) };
            self.session.send(host, &Request::Measure(measure))?;
        }
        let (out, back) = (out(0), back(1));
        let reporter = self.session.reporter(measuring.number);
        let join = move || {
            let callbacks = |memory| RootCallbacks { memory, reporter: reporter.clone() };
            let joined = (|| {
                let group = context.create_group_with(out.settings()?, callbacks(None))?;
                let Some(back) = back else { return Ok((group, None)) };
                let length = usize::try_from(bytes).unwrap_or(usize::MAX);
                let memory = Some(Region::from_vec(vec![1; length]));
                let back = context.create_group_with(back.settings()?, callbacks(memory))?;
                Ok((group, Some(back)))
            })();
            reporter.report(Event::Joined(joined));
        };
        Ok(start_thread("rdmc-join", join)?)
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
        while measuring.failure.is_some() || !done(measuring) {
            let until = measuring.failure.as_ref().map_or(deadline, |(_, until)| *until);
            if let Some(input) = self.session.next(until)? {
                self.note(measuring, input);
            } else if measuring.failure.is_none() && deadline.left().is_zero() {
                measuring.fail(late.to_owned());
            }
            let root = &self.session.root;
            let lost = measuring.hosts.iter().find(|&&host| !root.is_ready(host));
            if let Some(HostState::Failed(why)) = lost.map(|&host| root.state(host)) {
                measuring.fail(why);
            }
            if let Some((why, until)) = &measuring.failure
                && until.left().is_zero()
            {
                return Err(MeasureError::Measurement(why.clone()));
            }
        }
        Ok(())
    }

    fn note(&self, measuring: &mut Measuring, input: Input) {
        match input {
            Input::Reported(number, event) if number == measuring.number => match event {
                Event::Joined(Ok(groups)) => measuring.groups = Some(groups),
                Event::Joined(Err(error)) => measuring.fail_group(join_predicate(&error)),
                Event::Echoed(at) => measuring.done_at = Some(at),
                Event::Failed(failure) => measuring.fail_group(predicate(&failure)),
                // Of no group.
                Event::Collective(_) | Event::Reached(_) => {}
            },
            Input::Answered(host, Answer::Joined { number }) if number == measuring.number => {
                measuring.joined.insert(host);
            }
            Input::Answered(host, Answer::Received { number }) if number == measuring.number => {
                measuring.received.insert(host);
                if measuring.received.len() == measuring.hosts.len() {
                    measuring.done_at = Some(Instant::now());
                }
            }
            Input::Answered(host, Answer::Failed { number, detail })
                if number == measuring.number =>
            {
                let name = &self.session.gathering.settings().hosts[host].name;
                let detail = files::shortened(&detail);
                measuring.fail_group(format!("failed at {name}: {detail}"));
            }
            // Of an earlier measurement.
            Input::Reported(..) | Input::Answered(..) => {}
        }
    }
}

/// The root's callbacks in both groups of a measurement.
struct RootCallbacks {
    /// For returned messages.
    memory: Option<Region>,
    reporter: Reporter,
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
            self.reporter.report(Event::Echoed(Instant::now()));
        }
    }

    fn complete(&mut self, _message: u64, _region: Region) {}

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        self.reporter.report(Event::Failed(failure.clone()));
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, thread};

    use files::{
        HostPlan, PushSettings, Reach,
        receiver::{self, Placement, ReceiveError, ReceiverSettings},
    };
    use rdmc::Secret;

    use super::*;
    use crate::{
        Bench,
        messages::{decode, encode},
    };

    #[test]
    fn a_host_whose_group_ends_before_its_last_message_is_named_by_that_message() {
        let plan = HostPlan {
            name: "host-0".to_owned(),
            destination: String::new(),
            rack: 0,
            reach: Reach::Calls,
        };
        let secret = Secret::random().unwrap();
        let mut settings = PushSettings::new(vec![plan], secret.clone());
        settings.local_only = true;
        let plan = BenchPlan {
            bytes: 10,
            repeats: 1,
            latency_bytes: Vec::new(),
            latency_repeats: 1,
            collective: None,
        };
        let bench = Bench::open(settings, plan).unwrap();
        let port = bench.control_port();
        let receiver = thread::spawn(move || {
            let settings = ReceiverSettings::new("host-0".to_owned(), Placement::Anywhere);
            let own = [Ipv4Addr::LOCALHOST.into()];
            let channel = receiver::call(&own, port, &secret, Duration::from_secs(30)).unwrap();
            receiver::serve_with(channel, &settings, |session| {
                let message = session.next()?.unwrap();
                let Ok(Request::Measure(measure)) = decode(&message) else { panic!() };
                let (number, detail) = (measure.group.number, "lost its peer".to_owned());
                session.sender().send(encode(&Answer::Failed { number, detail }).unwrap())?;
                thread::sleep(Duration::from_millis(300));
                Err(ReceiveError::Stopped)
            })
        });
        let report = bench.run(&mut |_| {});
        assert_eq!(
            report.failures[0].as_deref(),
            Some("the receiver was interrupted"),
            "{report:?}"
        );
        assert!(receiver.join().unwrap().is_err());
    }
}
