//! One attempt to replicate to all hosts that are left: a group and its two messages.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::mpsc::Sender,
    thread,
    time::{Duration, Instant},
};

use rdmc::{Application, Error, Failure, Group, Memory, Region, bootstrap::Deadline};

use super::{Event, FINISH_TIMEOUT, HostState, JOIN_TIMEOUT, PushError, PushEvent, Run, system};
use crate::{
    control::SILENCE,
    messages::{Start, ToReceiver, join_predicate, predicate},
};

/// How long survivors of a failed group may take to say so.
const AFTERMATH: Duration = Duration::from_secs(20);
/// How long a member that others blame may take to speak for itself, once they all have spoken.
const LAST_WORD: Duration = Duration::from_secs(2);
const ROOT: u32 = 0;

/// A group, from its start until everybody has said how it ended.
pub(super) struct Round {
    pub(super) number: u64,
    /// The host of each rank from 1.
    pub(super) hosts: Vec<usize>,
    group: Option<Group>,
    sent_at: Option<Instant>,
    digest_sent: bool,
    /// Success or failure of the group at the root; or of joining it.
    pub(super) ended: Option<Result<(), Failure>>,
    join_error: Option<Error>,
    /// A host was lost before the group stood: it never will.
    given_up: bool,
    /// Hosts whose group has failed: whom they blame, and why.
    pub(super) reports: BTreeMap<usize, (Option<u32>, String)>,
}

impl Round {
    /// Since sending started.
    pub(super) fn elapsed(&self) -> Option<Duration> {
        self.sent_at.map(|sent_at| sent_at.elapsed())
    }

    /// Ends the group at all members. Does nothing to a group that has closed with success.
    pub(super) fn abort(&self, reason: &str) {
        if let Some(group) = &self.group
            && self.ended.is_none()
        {
            group.abort(reason);
        }
    }

    /// Ends the round because a host of it is lost, even if the group is still being joined.
    pub(super) fn give_up(&mut self, reason: &str) {
        self.given_up |= self.group.is_none();
        self.abort(reason);
    }

    fn has_closed(&self) -> bool {
        matches!(self.ended, Some(Ok(())))
    }

    fn has_failed(&self) -> bool {
        self.given_up || self.join_error.is_some() || matches!(self.ended, Some(Err(_)))
    }

    fn host_of(&self, rank: u32) -> Option<usize> {
        self.hosts.get((rank as usize).checked_sub(1)?).copied()
    }

    /// How many members blame each host. Whoever blames the root is taken to be the one whose
    /// connection to it is broken, since the others could reach it.
    fn votes(&self) -> BTreeMap<usize, usize> {
        let own = match (&self.ended, &self.join_error) {
            (Some(Err(failure)), _) => failure.member,
            (_, Some(Error::Member { member, .. })) => Some(*member),
            _ => None,
        };
        let told = self.reports.iter().map(|(&reporter, &(member, _))| match member {
            Some(ROOT) => Some(reporter),
            other => other.and_then(|rank| self.host_of(rank)),
        });
        let mut votes = BTreeMap::new();
        for host in told.chain([own.and_then(|rank| self.host_of(rank))]).flatten() {
            *votes.entry(host).or_default() += 1;
        }
        votes
    }

    fn most_blamed(&self) -> Option<usize> {
        self.votes().into_iter().max_by_key(|&(_, count)| count).map(|(host, _)| host)
    }

    /// What the root, or else a member, says about the failure.
    fn why(&self) -> String {
        let own = match (&self.ended, &self.join_error) {
            (Some(Err(failure)), _) => Some(predicate(failure)),
            (_, Some(error)) => Some(join_predicate(error)),
            _ => None,
        };
        own.or_else(|| self.reports.values().next().map(|(_, detail)| detail.clone()))
            .unwrap_or_else(|| "it took too long".into())
    }
}

impl Run<'_> {
    /// True if every host that is left has all bytes and has compared them; false if hosts were
    /// lost and the others should try again.
    pub(super) fn run_round(&mut self) -> Result<bool, PushError> {
        self.start_round()?;
        let joining = JOIN_TIMEOUT + SILENCE;
        self.wait_round(Some(joining), |_, round| round.group.is_none() && !round.has_failed())?;
        // As long as it takes: the group's own deadlines end it if nothing moves.
        self.wait_round(None, |_, round| round.ended.is_none() && !round.has_failed())?;
        let Some(round) = &self.round else { return Ok(false) };
        if round.has_closed() {
            self.wait_round(Some(FINISH_TIMEOUT), |run, round| {
                let uncompared = |&index: &usize| {
                    let host = &run.hosts[index];
                    host.is_ready() && host.compared.is_none()
                };
                round.hosts.iter().any(uncompared)
            })?;
            let late: Vec<usize> =
                self.round.iter().flat_map(|round| round.hosts.clone()).collect();
            for index in late {
                if self.hosts[index].is_ready() && self.hosts[index].compared.is_none() {
                    self.fail(index, "did not verify its copy in time");
                }
            }
            return Ok(true);
        }
        self.survive()?;
        Ok(false)
    }

    fn start_round(&mut self) -> Result<(), PushError> {
        let number = new_number()?;
        let hosts: Vec<usize> =
            (0..self.hosts.len()).filter(|&index| self.hosts[index].is_ready()).collect();
        let settings = &self.push.settings;
        let mut addresses = vec![self.own_address()];
        let mut racks = vec![settings.root_rack];
        for &index in &hosts {
            let host = &mut self.hosts[index];
            (host.bytes, host.replication, host.compared) = (0, None, None);
            addresses.extend(host.ip.map(|ip| SocketAddr::new(ip, host.port)));
            racks.push(host.plan.rack);
        }
        let Some(context) = self.push.context.get() else { return Ok(()) };
        let bytes = self.push.bytes();
        let choice = settings.choose(addresses.len(), bytes, context.fabric());
        self.choice = Some(choice);
        let window = settings.window(addresses.len(), choice.block_bytes);
        let mut start = Start {
            round: number,
            rank: ROOT,
            addresses,
            racks,
            algorithm: choice.algorithm.code(),
            block_bytes: choice.block_bytes,
            window_receives: window.receives,
            window_sends: window.sends,
            messages_in_flight: 2,
            offload: settings.offload,
        };
        self.members = start.addresses.len();
        (self.observe)(PushEvent::Round { members: self.members });
        self.join(&start)?;
        for (rank, &index) in (1..).zip(&hosts) {
            start.rank = rank;
            self.hosts[index].tell(&ToReceiver::Start(start.clone()));
            self.set(index, HostState::Ready);
        }
        self.round = Some(Round {
            number,
            hosts,
            group: None,
            sent_at: None,
            digest_sent: false,
            ended: None,
            join_error: None,
            given_up: false,
            reports: BTreeMap::new(),
        });
        Ok(())
    }

    /// Joins on a thread that ends by the context's own deadline.
    fn join(&self, start: &Start) -> Result<(), PushError> {
        let settings = start.group_settings()?;
        let (number, addresses) = (start.round, start.addresses.clone());
        let Some(context) = self.push.context.get().cloned() else { return Ok(()) };
        let events = self.push.events.clone();
        let sending = Sending { number, events: events.clone() };
        let join = move || {
            let group = context.create_group(settings, &addresses, sending);
            let _ = events.send(Event::Joined(number, group));
        };
        thread::Builder::new()
            .name("rdmc-join".into())
            .spawn(join)
            .map(drop)
            .map_err(|error| system("starting a thread", error).into())
    }

    pub(super) fn round_numbered(&mut self, number: u64) -> Option<&mut Round> {
        self.round.as_mut().filter(|round| round.number == number)
    }

    /// The group stands: sends the file, and the digest if it is known already.
    pub(super) fn joined(
        &mut self,
        number: u64,
        outcome: Result<Group, Error>,
    ) -> Result<(), PushError> {
        let Some(source) = &self.push.source else { return Ok(()) };
        let region = source.region()?;
        // A group that comes too late is dropped, and fails at all its members.
        let current = self.round_numbered(number).filter(|round| !round.given_up);
        let Some(round) = current else { return Ok(()) };
        match outcome {
            Ok(group) => {
                round.sent_at = Some(Instant::now());
                let sent = group.send(region);
                let offload = group.offload();
                round.group = Some(group);
                self.offload = Some(offload);
                refused_unless_failed(sent.map(drop))?;
                self.send_digest()
            }
            Err(error) => {
                round.join_error = Some(error);
                Ok(())
            }
        }
    }

    /// Sends the digest and closes the group, once both exist.
    pub(super) fn send_digest(&mut self) -> Result<(), PushError> {
        let (Some(digest), Some(round)) = (self.digest, &mut self.round) else { return Ok(()) };
        let Some(group) = &round.group else { return Ok(()) };
        if !std::mem::replace(&mut round.digest_sent, true) {
            let region = Region::from_shared(*digest.as_bytes());
            refused_unless_failed(group.send(region).map(drop))?;
            refused_unless_failed(group.start_close())?;
        }
        Ok(())
    }

    /// Waits for a condition on the round, or the deadline if there is one.
    fn wait_round(
        &mut self,
        timeout: Option<Duration>,
        waiting: impl Fn(&Self, &Round) -> bool,
    ) -> Result<(), PushError> {
        let deadline = timeout.map(Deadline::after);
        let waits = |run: &Self| run.round.as_ref().is_some_and(|round| waiting(run, round));
        loop {
            // Without a deadline of its own, in slices: the condition ends it.
            let slice = deadline.unwrap_or_else(|| Deadline::after(Duration::from_secs(60)));
            self.wait_while(slice, waits)?;
            if deadline.is_some() || !waits(self) {
                return Ok(());
            }
        }
    }

    /// After a failed group: finds out who is lost, gives those up, and leaves the others ready.
    fn survive(&mut self) -> Result<(), PushError> {
        if let Some(round) = &self.round {
            round.abort("the round has failed");
            let leave = ToReceiver::Leave { round: round.number };
            round.hosts.iter().for_each(|&index| self.hosts[index].tell(&leave));
        }
        let is_owed = |run: &Self, round: &Round, index: usize| {
            run.hosts[index].is_ready() && !round.reports.contains_key(&index)
        };
        self.wait_round(Some(AFTERMATH), |run, round| {
            let blamed = round.votes();
            let mut hosts = round.hosts.iter();
            hosts.any(|&index| is_owed(run, round, index) && !blamed.contains_key(&index))
        })?;
        self.wait_round(Some(LAST_WORD), |run, round| {
            round.hosts.iter().any(|&index| is_owed(run, round, index))
        })?;
        let Some(round) = self.round.take() else { return Ok(()) };
        // A source that has changed explains any failure, and no further round could be right.
        self.push.check_unchanged()?;
        for &index in &round.hosts {
            if self.hosts[index].is_ready() && !round.reports.contains_key(&index) {
                self.fail(index, &format!("it no longer answers: {}", round.why()));
            }
        }
        // Hosts that are gone explain the failure; else the members' own words have to.
        if round.hosts.iter().all(|&index| self.hosts[index].is_ready()) {
            let why = round.why();
            let Some(index) = round.most_blamed() else { return Err(PushError::Group(why)) };
            self.fail(index, &format!("it {why}"));
        }
        Ok(())
    }
}

/// Names a group.
pub(super) fn new_number() -> Result<u64, Error> {
    getrandom::u64().map_err(|error| system("getting random numbers", std::io::Error::other(error)))
}

/// A group that has failed meanwhile reports that itself; anything else is a mistake in settings.
fn refused_unless_failed(outcome: Result<(), Error>) -> Result<(), PushError> {
    match outcome {
        Ok(()) | Err(Error::Failed(_) | Error::Closed(_)) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The root's callbacks.
struct Sending {
    number: u64,
    events: Sender<Event>,
}

impl Application for Sending {
    fn incoming(&mut self, _message: u64, _bytes: u64) -> Memory {
        Memory::Refuse("the root receives nothing".into())
    }

    fn complete(&mut self, _message: u64, _region: Region) {}

    fn failed(&mut self, failure: &Failure, _regions: Vec<(u64, Region)>) {
        let _ = self.events.send(Event::Ended(self.number, Err(failure.clone())));
    }

    fn closed(&mut self) {
        let _ = self.events.send(Event::Ended(self.number, Ok(())));
    }
}
