//! The lines in which all programs report their times, and the statistics made of them.

use std::collections::BTreeMap;

use crate::{
    outcome::Outcome,
    report::{mean, median},
};

/// The first word of a line `cell INDEX RANK START_NS END_NS START_NS END_NS ...`: all repeats of one cell at one
/// member, by `CLOCK_MONOTONIC`, which all processes of a machine share.
pub const PREFIX: &str = "cell ";

/// The start and the end of each repeat at one member, in ns.
pub type Repeats = Vec<(u64, u64)>;

/// The line of a member.
pub fn line(index: usize, rank: u32, repeats: &Repeats) -> String {
    let mut text = format!("{PREFIX}{index} {rank}");
    for (start, end) in repeats {
        text += &format!(" {start} {end}");
    }
    text
}

fn parsed(line: &str) -> Option<(usize, u32, Repeats)> {
    let numbers: Vec<u64> =
        line.strip_prefix(PREFIX)?.split(' ').map(str::parse).collect::<Result<_, _>>().ok()?;
    let ([index, rank], times) = numbers.split_first_chunk()?;
    let pairs = times.chunks_exact(2);
    if times.is_empty() || !pairs.remainder().is_empty() {
        return None;
    }
    let repeats: Repeats = pairs.map(|pair| (pair[0], pair[1])).collect();
    let is_ordered = repeats.iter().all(|(start, end)| start <= end);
    is_ordered.then_some((usize::try_from(*index).ok()?, u32::try_from(*rank).ok()?, repeats))
}

/// The times of a whole run, as lines come in.
#[derive(Debug)]
pub struct TimeTable {
    cells: usize,
    members: u32,
    times: BTreeMap<(usize, u32), Repeats>,
}

impl TimeTable {
    pub fn new(cells: usize, members: u32) -> Self {
        Self { cells, members, times: BTreeMap::new() }
    }

    /// Adds a line. Errors: it is invalid, of an unknown cell or member, or of one that has reported.
    pub fn note(&mut self, line: &str) -> Outcome<()> {
        let shown: String = line.chars().take(80).collect();
        let (index, rank, repeats) =
            parsed(line).ok_or_else(|| format!("these are not times: {shown}"))?;
        if index >= self.cells || rank >= self.members {
            return Err(format!("these times cannot be: {shown}").into());
        }
        if self.times.contains_key(&(index, rank)) {
            return Err(format!("these times came twice: {shown}").into());
        }
        self.times.insert((index, rank), repeats);
        Ok(())
    }

    pub fn is_full(&self) -> bool {
        self.times.len() as u64 == self.cells as u64 * u64::from(self.members)
    }

    /// The statistics of each cell. Errors: members repeated a cell unequally often, or one is missing.
    pub fn statistics(&self) -> Outcome<Vec<Statistics>> {
        (0..self.cells)
            .map(|cell| {
                let all: Option<Vec<&Repeats>> =
                    (0..self.members).map(|rank| self.times.get(&(cell, rank))).collect();
                let all = all.ok_or("a member has not reported")?;
                Statistics::of(&all).ok_or_else(|| "members repeated unequally often".into())
            })
            .collect()
    }
}

/// Statistics of one cell in one run, in us.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Statistics {
    /// Over members, of their means over repeats: OSU's figure.
    pub average_us: f64,
    /// The least of members' means.
    pub min_us: f64,
    /// The greatest.
    pub max_us: f64,
    /// Over all repeats of all members.
    pub p50_us: f64,
    pub p99_us: f64,
    /// From rank 0's start until the last other member has ended, the mean over repeats: the paper's figure for a
    /// broadcast.
    pub leaf_us: f64,
    pub repeats: u32,
}

impl Statistics {
    /// Of all members' repeats, by rank; `None` unless all have equally many and there are at least two members.
    fn of(all: &[&Repeats]) -> Option<Self> {
        let (root, others) = all.split_first()?;
        if others.is_empty() || others.iter().any(|times| times.len() != root.len()) {
            return None;
        }
        let us = |start: u64, end: u64| end.saturating_sub(start) as f64 / 1e3;
        let durations = |times: &Repeats| -> Vec<f64> {
            times.iter().map(|&(start, end)| us(start, end)).collect()
        };
        let means: Vec<f64> = all.iter().map(|times| mean(&durations(times))).collect();
        let leaves = (0..root.len()).map(|repeat| {
            let last = others.iter().map(|times| times[repeat].1).max().unwrap_or(0);
            us(root[repeat].0, last)
        });
        let mut every: Vec<f64> = all.iter().flat_map(|times| durations(times)).collect();
        every.sort_by(f64::total_cmp);
        let percentile = |part: f64| every[((every.len() - 1) as f64 * part).round() as usize];
        Some(Self {
            average_us: mean(&means),
            min_us: means.iter().copied().fold(f64::INFINITY, f64::min),
            max_us: means.iter().copied().fold(0.0, f64::max),
            p50_us: percentile(0.5),
            p99_us: percentile(0.99),
            leaf_us: mean(&leaves.collect::<Vec<f64>>()),
            repeats: root.len() as u32,
        })
    }

    /// Of several runs: the median of each figure.
    pub fn of_runs(runs: &[Self]) -> Option<Self> {
        let of = |figure: fn(&Self) -> f64| median(runs.iter().map(figure).collect());
        let repeats = runs.iter().map(|run| run.repeats).sum();
        (!runs.is_empty()).then(|| Self {
            average_us: of(|run| run.average_us),
            min_us: of(|run| run.min_us),
            max_us: of(|run| run.max_us),
            p50_us: of(|run| run.p50_us),
            p99_us: of(|run| run.p99_us),
            leaf_us: of(|run| run.leaf_us),
            repeats,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_is_written() {
        let repeats = vec![(5, 9), (10, u64::MAX)];
        assert_eq!(parsed(&line(3, 2, &repeats)), Some((3, 2, repeats)));
        for text in ["cell 1 2", "cell 1 2 3", "cell 1 2 9 3", "cell x 2 3 4", "time 1 2 3 4"] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    #[test]
    fn averages_are_over_members_and_the_leaf_counts_from_the_root() {
        let mut table = TimeTable::new(1, 3);
        for text in ["cell 0 0 1000 2000 11000 12000", "cell 0 1 900 4000 11500 13500"] {
            table.note(text).unwrap();
            assert!(!table.is_full());
        }
        assert!(table.note("cell 0 1 900 4000").is_err(), "twice");
        assert!(table.note("cell 1 1 900 4000").is_err() && table.note("cell 0 3 1 2").is_err());
        table.note("cell 0 2 2000 5000 11000 16000").unwrap();
        assert!(table.is_full());
        let found = table.statistics().unwrap()[0];
        let means = [1.0, (3.1 + 2.0) / 2.0, 4.0];
        assert!((found.average_us - means.iter().sum::<f64>() / 3.0).abs() < 1e-9, "{found:?}");
        assert_eq!((found.min_us, found.max_us, found.repeats), (1.0, 4.0, 2));
        assert!((found.leaf_us - (4.0 + 5.0) / 2.0).abs() < 1e-9);
        assert!(found.p50_us <= found.p99_us && found.p99_us == 5.0);
    }

    #[test]
    fn unequal_repeats_are_an_error() {
        let mut table = TimeTable::new(1, 2);
        table.note("cell 0 0 1 2").unwrap();
        assert!(table.statistics().is_err());
        table.note("cell 0 1 1 2 3 4").unwrap();
        assert!(table.statistics().is_err());
    }
}
