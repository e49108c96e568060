//! Who waits for whom in the end, as members have told.

use std::{collections::BTreeMap, time::Duration};

/// How many times as old as the interval of words about waiting one may be, to be believed.
const BELIEVED: u32 = 4;

/// What linked members have told about waiting.
#[derive(Default, Debug)]
pub(crate) struct Waits {
    /// For whom each waits in the end, and when it told so.
    told: BTreeMap<u32, (u32, Duration)>,
    /// How many operations each has called at least.
    called: BTreeMap<u32, u64>,
}

impl Waits {
    /// Notes that a member waits in an operation, for another in the end.
    pub(crate) fn note(&mut self, member: u32, operation: u64, held_by: u32, now: Duration) {
        self.told.insert(member, (held_by, now));
        self.note_called(member, operation.saturating_add(1));
    }

    /// Notes that a member has called this many operations.
    pub(crate) fn note_called(&mut self, member: u32, operations: u64) {
        let called = self.called.entry(member).or_default();
        *called = operations.max(*called);
    }

    /// Describes an operation in which a member was waited for, for this long.
    pub(crate) fn detail(&self, member: u32, operation: u64, timeout: Duration) -> String {
        match self.called.get(&member).filter(|&&called| called <= operation) {
            Some(called) => {
                format!("operation {operation}: it has called {called} after {timeout:?}")
            }
            None => format!("operation {operation}, for {timeout:?}"),
        }
    }

    /// Returns the member that `own` waits for in the end, which waits for the `awaited` ones, the first of them first: the end of
    /// the chain of members that wait for each other, as they tell every `interval`. What leads round a circle does not say who
    /// holds it up: then it is the end of the chain of the next awaited one. If all lead round circles, as they may for a
    /// moment, it is the first. `None` if nobody is awaited. `is_over`: members for which nobody waits.
    pub(crate) fn end(
        &self,
        own: u32,
        awaited: &[u32],
        now: Duration,
        interval: Duration,
        is_over: impl Fn(u32) -> bool,
    ) -> Option<u32> {
        let since = now.saturating_sub(interval * BELIEVED);
        let next = |member: u32| {
            let &(held_by, at) = self.told.get(&member)?;
            (at >= since && !is_over(held_by)).then_some(held_by)
        };
        let end = |&first: &u32| {
            let mut end = first;
            for _ in 0..=self.told.len() {
                if end == own {
                    return None;
                }
                let Some(held_by) = next(end) else { return Some(end) };
                end = held_by;
            }
            None
        };
        awaited.iter().find_map(end).or(awaited.first().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(1);

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// What others have told after 10 s: pairs of a member and the one that it waits for.
    fn told(pairs: &[(u32, u32)]) -> Waits {
        let mut waits = Waits::default();
        pairs.iter().for_each(|&(member, held_by)| waits.note(member, 0, held_by, 10 * INTERVAL));
        waits
    }

    #[test]
    fn the_end_of_a_chain_is_waited_for_while_it_is_believed() {
        let waits = told(&[(1, 2), (2, 3)]);
        assert_eq!(waits.end(0, &[1], at(14), INTERVAL, |_| false), Some(3));
        assert_eq!(waits.end(0, &[1], at(15), INTERVAL, |_| false), Some(1));
        assert_eq!(waits.end(0, &[1], at(14), INTERVAL, |member| member == 3), Some(2));
        assert_eq!(waits.end(0, &[], at(14), INTERVAL, |_| false), None);
    }

    #[test]
    fn a_circle_is_not_what_holds_it_up() {
        // Members 0 and 1 wait for each other, and for 4, which is silent.
        assert_eq!(told(&[(1, 0)]).end(0, &[1, 4], at(10), INTERVAL, |_| false), Some(4));
        // Members 1 and 2 do; 3 waits for 4.
        let waits = told(&[(1, 2), (2, 1), (3, 4)]);
        assert_eq!(waits.end(0, &[1, 3], at(10), INTERVAL, |_| false), Some(4));
        assert_eq!(waits.end(0, &[2, 1], at(10), INTERVAL, |_| false), Some(2));
    }
}
