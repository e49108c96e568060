//! Deadlines: every wait has one.

use std::time::{Duration, Instant};

use crate::error::Error;

/// The time by which something must have happened, and the timeout that it was computed from.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// `None` if it is beyond the clock's range: the deadline never passes.
    at: Option<Instant>,
    timeout: Duration,
}

impl Deadline {
    /// Returns the deadline this long from now. Any duration is valid; [`Duration::MAX`] never
    /// passes.
    pub fn after(timeout: Duration) -> Self {
        Self { at: Instant::now().checked_add(timeout), timeout }
    }

    /// Returns the time left: zero once the deadline has passed, [`Duration::MAX`] if it never
    /// does.
    pub fn left(&self) -> Duration {
        self.at.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }

    /// Returns the timeout that it was computed from.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the error of having missed the deadline while doing `what`.
    pub fn missed(&self, what: impl Into<String>) -> Error {
        Error::Timeout { what: what.into(), timeout_ms: millis(self.timeout) }
    }
}

/// Converts a duration to milliseconds for messages and texts; longer ones become [`u64::MAX`].
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
