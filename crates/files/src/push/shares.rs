//! The root and hosts that have what others lack send shares of it at the same time, so that the link of one is not the limit.
//!
//! Shares are as long as their senders were fast in earlier groups. If one is done and the others go on slower than all did before, the
//! rest is cut anew ([`super::regroup::Recuts`]), so that a slow sender costs little even if nothing was known of it.

use std::{collections::BTreeMap, time::Duration};

use crate::ranges::Ranges;

/// The most members that send shares of the same bytes: each receiver is in as many groups.
const SHARES_MAX: usize = 4;
/// In groups shares end at multiples of this fraction of the least length.
const UNITS: u64 = 32;

/// How shares are cut.
pub(super) struct Shares<'a> {
    /// The least length of what a member sends.
    pub(super) bytes_min: u64,
    /// Shares end at multiples of this length.
    pub(super) unit: u64,
    pub(super) rates: &'a SendRates,
}

impl<'a> Shares<'a> {
    /// Of groups: the shares are at least this long.
    pub(super) fn new(bytes_min: u64, rates: &'a SendRates) -> Self {
        Self { bytes_min, unit: (bytes_min / UNITS).max(1), rates }
    }

    /// The fastest of these members that can send these bytes, as many as are of use; where nothing is known the first ones.
    /// `used`: how many other parts a member sends.
    pub(super) fn senders(
        &self,
        bytes: u64,
        members: Vec<Option<usize>>,
        used: impl Fn(Option<usize>) -> usize,
    ) -> Vec<Option<usize>> {
        let weights = self.rates.weights(&members);
        let rated = weights.into_iter().zip(members);
        let mut rated: Vec<(f64, Option<usize>)> =
            rated.map(|(weight, member)| (weight / (1 + used(member)) as f64, member)).collect();
        rated.sort_by(|(one, _), (other, _)| other.total_cmp(one));
        let long = bytes / self.bytes_min.max(1);
        let count = usize::try_from(long).unwrap_or(usize::MAX).clamp(1, SHARES_MAX);
        rated.into_iter().take(count).map(|(_, member)| member).collect()
    }

    /// Leaves out members whose shares of these bytes would be too short, the slowest first.
    pub(super) fn leave_out_slow(&self, bytes: u64, members: &mut Vec<Option<usize>>) {
        while members.len() > 1 {
            let weights = self.rates.weights(members);
            let sum: f64 = weights.iter().sum();
            let (slowest, weight) = weights
                .iter()
                .enumerate()
                .min_by(|(_, one), (_, other)| one.total_cmp(other))
                .map_or((0, 1.0), |(index, &weight)| (index, weight));
            if bytes as f64 * weight / sum >= self.bytes_min as f64 {
                return;
            }
            members.remove(slowest);
        }
    }

    /// Cuts ranges into consecutive shares for as many of these members as are of use, `None` is the root.
    pub(super) fn cut(
        &self,
        ranges: &Ranges,
        mut members: Vec<Option<usize>>,
    ) -> Vec<(Option<usize>, Ranges)> {
        self.leave_out_slow(ranges.bytes(), &mut members);
        let weights = self.rates.weights(&members);
        let (bytes, sum) = (ranges.bytes() as f64, weights.iter().sum::<f64>());
        let (mut before, mut start) = (0.0, 0);
        let mut shares = Vec::new();
        for (index, weight) in weights.iter().enumerate() {
            before += weight;
            let end = match index + 1 == weights.len() {
                true => u64::MAX,
                false => place_of(ranges, (bytes * before / sum) as u64) / self.unit * self.unit,
            };
            let share = ranges.intersection(&[(start, end.max(start))].into_iter().collect());
            start = end.max(start);
            if !share.is_empty() {
                shares.push((members[index], share));
            }
        }
        shares
    }
}

/// The offset before which this many bytes of the ranges are.
fn place_of(ranges: &Ranges, bytes: u64) -> u64 {
    let mut left = bytes;
    for (start, end) in ranges.iter() {
        if left < end - start {
            return start + left;
        }
        left -= end - start;
    }
    u64::MAX
}

/// How fast members have sent in groups, in bytes per second; `None` is the root.
#[derive(Default)]
pub(super) struct SendRates(BTreeMap<Option<usize>, f64>);

impl SendRates {
    /// A member has sent this much in a group.
    pub(super) fn note(&mut self, member: Option<usize>, bytes: u64, time: Duration) {
        if bytes > 0 && !time.is_zero() {
            self.0.insert(member, bytes as f64 / time.as_secs_f64());
        }
    }

    /// The share of each of these members, relative to the others; of those that have not sent yet the mean.
    fn weights(&self, members: &[Option<usize>]) -> Vec<f64> {
        let known: Vec<f64> = members.iter().filter_map(|it| self.0.get(it).copied()).collect();
        let mean = known.iter().sum::<f64>() / known.len().max(1) as f64;
        let mean = if known.is_empty() { 1.0 } else { mean };
        members.iter().map(|member| self.0.get(member).copied().unwrap_or(mean)).collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ranges(list: &[(u64, u64)]) -> Ranges {
        list.iter().copied().collect()
    }

    #[test]
    fn shares_are_as_long_as_their_senders_were_fast() {
        let mut rates = SendRates::default();
        let cut = |rates: &SendRates, members: &[Option<usize>]| {
            let shares = Shares::new(320, rates);
            let cut = shares.cut(&ranges(&[(1_000, 5_000), (9_000, 10_000)]), members.to_vec());
            cut.iter().map(|(_, share)| share.bytes()).collect::<Vec<u64>>()
        };
        let members = [None, Some(3)];
        assert_eq!(cut(&rates, &members), [2_500, 2_500]);
        rates.note(None, 100, Duration::from_secs(1));
        assert_eq!(cut(&rates, &members), [2_500, 2_500], "one is not known");
        rates.note(Some(3), 400, Duration::from_secs(1));
        assert_eq!(cut(&rates, &members), [1_000, 4_000]);
        assert_eq!(cut(&rates, &[Some(5), Some(3), None]), [1_660, 2_670, 670]);
        rates.note(None, 0, Duration::from_secs(1));
        assert_eq!(cut(&rates, &members), [1_000, 4_000], "nothing was sent");
        rates.note(None, 10, Duration::from_secs(1));
        assert_eq!(cut(&rates, &members), [5_000], "less than the least");
    }

    #[test]
    fn few_members_send_and_the_fastest_of_them() {
        let mut rates = SendRates::default();
        let members: Vec<Option<usize>> = [Some(0), Some(1), Some(2), Some(3), None].to_vec();
        let senders = |rates: &SendRates, bytes_min, bytes| {
            Shares::new(bytes_min, rates).senders(bytes, members.clone(), |_| 0)
        };
        assert_eq!(senders(&rates, 10, 100), members[..SHARES_MAX]);
        assert_eq!(senders(&rates, 10, 29), [Some(0), Some(1)]);
        assert_eq!(senders(&rates, 10, 5), [Some(0)]);
        assert_eq!(senders(&rates, 200, 100), [Some(0)]);
        rates.note(None, 100, Duration::from_secs(1));
        rates.note(Some(0), 10, Duration::from_secs(1));
        // Of the others the mean is assumed.
        assert_eq!(senders(&rates, 10, 29), [None, Some(1)]);
        assert_eq!(senders(&rates, 200, 100), [None]);
        let used = |member: Option<usize>| if member.is_none() { 2 } else { 0 };
        let shares = Shares::new(u64::MAX, &rates);
        assert_eq!(shares.senders(100, members.clone(), used), [Some(1)]);
    }

    proptest! {
        #[test]
        fn shares_make_up_the_whole_and_do_not_overlap(
            list in prop::collection::vec((0..10_000_u64, 0..10_000_u64), 0..5),
            sent in prop::collection::vec(0..1_000_u64, 1..5),
            bytes_min in 1..500_u64,
        ) {
            let whole: Ranges = ranges(&list);
            let mut rates = SendRates::default();
            let members: Vec<Option<usize>> = (0..sent.len()).map(|it| it.checked_sub(1)).collect();
            for (member, bytes) in members.iter().zip(&sent) {
                rates.note(*member, *bytes, Duration::from_millis(10));
            }
            let shares = Shares::new(bytes_min, &rates);
            let cut = shares.cut(&whole, members.clone());
            prop_assert!(cut.len() <= members.len());
            prop_assert_eq!(cut.iter().map(|(_, share)| share.bytes()).sum::<u64>(), whole.bytes());
            let all: Ranges = cut.iter().flat_map(|(_, share)| share.iter()).collect();
            prop_assert_eq!(all, whole);
        }
    }
}
