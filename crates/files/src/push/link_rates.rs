//! Which hosts that fetch delay those that get the object through them: they receive much more slowly than others.
//!
//! A chain is as slow as its slowest link. Those behind a slow host get another sender; it sends to others only if nobody else can. If
//! the link of its own sender was slow instead, nobody but it stays behind that.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use super::{group::PushGroup, host::Host};

/// How long rates are measured for.
const WINDOW: Duration = Duration::from_secs(2);
/// A host is slow that receives at less than this fraction of the highest rate of any host. Two chains from one member have half each.
const SLOW: f64 = 0.4;
/// How often a host gets another sender for that.
const MOVES_MAX: u32 = 3;

/// What is known of the rates of hosts that receive.
#[derive(Default, Debug)]
pub(super) struct LinkRates {
    /// When the present window began.
    since: Option<Duration>,
    /// By host that has had the same link since then: the number of that, and how much the host had.
    before: BTreeMap<usize, (u64, u64)>,
    /// Hosts that were slow in the window before.
    suspected: BTreeSet<usize>,
    slow: BTreeSet<usize>,
    moves: BTreeMap<usize, u32>,
}

/// The running link of a host that lacks something.
struct Receiving {
    link: u64,
    source: Option<usize>,
    has: u64,
}

impl LinkRates {
    /// Whether a host delays those behind it.
    pub(super) fn is_slow(&self, host: usize) -> bool {
        self.slow.contains(&host)
    }

    /// When the present window ends.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.since.map(|since| since + WINDOW)
    }

    /// At the end of a window: returns the links whose hosts are to get another sender.
    pub(super) fn judge(
        &mut self,
        hosts: &[Host],
        groups: &BTreeMap<u64, PushGroup>,
        bytes: u64,
        now: Duration,
    ) -> Vec<u64> {
        if self.deadline().is_some_and(|at| now < at) {
            return Vec::new();
        }
        let receiving = receiving(hosts, groups, bytes);
        let time = self.since.map_or(Duration::ZERO, |since| now - since);
        let start = receiving.iter().map(|(&host, it)| (host, (it.link, it.has))).collect();
        let before = std::mem::replace(&mut self.before, start);
        self.since = (!receiving.is_empty()).then_some(now);
        let rate = |(host, it): (&usize, &Receiving)| {
            let (_, had) = before.get(host).filter(|(link, _)| *link == it.link)?;
            Some((*host, it.has.saturating_sub(*had) as f64 / time.as_secs_f64()))
        };
        let rates: BTreeMap<usize, f64> = receiving.iter().filter_map(rate).collect();
        self.compare(&rates);
        self.released(&receiving)
    }

    /// Hosts are slow after two windows, and fast again after one.
    fn compare(&mut self, rates: &BTreeMap<usize, f64>) {
        let best = rates.values().copied().fold(0.0, f64::max);
        let is_slow = |rate: f64| rate < best * SLOW;
        self.slow.retain(|host| rates.get(host).is_none_or(|&rate| is_slow(rate)));
        let slow: BTreeSet<usize> =
            rates.iter().filter(|(_, rate)| is_slow(**rate)).map(|(&host, _)| host).collect();
        self.slow.extend(slow.intersection(&self.suspected));
        self.suspected = slow;
    }

    /// The links behind slow hosts. Of hosts behind each other only the first one counts: the others may be slow through it.
    fn released(&mut self, receiving: &BTreeMap<usize, Receiving>) -> Vec<u64> {
        let through = |host: &usize| receiving.get(host).and_then(|it| it.source);
        let is_behind =
            |host: &usize| through(host).is_some_and(|source| self.slow.contains(&source));
        let behind: Vec<usize> = self.slow.iter().filter(|host| is_behind(host)).copied().collect();
        self.slow.retain(|host| !behind.contains(host));
        let mut released = Vec::new();
        for (&host, it) in receiving {
            let moves = self.moves.entry(host).or_insert(0);
            // One that has everything is not among those that receive.
            let is_delayed =
                it.source.is_some_and(|it| self.slow.contains(&it) && receiving.contains_key(&it));
            if is_delayed && *moves < MOVES_MAX {
                *moves += 1;
                released.push(it.link);
            }
        }
        released
    }
}

fn receiving(
    hosts: &[Host],
    groups: &BTreeMap<u64, PushGroup>,
    bytes: u64,
) -> BTreeMap<usize, Receiving> {
    let running = groups.iter().filter(|(_, group)| group.is_running());
    let of = |(&link, group): (&u64, &PushGroup)| {
        let host = *group.part.hosts.first()?;
        let has = hosts[host].bytes;
        (has < bytes).then_some((host, Receiving { link, source: group.part.source, has }))
    };
    running.filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Hosts with their links, senders, and how much they have.
    fn receiving(list: &[(usize, Option<usize>)]) -> BTreeMap<usize, Receiving> {
        let of = |&(host, source): &(usize, Option<usize>)| {
            (host, Receiving { link: host as u64 + 100, source, has: 0 })
        };
        list.iter().map(of).collect()
    }

    fn rates(list: &[(usize, f64)]) -> BTreeMap<usize, f64> {
        list.iter().copied().collect()
    }

    #[test]
    fn those_behind_a_host_that_was_slow_twice_get_another_sender() {
        // 0 is fast, 1 is slow, and so are 2 and 3 through it.
        let chain = receiving(&[(0, None), (1, Some(0)), (2, Some(1)), (3, Some(2))]);
        let slow = rates(&[(0, 10.0), (1, 1.0), (2, 1.0), (3, 1.0)]);
        let mut known = LinkRates::default();
        known.compare(&slow);
        assert_eq!(known.released(&chain), [], "once");
        known.compare(&slow);
        assert_eq!(known.released(&chain), [102]);
        assert!(known.is_slow(1) && !known.is_slow(2) && !known.is_slow(3));
        // 2 has another sender, and is fast with 3 behind it.
        let moved = receiving(&[(0, None), (1, Some(0)), (2, Some(0)), (3, Some(2))]);
        known.compare(&rates(&[(0, 10.0), (1, 1.0), (2, 9.0), (3, 9.0)]));
        assert_eq!(known.released(&moved), []);
        assert!(known.is_slow(1));
        known.compare(&rates(&[(0, 10.0), (1, 8.0)]));
        assert!(!known.is_slow(1), "it has become fast");
    }

    #[test]
    fn a_host_is_not_moved_for_ever() {
        let chain = receiving(&[(0, None), (1, Some(0)), (2, Some(1))]);
        let slow = rates(&[(0, 10.0), (1, 1.0), (2, 1.0)]);
        let mut known = LinkRates::default();
        known.compare(&slow);
        let mut moves = 0;
        for _ in 0..10 {
            known.compare(&slow);
            moves += known.released(&chain).len();
        }
        assert_eq!(moves, MOVES_MAX as usize);
    }

    #[test]
    fn two_chains_from_one_member_are_not_slow() {
        let chains = receiving(&[(0, None), (1, None), (2, Some(1)), (3, Some(7))]);
        let mut known = LinkRates::default();
        for _ in 0..3 {
            known.compare(&rates(&[(0, 5.0), (1, 5.0), (2, 5.0), (3, 10.0)]));
            assert_eq!(known.released(&chains), []);
        }
    }
}
