//! Many seeds, on all cores.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use crate::{options::Options, scenario::Limits, subject::Subject};

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

    /// Runs the seeds. Returns the totals, and the lowest seed that has failed, if one has. Blocks
    /// until its threads have ended; with one job it runs on the calling thread.
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
            let report = S::run(&S::draw(seed, &self.limits), self.options);
            S::add(&mut tally, seed, &report);
            if !S::verdict(&report).0.is_empty() {
                failed.fetch_min(seed, Ordering::Relaxed);
            }
        }
        tally
    }
}
