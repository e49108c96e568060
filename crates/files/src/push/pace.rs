//! Whether a group is fast enough, and who holds it up if not.

use std::{collections::BTreeMap, time::Duration};

use plan::slowness;
use rdmc::Waited;

/// How often members are asked whom they wait for; receivers tell without being asked.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// Over how long a group has to be too slow.
const WINDOW: Duration = Duration::from_secs(5);
/// Members with a smaller share in what holds a group up do not stand out.
const SHARE_MIN: f64 = 0.3;

/// One group's course, as far as its members have told.
#[derive(Debug)]
pub(super) struct Pace {
    /// By rank, since the group stands.
    told: BTreeMap<u32, Vec<Waited>>,
    next_look: Duration,
    /// When the present window began, and with what.
    since: Duration,
    then_bytes: u64,
    then_told: BTreeMap<u32, Vec<Waited>>,
}

/// A member that holds up a group that is too slow.
#[derive(Debug)]
pub(super) struct Slow {
    pub(super) rank: u32,
    /// How fast the group was, in bytes per second.
    pub(super) rate: f64,
    /// Members that could be to blame as well, by rank; this one is among them.
    pub(super) suspects: Vec<u32>,
}

impl Pace {
    pub(super) fn new(now: Duration) -> Self {
        Self {
            told: BTreeMap::new(),
            next_look: now + LOOK,
            since: now,
            then_bytes: 0,
            then_told: BTreeMap::new(),
        }
    }

    pub(super) fn heard(&mut self, rank: u32, waited: Vec<Waited>) {
        self.told.insert(rank, waited);
    }

    pub(super) fn next_look(&self) -> Duration {
        self.next_look
    }

    /// Whether it is time for the next look, which is then planned anew.
    pub(super) fn is_due(&mut self, now: Duration) -> bool {
        let is_due = now >= self.next_look;
        if is_due {
            self.next_look = now + LOOK;
        }
        is_due
    }

    /// The share of each of so many members, by rank, in what has held the group up so far.
    pub(super) fn shares(&self, members: usize) -> Vec<f64> {
        slowness::shares(&table(&self.told, members))
    }

    /// Once in a window: who holds this group up, if all of its members have come forward by less
    /// than `rate_min` bytes per second. `bytes`: how much the slowest member has.
    pub(super) fn judge(
        &mut self,
        now: Duration,
        bytes: u64,
        (members, rate_min): (usize, f64),
        doubts: &dyn Fn(u32) -> u32,
    ) -> Option<Slow> {
        let passed = now.saturating_sub(self.since);
        if passed < WINDOW {
            return None;
        }
        let rate = bytes.saturating_sub(self.then_bytes) as f64 / passed.as_secs_f64();
        let mut lately = table(&self.told, members);
        for (rank, before) in &self.then_told {
            if let Some(of) = lately.get_mut(*rank as usize) {
                subtract(of, before);
            }
        }
        (self.since, self.then_bytes, self.then_told) = (now, bytes, self.told.clone());
        if rate >= rate_min {
            return None;
        }
        let shares = slowness::shares(&lately);
        let (rank, share) = slowness::worst_of(&shares, &lately, doubts)?;
        let suspects =
            (0..).zip(shares).filter(|&(_, share)| share >= SHARE_MIN).map(|(rank, _)| rank);
        (share >= SHARE_MIN).then(|| Slow { rank, rate, suspects: suspects.collect() })
    }
}

fn table(told: &BTreeMap<u32, Vec<Waited>>, members: usize) -> Vec<Vec<Waited>> {
    let of = |rank: u32| told.get(&rank).cloned().unwrap_or_default();
    (0..).take(members).map(of).collect()
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
    fn only_what_was_waited_lately_counts_and_only_in_slow_groups() {
        let mut pace = Pace::new(Duration::ZERO);
        let at = Duration::from_secs;
        // At first they wait for member 1, which is fast enough; later for member 2.
        pace.heard(0, take(1, 5));
        pace.heard(1, take(0, 5));
        assert!(pace.judge(at(4), 1_000, (3, 100.0), &|_| 0).is_none());
        assert!(pace.judge(at(5), 1_000, (3, 100.0), &|_| 0).is_none());
        pace.heard(0, [take(1, 5), take(2, 5)].concat());
        pace.heard(1, [take(0, 5), take(2, 5)].concat());
        pace.heard(2, take(2, 5));
        let slow = pace.judge(at(10), 1_200, (3, 100.0), &|_| 0).unwrap();
        assert_eq!((slow.rank, slow.rate, slow.suspects), (2, 40.0, vec![2]));
        assert!(pace.judge(at(11), 1_200, (3, 100.0), &|_| 0).is_none());
        assert_eq!(pace.shares(3).len(), 3);
    }
}
