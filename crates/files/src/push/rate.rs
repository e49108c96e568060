//! Whether a group is fast enough, and which member delays it if not.

use std::{collections::BTreeMap, time::Duration};

use plan::slowness;
use rdmc::Waited;

/// How often running groups are checked.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a group must be too slow.
const WINDOW: Duration = Duration::from_secs(5);
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
}

/// A group that is too slow, and the member that delays it.
#[derive(Debug)]
pub(super) struct Slow {
    pub(super) rank: u32,
    /// Rate of the group in bytes per second.
    pub(super) rate: f64,
    /// All members with a large share in the delay, by rank.
    pub(super) suspects: Vec<u32>,
}

impl GroupRate {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            waited: BTreeMap::new(),
            next_check: now + CHECK_INTERVAL,
            since: now,
            window_bytes: 0,
            window_waited: BTreeMap::new(),
        }
    }

    pub(super) fn set_waited(&mut self, rank: u32, waited: Vec<Waited>) {
        self.waited.insert(rank, waited);
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

    /// Once per window: the straggler, if the group was slower than `rate_min` bytes per second. `bytes`: how
    /// much the slowest member has.
    pub(super) fn judge(
        &mut self,
        now: Duration,
        bytes: u64,
        (members, rate_min): (usize, f64),
        suspicions: &dyn Fn(u32) -> u32,
    ) -> Option<Slow> {
        let passed = now.saturating_sub(self.since);
        if passed < WINDOW {
            return None;
        }
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
        let shares = slowness::shares(&waited);
        let (rank, share) = slowness::straggler(&shares, &waited, suspicions)?;
        let suspects =
            (0..).zip(shares).filter(|&(_, share)| share >= SHARE_MIN).map(|(rank, _)| rank);
        (share >= SHARE_MIN).then(|| Slow { rank, rate, suspects: suspects.collect() })
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
        let mut rate = GroupRate::new(Duration::ZERO);
        let at = Duration::from_secs;
        // First they wait for member 1 in a fast group, later for member 2.
        rate.set_waited(0, take(1, 5));
        rate.set_waited(1, take(0, 5));
        assert!(rate.judge(at(4), 1_000, (3, 100.0), &|_| 0).is_none());
        assert!(rate.judge(at(5), 1_000, (3, 100.0), &|_| 0).is_none());
        rate.set_waited(0, [take(1, 5), take(2, 5)].concat());
        rate.set_waited(1, [take(0, 5), take(2, 5)].concat());
        rate.set_waited(2, take(2, 5));
        let slow = rate.judge(at(10), 1_200, (3, 100.0), &|_| 0).unwrap();
        assert_eq!((slow.rank, slow.rate, slow.suspects), (2, 40.0, vec![2]));
        assert!(rate.judge(at(11), 1_200, (3, 100.0), &|_| 0).is_none());
        assert_eq!(rate.shares(3).len(), 3);
    }
}
