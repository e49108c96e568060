//! Whether a group is fast enough, and which members delay it if not.

use std::{collections::BTreeMap, mem, time::Duration};

use plan::slowness;
use rdmc::Waited;

/// How often running groups are checked.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a group must be too slow.
const WINDOW: Duration = Duration::from_secs(5);
/// How long it must be so once more before several members, or a less likely one, are blamed: fast ones are waited for now and then.
const CONFIRMING_WINDOW: Duration = Duration::from_secs(2);
/// The least part of the window for which senders have waited for a member that may be a cause, and of all the time for one that is.
const SUSPECTED_MIN: f64 = 0.33;
const CERTAIN_MIN: f64 = 0.5;
/// At most one in this many members is blamed together with others.
const BLAMED_ONE_IN: usize = 4;
/// The least share in a group's delay that identifies a straggler.
const SHARE_MIN: f64 = 0.3;

/// The progress and the waits of one group.
#[derive(Debug)]
pub(super) struct GroupRate {
    /// Waits by rank, accumulated since the group started.
    waited: BTreeMap<u32, Vec<Waited>>,
    next_check: Duration,
    /// Start of the present window, with the values at that time.
    since: Duration,
    window_bytes: u64,
    window_waited: BTreeMap<u32, Vec<Waited>>,
    /// For which others have waited in the window before this one, which is to confirm it, and for how long on average; else none.
    suspected: BTreeMap<u32, Duration>,
}

/// A group that is too slow, and the members that delay it.
#[derive(Debug)]
pub(super) struct Slow {
    pub(super) ranks: Vec<u32>,
    /// Rate of the group in bytes per second.
    pub(super) rate: f64,
    /// All members with a large share in the delay, by rank.
    pub(super) suspects: Vec<u32>,
}

impl Slow {
    /// Members of which each is as likely a cause as the others; `None` if there is none.
    fn together(ranks: impl Iterator<Item = u32>, rate: f64) -> Option<Self> {
        let ranks: Vec<u32> = ranks.collect();
        (!ranks.is_empty()).then(|| Self { suspects: ranks.clone(), ranks, rate })
    }
}

impl GroupRate {
    /// `bytes`: how much the slowest member has at the start.
    pub(super) fn new(bytes: u64, now: Duration) -> Self {
        Self {
            waited: BTreeMap::new(),
            next_check: now + CHECK_INTERVAL,
            since: now,
            window_bytes: bytes,
            window_waited: BTreeMap::new(),
            suspected: BTreeMap::new(),
        }
    }

    /// Of a group of this many members. What a member says of others than these, or twice, is left out: their lists stay short.
    pub(super) fn set_waited(&mut self, rank: u32, mut waited: Vec<Waited>, members: usize) {
        waited.retain(|one| (one.member as usize) < members);
        waited.sort_by_key(|one| one.member);
        waited.dedup_by_key(|one| one.member);
        self.waited.insert(rank, waited);
    }

    /// How much the slowest member had at the start of the present window.
    pub(super) fn window_bytes(&self) -> u64 {
        self.window_bytes
    }

    pub(super) fn next_check(&self) -> Duration {
        self.next_check
    }

    /// Whether the next check is due; if so, schedules the one after it.
    pub(super) fn is_due(&mut self, now: Duration) -> bool {
        let is_due = now >= self.next_check;
        if is_due {
            self.next_check = now + CHECK_INTERVAL;
        }
        is_due
    }

    /// Each member's share, by rank, in the delay of the group so far.
    pub(super) fn shares(&self, members: usize) -> Vec<f64> {
        slowness::shares(&table(&self.waited, members))
    }

    /// Once per window: the stragglers, if the group was slower than `rate_min` bytes per second. `bytes`: how
    /// much the slowest member has.
    pub(super) fn judge(
        &mut self,
        now: Duration,
        bytes: u64,
        members: usize,
        rate_min: f64,
        suspicions: &dyn Fn(u32) -> u32,
    ) -> Option<Slow> {
        let passed = now.saturating_sub(self.since);
        if passed < if self.suspected.is_empty() { WINDOW } else { CONFIRMING_WINDOW } {
            return None;
        }
        let suspected = mem::take(&mut self.suspected);
        let rate = bytes.saturating_sub(self.window_bytes) as f64 / passed.as_secs_f64();
        let mut waited = table(&self.waited, members);
        for (rank, before) in &self.window_waited {
            if let Some(now) = waited.get_mut(*rank as usize) {
                subtract(now, before);
            }
        }
        (self.since, self.window_bytes, self.window_waited) = (now, bytes, self.waited.clone());
        if rate >= rate_min {
            return None;
        }
        let taking: BTreeMap<u32, Duration> = (0..).zip(slowness::taking(&waited)).collect();
        if !suspected.is_empty() {
            let in_both = WINDOW + passed;
            let is_certain = |(rank, before): &(&u32, &Duration)| {
                let all = taking.get(rank).map_or(Duration::ZERO, |now| **before + *now);
                all >= in_both.mul_f64(CERTAIN_MIN)
            };
            return Slow::together(
                suspected.iter().filter(is_certain).map(|(&rank, _)| rank),
                rate,
            );
        }
        let suspected: BTreeMap<u32, Duration> = taking
            .into_iter()
            .filter(|(_, taking)| *taking >= passed.mul_f64(SUSPECTED_MIN))
            .collect();
        let certain_min = passed.mul_f64(CERTAIN_MIN);
        if suspected.len() == 1 && suspected.values().all(|taking| *taking >= certain_min) {
            return Slow::together(suspected.into_keys(), rate);
        }
        if (1..=members / BLAMED_ONE_IN).contains(&suspected.len()) {
            self.suspected = suspected;
            return None;
        }
        let shares = slowness::shares(&waited);
        let (rank, share) = slowness::straggler(&shares, &waited, suspicions)?;
        let suspects =
            (0..).zip(shares).filter(|&(_, share)| share >= SHARE_MIN).map(|(rank, _)| rank);
        (share >= SHARE_MIN).then(|| Slow { ranks: vec![rank], rate, suspects: suspects.collect() })
    }
}

fn table(waited: &BTreeMap<u32, Vec<Waited>>, members: usize) -> Vec<Vec<Waited>> {
    (0..).take(members).map(|rank| waited.get(&rank).cloned().unwrap_or_default()).collect()
}

fn subtract(waited: &mut [Waited], before: &[Waited]) {
    for now in waited {
        if let Some(before) = before.iter().find(|before| before.member == now.member) {
            now.to_take = now.to_take.saturating_sub(before.to_take);
            now.to_give = now.to_give.saturating_sub(before.to_give);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(member: u32, seconds: u64) -> Vec<Waited> {
        vec![Waited { member, to_take: Duration::from_secs(seconds), ..Waited::default() }]
    }

    #[test]
    fn only_recent_waits_count_and_only_in_slow_groups() {
        let mut rate = GroupRate::new(0, Duration::ZERO);
        let at = Duration::from_secs;
        // First they wait for member 1 in a fast group, later for member 2.
        rate.set_waited(0, take(1, 5), 3);
        rate.set_waited(1, take(0, 5), 3);
        assert!(rate.judge(at(4), 1_000, 3, 100.0, &|_| 0).is_none());
        assert!(rate.judge(at(5), 1_000, 3, 100.0, &|_| 0).is_none());
        rate.set_waited(0, [take(1, 5), take(2, 5)].concat(), 3);
        rate.set_waited(1, [take(0, 5), take(2, 5)].concat(), 3);
        rate.set_waited(2, take(2, 5), 3);
        let slow = rate.judge(at(10), 1_200, 3, 100.0, &|_| 0).unwrap();
        assert_eq!((slow.ranks, slow.rate, slow.suspects), (vec![2], 40.0, vec![2]));
        assert!(rate.judge(at(11), 1_200, 3, 100.0, &|_| 0).is_none());
        assert_eq!(rate.shares(3).len(), 3);
    }

    /// A group that replaces another begins with what its members have.
    #[test]
    fn what_members_had_before_does_not_count() {
        let mut rate = GroupRate::new(1_000, Duration::ZERO);
        rate.set_waited(0, take(1, 5), 3);
        rate.set_waited(2, take(1, 5), 3);
        let slow = rate.judge(Duration::from_secs(5), 1_200, 3, 100.0, &|_| 0).unwrap();
        assert_eq!((slow.ranks, slow.rate), (vec![1], 40.0));
    }

    /// Each of 16 members has waited for each of these to take, for this many seconds.
    fn wait_for(rate: &mut GroupRate, waits: &[(u32, u64)]) {
        for rank in 0..16 {
            let others = waits.iter().filter(|(other, _)| *other != rank);
            let all = others.flat_map(|&(other, seconds)| take(other, seconds));
            rate.set_waited(rank, all.collect(), 16);
        }
    }

    #[test]
    fn several_slow_members_are_blamed_when_they_are_waited_for_twice() {
        let at = Duration::from_secs;
        let judge = |rate: &mut GroupRate, now| rate.judge(at(now), 100, 16, 100.0, &|_| 0);
        let mut rate = GroupRate::new(0, Duration::ZERO);
        wait_for(&mut rate, &[(3, 2), (5, 5), (9, 4)]);
        assert!(judge(&mut rate, 5).is_none());
        wait_for(&mut rate, &[(3, 2), (5, 7), (9, 6)]);
        assert!(judge(&mut rate, 6).is_none());
        let slow = judge(&mut rate, 7).unwrap();
        assert_eq!((slow.ranks, slow.rate), (vec![5, 9], 0.0), "3 was waited for once");
        // One that stands out needs no second window.
        let mut rate = GroupRate::new(0, Duration::ZERO);
        wait_for(&mut rate, &[(3, 1), (5, 4)]);
        assert_eq!(judge(&mut rate, 5).unwrap().ranks, [5]);
        // More than a quarter is no exception.
        let mut rate = GroupRate::new(0, Duration::ZERO);
        wait_for(&mut rate, &[1, 3, 5, 9, 11].map(|rank| (rank, 5)));
        assert!(judge(&mut rate, 5).is_none() && judge(&mut rate, 7).is_none());
    }
}
