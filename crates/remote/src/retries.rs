//! When to try again, and when to give up.

use std::time::{Duration, Instant};

use crate::error::Fault;

const FIRST_DELAY: Duration = Duration::from_millis(200);
const LAST_DELAY: Duration = Duration::from_secs(5);

/// Attempts in a row, and how long they have made no progress. Times are arguments, since some start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Retries {
    patience: Duration,
    failures: u32,
    progress_at: Duration,
}

impl Retries {
    /// For attempts that begin `now` and are given up after this long without progress.
    pub(crate) fn new(patience: Duration, now: Duration) -> Self {
        Self { patience, failures: 0, progress_at: now }
    }

    /// Something has come.
    pub(crate) fn on_progress(&mut self, now: Duration) {
        (self.failures, self.progress_at) = (0, now);
    }

    /// When another attempt may begin. Errors: there is none.
    pub(crate) fn after(&mut self, fault: Fault, now: Duration) -> Result<Duration, Fault> {
        let Fault::Again { after, .. } = fault else { return Err(fault) };
        let delay = FIRST_DELAY.saturating_mul(1 << self.failures.min(10)).min(LAST_DELAY);
        self.failures += 1;
        let at = now.saturating_add(delay.max(after));
        let gives_up = at >= self.progress_at.saturating_add(self.patience);
        if gives_up { Err(fault) } else { Ok(at) }
    }

    /// How long nothing has come.
    pub(crate) fn waited(&self, now: Duration) -> Duration {
        now.saturating_sub(self.progress_at)
    }
}

/// Repeats what fails until it succeeds. Errors: that of the last attempt, once no further one is worth it.
pub(crate) async fn repeated<T>(
    patience: Duration,
    attempt: impl AsyncFn() -> Result<T, Fault>,
) -> Result<T, Fault> {
    let started = Instant::now();
    let mut retries = Retries::new(patience, Duration::ZERO);
    loop {
        match attempt().await {
            Ok(done) => return Ok(done),
            Err(fault) => {
                let now = started.elapsed();
                tokio::time::sleep(retries.after(fault, now)?.saturating_sub(now)).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn attempts_end_at_a_deadline_that_progress_moves() {
        let mut retries = Retries::new(10 * SECOND, Duration::ZERO);
        let (mut now, mut attempts) = (Duration::ZERO, 0);
        while let Ok(at) = retries.after(Fault::again("cut"), now) {
            assert!(at > now && at < 10 * SECOND);
            (now, attempts) = (at, attempts + 1);
        }
        assert!((4..20).contains(&attempts), "{attempts}");
        retries.on_progress(now);
        assert_eq!(retries.after(Fault::again("cut"), now), Ok(now + FIRST_DELAY));
    }

    #[test]
    fn a_server_that_asks_for_time_gets_it_unless_it_is_too_much() {
        let ask = |seconds| Fault::Again { why: "busy".into(), after: seconds * SECOND };
        let mut retries = Retries::new(10 * SECOND, Duration::ZERO);
        assert_eq!(retries.after(ask(3), SECOND), Ok(4 * SECOND));
        assert_eq!(retries.after(ask(60), SECOND), Err(ask(60)));
        let changed = Fault::Changed("length".into());
        assert_eq!(retries.after(changed.clone(), SECOND), Err(changed));
    }
}
