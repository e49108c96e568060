//! Whom this member waits for, and for how long.

use std::{collections::BTreeMap, time::Duration};

use relay::Obstacle;

/// How long one member of a group has waited for another since the group was made, with blocks to
/// relay.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Waited {
    /// Whom it has waited for; its own rank stands for time in which it could go on, or waited for
    /// its application.
    pub member: u32,
    /// For that one to take a block: one was on its way, or it had posted no receive for one.
    pub to_take: Duration,
    /// For that one to send a block.
    pub to_give: Duration,
}

/// The account of one member.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Its own rank.
    rank: u32,
    /// Time waited to take, and to give.
    waited: BTreeMap<u32, (Duration, Duration)>,
    /// What is in the way now; `None` while there is nothing to relay.
    now: Option<Obstacle>,
    /// Until when time is accounted for.
    settled: Duration,
}

impl Pace {
    pub(crate) fn new(rank: u32) -> Self {
        Self { rank, waited: BTreeMap::new(), now: None, settled: Duration::ZERO }
    }

    /// This is in the way from now on.
    pub(crate) fn meets(&mut self, obstacle: Option<Obstacle>, now: Duration) {
        if self.now != obstacle {
            self.settle(now);
            self.now = obstacle;
        }
    }

    pub(crate) fn waited(&mut self, now: Duration) -> Vec<Waited> {
        self.settle(now);
        let waited = self.waited.iter();
        waited.map(|(&member, &(to_take, to_give))| Waited { member, to_take, to_give }).collect()
    }

    fn settle(&mut self, now: Duration) {
        let passed = now.saturating_sub(std::mem::replace(&mut self.settled, now));
        match self.now {
            Some(Obstacle::Take(rank)) => self.waited.entry(rank).or_default().0 += passed,
            Some(Obstacle::Give(rank)) => self.waited.entry(rank).or_default().1 += passed,
            Some(Obstacle::Own) => self.waited.entry(self.rank).or_default().1 += passed,
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
    fn time_counts_for_what_is_in_the_way() {
        let mut pace = Pace::new(7);
        pace.meets(Some(Obstacle::Give(1)), at(10));
        pace.meets(Some(Obstacle::Give(1)), at(11));
        pace.meets(Some(Obstacle::Take(2)), at(12));
        pace.meets(Some(Obstacle::Own), at(15));
        pace.meets(None, at(16));
        let waited = |member, take, give| Waited { member, to_take: at(take), to_give: at(give) };
        assert_eq!(pace.waited(at(30)), [waited(1, 0, 2), waited(2, 3, 0), waited(7, 0, 1)]);
        pace.meets(Some(Obstacle::Take(2)), at(40));
        assert_eq!(pace.waited(at(41))[1], waited(2, 4, 0));
    }
}
