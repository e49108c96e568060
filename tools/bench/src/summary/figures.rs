//! Figures of the course of a message.

use std::{collections::BTreeMap, ops::Range, time::Duration};

use plan::slowness;
use rdmc::Waited;
use trace::Reason;

use crate::course::{Course, Transfer, Wait};

/// All waits of one member for the same thing of the same member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Waiting {
    pub member: u32,
    pub reason: Reason,
    pub peer: Option<u32>,
    pub times: u64,
    pub total_ns: u64,
    pub longest_ns: u64,
}

/// Which member waited for which, the longest first.
pub fn waiting(waits: &[Wait]) -> Vec<Waiting> {
    let mut all: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for wait in waits {
        let lengths = all.entry((wait.member, wait.reason, wait.peer)).or_default();
        lengths.push(wait.time.end - wait.time.start);
    }
    let sum_up = |((member, reason, peer), lengths): (_, Vec<u64>)| Waiting {
        member,
        reason,
        peer,
        times: lengths.len() as u64,
        total_ns: lengths.iter().sum(),
        longest_ns: lengths.iter().copied().max().unwrap_or(0),
    };
    let mut all: Vec<Waiting> = all.into_iter().map(sum_up).collect();
    all.sort_by_key(|waiting| std::cmp::Reverse(waiting.total_ns));
    all
}

/// The share of each member in what held the message up ([`slowness`]); all together 1.
pub fn holding_up(course: &Course) -> Vec<f64> {
    let waited: Vec<Vec<Waited>> =
        (0..course.members()).map(|member| waited_by(course, member)).collect();
    slowness::shares(&waited)
}

fn waited_by(course: &Course, member: u32) -> Vec<Waited> {
    let mut waited: BTreeMap<u32, Waited> = BTreeMap::new();
    let mut charge = |peer: u32, gives: bool, ns: u64| {
        let of = waited.entry(peer).or_insert(Waited { member: peer, ..Waited::default() });
        let time = if gives { &mut of.to_give } else { &mut of.to_take };
        *time += Duration::from_nanos(ns);
    };
    for wait in course.waits.iter().filter(|wait| wait.member == member) {
        let gives = wait.reason == Reason::Block;
        charge(wait.peer.unwrap_or(member), gives, wait.time.end - wait.time.start);
    }
    // A member that sends waits for its first block in transit; one that sends nothing waits for the next to arrive.
    let mut sent: Vec<&Transfer> = course.transfers.iter().filter(|it| it.from == member).collect();
    sent.sort_by_key(|transfer| transfer.time.start);
    let mut until = 0;
    for transfer in &sent {
        charge(
            transfer.to,
            false,
            transfer.time.end.saturating_sub(until.max(transfer.time.start)),
        );
        until = until.max(transfer.time.end);
    }
    if sent.is_empty() {
        let mut until = course.span().start;
        for transfer in course.transfers.iter().filter(|transfer| transfer.to == member) {
            charge(transfer.from, true, transfer.time.end.saturating_sub(until));
            until = until.max(transfer.time.end);
        }
    }
    waited.into_values().collect()
}

/// How much of the time one direction of one member had blocks in transit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Use {
    pub blocks: u64,
    /// From the start of its first block to the end of its last.
    pub time: Range<u64>,
    /// With one block or more in transit.
    pub busy_ns: u64,
    /// With two or more.
    pub double_ns: u64,
}

impl Use {
    pub fn of<'a>(times: impl Iterator<Item = &'a Range<u64>>) -> Self {
        let mut changes: Vec<(u64, i64)> = Vec::new();
        for time in times {
            changes.extend([(time.start, 1), (time.end, -1)]);
        }
        changes.sort_unstable();
        let (Some(&(start, _)), Some(&(end, _))) = (changes.first(), changes.last()) else {
            return Self::default();
        };
        let blocks = changes.len() as u64 / 2;
        let mut used = Self { blocks, time: start..end, ..Self::default() };
        let (mut under_way, mut since) = (0, start);
        for (at, change) in changes {
            used.busy_ns += if under_way >= 1 { at - since } else { 0 };
            used.double_ns += if under_way >= 2 { at - since } else { 0 };
            (under_way, since) = (under_way + change, at);
        }
        used
    }

    /// Without a block between its first and its last.
    pub fn idle_ns(&self) -> u64 {
        self.time.end - self.time.start - self.busy_ns
    }
}

/// Which direction of a member's link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Direction {
    Out,
    In,
}

impl Direction {
    pub fn name(self) -> &'static str {
        match self {
            Self::Out => "out",
            Self::In => "in",
        }
    }

    /// The member whose link a transfer uses in this direction.
    pub fn end(self, transfer: &Transfer) -> u32 {
        match self {
            Self::Out => transfer.from,
            Self::In => transfer.to,
        }
    }
}

/// What a member's link carried in one direction.
pub fn use_of(course: &Course, member: u32, direction: Direction) -> Use {
    let own = course.transfers.iter().filter(|transfer| direction.end(transfer) == member);
    Use::of(own.map(|transfer| &transfer.time))
}

/// Times of blocks in transit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Durations {
    pub blocks: u64,
    pub median_ns: u64,
    pub p90_ns: u64,
    pub max_ns: u64,
}

/// Of blocks that used this direction of the member's link; `None` if there are none.
pub fn durations(course: &Course, member: u32, direction: Direction) -> Option<Durations> {
    let own = course.transfers.iter().filter(|transfer| direction.end(transfer) == member);
    let mut lengths: Vec<u64> = own.map(|it| it.time.end - it.time.start).collect();
    lengths.sort_unstable();
    let max_ns = *lengths.last()?;
    // The smallest value that is not below this share of all, in percent.
    let percentile = |share: usize| lengths[(lengths.len() * share).div_ceil(100).max(1) - 1];
    let blocks = lengths.len() as u64;
    Some(Durations { blocks, median_ns: percentile(50), p90_ns: percentile(90), max_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(member: u32, peer: u32, time: Range<u64>) -> Wait {
        Wait { member, peer: Some(peer), reason: Reason::Credit, block: None, time }
    }

    #[test]
    fn the_slow_link_of_a_chain_is_where_it_is_held_up() {
        let transfer = |from, to, block, time| Transfer { from, to, block, step: None, time };
        let mut course = Course::default();
        for block in 0..10 {
            let at = u64::from(block) * 100;
            course.transfers.push(transfer(0, 1, block, at..at + 10));
            course.transfers.push(transfer(1, 2, block, at + 10..at + 110));
            course.transfers.push(transfer(2, 3, block, at + 110..at + 120));
            let gap = |member, peer, time| Wait {
                member,
                peer: Some(peer),
                reason: if peer < member { Reason::Block } else { Reason::Credit },
                block: None,
                time,
            };
            course.waits.push(gap(0, 1, at + 10..at + 100));
            course.waits.push(gap(2, 1, at + 120..at + 210));
        }
        let shares = holding_up(&course);
        assert!(shares[1] > 0.4 && shares[2] > 0.4, "{shares:?}");
        assert!((shares.iter().sum::<f64>() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn waits_for_the_same_are_summed_up() {
        let waits = [wait(1, 2, 0..5), wait(3, 2, 0..20), wait(1, 2, 7..16), wait(1, 3, 5..6)];
        let all = waiting(&waits);
        let pairs: Vec<_> = all.iter().map(|it| (it.member, it.peer, it.total_ns)).collect();
        assert_eq!(pairs, [(3, Some(2), 20), (1, Some(2), 14), (1, Some(3), 1)]);
        assert_eq!((all[1].times, all[1].longest_ns), (2, 9));
    }

    #[test]
    fn a_direction_is_busy_while_blocks_are_in_transit() {
        let times = [10..20, 15..30, 30..35, 50..60, 52..55, 53..54];
        let used = Use::of(times.iter());
        assert_eq!((used.blocks, used.time.clone()), (6, 10..60));
        assert_eq!((used.busy_ns, used.double_ns, used.idle_ns()), (35, 8, 15));
        assert_eq!(Use::of([].iter()), Use::default());
        assert_eq!(Use::of(std::iter::once(&(7..7))).idle_ns(), 0);
    }

    #[test]
    fn durations_are_of_one_direction() {
        let transfer = |from, block: u32| {
            let end = u64::from(block) + 1;
            Transfer { from, to: 1, block, step: None, time: 0..end }
        };
        let transfers = (0..10).map(|block| transfer(0, block)).chain([transfer(2, 99)]).collect();
        let course = Course { transfers, ..Course::default() };
        let expected = Durations { blocks: 10, median_ns: 5, p90_ns: 9, max_ns: 10 };
        assert_eq!(durations(&course, 0, Direction::Out), Some(expected));
        assert_eq!(durations(&course, 1, Direction::In).unwrap().max_ns, 100);
        assert_eq!(durations(&course, 1, Direction::Out), None);
    }
}
