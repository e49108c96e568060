//! The lines in which every peer reports its times, and their evaluation.

use std::{collections::BTreeMap, fmt, str::FromStr};

use crate::{member_processes::Measured, outcome::Outcome};

/// What one member did in one transfer: the line `times REPEAT RANK STARTED_NS ENDED_NS CPU_NS`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// The transfer's number, from 0.
    pub repeat: u32,
    /// The member; the root is 0.
    pub rank: u32,
    /// By `CLOCK_MONOTONIC`, which all processes of a machine share.
    pub started_ns: u64,
    /// When the object was all there, by the same clock; at the root, when it had done its part.
    pub ended_ns: u64,
    /// Processor time of this member, user and system.
    pub cpu_ns: u64,
}

impl fmt::Display for Times {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { repeat, rank, started_ns, ended_ns, cpu_ns } = self;
        write!(out, "times {repeat} {rank} {started_ns} {ended_ns} {cpu_ns}")
    }
}

impl FromStr for Times {
    type Err = String;

    fn from_str(line: &str) -> Result<Self, String> {
        let wrong = || format!("these are not times: {line}");
        let numbers = line.strip_prefix("times ").ok_or_else(wrong)?;
        let numbers: Vec<u64> =
            numbers.split(' ').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let &[repeat, rank, started_ns, ended_ns, cpu_ns] = &numbers[..] else {
            return Err(wrong());
        };
        let small = |number: u64| u32::try_from(number).map_err(|_| wrong());
        Ok(Self { repeat: small(repeat)?, rank: small(rank)?, started_ns, ended_ns, cpu_ns })
    }
}

/// The times of a whole group, as they come in.
#[derive(Debug)]
pub struct TimeTable {
    members: u32,
    repeats: u32,
    times: BTreeMap<(u32, u32), Times>,
}

impl TimeTable {
    /// An empty one for this many transfers in a group of this size.
    pub fn new(members: u32, repeats: u32) -> Self {
        Self { members, repeats, times: BTreeMap::new() }
    }

    /// Adds a line. Errors: not times, an unknown member or transfer, the same times twice.
    pub fn note(&mut self, line: &str) -> Outcome<()> {
        let times: Times = line.parse()?;
        let is_known = times.rank < self.members && times.repeat < self.repeats;
        if !is_known || times.ended_ns < times.started_ns {
            return Err(format!("these times cannot be: {line}").into());
        }
        if self.times.insert((times.repeat, times.rank), times).is_some() {
            return Err(format!("these times came twice: {line}").into());
        }
        Ok(())
    }

    /// Whether all members have reported the times of every transfer.
    pub fn is_full(&self) -> bool {
        self.times.len() as u64 == u64::from(self.members) * u64::from(self.repeats)
    }

    /// Of each transfer with all times: from the root's start to the last receiver's end.
    pub fn measured(&self) -> Vec<Measured> {
        (0..self.repeats).filter_map(|repeat| self.measured_in(repeat)).collect()
    }

    fn measured_in(&self, repeat: u32) -> Option<Measured> {
        let all: Option<Vec<&Times>> =
            (0..self.members).map(|rank| self.times.get(&(repeat, rank))).collect();
        let all = all?;
        let (root, receivers) = all.split_first()?;
        let ends = || receivers.iter().map(|times| times.ended_ns);
        let (first, last) = ends().min().zip(ends().max())?;
        let seconds = |ns: u64| ns as f64 / 1e9;
        Some(Measured {
            seconds: seconds(last.saturating_sub(root.started_ns)),
            skew_seconds: seconds(last - first),
            cpu_seconds: seconds(all.iter().map(|times| times.cpu_ns).sum()),
            relay_cpu_seconds: seconds(receivers.first().map_or(0, |times| times.cpu_ns)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_read_as_it_is_written() {
        let times =
            Times { repeat: 2, rank: 3, started_ns: 1 << 50, ended_ns: u64::MAX, cpu_ns: 0 };
        assert_eq!(times.to_string().parse(), Ok(times));
        for line in ["", "times", "times 1 2 3 4", "times 1 2 3 4 5 6", "time 1 2 3 4 5"] {
            assert!(line.parse::<Times>().is_err(), "{line}");
        }
        assert!("times 4294967296 0 0 0 0".parse::<Times>().is_err());
        assert!("times 0 0 0 -1 0".parse::<Times>().is_err());
    }

    #[test]
    fn time_runs_from_the_roots_start_to_the_last_receivers_end() {
        let mut table = TimeTable::new(3, 1);
        // The root may be done before its receivers or after them, and start after them.
        for line in ["times 0 1 900 9000 7", "times 0 0 1000 99000 5"] {
            table.note(line).unwrap();
            assert!(!table.is_full() && table.measured().is_empty());
        }
        table.note("times 0 2 800 3000 5").unwrap();
        assert!(table.is_full());
        let measured = table.measured()[0];
        assert!((measured.seconds - 8e-6).abs() < 1e-12);
        assert!((measured.skew_seconds - 6e-6).abs() < 1e-12);
        assert!((measured.cpu_seconds - 17e-9).abs() < 1e-15);
        assert!((measured.relay_cpu_seconds - 7e-9).abs() < 1e-15);
    }

    #[test]
    fn times_of_unknown_members_are_refused() {
        let mut table = TimeTable::new(2, 2);
        assert!(table.note("times 0 2 0 1 0").is_err());
        assert!(table.note("times 2 0 0 1 0").is_err());
        assert!(table.note("times 0 0 2 1 0").is_err());
        table.note("times 0 0 0 1 0").unwrap();
        assert!(table.note("times 0 0 0 1 0").is_err());
    }
}
