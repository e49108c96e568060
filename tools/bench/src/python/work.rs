//! What is measured: operations on arrays, one after another, and how often.

use std::{fmt, str::FromStr};

use clap::ValueEnum;

/// What is done with an array.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Operation {
    /// From rank 0
    Broadcast,
    /// The sum of `float`s
    AllReduce,
}

impl Operation {
    pub fn name(self) -> &'static str {
        match self {
            Self::Broadcast => "broadcast",
            Self::AllReduce => "all_reduce",
        }
    }
}

/// An operation on so many arrays of a length, one after another; as text OPERATION:COUNT:BYTES:REPEATS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    pub operation: Operation,
    pub count: u32,
    pub bytes: u64,
    /// How often in one turn, with a barrier before each.
    pub repeats: u32,
}

impl Work {
    /// For a table.
    pub fn name(self) -> String {
        let bytes = plan::size::show(self.bytes);
        if self.count == 1 { bytes } else { format!("{} x {bytes}", self.count) }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.operation.name();
        write!(f, "{operation}:{}:{}:{}", self.count, self.bytes, self.repeats)
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is not OPERATION:COUNT:BYTES:REPEATS");
        let (operation, numbers) = text.split_once(':').ok_or_else(wrong)?;
        let all = [Operation::Broadcast, Operation::AllReduce];
        let operation = all.into_iter().find(|it| it.name() == operation).ok_or_else(wrong)?;
        let numbers: Vec<u64> =
            numbers.split(':').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let [count, bytes, repeats] = numbers[..] else { return Err(wrong()) };
        let small = |number: u64| u32::try_from(number).ok().filter(|&number| number > 0);
        let (count, repeats) = small(count).zip(small(repeats)).ok_or_else(wrong)?;
        Ok(Self { operation, count, bytes, repeats })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_is_read_as_it_is_written() {
        for operation in [Operation::Broadcast, Operation::AllReduce] {
            let work = Work { operation, count: 64, bytes: 4 << 20, repeats: 3 };
            assert_eq!(work.to_string().parse(), Ok(work));
        }
        for text in
            ["", "1:1:1", "broadcast:1:2", "broadcast:0:1:1", "broadcast:1:1:0", "sum:1:1:1"]
        {
            assert!(text.parse::<Work>().is_err(), "{text}");
        }
    }
}
