//! One step of creating a group or a team at this member: it asks what the root has chosen, or for the links to its neighbours.
//!
//! Of two neighbours the one with the higher rank asks, and the other accepts.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::SocketAddr,
    time::Duration,
};

use transport_tcp::ConnectionId;

use super::{
    effects::{Medium, Reserve, Wire},
    joining::Joining,
    messages::{Asks, Request},
    terms::{different, not_member},
};
use crate::Error;

/// The pause before a member is asked again, the second time.
const PAUSE: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// A channel of a shared connection.
pub(crate) type ChannelId = (ConnectionId, u32);

pub(crate) struct Attempt<M: Medium> {
    pub(crate) joining: Joining,
    /// Tells it from others of the same number that this context has created.
    pub(crate) attempt: u64,
    /// When it has to have ended; `None` if the clock does not go that far.
    pub(crate) until: Option<Duration>,
    /// Members that this one asks: for links those of lower ranks.
    asked: BTreeMap<u32, Asked<M>>,
    /// Members of higher ranks, which ask this one.
    expected: BTreeMap<u32, Option<Taken<M>>>,
    /// Neighbours to which there was a link at any time: they can be reached, also if they have given it up since.
    reached: BTreeSet<u32>,
    /// Which connection was lost last, and why.
    lost: Option<(u32, String)>,
    /// A neighbour that has asked for another group, and that group's number.
    elsewhere: Option<(u32, u64)>,
    /// Why it cannot succeed.
    problem: Option<Error>,
    /// When its neighbours were last asked, as far as that could be done.
    advanced: Option<Duration>,
}

struct Asked<M: Medium> {
    state: Asking<M>,
    /// How often it was asked in vain: the connection was lost, or it has withdrawn.
    repeats: u32,
}

/// How far this member is with a neighbour that it asks.
pub(crate) enum Asking<M: Medium> {
    /// It is to be asked, not before this time.
    NotBefore(Duration),
    /// The shared connection is being made, for this creation or for another.
    Connecting,
    /// Connections of its own are being made, and it is asked on them.
    Dialing,
    /// It was asked for this channel, or under its number what the root has chosen, and has not answered.
    Waiting(ChannelId, Option<M::Channel>),
    /// It has accepted.
    Linked(Option<ChannelId>, Wire<M>),
}

/// A link that was granted to a neighbour.
struct Taken<M: Medium> {
    at: Place,
    context: u128,
    attempt: u64,
    /// `None` while the link's connections are being handed over.
    wire: Option<Wire<M>>,
    /// Its connection is no more.
    is_lost: bool,
}

/// Where a request has come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    Channel(ChannelId),
    /// On a connection of its own, by the number of the request.
    Own(u64),
}

impl<M: Medium> Asked<M> {
    /// Asks again: at once the first time, then after a pause that grows.
    fn again(&mut self, now: Duration) {
        let pause = match self.repeats {
            0 => Duration::ZERO,
            more => PAUSE.saturating_mul(1 << (more - 1).min(8)).min(PAUSE_MAX),
        };
        self.repeats += 1;
        self.state = Asking::NotBefore(now + pause);
    }
}

impl<M: Medium> Attempt<M> {
    pub(crate) fn new(joining: Joining, attempt: u64, now: Duration, left: Duration) -> Self {
        let ask = |rank| (rank, Asked { state: Asking::NotBefore(now), repeats: 0 });
        Self {
            attempt,
            until: now.checked_add(left),
            asked: joining.asked().into_iter().map(ask).collect(),
            expected: joining.expected().into_iter().map(|rank| (rank, None)).collect(),
            reached: BTreeSet::new(),
            lost: None,
            elsewhere: None,
            problem: None,
            advanced: None,
            joining,
        }
    }

    pub(crate) fn address(&self, rank: u32) -> SocketAddr {
        self.joining.addresses[rank as usize]
    }

    /// Returns the neighbours that are to be asked now.
    pub(crate) fn take_due(&mut self, now: Duration) -> Vec<u32> {
        self.advanced = Some(now);
        let is_due =
            |asked: &Asked<M>| matches!(asked.state, Asking::NotBefore(from) if from <= now);
        self.asked.iter().filter(|(_, asked)| is_due(asked)).map(|(&rank, _)| rank).collect()
    }

    /// Returns when this has to be looked at again.
    pub(crate) fn next_time(&self) -> Option<Duration> {
        // Those that could not be asked wait for other connections to be made.
        let times = self.asked.values().filter_map(|asked| match asked.state {
            Asking::NotBefore(from) if self.advanced.is_none_or(|at| at < from) => Some(from),
            _ => None,
        });
        times.chain(self.until).min()
    }

    pub(crate) fn set(&mut self, rank: u32, state: Asking<M>) {
        if matches!(state, Asking::Linked(..)) {
            self.reached.insert(rank);
        }
        if let Some(asked) = self.asked.get_mut(&rank) {
            asked.state = state;
        }
    }

    /// Asks the members again that wait for the connection to this address. Returns whether there are any.
    pub(crate) fn stop_connecting(&mut self, address: SocketAddr, now: Duration) -> bool {
        let mut any = false;
        for (&rank, asked) in &mut self.asked {
            let is_there = self.joining.addresses[rank as usize] == address;
            if is_there && matches!(asked.state, Asking::Connecting) {
                asked.state = Asking::NotBefore(now);
                any = true;
            }
        }
        any
    }

    /// Takes the answer that a neighbour has accepted.
    pub(crate) fn accepted(&mut self, rank: u32) {
        let Some(asked) = self.asked.get_mut(&rank) else { return };
        self.reached.insert(rank);
        asked.state = match std::mem::replace(&mut asked.state, Asking::Dialing) {
            Asking::Waiting(at, Some(channel)) => Asking::Linked(Some(at), Wire::Shared(channel)),
            other => other,
        };
    }

    /// Gives up a channel, whose other end has withdrawn it. Returns whether there was one.
    pub(crate) fn withdrawn(&mut self, at: ChannelId, now: Duration) -> bool {
        for asked in self.asked.values_mut() {
            let channel = match &asked.state {
                Asking::Waiting(channel, _) => Some(channel),
                Asking::Linked(channel, _) => channel.as_ref(),
                _ => None,
            };
            if channel == Some(&at) {
                asked.again(now);
                return true;
            }
        }
        self.take_back(Place::Channel(at))
    }

    /// Forgets what was granted to a request. Returns whether it was.
    pub(crate) fn take_back(&mut self, at: Place) -> bool {
        let granted = |taken: &&mut Option<Taken<M>>| taken.as_ref().is_some_and(|it| it.at == at);
        let taken = self.expected.values_mut().find(granted);
        taken.is_some_and(|taken| taken.take().is_some())
    }

    /// Notes that a connection is no more. Returns whether a neighbour has to be asked again.
    pub(crate) fn lose(
        &mut self,
        connection: ConnectionId,
        cause: Option<&str>,
        now: Duration,
    ) -> bool {
        let mut any = false;
        for (&rank, asked) in &mut self.asked {
            if matches!(&asked.state, Asking::Waiting(at, _) if at.0 == connection) {
                asked.again(now);
                self.lost = cause.map(|cause| (rank, cause.to_owned())).or(self.lost.take());
                any = true;
            }
        }
        for taken in self.expected.values_mut().flatten() {
            taken.is_lost |= matches!(taken.at, Place::Channel(at) if at.0 == connection);
        }
        any
    }

    /// Checks a request. If it is not wanted, the creation has a problem.
    ///
    /// Errors: why it is refused.
    pub(crate) fn judge(
        &mut self,
        channels: &mut impl Reserve<M>,
        request: &Request,
        peer: SocketAddr,
    ) -> Result<(), String> {
        // A link that has ended does not stand against a new request.
        if let Some(Some(taken)) = self.expected.get_mut(&request.from) {
            taken.is_lost |= taken.wire.as_ref().is_some_and(|wire| !channels.is_open(wire));
        }
        if let Some(cause) = self.problem_with(request) {
            let (member, address) = (request.from, peer);
            self.problem.get_or_insert(Error::Member { member, address, cause: cause.clone() });
            return Err(cause);
        }
        match self.expected.get(&request.from) {
            Some(Some(old)) if old.context == request.context && old.attempt > request.attempt => {
                Err("it has made a newer request since".into())
            }
            _ => Ok(()),
        }
    }

    /// Fails if it has no link yet to a neighbour at this address, whose connection cannot be used. Returns whether it does.
    pub(crate) fn cannot_reach(&mut self, address: SocketAddr, cause: &str) -> bool {
        let found = self.missing().find(|&rank| self.address(rank) == address);
        let Some(rank) = found else { return false };
        self.problem.get_or_insert(Error::Transport(format!("link to member {rank}: {cause}")));
        true
    }

    /// Returns why the creation cannot succeed.
    pub(crate) fn take_problem(&mut self) -> Option<Error> {
        self.problem.take()
    }

    fn problem_with(&self, request: &Request) -> Option<String> {
        let Request { group, from, to, context, terms, .. } = request;
        let own = self.joining.rank;
        if let Some(difference) = self.joining.terms().and_then(|ours| ours.difference(terms)) {
            return Some(different(own, *from, *group, &difference));
        }
        if *to != own {
            return Some(not_member(own, *to));
        }
        match self.expected.get(from) {
            None => Some(format!("member {from} is not expected to connect to member {own}")),
            // Without a wire yet, it may be one that has ended, too.
            Some(Some(old)) if old.context != *context && old.wire.is_some() && !old.is_lost => {
                Some(format!("member {from} has connected already; is it running twice?"))
            }
            Some(_) => None,
        }
    }

    /// Grants a request that was judged, in place of an older one of its context, or of a context that is lost. Without a
    /// wire, that comes by [`Attempt::place`].
    pub(crate) fn grant(&mut self, request: &Request, at: Place, wire: Option<Wire<M>>) {
        let Request { context, attempt, .. } = *request;
        let taken = Taken { at, context, attempt, wire, is_lost: false };
        self.reached.insert(request.from);
        self.expected.insert(request.from, Some(taken));
    }

    /// Returns whether a request on a connection of its own is granted.
    pub(crate) fn has_granted(&self, ask: u64) -> bool {
        self.expected.values().flatten().any(|taken| taken.at == Place::Own(ask))
    }

    /// Takes the link of a request that is granted.
    pub(crate) fn place(&mut self, ask: u64, wire: M::Own) {
        let mut granted = self.expected.values_mut().flatten();
        if let Some(taken) = granted.find(|taken| taken.at == Place::Own(ask)) {
            taken.wire = Some(Wire::Own(wire));
        }
    }

    /// Returns whether all links are there.
    pub(crate) fn is_complete(&self) -> bool {
        let is_taken =
            |taken: &Option<Taken<M>>| taken.as_ref().is_some_and(|it| it.wire.is_some());
        self.asked.values().all(|asked| matches!(asked.state, Asking::Linked(..)))
            && self.expected.values().all(is_taken)
    }

    /// Gives up links that the other end has given back: its group has ended before it began, or it has given up
    /// its attempt, which cannot be reported on connections of a link's own. Returns whether there are any.
    ///
    /// With such a link the group would begin and fail, and so would those of other neighbours when they had begun: members that try
    /// again could fail each other in turns for ever.
    pub(crate) fn drop_closed(&mut self, channels: &mut impl Reserve<M>, now: Duration) -> bool {
        let mut is_closed = |wire: &Wire<M>| !channels.is_open(wire);
        let mut any = false;
        for asked in self.asked.values_mut() {
            if matches!(&asked.state, Asking::Linked(_, wire) if is_closed(wire)) {
                asked.state = Asking::NotBefore(now);
                any = true;
            }
        }
        for taken in self.expected.values_mut() {
            if taken.as_ref().and_then(|it| it.wire.as_ref()).is_some_and(&mut is_closed) {
                *taken = None;
                any = true;
            }
        }
        any
    }

    /// Returns the links, by rank.
    pub(crate) fn into_links(self) -> Vec<(u32, Wire<M>)> {
        let asked = self.asked.into_iter().filter_map(|(rank, asked)| match asked.state {
            Asking::Linked(_, wire) => Some((rank, wire)),
            _ => None,
        });
        let granted =
            self.expected.into_iter().filter_map(|(rank, taken)| Some((rank, taken?.wire?)));
        asked.chain(granted).collect()
    }

    /// Returns the channels of which the other end has to learn that they are no longer wanted.
    pub(crate) fn channels(&self) -> Vec<ChannelId> {
        let asked = self.asked.values().filter_map(|asked| match &asked.state {
            Asking::Waiting(at, _) => Some(*at),
            Asking::Linked(at, _) => *at,
            _ => None,
        });
        let granted = self.expected.values().flatten().filter_map(|taken| match taken.at {
            Place::Channel(at) if !taken.is_lost => Some(at),
            _ => None,
        });
        asked.chain(granted).collect()
    }

    /// Returns the neighbours to which there is no link yet.
    pub(crate) fn missing(&self) -> impl Iterator<Item = u32> {
        let asked = self.asked.iter().filter(|(_, it)| !matches!(it.state, Asking::Linked(..)));
        let absent = self.expected.iter().filter(|(_, it)| it.is_none());
        asked.map(|(&rank, _)| rank).chain(absent.map(|(&rank, _)| rank))
    }

    /// Notes that a member has asked this one, by its rank, for a group.
    pub(crate) fn note_request(&mut self, asks: &Asks) {
        let concerns_it = asks.to() == self.joining.rank && asks.group() != self.joining.number;
        if concerns_it && self.missing().any(|rank| rank == asks.from()) {
            self.elsewhere = Some((asks.from(), asks.group()));
        }
    }

    /// Returns a member that is missing and has asked for another group, and that group's number.
    pub(crate) fn elsewhere(&self) -> Option<(u32, u64)> {
        self.elsewhere.filter(|(member, _)| self.missing().any(|rank| rank == *member))
    }

    /// Returns the error that it has not ended in time. `hint`: a reason that is likely, as a sentence.
    pub(crate) fn missed(&self, hint: Option<String>) -> Error {
        let missing: Vec<u32> = self.missing().collect();
        let members: Vec<String> =
            missing.iter().map(|&rank| format!("{rank} ({})", self.address(rank))).collect();
        let (members, group) = (members.join(", "), self.joining.number);
        let lost = self.lost.as_ref().map_or(String::new(), |(rank, cause)| {
            format!(" (the connection to member {rank} was lost: {cause})")
        });
        let hint = hint.map_or(String::new(), |hint| format!(" ({hint})"));
        let what = match self.joining.terms() {
            Some(_) => {
                format!("waiting for members {members} to join group {group}{lost}{hint}")
            }
            None => format!(
                "waiting for member {members}, which may wait for others, to report the choice of the root of group \
                 {group}{lost}{hint}"
            ),
        };
        // The one that was to tell what the root has chosen may wait for others.
        let is_linking = self.joining.terms().is_some();
        let mut unconnected = if is_linking { missing } else { Vec::new() };
        unconnected.retain(|rank| !self.reached.contains(rank));
        Error::Timeout { what, timeout: self.joining.timeout, unconnected }
    }
}
