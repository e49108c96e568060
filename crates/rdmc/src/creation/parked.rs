//! Requests for groups that are not being created here yet, and questions whose answers are not known yet.

use std::{collections::BTreeMap, net::SocketAddr, time::Duration};

use transport_tcp::ConnectionId;

use super::{
    attempt::Place,
    messages::{Asks, Request},
};

/// How many requests may wait in a context.
const PARKED_MAX: usize = 4096;

/// How many of them may have come on one connection.
const OF_ONE_MAX: usize = PARKED_MAX / 4;

/// The longest time for which a request waits.
pub(crate) const PARKED_TIME_MAX: Duration = Duration::from_secs(600);

/// A request that waits.
pub(crate) struct Parked<C> {
    pub(crate) at: Place,
    pub(crate) peer: SocketAddr,
    /// Reserved for it, if the link is a channel of a shared connection.
    pub(crate) channel: Option<C>,
    pub(crate) asks: Asks,
    until: Duration,
}

/// The requests that wait, by the number of their group.
pub(crate) struct Waiting<C> {
    by_number: BTreeMap<u64, Vec<Parked<C>>>,
    count: usize,
}

impl<C> Default for Waiting<C> {
    fn default() -> Self {
        Self { by_number: BTreeMap::new(), count: 0 }
    }
}

impl<C> Parked<C> {
    pub(crate) fn new(
        at: Place,
        peer: SocketAddr,
        channel: Option<C>,
        asks: Asks,
        now: Duration,
    ) -> Self {
        let patience = Duration::from_millis(asks.timeout_ms()).min(PARKED_TIME_MAX);
        Self { at, peer, channel, asks, until: now + patience }
    }
}

impl<C> Waiting<C> {
    /// Adds a request. Returns it if too many wait.
    pub(crate) fn park(&mut self, parked: Parked<C>) -> Option<Parked<C>> {
        if self.count >= PARKED_MAX || self.has_many_of(parked.at) {
            return Some(parked);
        }
        self.count += 1;
        self.by_number.entry(parked.asks.group()).or_default().push(parked);
        None
    }

    /// Returns whether a connection has as many requests as one may have. On a connection of its own there is one.
    fn has_many_of(&self, at: Place) -> bool {
        let Place::Channel((connection, _)) = at else { return false };
        let is_of = |at: Place| matches!(at, Place::Channel((its, _)) if its == connection);
        let all = self.by_number.values().flatten();
        self.count >= OF_ONE_MAX && all.filter(|one| is_of(one.at)).count() >= OF_ONE_MAX
    }

    /// Takes the requests that a newer one of the same context replaces.
    pub(crate) fn take_outdated(&mut self, by: &Request) -> Vec<Parked<C>> {
        let is_same =
            |old: &Request| (old.group, old.from, old.context) == (by.group, by.from, by.context);
        self.take_all(|parked| match &parked.asks {
            Asks::Link(request) => is_same(request) && request.attempt < by.attempt,
            Asks::Choice(_) => false,
        })
    }

    /// Takes the requests for a group, in the order in which they came.
    pub(crate) fn take(&mut self, number: u64) -> Vec<Parked<C>> {
        let parked = self.by_number.remove(&number).unwrap_or_default();
        self.count -= parked.len();
        parked
    }

    /// Takes the requests that have waited for too long.
    pub(crate) fn take_late(&mut self, now: Duration) -> Vec<Parked<C>> {
        self.take_all(|parked| parked.until <= now)
    }

    /// Forgets a request that is withdrawn.
    pub(crate) fn forget(&mut self, at: Place) {
        drop(self.take_all(|parked| parked.at == at));
    }

    /// Forgets the requests of a connection that has ended.
    pub(crate) fn lose(&mut self, lost: ConnectionId) {
        let is_of = |at: Place| matches!(at, Place::Channel((connection, _)) if connection == lost);
        drop(self.take_all(|parked| is_of(parked.at)));
    }

    /// Returns when the first of them has waited for too long.
    pub(crate) fn next_time(&self) -> Option<Duration> {
        self.by_number.values().flatten().map(|parked| parked.until).min()
    }

    fn take_all(&mut self, is_over: impl Fn(&Parked<C>) -> bool) -> Vec<Parked<C>> {
        let mut taken = Vec::new();
        self.by_number.retain(|_, parked| {
            taken.extend(parked.extract_if(.., |one| is_over(one)));
            !parked.is_empty()
        });
        self.count -= taken.len();
        taken
    }
}
