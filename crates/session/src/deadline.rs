//! Moments by which waits end: every wait has one.

use std::time::{Duration, Instant};

use crate::error::Error;

/// A moment by which something must have happened, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// `None` is beyond the clock's range: it never comes.
    at: Option<Instant>,
    timeout: Duration,
}

impl Deadline {
    /// This long from now; any duration will do. [`Duration::MAX`] is never.
    pub fn after(timeout: Duration) -> Self {
        Self { at: Instant::now().checked_add(timeout), timeout }
    }

    /// What is left; zero once it has passed, [`Duration::MAX`] if it never comes.
    pub fn left(&self) -> Duration {
        self.at.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }

    /// The error of having missed it while doing `what`.
    pub fn missed(&self, what: impl Into<String>) -> Error {
        Error::Timeout { what: what.into(), timeout_ms: millis(self.timeout) }
    }
}

/// A duration as it travels and is shown: the largest number stands for all that are longer.
pub fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_duration_makes_a_deadline() {
        let never = Deadline::after(Duration::MAX);
        assert_eq!(never.left(), Duration::MAX);
        let Error::Timeout { timeout_ms, .. } = never.missed("waiting") else { panic!() };
        assert_eq!(timeout_ms, u64::MAX);
        let far = Deadline::after(Duration::from_secs(u64::MAX / 2));
        assert!(far.left() > Duration::from_secs(u64::MAX / 4));
        assert_eq!(Deadline::after(Duration::ZERO).left(), Duration::ZERO);
    }
}
