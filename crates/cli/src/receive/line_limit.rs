//! Limits the number of log lines of one kind.

use std::time::Duration;

/// The period for which lines are counted.
const PERIOD: Duration = Duration::from_secs(60);
/// The maximum number of lines about failures per period.
const FAILURES_MAX: u64 = 20;
/// The maximum number of lines about copies per period: a script may push many small files.
const COPIES_MAX: u64 = 200;

/// Limits lines that a peer causes, so that it cannot fill a disk or displace other lines; omitted lines are counted. Time is an
/// argument, from any epoch.
#[derive(Debug)]
pub struct LineLimit {
    lines_max: u64,
    since: Option<Duration>,
    lines: u64,
}

impl LineLimit {
    /// A limit of 20 lines a minute, for events that cost a peer nothing.
    pub fn of_failures() -> Self {
        Self { lines_max: FAILURES_MAX, since: None, lines: 0 }
    }

    /// A limit of 200 lines a minute.
    pub fn of_copies() -> Self {
        Self { lines_max: COPIES_MAX, ..Self::of_failures() }
    }

    /// Whether one more line may be printed now. Call [`LineLimit::left_out`] first.
    pub fn admits(&mut self, now: Duration) -> bool {
        self.since.get_or_insert(now);
        self.lines += 1;
        self.lines <= self.lines_max
    }

    /// The number of lines omitted in the last period, once after its end; `None` if no line was omitted.
    pub fn left_out(&mut self, now: Duration) -> Option<u64> {
        let is_over = self.since.is_some_and(|since| now.saturating_sub(since) >= PERIOD);
        is_over.then(|| self.end()).flatten()
    }

    /// Ends the period early; returns the same as [`LineLimit::left_out`].
    pub fn end(&mut self) -> Option<u64> {
        self.since = None;
        let lines = std::mem::take(&mut self.lines);
        lines.checked_sub(self.lines_max).filter(|&left_out| left_out > 0)
    }

    /// Whether no period is running.
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
