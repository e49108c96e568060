//! How long hosts may take: as long as they get on, and longer for what is longer.

use std::time::Duration;

use super::{
    coordinator::Coordinator,
    host::{Host, Step},
};

/// How long a receiver may take to prepare its target, besides the time that so many bytes take at
/// [`DISK_BYTES_PER_S_MIN`]: reserving space and reading what is there tell nothing of how far they are.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(1800);
/// How long digesting may take to get on.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(300);
/// The same as for preparing, for writing to disk.
const SYNC_TIMEOUT: Duration = Duration::from_secs(900);
const DISK_BYTES_PER_S_MIN: u64 = 20 << 20;
/// What a receiver has to read or write besides receiving, in lengths of the object: what was there, its
/// digest, and what goes to disk. More is no progress.
const WORK_MAX: u64 = 4;
/// The first groups do not wait for a host that shows no progress for so long while others are ready ...
const GATHER_QUIET: Duration = Duration::from_secs(10);
/// ... nor for any host after this time.
const GATHER_MAX: Duration = Duration::from_secs(60);

impl Coordinator<'_> {
    /// How long a host may take to prepare its target.
    pub(super) fn prepare_timeout(&self) -> Duration {
        PREPARE_TIMEOUT + Duration::from_secs(self.bytes / DISK_BYTES_PER_S_MIN)
    }

    /// How long a host that verifies its copy may take to get on.
    pub(super) const fn verify_timeout() -> Duration {
        VERIFY_TIMEOUT
    }

    /// How long a host may take to write its copy to disk.
    pub(super) fn sync_timeout(&self) -> Duration {
        SYNC_TIMEOUT + Duration::from_secs(self.bytes / DISK_BYTES_PER_S_MIN)
    }

    /// A host has read or written so many bytes besides receiving: what it does may take so much longer.
    pub(super) fn worked(&mut self, host: usize, bytes: u64) {
        let now = self.now;
        let (prepare, sync) = (self.prepare_timeout(), self.sync_timeout());
        let bytes = bytes.min(self.bytes.saturating_mul(WORK_MAX));
        let known = &mut self.hosts[host];
        if bytes <= known.worked {
            return;
        }
        (known.worked, known.progressed_at) = (bytes, now);
        match &mut known.step {
            Step::Preparing(until) | Step::Starting(until) => *until = now + prepare,
            Step::Comparing(until) => *until = now + VERIFY_TIMEOUT,
            Step::Publishing(until) if self.stopped.is_none() => *until = now + sync,
            _ => {}
        }
    }

    /// Whether the first groups wait for a host. One that was lost already comes into later ones, and so
    /// does one that prepares for too long while others are ready.
    pub(super) fn is_waited_for(&self, host: &Host) -> bool {
        host.is_coming() && host.start == 0 && self.waits_until(host).is_none_or(|at| self.now < at)
    }

    /// When the first groups wait no longer for a host, if it says nothing until then.
    fn waits_until(&self, host: &Host) -> Option<Duration> {
        let prepares = matches!(host.step, Step::Preparing(_) | Step::Checking | Step::Starting(_));
        let since = self.first_prepared.filter(|_| prepares)?;
        Some((host.progressed_at.max(since) + GATHER_QUIET).min(since + GATHER_MAX))
    }

    /// When the first groups wait for one host less.
    pub(super) fn next_unawaited(&self) -> Option<Duration> {
        let times = self.hosts.iter().filter_map(|host| self.waits_until(host));
        times.filter(|&at| self.now < at).min()
    }
}
