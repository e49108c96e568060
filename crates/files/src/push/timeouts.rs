//! Timeouts of hosts: since their last progress, and longer for longer objects.

use std::time::Duration;

use super::host::{Host, Step};

/// For preparing a target, plus the length at [`DISK_BYTES_PER_S_MIN`]: reserving space reports no progress.
const PREPARE_TIMEOUT: Duration = Duration::from_secs(1800);
/// For digesting, since the last progress.
pub(super) const VERIFY_TIMEOUT: Duration = Duration::from_secs(300);
/// For writing to disk, plus the length at [`DISK_BYTES_PER_S_MIN`]: fsync reports no progress.
const SYNC_TIMEOUT: Duration = Duration::from_secs(900);
const DISK_BYTES_PER_S_MIN: u64 = 20 << 20;
/// The most reading and writing that counts as progress, in lengths of the object: existing data, the digest,
/// and writing to disk.
const WORK_MAX: u64 = 4;
/// Once a host is ready, the first groups do not wait for one without progress for this long ...
const GATHER_QUIET: Duration = Duration::from_secs(10);
/// ... nor for any host longer than this.
const GATHER_MAX: Duration = Duration::from_secs(60);

/// The timeouts of a push of an object of some length.
pub(super) struct Timeouts {
    /// Length of the object; of a stream, what was read so far.
    pub(super) bytes: u64,
    /// When the first host was prepared.
    pub(super) first_prepared: Option<Duration>,
}

impl Timeouts {
    pub(super) fn new(bytes: u64) -> Self {
        Self { bytes, first_prepared: None }
    }

    pub(super) fn prepare_timeout(&self) -> Duration {
        PREPARE_TIMEOUT + Duration::from_secs(self.bytes / DISK_BYTES_PER_S_MIN)
    }

    pub(super) fn sync_timeout(&self) -> Duration {
        SYNC_TIMEOUT + Duration::from_secs(self.bytes / DISK_BYTES_PER_S_MIN)
    }

    /// A host has read or written so many bytes in all, other than received ones: extends its current deadline,
    /// except that of publishing while the push ends early.
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

    /// A host that publishes a stream is heard of: its command may take as long as it likes.
    pub(super) fn heard(&self, host: &mut Host, now: Duration, is_ending: bool) {
        if let Step::Publishing(until) = &mut host.step
            && !is_ending
        {
            *until = now + self.sync_timeout();
        }
    }

    /// Whether the first groups wait for a host. Hosts that were lost, or take too long, get later groups.
    pub(super) fn waits_for(&self, host: &Host, now: Duration) -> bool {
        host.is_coming() && host.start == 0 && self.waits_until(host).is_none_or(|at| now < at)
    }

    /// When the first groups stop waiting for a host that makes no further progress.
    pub(super) fn waits_until(&self, host: &Host) -> Option<Duration> {
        let prepares = matches!(host.step, Step::Preparing(_) | Step::Checking | Step::Starting(_));
        let since = self.first_prepared.filter(|_| prepares)?;
        Some((host.progressed_at.max(since) + GATHER_QUIET).min(since + GATHER_MAX))
    }
}
