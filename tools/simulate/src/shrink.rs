//! Smaller scenarios that still fail.

use std::time::{Duration, Instant};

use crate::{
    panics::caught,
    subject::{Options, Smaller, Subject},
};

/// Shrinks a failing scenario for about this long, as long as it still fails, for whatever reason.
pub fn shrink<S: Subject>(scenario: &S, options: Options<S::Canary>, time_limit: Duration) -> S {
    let start = Instant::now();
    let succeeds = |candidate: &S| {
        let outcome = caught(|| Ok(candidate.run(options)));
        outcome.is_ok_and(|outcome| outcome.violations.is_empty())
    };
    let mut best = scenario.clone();
    loop {
        let mut smaller = Smaller::new(&best);
        best.reduce(&mut smaller);
        let smaller = smaller.into_all().into_iter().find(|candidate| {
            start.elapsed() < time_limit
                && candidate.check().is_ok()
                && *candidate != best
                && !succeeds(candidate)
        });
        match smaller {
            Some(smaller) => best = smaller,
            None => return best,
        }
    }
}
