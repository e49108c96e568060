//! How long hosts may take: as long as they get on, and longer for what is longer.

use std::time::Duration;

use super::host::{Host, Step};

/// How long a receiver may take to prepare its target, besides the time that so many bytes take at
/// [`DISK_BYTES_PER_S_MIN`]: reserving space and reading what is there tell nothing of how far they are.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(1800);
/// How long digesting may take to get on.
pub(super) const VERIFY_TIMEOUT: Duration = Duration::from_secs(300);
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

/// With hosts that get a copy of an object of some length.
pub(super) struct Patience {
    /// Length of the object.
    bytes: u64,
    /// When the first host could have taken part.
    pub(super) first_prepared: Option<Duration>,
}

impl Patience {
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes, first_prepared: None }
    }

    /// How long a host may take to prepare its target.
    pub(super) fn prepare_timeout(&self) -> Duration {
        PREPARE_TIMEOUT + Duration::from_secs(self.bytes / DISK_BYTES_PER_S_MIN)
    }

    /// How long a host may take to write its copy to disk.
    pub(super) fn sync_timeout(&self) -> Duration {
        SYNC_TIMEOUT + Duration::from_secs(self.bytes / DISK_BYTES_PER_S_MIN)
    }

    /// A host has read or written so many bytes besides receiving: what it does may take so much longer, but for
    /// publishing while the push is ending.
    pub(super) fn worked(&self, host: &mut Host, bytes: u64, now: Duration, is_ending: bool) {
        let bytes = bytes.min(self.bytes.saturating_mul(WORK_MAX));
        if bytes <= host.worked {
            return;
        }
        (host.worked, host.progressed_at) = (bytes, now);
        match &mut host.step {
            Step::Preparing(until) | Step::Starting(until) => *until = now + self.prepare_timeout(),
            Step::Comparing(until) => *until = now + VERIFY_TIMEOUT,
            Step::Publishing(until) if !is_ending => *until = now + self.sync_timeout(),
            _ => {}
        }
    }

    /// Whether the first groups wait for a host. One that was lost already comes into later ones, and so
    /// does one that prepares for too long while others are ready.
    pub(super) fn waits_for(&self, host: &Host, now: Duration) -> bool {
        host.is_coming() && host.start == 0 && self.waits_until(host).is_none_or(|at| now < at)
    }

    /// When the first groups wait no longer for a host, if it says nothing until then.
    pub(super) fn waits_until(&self, host: &Host) -> Option<Duration> {
        let prepares = matches!(host.step, Step::Preparing(_) | Step::Checking | Step::Starting(_));
        let since = self.first_prepared.filter(|_| prepares)?;
        Some((host.progressed_at.max(since) + GATHER_QUIET).min(since + GATHER_MAX))
    }
}
