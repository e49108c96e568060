//! What is measured: arrays that are broadcast one after another, and how often.

use std::{fmt, str::FromStr};

/// So many arrays of a length, broadcast from rank 0 one after another; as text COUNT:BYTES:REPEATS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
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
        write!(f, "{}:{}:{}", self.count, self.bytes, self.repeats)
    }
}

impl FromStr for Work {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text} is not COUNT:BYTES:REPEATS");
        let numbers: Vec<u64> =
            text.split(':').map(str::parse).collect::<Result<_, _>>().map_err(|_| wrong())?;
        let [count, bytes, repeats] = numbers[..] else { return Err(wrong()) };
        let small = |number: u64| u32::try_from(number).ok().filter(|&number| number > 0);
        let (count, repeats) = small(count).zip(small(repeats)).ok_or_else(wrong)?;
        Ok(Self { count, bytes, repeats })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_is_read_as_it_is_written() {
        let work = Work { count: 64, bytes: 4 << 20, repeats: 3 };
        assert_eq!(work.to_string().parse(), Ok(work));
        for text in ["", "1:2", "0:1:1", "1:1:0", "1:x:1", "1:1:1:1"] {
            assert!(text.parse::<Work>().is_err(), "{text}");
        }
    }
}
