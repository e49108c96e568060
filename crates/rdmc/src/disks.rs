//! Threads that read and write files: one for each group that has messages in files, so that a disk
//! that stalls delays that group only.

use std::{
    collections::{HashMap, hash_map::Entry},
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Instant,
};

use crossbeam_channel::{Receiver, Sender, unbounded};
use engine::jobs::{Disks, Done, Job, Lane, What};
use session::{Deadline, Threads};
use transport::Waker;

use crate::panics::panic_text;

/// [`Disks`] with a thread for each lane, which starts with the lane's first job and ends with the
/// lane.
pub(crate) struct DiskThreads {
    shared: Arc<Shared>,
    lanes: Mutex<HashMap<Lane, Queue>>,
    threads: Threads,
}

/// The jobs of a lane, which ends with this.
struct Queue {
    jobs: Sender<Job>,
    has_ended: Arc<AtomicBool>,
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
    }
}

struct Shared {
    done: Mutex<Vec<Done>>,
    /// The job in progress on each lane, and its start.
    running: Mutex<HashMap<Lane, (What, Instant)>>,
    waker: Waker,
}

impl DiskThreads {
    /// Makes a set without threads. `waker` wakes the thread that takes finished jobs.
    pub(crate) fn new(waker: Waker) -> Self {
        let shared = Shared { done: Mutex::default(), running: Mutex::default(), waker };
        Self { shared: Arc::new(shared), lanes: Mutex::default(), threads: Threads::default() }
    }

    fn start(&self, lane: Lane) -> io::Result<Queue> {
        let (sender, jobs) = unbounded();
        let (shared, has_ended) = (Arc::clone(&self.shared), Arc::<AtomicBool>::default());
        let queue = Queue { jobs: sender, has_ended: Arc::clone(&has_ended) };
        let name = format!("rdmc-storage-{}", lane.group);
        let what = format!("storage of group {}", lane.group);
        self.threads.spawn(&name, what, move || shared.work(lane, &jobs, &has_ended))?;
        Ok(queue)
    }

    /// Describes the jobs that have not ended.
    fn stuck(&self) -> Vec<String> {
        let running = lock(&self.shared.running);
        let stuck = running.values().map(|(what, since)| {
            format!("a {what}, which has gone on for {} ms", since.elapsed().as_millis())
        });
        stuck.collect()
    }

    /// Ends all threads after the groups have ended. Returns the jobs that have not ended by the
    /// deadline; their threads are detached, with the memory and the file that they use.
    pub(crate) fn close(&self, deadline: Deadline) -> Vec<String> {
        lock(&self.lanes).clear();
        let late = self.threads.join(deadline);
        if late.is_empty() {
            return late;
        }
        let stuck = self.stuck();
        if stuck.is_empty() { late } else { stuck }
    }
}

impl Shared {
    fn work(&self, lane: Lane, jobs: &Receiver<Job>, has_ended: &AtomicBool) {
        for job in jobs {
            if has_ended.load(Ordering::Relaxed) {
                self.skip(job, io::Error::other("its group has ended"));
                continue;
            }
            lock(&self.running).insert(lane, (job.what.clone(), Instant::now()));
            let (lane, number) = (job.lane, job.number);
            // The application's storage may panic; the lane goes on, and the group fails.
            let done = catch_unwind(AssertUnwindSafe(|| job.run())).unwrap_or_else(|panic| {
                let text = format!("it panicked: {}", panic_text(&*panic));
                Done { lane, number, outcome: Err(io::Error::other(text)) }
            });
            lock(&self.running).remove(&lane);
            self.report(done);
        }
    }

    /// Reports a job that was not done and uses its memory no more.
    fn skip(&self, job: Job, error: io::Error) {
        let (lane, number) = (job.lane, job.number);
        drop(job);
        self.report(Done { lane, number, outcome: Err(error) });
    }

    fn report(&self, done: Done) {
        let mut all = lock(&self.done);
        all.push(done);
        let is_news = all.len() == 1;
        drop(all);
        if is_news {
            (self.waker)();
        }
    }
}

impl Disks for DiskThreads {
    fn submit(&self, job: Job) {
        let mut lanes = lock(&self.lanes);
        let queue = match lanes.entry(job.lane) {
            Entry::Occupied(queue) => queue.into_mut(),
            Entry::Vacant(place) => match self.start(job.lane) {
                Ok(queue) => place.insert(queue),
                Err(error) => return self.shared.skip(job, error),
            },
        };
        // The thread does not end before the lane does.
        let _ = queue.jobs.send(job);
    }

    fn has_done(&self) -> bool {
        !lock(&self.shared.done).is_empty()
    }

    fn take_done(&self, done: &mut Vec<Done>) {
        done.append(&mut lock(&self.shared.done));
    }

    fn end(&self, lane: Lane) {
        lock(&self.lanes).remove(&lane);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
