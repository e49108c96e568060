//! Requests for groups that are not being created here yet, and questions whose answers are not known yet.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use transport_tcp::ConnectionId;

use super::{
    attempt::Place,
    busiest::busiest,
    messages::{Asks, Request},
};

/// How many requests may wait in a context.
const PARKED_MAX: usize = 4096;

/// The longest time for which a request waits.
const PARKED_TIME_MAX: Duration = Duration::from_secs(600);

/// A request that waits.
pub(crate) struct Parked<C> {
    pub(crate) at: Place,
    pub(crate) peer: SocketAddr,
    /// The other end of its connection.
    from: IpAddr,
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
        from: IpAddr,
        channel: Option<C>,
        asks: Asks,
        now: Duration,
    ) -> Self {
        let timeout = Duration::from_millis(asks.timeout_ms()).min(PARKED_TIME_MAX);
        Self { at, peer, from, channel, asks, until: now + timeout }
    }
}

impl<C> Waiting<C> {
    /// Adds a request. If too many wait, one makes way for it and is returned, of the address from which most have come: that keeps out
    /// no other one. If most have come from its own address, it is returned itself.
    pub(crate) fn park(&mut self, parked: Parked<C>) -> Option<Parked<C>> {
        let mut replaced = None;
        if self.count >= PARKED_MAX {
            replaced = self.take_of_most(parked.from);
            if replaced.is_none() {
                return Some(parked);
            }
        }
        self.count += 1;
        self.by_number.entry(parked.asks.group()).or_default().push(parked);
        replaced
    }

    /// Takes the most patient request of the address from which most have come, unless that is this one.
    fn take_of_most(&mut self, other: IpAddr) -> Option<Parked<C>> {
        let all = || self.by_number.values().flatten();
        let most = busiest(all().map(|parked| parked.from), other).filter(|&most| most != other)?;
        let of_most = all().filter(|parked| parked.from == most);
        let at = of_most.max_by_key(|parked| parked.until)?.at;
        self.take_all(|parked| parked.at == at).pop()
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

    /// Returns what is asked.
    pub(crate) fn asks(&self) -> impl Iterator<Item = &Asks> {
        self.by_number.values().flatten().map(|parked| &parked.asks)
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

#[cfg(test)]
mod tests {
    use super::{
        super::{choice::Question, terms::Addresses},
        *,
    };

    fn parked(at: u64, from: u8) -> Parked<()> {
        let (address, second) = (IpAddr::from([10, 0, 0, from]), Duration::from_secs(1));
        let (addresses, timeout_ms) = (Addresses::new(&[]), 1000);
        let asks =
            Asks::Choice(Question { group: at, from: 1, to: 0, root: 0, addresses, timeout_ms });
        Parked::new(Place::Own(at), SocketAddr::new(address, 1), address, None, asks, second)
    }

    #[test]
    fn an_address_from_which_many_come_keeps_out_no_other() {
        let (mut waiting, most) = (Waiting::default(), PARKED_MAX as u64);
        let mut park = |at, from| waiting.park(parked(at, from)).map(|out| (out.at, out.from));
        let from = |last| IpAddr::from([10, 0, 0, last]);
        // Two more of the first address than of the second one.
        assert!((0..most).all(|at| park(at, if at <= most / 2 { 1 } else { 2 }).is_none()));
        assert_eq!(park(most, 1), Some((Place::Own(most), from(1))), "its own are the most");
        assert_eq!(park(most + 1, 2).map(|out| out.1), Some(from(1)));
        assert_eq!(park(most + 2, 2), Some((Place::Own(most + 2), from(2))), "it has as many");
        assert_eq!(park(most + 3, 3).map(|out| out.1 == from(3)), Some(false));
        assert_eq!(waiting.count, PARKED_MAX);
        assert_eq!(waiting.by_number.values().flatten().count(), PARKED_MAX);
    }
}
