//! Many seeds, on all cores.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{options::Options, panics::caught, scenario::Limits, subject::Subject};

/// A range of seeds, and how they are run.
#[derive(Debug)]
pub struct Campaign<S: Subject> {
    /// The first seed; the others follow it.
    pub first: u64,
    /// The number of seeds; the first that fails ends the campaign.
    pub count: u64,
    /// No more seeds are started after this time.
    pub time_limit: Option<Duration>,
    /// Limits of the scenarios.
    pub limits: Limits,
    /// Options of each run.
    pub options: Options<S::Canary>,
    /// Threads; 0: one for each core.
    pub jobs: usize,
}

impl<S: Subject> Campaign<S> {
    /// A campaign of these seeds, without a planted bug, on all cores.
    pub fn new(first: u64, count: u64) -> Self {
        Self {
            first,
            count,
            time_limit: None,
            limits: S::limits(),
            options: Options::default(),
            jobs: 0,
        }
    }

    /// Runs the seeds. Returns the totals, and the lowest seed that has failed, if one has; a panic is a failure, and not in the
    /// totals. Blocks until its threads have ended; with one job it runs on the calling thread.
    pub fn run(&self) -> (S::Tally, Option<u64>) {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let jobs = if self.jobs == 0 { cores } else { self.jobs };
        let (next, failed) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let tally = Mutex::new(S::Tally::default());
        let work = || {
            let mine = self.work(&next, &failed);
            S::merge(&mut tally.lock().unwrap_or_else(PoisonError::into_inner), &mine);
        };
        thread::scope(|scope| {
            (1..jobs).for_each(|_| drop(scope.spawn(work)));
            work();
        });
        let tally = tally.into_inner().unwrap_or_else(PoisonError::into_inner);
        let failed = failed.into_inner();
        (tally, (failed < u64::MAX).then_some(failed))
    }

    /// Runs seeds on one thread.
    fn work(&self, next: &AtomicU64, failed: &AtomicU64) -> S::Tally {
        let start = Instant::now();
        let mut tally = S::Tally::default();
        while self.time_limit.is_none_or(|time_limit| start.elapsed() < time_limit) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= self.count || failed.load(Ordering::Relaxed) < u64::MAX {
                break;
            }
            let seed = self.first + index;
            let report = caught(|| Ok(S::run(&S::draw(seed, &self.limits), self.options)));
            if let Ok(report) = &report {
                S::add(&mut tally, seed, report);
            }
            if !report.is_ok_and(|report| S::verdict(&report).0.is_empty()) {
                failed.fetch_min(seed, Ordering::Relaxed);
            }
        }
        tally
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Draws seeds below 3, and panics for others: from 5 on already while it draws.
    #[derive(Debug)]
    enum Panics {}

    impl Subject for Panics {
        type Scenario = String;
        type Canary = NoCanary;
        type Report = ();
        type Tally = String;

        fn draw(seed: u64, _: &Limits) -> String {
            assert!(seed < 5, "cannot be drawn");
            seed.to_string()
        }

        fn run(scenario: &String, _: Options<NoCanary>) {
            assert!(scenario.parse::<u64>().is_ok_and(|seed| seed < 3), "cannot be run");
        }

        fn verdict((): &()) -> (&[String], &str) {
            (&[], "")
        }

        fn add(tally: &mut String, seed: u64, (): &()) {
            tally.push_str(&seed.to_string());
        }

        fn runs(tally: &String) -> u64 {
            tally.len() as u64
        }

        fn merge(tally: &mut String, other: &String) {
            tally.push_str(other);
        }

        fn smaller(_: &String) -> Vec<String> {
            Vec::new()
        }
    }

    #[derive(Clone, Copy, Debug)]
    enum NoCanary {}

    impl std::str::FromStr for NoCanary {
        type Err = String;

        fn from_str(_: &str) -> Result<Self, String> {
            Err("there is none".into())
        }
    }

    #[test]
    fn a_panic_is_a_failed_seed() {
        let run = |first, count| {
            let campaign = Campaign::<Panics> { jobs: 1, ..Campaign::new(first, count) };
            campaign.run()
        };
        assert_eq!(run(0, 3), ("012".to_owned(), None));
        assert_eq!(run(0, 10), ("012".to_owned(), Some(3)));
        assert_eq!(run(5, 1), (String::new(), Some(5)));
    }
}
