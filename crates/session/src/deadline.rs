//! Deadlines: every wait has one.

use std::time::{Duration, Instant};

use crate::error::Error;

/// The time by which an operation must finish, and the timeout from which it was computed.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    /// `None` if the time is beyond the clock's range: the deadline never passes.
    at: Option<Instant>,
    timeout: Duration,
}

impl Deadline {
    /// Returns the deadline `timeout` from now. Any duration is valid; a deadline of [`Duration::MAX`] never
    /// passes.
    pub fn after(timeout: Duration) -> Self {
        Self { at: Instant::now().checked_add(timeout), timeout }
    }

    /// Returns the time left: zero once the deadline has passed, [`Duration::MAX`] if it never passes.
    pub fn left(&self) -> Duration {
        self.at.map_or(Duration::MAX, |at| at.saturating_duration_since(Instant::now()))
    }

    /// Returns the timeout from which the deadline was computed.
    pub fn timeout(&self) -> Duration {
        self.timeout
    }

    /// Returns the error for an operation, `what`, that missed the deadline.
    pub fn missed(&self, what: impl Into<String>) -> Error {
        Error::Timeout { what: what.into(), timeout_ms: millis(self.timeout) }
    }
}

/// Converts a duration to milliseconds, for protocol messages and error texts; saturates at [`u64::MAX`].
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
