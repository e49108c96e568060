//! Every wait has one.

use std::time::{Duration, Instant};

use crate::Error;

/// A moment by which something must have happened, and what for.
#[derive(Clone, Copy, Debug)]
pub struct Deadline {
    at: Instant,
    timeout: Duration,
}

impl Deadline {
    /// This long from now.
    pub fn after(timeout: Duration) -> Self {
        Self { at: Instant::now() + timeout, timeout }
    }

    /// What is left; zero once it has passed.
    pub fn left(&self) -> Duration {
        self.at.saturating_duration_since(Instant::now())
    }

    /// The error of having missed it while doing `what`.
    pub fn missed(&self, what: impl Into<String>) -> Error {
        Error::Timeout { what: what.into(), timeout_ms: self.timeout.as_millis() as u64 }
    }
}
