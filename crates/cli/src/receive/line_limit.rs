//! How many lines of one kind a log gets.

use std::time::Duration;

/// A minute, for which lines are counted.
const PERIOD: Duration = Duration::from_secs(60);
/// The most lines in it, of what has failed.
const FAILURES_MAX: u64 = 20;
/// The most in it, of copies: a script may push many small files.
const COPIES_MAX: u64 = 200;

/// Limits lines that a peer causes, so that it cannot fill a disk or have other lines dropped; what is left out is counted. Time is an
/// argument, counted from any beginning.
#[derive(Debug)]
pub struct LineLimit {
    lines_max: u64,
    since: Option<Duration>,
    lines: u64,
}

impl LineLimit {
    /// 20 lines a minute: of what costs a peer nothing.
    pub fn of_failures() -> Self {
        Self { lines_max: FAILURES_MAX, since: None, lines: 0 }
    }

    /// 200 lines a minute.
    pub fn of_copies() -> Self {
        Self { lines_max: COPIES_MAX, ..Self::of_failures() }
    }

    /// Whether one more line may be printed now. [`LineLimit::left_out`] comes first.
    pub fn admits(&mut self, now: Duration) -> bool {
        self.since.get_or_insert(now);
        self.lines += 1;
        self.lines <= self.lines_max
    }

    /// How many lines were left out in a period that is over; once for each period. None if there were none.
    pub fn left_out(&mut self, now: Duration) -> Option<u64> {
        let is_over = self.since.is_some_and(|since| now.saturating_sub(since) >= PERIOD);
        is_over.then(|| self.end()).flatten()
    }

    /// The same for a period that ends early.
    pub fn end(&mut self) -> Option<u64> {
        self.since = None;
        let lines = std::mem::take(&mut self.lines);
        lines.checked_sub(self.lines_max).filter(|&left_out| left_out > 0)
    }

    /// Whether there is nothing to be counted.
    pub fn is_idle(&self) -> bool {
        self.since.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_counted_and_the_next_minute_has_lines_again() {
        let mut limit = LineLimit::of_failures();
        let start = Duration::from_secs(7);
        let admitted = |limit: &mut LineLimit, now| (0..100).filter(|_| limit.admits(now)).count();
        assert_eq!(admitted(&mut limit, start), 20);
        assert_eq!(limit.left_out(start + PERIOD / 2), None);
        assert_eq!(admitted(&mut limit, start + PERIOD / 2), 0);
        assert_eq!(limit.left_out(start + PERIOD), Some(180));
        assert!(limit.is_idle());
        assert_eq!(admitted(&mut limit, start + PERIOD), 20);
        assert_eq!(limit.end(), Some(80));
    }

    #[test]
    fn few_lines_are_all_printed() {
        let mut limit = LineLimit::of_failures();
        assert!((0..20).all(|second| limit.admits(Duration::from_secs(second))));
        assert_eq!((limit.left_out(PERIOD), limit.left_out(PERIOD)), (None, None));
    }
}
