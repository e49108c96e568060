//! Whether this machine and the hosts can connect to each other as in a push.

use std::{net::SocketAddr, sync::atomic::AtomicBool, time::Duration};

use files::{Gathering, HostState, PushError, PushEvent, PushHandle, PushSettings};
use rdmc::Error;
use session::Deadline;

use super::session::{Event, Input, Session, start_thread};
use crate::{
    messages::{Answer, Request},
    reach::{REACHED_HOSTS_MAX, Reach, cause},
};

/// How long answers may be on their way.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A machine that another one cannot connect to. Hosts are identified by their index in [`PushSettings::hosts`]; `None` is this
/// machine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unreachable {
    /// Which machine has tried.
    pub from: Option<usize>,
    /// Which one does not answer.
    pub to: Option<usize>,
    /// Where it listens.
    pub address: SocketAddr,
    /// Why the connection could not be made.
    pub reason: String,
}

/// How a check ended.
#[derive(Debug, Default)]
pub struct ReachReport {
    /// For each host, in the order of [`PushSettings::hosts`]: why it has failed, if it has.
    pub failures: Vec<Option<String>>,
    /// How many connections were tried, each of two machines' to the other.
    pub tried: usize,
    /// Those that could not be made, by the machine that was to be reached.
    pub unreachable: Vec<Unreachable>,
    /// Why it ended early, if one reason covers all hosts.
    pub error: Option<PushError>,
}

/// A check that is ready to run and listens for receivers: all machines listen as in a push, and each connects to every other.
pub struct ReachCheck {
    gathering: Gathering,
}

impl ReachCheck {
    /// Starts to listen for receivers. The hosts' destinations are ignored.
    ///
    /// Errors: a setting is out of range, or there are more than [`REACHED_HOSTS_MAX`] hosts; the system refuses.
    pub fn open(settings: PushSettings) -> Result<Self, PushError> {
        let hosts = settings.hosts.len();
        if hosts > REACHED_HOSTS_MAX {
            let what = format!(
                "{hosts} hosts are too many to try all connections between them; check at most {REACHED_HOSTS_MAX} at a time"
            );
            return Err(PushError::Setting(what));
        }
        Ok(Self { gathering: Gathering::open(settings, 1)? })
    }

    /// The TCP port that receivers connect to.
    pub fn control_port(&self) -> u16 {
        self.gathering.control_port()
    }

    /// A handle for other threads.
    pub fn handle(&self) -> PushHandle {
        self.gathering.handle()
    }

    /// Checks. Blocks until all hosts have answered or failed, at most for the time that they may take to start, and for each of 32
    /// hosts that do not answer half of that. Calls `observe` on this thread for each host that is ready or has failed.
    pub fn run(self, observe: &mut dyn FnMut(usize)) -> ReachReport {
        let mut on_push = |event| {
            if let PushEvent::Host { host, .. } = event {
                observe(host);
            }
        };
        let mut session = Session::new(&self.gathering, &mut on_push);
        let mut report = ReachReport::default();
        let outcome = session.root.gather().and_then(|()| check(&mut session, &mut report));
        if let Err(error) = outcome {
            session.root.stop(error);
        }
        report.error = session.root.end();
        let failure = |state: HostState| match state {
            HostState::Failed(reason) => Some(reason),
            _ => None,
        };
        report.failures = session.root.states().into_iter().map(failure).collect();
        report
    }
}

/// Lets every machine connect to every other.
///
/// Errors: those that end the session.
fn check(session: &mut Session<'_>, report: &mut ReachReport) -> Result<(), PushError> {
    let hosts = session.root.ready();
    if hosts.is_empty() {
        return Ok(());
    }
    let addresses = session.root.addresses(&hosts);
    let answers = vec![None; addresses.len()];
    let mut running = Running { number: session.root.number()?, hosts, addresses, answers };
    let deadline = running.start(session)?;
    while !running.missing(session).is_empty() {
        if let Some(input) = session.next(deadline)? {
            running.note(session, input)?;
        } else if deadline.left().is_zero() {
            for host in running.missing(session).into_iter().flatten() {
                let late = "it did not say in time which machines it can connect to";
                session.root.fail(host, late);
            }
            break;
        }
    }
    running.conclude(session, report);
    Ok(())
}

/// A check that runs. Members are identified by their ranks: 0 is this machine, and the hosts follow.
struct Running {
    number: u64,
    /// Those that were ready at its beginning.
    hosts: Vec<usize>,
    addresses: Vec<SocketAddr>,
    /// Which others each could not connect to, with the reason.
    answers: Vec<Option<Vec<(u32, String)>>>,
}

impl Running {
    /// Lets all members connect; returns until when they have to have answered.
    fn start(&self, session: &mut Session<'_>) -> Result<Deadline, PushError> {
        let settings = session.gathering.settings();
        let timeout_ms = session::millis(settings.member_join_timeout());
        let reach = |rank| Reach {
            number: self.number,
            rank,
            addresses: self.addresses.clone(),
            timeout_ms: u32::try_from(timeout_ms).unwrap_or(u32::MAX),
        };
        for (rank, &host) in (1..).zip(&self.hosts) {
            session.send(host, &Request::Reach(reach(rank)))?;
        }
        let (own, secret) = (reach(0), settings.secret.clone());
        let deadline = Deadline::after(own.timeout_of_all() + ANSWER_TIMEOUT);
        let reporter = session.reporter(self.number);
        start_thread("rdmc-reach", move || {
            let failed = own.connect_to_all(&secret, &AtomicBool::new(false));
            let shown = |all: Vec<(u32, Error)>| {
                all.iter().map(|(rank, error)| (*rank, cause(error))).collect()
            };
            reporter.report(Event::Reached(failed.map(shown)));
        })?;
        Ok(deadline)
    }

    /// The host of a rank; `None` is this machine.
    fn machine(&self, rank: usize) -> Option<usize> {
        rank.checked_sub(1).map(|index| self.hosts[index])
    }

    fn is_there(&self, session: &Session<'_>, rank: usize) -> bool {
        self.machine(rank).is_none_or(|host| session.root.is_ready(host))
    }

    /// Machines that have not answered.
    fn missing(&self, session: &Session<'_>) -> Vec<Option<usize>> {
        let missing = |rank: &usize| self.answers[*rank].is_none() && self.is_there(session, *rank);
        (0..self.answers.len()).filter(missing).map(|rank| self.machine(rank)).collect()
    }

    /// Errors: this machine cannot try.
    fn note(&mut self, session: &mut Session<'_>, input: Input) -> Result<(), PushError> {
        match input {
            Input::Reported(number, Event::Reached(failed)) if number == self.number => {
                self.answers[0] = Some(failed.map_err(PushError::Group)?);
            }
            Input::Answered(host, Answer::Reached { number, unreachable })
                if number == self.number =>
            {
                if let Some(index) = self.hosts.iter().position(|&it| it == host) {
                    self.answers[index + 1] = Some(unreachable);
                }
            }
            Input::Answered(host, Answer::Failed { number, detail }) if number == self.number => {
                session.root.fail(host, &format!("it {}", files::shortened(&detail)));
            }
            Input::Reported(..) | Input::Answered(..) => {}
        }
        Ok(())
    }

    /// Adds what was found between machines that have not failed.
    fn conclude(self, session: &Session<'_>, report: &mut ReachReport) {
        let ranks = 0..self.addresses.len();
        let there = ranks.filter(|&rank| self.is_there(session, rank)).count();
        for (from, answer) in self.answers.iter().enumerate() {
            let Some(unreachable) = answer.as_ref().filter(|_| self.is_there(session, from)) else {
                continue;
            };
            report.tried += there - 1;
            for (to, reason) in unreachable {
                let to = *to as usize;
                // What a host says of itself, or of no member, is nothing.
                if to != from && to < self.addresses.len() && self.is_there(session, to) {
                    let address = self.addresses[to];
                    let (from, to) = (self.machine(from), self.machine(to));
                    let reason = files::shortened(reason);
                    report.unreachable.push(Unreachable { from, to, address, reason });
                }
            }
        }
        report.unreachable.sort_by_key(|it| (it.to, it.from));
        report.unreachable.dedup_by_key(|it| (it.to, it.from));
    }
}

#[cfg(test)]
mod tests {
    use std::{net::Ipv4Addr, thread};

    use files::{
        HostPlan, Reach as HowReached,
        receiver::{self, Placement, ReceiverSettings, TakePart},
    };
    use rdmc::Secret;

    use super::*;
    use crate::{
        messages::{decode, encode},
        take_part,
    };

    fn settings(hosts: usize) -> PushSettings {
        let plan = |host| HostPlan {
            name: format!("host-{host}"),
            destination: String::new(),
            rack: 0,
            reach: HowReached::Calls,
        };
        let mut settings =
            PushSettings::new((0..hosts).map(plan).collect(), Secret::random().unwrap());
        settings.local_only = true;
        settings
    }

    /// Checks hosts that take part like this.
    fn checked(parts: &[TakePart]) -> ReachReport {
        let settings = settings(parts.len());
        let secret = settings.secret.clone();
        let check = ReachCheck::open(settings).unwrap();
        let port = check.control_port();
        thread::scope(|scope| {
            for (host, &part) in parts.iter().enumerate() {
                let secret = &secret;
                let settings = ReceiverSettings::new(format!("host-{host}"), Placement::Anywhere);
                scope.spawn(move || {
                    let own = [Ipv4Addr::LOCALHOST.into()];
                    let timeout = Duration::from_secs(30);
                    let channel = receiver::call(&own, port, secret, timeout).unwrap();
                    drop(receiver::serve_with(channel, &settings, part));
                });
            }
            check.run(&mut |_| {})
        })
    }

    /// Says this of the check that it is asked for, and waits for the end of the session.
    fn answer(
        session: &receiver::GatheringReceiver<'_>,
        with: fn(u64) -> Answer,
    ) -> Result<(), receiver::ReceiveError> {
        let message = session.next()?.unwrap();
        let Ok(Request::Reach(reach)) = decode(&message) else { panic!() };
        session.sender().send(encode(&with(reach.number)).unwrap())?;
        session.next().map(drop)
    }

    #[test]
    fn machines_that_cannot_be_reached_are_found_and_nonsense_is_not() {
        let report = checked(&[take_part, |session| {
            answer(session, |number| {
                let ranks = [1, 0, 1, 2, 3, u32::MAX];
                let unreachable = ranks.map(|rank| (rank, "no answer".to_owned())).to_vec();
                Answer::Reached { number, unreachable }
            })
        }]);
        assert!(report.error.is_none() && report.failures == [None, None], "{report:?}");
        let pairs: Vec<_> = report.unreachable.iter().map(|it| (it.from, it.to)).collect();
        assert_eq!(pairs, [(Some(1), None), (Some(1), Some(0))], "{report:?}");
        assert_eq!(report.tried, 6);
    }

    #[test]
    fn hosts_that_cannot_try_are_named_and_do_not_count() {
        let report = checked(&[take_part, |session| {
            answer(session, |number| Answer::Failed { number, detail: "has no threads".into() })
        }]);
        assert_eq!(report.failures, [None, Some("it has no threads".to_owned())], "{report:?}");
        assert!(report.unreachable.is_empty() && report.tried == 2, "{report:?}");
    }
}
