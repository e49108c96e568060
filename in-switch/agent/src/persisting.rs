//! Conditions that have to last before they are reported.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

/// Since when each of several conditions lasts.
#[derive(Debug)]
pub(crate) struct Persisting<K>(BTreeMap<K, Lasting>);

#[derive(Debug)]
struct Lasting {
    since: Instant,
    reported: Instant,
}

impl<K> Default for Persisting<K> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Copy> Persisting<K> {
    /// Takes the conditions that hold now. Returns those that have lasted for `after`, and how long; again
    /// after each `after` while they last. One that did not hold meanwhile begins anew.
    pub(crate) fn observe(
        &mut self,
        now: Instant,
        holding: &BTreeSet<K>,
        after: Duration,
    ) -> Vec<(K, Duration)> {
        self.0.retain(|condition, _| holding.contains(condition));
        let mut due = Vec::new();
        for condition in holding {
            let begun = Lasting { since: now, reported: now };
            let lasting = self.0.entry(*condition).or_insert(begun);
            if now.saturating_duration_since(lasting.reported) >= after {
                lasting.reported = now;
                due.push((*condition, now.saturating_duration_since(lasting.since)));
            }
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AFTER: Duration = Duration::from_millis(300);
    const MOMENT: Duration = Duration::from_millis(1);

    #[test]
    fn what_lasts_is_reported_and_repeated() {
        let (start, mut found) = (Instant::now(), Persisting::default());
        let mut at = |ms: u64, holding: &[u8]| {
            let now = start + Duration::from_millis(ms);
            found.observe(now, &holding.iter().copied().collect(), AFTER)
        };
        assert_eq!(at(0, &[1]), []);
        assert_eq!(at(100, &[1, 2]), []);
        assert_eq!(at(299, &[1, 2]), []);
        assert_eq!(at(300, &[1, 2]), [(1, AFTER)]);
        assert_eq!(at(301, &[1, 2]), [], "it is not repeated at once");
        assert_eq!(at(400, &[1, 2]), [(2, AFTER)]);
        assert_eq!(at(600, &[1, 2]), [(1, AFTER * 2)]);
        // The second was over for a moment.
        assert_eq!(at(650, &[1]), []);
        assert_eq!(at(700, &[1, 2]), []);
        assert_eq!(at(999, &[1, 2]), [(1, AFTER * 3 + 99 * MOMENT)]);
        assert_eq!(at(1000, &[2]), [(2, AFTER)]);
    }
}
