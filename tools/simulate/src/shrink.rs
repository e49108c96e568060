//! Smaller scenarios that still fail.

use std::time::{Duration, Instant};

use crate::{options::Options, panics::caught, subject::Subject};

/// Shrinks a failing scenario for about this long, as long as it still fails, for whatever reason.
pub fn shrink<S: Subject>(
    scenario: &S::Scenario,
    options: Options<S::Canary>,
    time_limit: Duration,
) -> S::Scenario {
    let start = Instant::now();
    let succeeds = |candidate: &S::Scenario| {
        let report = caught(|| Ok(S::run(candidate, options)));
        report.is_ok_and(|report| S::verdict(&report).0.is_empty())
    };
    let mut best = scenario.clone();
    loop {
        let smaller = S::smaller(&best).into_iter().find(|candidate| {
            start.elapsed() < time_limit && *candidate != best && !succeeds(candidate)
        });
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}
