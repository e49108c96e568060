//! Storage of a copy that takes its time for each read and write, as a file system does whose files are small or remote.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex},
};

use engine::jobs::{Disks, Done, Job, Lane};
use rdmc::{LeaseError, Region, Storage};

use crate::panics::lock;

/// Makes a region that is accessed by copying only, like a file.
pub(super) fn stored(bytes: Vec<u8>) -> Region {
    let length = bytes.len() as u64;
    Region::from_storage(Arc::new(Bytes(Mutex::new(bytes))), length, true).expect("it is small")
}

/// Returns the bytes of a region. Errors: a part is being written.
pub(super) fn bytes_of(region: &Region) -> Result<Vec<u8>, LeaseError> {
    if !region.is_stored() {
        return region.read(0..region.len()).map(|lease| lease.to_vec());
    }
    let (lease, mut bytes) = (region.read_stored(0..region.len())?, vec![0; region.len()]);
    lease.copy_to(&mut bytes).expect("it has that length");
    Ok(bytes)
}

struct Bytes(Mutex<Vec<u8>>);

impl Storage for Bytes {
    fn read_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        into.copy_from_slice(&lock(&self.0)[offset as usize..][..into.len()]);
        Ok(())
    }

    fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        lock(&self.0)[offset as usize..][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn name(&self) -> String {
        "a copy".into()
    }
}

/// The reads and writes of a process, which the world lets happen one after another.
#[derive(Default)]
pub(super) struct Device(Mutex<Jobs>);

#[derive(Default)]
struct Jobs {
    /// The first is in progress.
    waiting: VecDeque<Job>,
    done: Vec<Done>,
}

impl Device {
    /// Returns whether a job is in progress.
    pub(super) fn is_busy(&self) -> bool {
        !lock(&self.0).waiting.is_empty()
    }

    /// Ends the job in progress.
    pub(super) fn finish_one(&self) {
        let mut jobs = lock(&self.0);
        if let Some(job) = jobs.waiting.pop_front() {
            let done = job.run();
            jobs.done.push(done);
        }
    }

    /// Drops all jobs: their process was killed.
    pub(super) fn clear(&self) {
        *lock(&self.0) = Jobs::default();
    }
}

impl Disks for Device {
    fn submit(&self, job: Job) {
        lock(&self.0).waiting.push_back(job);
    }

    fn has_done(&self) -> bool {
        !lock(&self.0).done.is_empty()
    }

    fn take_done(&self, done: &mut Vec<Done>) {
        done.append(&mut lock(&self.0).done);
    }

    /// Jobs that have not begun are not executed.
    fn end(&self, lane: Lane) {
        let mut jobs = lock(&self.0);
        let mut waiting = std::mem::take(&mut jobs.waiting).into_iter();
        jobs.waiting.extend(waiting.next());
        for job in waiting {
            if job.lane == lane {
                let outcome = Err(io::Error::other("its group has ended"));
                jobs.done.push(Done { lane, number: job.number, outcome });
            } else {
                jobs.waiting.push_back(job);
            }
        }
    }
}
