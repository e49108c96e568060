//! What is measured: operations with their lengths, and how often each is repeated.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

/// An operation of all members; the root of a broadcast is rank 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Operation {
    Broadcast,
    /// The sum of `f32`.
    AllReduce,
}

impl Operation {
    pub const ALL: [Self; 2] = [Self::Broadcast, Self::AllReduce];

    pub fn name(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcast",
            Self::AllReduce => "allreduce",
        }
    }
}

/// An operation on this many bytes, whole elements of 4 bytes. As text `broadcast:1024`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Cell {
    pub operation: Operation,
    pub bytes: u64,
}

impl Cell {
    /// All lengths with one operation.
    pub fn of(operation: Operation, lengths: &[u64]) -> Vec<Self> {
        lengths.iter().map(|&bytes| Self { operation, bytes }).collect()
    }
}

impl fmt::Display for Cell {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.operation.name(), self.bytes)
    }
}

impl FromStr for Cell {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("{text} is not an operation with its length, such as broadcast:1024");
        let (name, bytes) = text.split_once(':').ok_or_else(wrong)?;
        let operation = Operation::ALL.into_iter().find(|it| it.name() == name);
        let bytes = bytes.parse().ok().filter(|bytes| *bytes > 0 && bytes % 4 == 0);
        Ok(Self { operation: operation.ok_or_else(wrong)?, bytes: bytes.ok_or_else(wrong)? })
    }
}

/// Cells separated by commas.
pub fn list(cells: &[Cell]) -> String {
    cells.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// How often a cell runs, the same for all programs: warm-up, then repeats for about a certain time, at which rank 0
/// arrives from the time of the last warm-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::Args)]
pub struct Rule {
    /// Operations before the measured ones, for at most 64 KiB and not longer than the repeats; longer ones have one
    #[arg(long)]
    pub warm_up: u32,
    /// About how long repeats of one cell take
    #[arg(long)]
    pub budget_us: u64,
    #[arg(long)]
    pub repeats_min: u32,
    #[arg(long)]
    pub repeats_max: u32,
}

impl Rule {
    /// The most bytes that are warmed up more than once.
    const SHORT_BYTES: u64 = 64 << 10;

    /// The number of operations to warm up, if the first took this long: no longer than the repeats.
    pub fn warm_up(&self, bytes: u64, first: Duration) -> u32 {
        let most = if bytes <= Self::SHORT_BYTES { self.warm_up.max(1) } else { 1 };
        self.in_budget(first).clamp(1, most)
    }

    /// The number of repeats, if one with its barrier takes this long.
    pub fn repeats(&self, one: Duration) -> u32 {
        self.in_budget(one).clamp(self.repeats_min, self.repeats_max.max(self.repeats_min))
    }

    fn in_budget(&self, one: Duration) -> u32 {
        (self.budget_us as f64 / (one.as_secs_f64() * 1e6).max(0.01)) as u32
    }
}

/// What the members of one turn run.
#[derive(Debug)]
pub struct Task<'a> {
    pub cells: &'a [Cell],
    pub rule: &'a Rule,
    /// The barrier that all programs share; none if they have only their own.
    pub barrier: Option<PathBuf>,
}

impl Task<'_> {
    /// The arguments of programs that are not Rust, in this order.
    pub fn words(&self) -> Vec<String> {
        let Rule { warm_up, budget_us, repeats_min, repeats_max } = *self.rule;
        let barrier = self.barrier.as_ref().map_or("-".to_owned(), |it| it.display().to_string());
        [list(self.cells)]
            .into_iter()
            .chain(
                [u64::from(warm_up), budget_us, repeats_min.into(), repeats_max.into()]
                    .map(|it| it.to_string()),
            )
            .chain([barrier])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_are_read_as_they_are_written() {
        let cell = Cell { operation: Operation::AllReduce, bytes: 4096 };
        assert_eq!(cell.to_string().parse(), Ok(cell));
        for text in ["", "broadcast", "broadcast:", "broadcast:0", "broadcast:6", "scatter:4"] {
            assert!(text.parse::<Cell>().is_err(), "{text}");
        }
    }

    #[test]
    fn repeats_fill_the_time_within_their_limits() {
        let rule = Rule { warm_up: 10, budget_us: 1_000, repeats_min: 3, repeats_max: 100 };
        assert_eq!(rule.repeats(Duration::from_micros(20)), 50);
        assert_eq!(rule.repeats(Duration::from_micros(2)), 100);
        assert_eq!(rule.repeats(Duration::ZERO), 100);
        assert_eq!(rule.repeats(Duration::from_secs(2)), 3);
        let warm_up = |bytes, us| rule.warm_up(bytes, Duration::from_micros(us));
        assert_eq!((warm_up(4, 5), warm_up(4, 200), warm_up(4, 5_000)), (10, 5, 1));
        assert_eq!(warm_up(1 << 20, 5), 1);
    }
}
