//! Plans the groups of the next round.
//!
//! Bytes that the same hosts lack form a part, which one group replicates. A host that has the part sends it if
//! there is one, which spares the root's link; otherwise the root. If source hosts have a long part, each of them and the root send a
//! share of it ([`super::shares`]). The root sends to deferred hosts, since a source publishes its
//! copy only when it need not send any more, and to hosts that could not connect to others, which may be able to connect to the root
//! alone. After a failure survivors lack nearly the same bytes; small differences are sent to all of them instead of in many
//! small groups. A host that could not connect to another one is in a group of its own; if the root is that one, from a host.

use std::collections::{BTreeMap, BTreeSet};

use super::{host::Host, shares::Shares};
use crate::ranges::Ranges;

/// Groups of one round.
pub(super) const PARTS_MAX: usize = 8;
/// Parts below this fraction of the object are merged.
const SMALL_SHARE: u64 = 128;

/// Bytes that one member sends to several.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Part {
    /// `None`: the root.
    pub(super) source: Option<usize>,
    pub(super) hosts: Vec<usize>,
    /// Of the object: at least one byte of it, or none for its listing.
    pub(super) ranges: Ranges,
    /// How many members send shares of what these hosts lack.
    pub(super) shares: usize,
    /// Whether its source lacks it as well, and reads it from a URL ([`super::readers`]).
    pub(super) reads: bool,
}

impl Part {
    /// What hosts that are to replicate a tree need first: its listing, which is not a part of the object.
    pub(super) fn listing(hosts: Vec<usize>) -> Self {
        Self::of(None, hosts, Ranges::default())
    }

    /// What one member sends.
    pub(super) fn of(source: Option<usize>, hosts: Vec<usize>, ranges: Ranges) -> Self {
        Self { source, hosts, ranges, shares: 1, reads: false }
    }

    /// Hosts that have it afterwards, and had not.
    pub(super) fn takers(&self) -> impl Iterator<Item = usize> + '_ {
        self.source.filter(|_| self.reads).into_iter().chain(self.hosts.iter().copied())
    }

    pub(super) fn is_listing(&self) -> bool {
        self.ranges.is_empty()
    }
}

/// A host that can be in groups.
#[derive(Clone, Copy)]
pub(super) struct Holder<'a> {
    pub(super) host: usize,
    pub(super) has: &'a Ranges,
    /// What it had before it was sent anything.
    pub(super) kept: &'a Ranges,
    /// Whether it may be a source.
    pub(super) sends: bool,
    /// Whether it is to send a share of what it has ([`PushSettings::source_hosts`]).
    ///
    /// [`PushSettings::source_hosts`]: super::PushSettings::source_hosts
    pub(super) is_source: bool,
    /// Whether it delayed the others.
    pub(super) is_deferred: bool,
    /// Members to which it cannot connect; `None` is the root.
    pub(super) apart_from: &'a [Option<usize>],
}

impl<'a> Holder<'a> {
    pub(super) fn new(index: usize, host: &'a Host, is_source: bool) -> Self {
        let is_deferred = host.deferred_at.is_some();
        Self {
            host: index,
            has: &host.has,
            kept: &host.kept,
            sends: !is_deferred && !host.keeps_unread,
            is_source,
            is_deferred,
            apart_from: &host.apart_from,
        }
    }
}

/// The parts after which all of `holders` have the whole object of this length; empty if they have it.
pub(super) fn parts(bytes: u64, holders: &[Holder<'_>], shares: &Shares<'_>) -> Vec<Part> {
    let is_apart = |holder: &&Holder<'_>| !holder.apart_from.is_empty();
    let is_apart_from_root: BTreeSet<usize> =
        holders.iter().filter(|it| it.apart_from.contains(&None)).map(|it| it.host).collect();
    let mut parts = merged(bytes, by_hosts(bytes, holders.iter().filter(|it| !is_apart(it))));
    let alone = holders.iter().filter(is_apart).flat_map(|holder| {
        let ranges = holder.has.missing(bytes);
        (ranges.bytes() > 0).then(|| Part::of(None, vec![holder.host], ranges))
    });
    // The others in the next round.
    parts.extend(alone.take(PARTS_MAX - parts.len()));
    let mut pairs = Vec::new();
    for holder in holders {
        pairs.extend(holder.apart_from.iter().flatten().map(|&other| (holder.host, other)));
    }
    let mut used: BTreeMap<Option<usize>, usize> = BTreeMap::new();
    let by_root = |holder: &&Holder<'_>| {
        let needs_root = holder.is_deferred || !holder.apart_from.is_empty();
        needs_root && !holder.apart_from.contains(&None)
    };
    let by_root: BTreeSet<usize> =
        holders.iter().filter(by_root).map(|holder| holder.host).collect();
    let (mut planned, mut left) = (Vec::new(), parts.len());
    for part in parts {
        left -= 1;
        if part.hosts.iter().all(|host| by_root.contains(host)) {
            planned.push(part);
            continue;
        }
        let can_send = |holder: &&Holder<'_>| {
            let lacks = part.hosts.contains(&holder.host);
            let is_parted = pairs.iter().any(|&(one, other)| {
                one == holder.host && part.hosts.contains(&other)
                    || other == holder.host && part.hosts.contains(&one)
            });
            holder.sends
                && !lacks
                && !is_parted
                && part.ranges.iter().all(|range| holder.has.covers(range))
        };
        let senders: Vec<&Holder<'_>> = holders.iter().filter(can_send).collect();
        let parts_of = |member| used.get(&member).copied().unwrap_or(0);
        let of_sources = senders.iter().filter(|it| it.is_source).map(|it| Some(it.host));
        let mut sources: Vec<Option<usize>> = of_sources.collect();
        let senders = if sources.is_empty() {
            let hosts = senders.iter().map(|holder| holder.host);
            vec![hosts.min_by_key(|&host| parts_of(Some(host)))]
        } else {
            if part.hosts.iter().all(|host| !is_apart_from_root.contains(host)) {
                sources.push(None);
            }
            let mut sources = shares.senders(part.ranges.bytes(), sources, parts_of);
            sources.truncate(PARTS_MAX - planned.len() - left);
            sources
        };
        let cut = shares.cut(&part.ranges, senders);
        let shares = cut.len();
        planned.extend(cut.into_iter().map(|(source, ranges)| {
            *used.entry(source).or_insert(0) += 1;
            Part { shares, ..Part::of(source, part.hosts.clone(), ranges) }
        }));
    }
    planned
}

/// Bytes by the set of hosts that lack them.
fn by_hosts<'a>(
    bytes: u64,
    holders: impl Iterator<Item = &'a Holder<'a>>,
) -> BTreeMap<BTreeSet<usize>, Ranges> {
    let mut turns: BTreeMap<u64, Vec<(usize, bool)>> = BTreeMap::new();
    for holder in holders {
        for (start, end) in holder.has.missing(bytes).iter() {
            turns.entry(start).or_default().push((holder.host, true));
            turns.entry(end).or_default().push((holder.host, false));
        }
    }
    let mut classes: BTreeMap<BTreeSet<usize>, Ranges> = BTreeMap::new();
    let mut lacking = BTreeSet::new();
    let mut position = 0;
    for (at, changes) in turns {
        if !lacking.is_empty() {
            match classes.get_mut(&lacking) {
                Some(ranges) => ranges.extend([(position, at)]),
                None => {
                    classes.insert(lacking.clone(), [(position, at)].into_iter().collect());
                }
            }
        }
        for (host, lacks) in changes {
            if lacks {
                lacking.insert(host)
            } else {
                lacking.remove(&host)
            };
        }
        position = at;
    }
    classes
}

/// Merges small parts; if there are too many, all but the longest.
fn merged(bytes: u64, classes: BTreeMap<BTreeSet<usize>, Ranges>) -> Vec<Part> {
    let mut classes: Vec<(BTreeSet<usize>, Ranges)> = classes.into_iter().collect();
    classes.sort_by_key(|(_, ranges)| std::cmp::Reverse(ranges.bytes()));
    let is_long = |(_, ranges): &&(BTreeSet<usize>, Ranges)| ranges.bytes() > bytes / SMALL_SHARE;
    let long = classes.iter().filter(is_long).count().min(PARTS_MAX - 1);
    let small = classes.split_off(long);
    if !small.is_empty() {
        let hosts: BTreeSet<usize> = small.iter().flat_map(|(hosts, _)| hosts).copied().collect();
        let ranges: Ranges = small.iter().flat_map(|(_, ranges)| ranges.iter()).collect();
        // Into a part for a superset of these hosts, if there is one.
        let fitting = classes.iter_mut().filter(|(others, _)| hosts.is_subset(others));
        match fitting.min_by_key(|(others, _)| others.len()) {
            Some((_, others)) => others.extend(ranges.iter()),
            None => classes.push((hosts, ranges)),
        }
    }
    let part = |(hosts, ranges): (BTreeSet<usize>, Ranges)| {
        Part::of(None, hosts.into_iter().collect(), ranges)
    };
    classes.into_iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::{super::shares::SendRates, *};
    use std::time::Duration;

    use proptest::prelude::*;

    const BYTES: u64 = 100_000;

    fn plan(has: &[Ranges]) -> Vec<Part> {
        whole(&holders(has, |_| &[]))
    }

    /// One member sends each part.
    fn whole(holders: &[Holder<'_>]) -> Vec<Part> {
        let rates = SendRates::default();
        parts(BYTES, holders, &Shares::new(u64::MAX, &rates))
    }

    fn holders<'a>(
        has: &'a [Ranges],
        apart_from: impl Fn(usize) -> &'a [Option<usize>],
    ) -> Vec<Holder<'a>> {
        let holder = |(host, has)| Holder {
            host,
            has,
            kept: has,
            sends: true,
            is_source: true,
            is_deferred: false,
            apart_from: apart_from(host),
        };
        has.iter().enumerate().map(holder).collect()
    }

    fn ranges<const N: usize>(list: [(u64, u64); N]) -> Ranges {
        list.into_iter().collect()
    }

    #[test]
    fn a_new_push_is_one_part_from_the_root() {
        let nothing = Ranges::default();
        let all = vec![nothing.clone(), nothing.clone(), nothing];
        let expected = Part::of(None, vec![0, 1, 2], ranges([(0, BYTES)]));
        assert_eq!(plan(&all), [expected]);
        assert_eq!(plan(&[ranges([(0, BYTES)])]), []);
        assert_eq!(plan(&[]), []);
    }

    #[test]
    fn a_host_that_comes_later_is_served_by_one_that_has_all() {
        let all = ranges([(0, BYTES)]);
        let has = [all.clone(), Ranges::default(), all];
        let parts = plan(&has);
        assert_eq!(parts.len(), 1);
        assert_eq!((parts[0].source, &parts[0].hosts[..]), (Some(0), &[1][..]));
    }

    #[test]
    fn large_differences_form_parts_and_small_ones_are_merged() {
        // All lack the second half, host 2 also the first, and each has a small piece of its own.
        let has = [
            ranges([(0, 50_000), (50_100, 50_200)]),
            ranges([(0, 50_000), (50_200, 50_300)]),
            ranges([(50_300, 50_400)]),
        ];
        let parts = plan(&has);
        let expected = [
            Part::of(Some(0), vec![2], ranges([(0, 50_000)])),
            Part::of(None, vec![0, 1, 2], ranges([(50_000, BYTES)])),
        ];
        assert_eq!(parts, expected);
    }

    #[test]
    fn the_root_sends_to_deferred_hosts_if_they_can_connect_to_it() {
        let has = [ranges([(0, BYTES)]), Ranges::default(), Ranges::default()];
        let plan = |deferred: &[usize], apart_from: &[Option<usize>]| {
            let mut holders = holders(&has, |host| if host == 1 { apart_from } else { &[] });
            deferred.iter().for_each(|&host| holders[host].is_deferred = true);
            let parts = whole(&holders).into_iter();
            parts.map(|part| (part.source, part.hosts)).collect::<Vec<_>>()
        };
        assert_eq!(plan(&[1, 2], &[]), [(None, vec![1, 2])]);
        assert_eq!(plan(&[1], &[]), [(Some(0), vec![1, 2])]);
        assert_eq!(plan(&[1, 2], &[None]), [(None, vec![2]), (Some(0), vec![1])]);
    }

    #[test]
    fn a_host_that_cannot_connect_to_others_is_alone_with_one_that_it_may_connect_to() {
        let (all, none) = (ranges([(0, BYTES)]), Ranges::default());
        let plan = |has: &[Ranges], apart_from: &[Option<usize>]| {
            let of = |host| if host == 1 { apart_from } else { &[] };
            let parts = whole(&holders(has, of));
            parts.into_iter().map(|part| (part.source, part.hosts)).collect::<Vec<_>>()
        };
        let rest = [all.clone(), none.clone(), all.clone()];
        assert_eq!(
            plan(&rest, &[Some(0)]),
            [(None, vec![1])],
            "perhaps it connects to the root alone"
        );
        assert_eq!(plan(&rest, &[Some(0), Some(2)]), [(None, vec![1])]);
        let four = [all.clone(), none.clone(), all.clone(), all.clone()];
        assert_eq!(plan(&four, &[Some(0), Some(2)]), [(None, vec![1])]);
        assert_eq!(plan(&four, &[None, Some(0)]), [(Some(2), vec![1])]);
        assert_eq!(plan(&rest, &[None]), [(Some(0), vec![1])]);
        let both = [none.clone(), none.clone(), none.clone()];
        assert_eq!(plan(&both, &[Some(0)]), [(None, vec![0, 2]), (None, vec![1])]);
        let own = [none, all, Ranges::default()];
        assert_eq!(plan(&own, &[Some(0)]), [(None, vec![0, 2])], "nor does it send to that one");
    }

    #[test]
    fn what_several_have_is_sent_by_all_of_them_in_shares() {
        let (all, none) = (ranges([(0, BYTES)]), Ranges::default());
        let has = [all.clone(), none.clone(), all.clone(), none];
        let rates = SendRates::default();
        let plan = |bytes_min: u64, apart_from: &[Option<usize>]| {
            let shares = Shares::new(bytes_min, &rates);
            let of = |host| if host == 0 { apart_from } else { &[] };
            parts(BYTES, &holders(&has, of), &shares)
        };
        let share = |source, start, end| Part {
            shares: 2,
            ..Part::of(source, vec![1, 3], ranges([(start, end)]))
        };
        assert_eq!(plan(50_000, &[]), [share(Some(0), 0, 49_984), share(Some(2), 49_984, BYTES)]);
        let three = plan(1_000, &[]);
        assert_eq!(
            three.iter().map(|part| part.source).collect::<Vec<_>>(),
            [Some(0), Some(2), None]
        );
        assert_eq!(plan(60_000, &[]), [Part::of(Some(0), vec![1, 3], all)]);
        let apart = plan(1_000, &[Some(1)]);
        assert_eq!(apart.iter().map(|part| part.source).collect::<Vec<_>>(), [Some(2), None]);
    }

    proptest! {
        #[test]
        fn after_all_parts_every_host_has_everything(
            lists in prop::collection::vec(prop::collection::vec((0..BYTES, 0..BYTES), 0..6), 1..6),
            sends in prop::collection::vec(any::<bool>(), 6),
            bytes_min in 1..BYTES,
            sent in prop::collection::vec(0..1_000_u64, 7),
        ) {
            let has: Vec<Ranges> =
                lists.into_iter().map(|list| list.into_iter().collect()).collect();
            let holders: Vec<Holder<'_>> = has
                .iter()
                .zip(sends)
                .enumerate()
                .map(|(host, (has, sends))| Holder {
                    host,
                    has,
                    kept: has,
                    sends,
                    is_source: host % 2 == 0,
                    is_deferred: false,
                    apart_from: &[],
                })
                .collect();
            let mut rates = SendRates::default();
            for (member, &bytes) in sent.iter().enumerate() {
                rates.note(member.checked_sub(1), bytes, Duration::from_secs(1));
            }
            let parts = parts(BYTES, &holders, &Shares::new(bytes_min, &rates));
            prop_assert!(parts.len() <= PARTS_MAX);
            let mut after = has.clone();
            for part in &parts {
                prop_assert!(!part.hosts.is_empty() && part.ranges.bytes() > 0);
                part.hosts.iter().for_each(|&host| after[host].extend(part.ranges.iter()));
                if let Some(source) = part.source {
                    prop_assert!(holders[source].sends && !part.hosts.contains(&source));
                    prop_assert!(part.ranges.iter().all(|range| has[source].covers(range)));
                }
            }
            prop_assert!(after.iter().all(|has| has.covers((0, BYTES))));
        }
    }
}
