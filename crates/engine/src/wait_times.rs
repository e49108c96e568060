//! How long this member waits for each neighbour.

use std::{collections::BTreeMap, time::Duration};

use relay::{Obstacle, Waited};

/// The wait times of one member in one group.
#[derive(Debug)]
pub(crate) struct WaitTimes {
    /// Its own rank.
    rank: u32,
    /// [`Waited::to_take`] and [`Waited::to_give`], by rank.
    waited: BTreeMap<u32, (Duration, Duration)>,
    /// What the member waits for now; `None` while there is nothing to relay.
    current: Option<Obstacle>,
    /// The time up to which waits are accounted for.
    settled: Duration,
}

impl WaitTimes {
    pub(crate) fn new(rank: u32) -> Self {
        Self { rank, waited: BTreeMap::new(), current: None, settled: Duration::ZERO }
    }

    /// Accounts for the time until now, and sets what the member waits for from now on.
    pub(crate) fn note(&mut self, obstacle: Option<Obstacle>, now: Duration) {
        if self.current != obstacle {
            self.settle(now);
            self.current = obstacle;
        }
    }

    pub(crate) fn waited(&mut self, now: Duration) -> Vec<Waited> {
        self.settle(now);
        let waited = self.waited.iter();
        waited.map(|(&member, &(to_take, to_give))| Waited { member, to_take, to_give }).collect()
    }

    fn settle(&mut self, now: Duration) {
        let passed = now.saturating_sub(std::mem::replace(&mut self.settled, now));
        match self.current {
            Some(Obstacle::SendBlocked(rank)) => self.waited.entry(rank).or_default().0 += passed,
            Some(Obstacle::ReceiveBlocked(rank)) => {
                self.waited.entry(rank).or_default().1 += passed
            }
            Some(Obstacle::Local) => self.waited.entry(self.rank).or_default().1 += passed,
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn time_counts_for_what_is_waited_for() {
        let mut times = WaitTimes::new(7);
        times.note(Some(Obstacle::ReceiveBlocked(1)), at(10));
        times.note(Some(Obstacle::ReceiveBlocked(1)), at(11));
        times.note(Some(Obstacle::SendBlocked(2)), at(12));
        times.note(Some(Obstacle::Local), at(15));
        times.note(None, at(16));
        let waited = |member, take, give| Waited { member, to_take: at(take), to_give: at(give) };
        assert_eq!(times.waited(at(30)), [waited(1, 0, 2), waited(2, 3, 0), waited(7, 0, 1)]);
        times.note(Some(Obstacle::SendBlocked(2)), at(40));
        assert_eq!(times.waited(at(41))[1], waited(2, 4, 0));
    }
}
