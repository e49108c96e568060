//! Many seeds, on all cores.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{
    counts::Tally,
    panics::{caught, lock},
    subject::{Limits, Options, Subject},
};

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
            limits: Limits::of::<S>(),
            options: Options::default(),
            jobs: 0,
        }
    }

    /// Runs the seeds. Returns the totals, and the lowest seed that has failed, if one has; a panic is a failure, and not in the
    /// totals. Blocks until its threads have ended; with one job it runs on the calling thread.
    pub fn run(&self) -> (Tally<S::Counts>, Option<u64>) {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let jobs = if self.jobs == 0 { cores } else { self.jobs };
        let (next, failed) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
        let tally = Mutex::new(Tally::default());
        let work = || {
            let mine = self.work(&next, &failed);
            lock(&tally).merge(&mine);
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
    fn work(&self, next: &AtomicU64, failed: &AtomicU64) -> Tally<S::Counts> {
        let start = Instant::now();
        let mut tally = Tally::default();
        while self.time_limit.is_none_or(|time_limit| start.elapsed() < time_limit) {
            let index = next.fetch_add(1, Ordering::Relaxed);
            if index >= self.count || failed.load(Ordering::Relaxed) < u64::MAX {
                break;
            }
            let seed = self.first + index;
            let outcome = caught(|| Ok(S::draw(seed, &self.limits).run(self.options)));
            if let Ok(outcome) = &outcome {
                tally.count(&outcome.counts);
            }
            if !outcome.is_ok_and(|outcome| outcome.violations.is_empty()) {
                failed.fetch_min(seed, Ordering::Relaxed);
            }
        }
        tally
    }

    /// Returns the command that runs one of its seeds, without a planted bug.
    pub fn replay(&self, seed: u64) -> String {
        let sizes = S::MEMBERS.map(|_| &self.limits.members);
        let sizes = sizes.map(|it| format!(" --members {}..{}", it.start(), it.end()));
        format!("./dev sim{} --seed {seed}{}", S::OPTION, sizes.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use std::fmt;

    use clap::ValueEnum;
    use serde::{Deserialize, Serialize};

    use super::*;
    use crate::{
        counts::{Counts, Most, counts},
        subject::{OutcomeOf, Smaller},
    };

    /// Can be drawn from seeds below 5, and run from seeds below 3; otherwise it panics.
    #[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
    struct Panics(u64);

    #[derive(Clone, Copy, PartialEq, Debug, ValueEnum)]
    enum NoCanary {}

    counts! {
        /// What they count.
        pub struct Largest {
            /// The seed.
            pub seed: Most<u64>,
        }
    }

    impl Counts for Largest {
        fn write(&self, runs: u64, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{runs} runs, at most {}", self.seed)
        }
    }

    impl fmt::Display for Panics {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            write!(f, "{}", self.0)
        }
    }

    impl Subject for Panics {
        const OPTION: &'static str = " --panics";
        const OF: &'static str = " of panics";
        type Canary = NoCanary;
        type Counts = Largest;
        type End = ();

        fn draw(seed: u64, _: &Limits) -> Self {
            assert!(seed < 5, "cannot be drawn");
            Self(seed)
        }

        fn check(&self) -> Result<(), String> {
            Ok(())
        }

        fn run(&self, _: Options<NoCanary>) -> OutcomeOf<Self> {
            assert!(self.0 < 3, "cannot be run");
            let counts = Largest { seed: Most { value: self.0, seed: self.0 } };
            OutcomeOf::<Self> { counts, ..Default::default() }
        }

        fn reduce(&self, _: &mut Smaller<'_, Self>) {}
    }

    #[test]
    fn a_panic_is_a_failed_seed() {
        let run = |first, count| {
            let campaign = Campaign::<Panics> { jobs: 1, ..Campaign::new(first, count) };
            let (tally, failed) = campaign.run();
            (tally.to_string(), failed)
        };
        assert_eq!(run(0, 3), ("3 runs, at most 2 (seed 2)".to_owned(), None));
        assert_eq!(run(0, 10), ("3 runs, at most 2 (seed 2)".to_owned(), Some(3)));
        assert_eq!(run(5, 1), ("0 runs, at most 0 (seed 0)".to_owned(), Some(5)));
    }
}
