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

/// The first groups do not wait for hosts that have not connected once no further one has for this long ...
const CONNECT_QUIET: Duration = Duration::from_secs(2);
/// ... and for this many times the median of what hosts have taken to connect: where logins take long, they differ more.
const CONNECT_MEDIANS: u32 = 3;

/// The timeouts of a push of an object of some length.
pub(super) struct Timeouts {
    /// Length of the object; of a stream, what was read so far.
    pub(super) bytes: u64,
    /// When the first host was prepared.
    pub(super) first_prepared: Option<Duration>,
    /// Hosts may connect after the first groups have begun.
    may_be_late: bool,
    /// When hosts have connected for the first time, in order.
    connected: Vec<Duration>,
}

impl Timeouts {
    /// `may_be_late`: hosts that connect after the first groups have begun get groups of their own. False for a stream, whose
    /// beginning is not kept.
    pub(super) fn new(bytes: u64, may_be_late: bool) -> Self {
        Self { bytes, first_prepared: None, may_be_late, connected: Vec::new() }
    }

    /// Waits for all hosts, until each has connected or failed.
    pub(super) fn wait_for_all(&mut self) {
        self.may_be_late = false;
    }

    /// One of the hosts that are expected from the start has connected.
    pub(super) fn connected(&mut self, now: Duration) {
        self.connected.push(now);
    }

    /// From when on hosts that have not connected are late; `None` while none has connected.
    fn late_from(&self) -> Option<Duration> {
        let last = self.connected.last().filter(|_| self.may_be_late)?;
        let median = self.connected[(self.connected.len() - 1) / 2];
        Some(*last + CONNECT_QUIET.max(median * CONNECT_MEDIANS))
    }

    pub(super) fn prepare_timeout(&self) -> Duration {
        PREPARE_TIMEOUT + Duration::from_secs(self.bytes / DISK_BYTES_PER_S_MIN)
    }

    pub(super) fn sync_timeout(&self) -> Duration {
        SYNC_TIMEOUT + Duration::from_secs(self.bytes / DISK_BYTES_PER_S_MIN)
    }

    /// A host has read or written this many bytes in all, other than received ones: extends its current deadline,
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
            Step::Storing(until) => *until = now + self.sync_timeout(),
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
        if let Step::Awaited(_) = host.step {
            return self.late_from();
        }
        let prepares = matches!(host.step, Step::Preparing(_) | Step::Checking | Step::Starting(_));
        let since = self.first_prepared.filter(|_| prepares)?;
        Some((host.progressed_at.max(since) + GATHER_QUIET).min(since + GATHER_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn s(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn hosts_are_late_some_time_after_the_last_one_that_connected() {
        let late_from = |times: &[f64]| {
            let mut timeouts = Timeouts::new(0, true);
            times.iter().for_each(|&at| timeouts.connected(s(at)));
            timeouts.late_from()
        };
        assert_eq!(late_from(&[]), None, "somebody has to come");
        assert_eq!(late_from(&[0.1]), Some(s(2.1)));
        assert_eq!(late_from(&[0.1, 0.5, 9.0]), Some(s(11.0)), "one that was slow");
        assert_eq!(late_from(&[4.0, 5.0, 6.0]), Some(s(21.0)), "where all are slow");
        let mut waits = Timeouts::new(0, false);
        waits.connected(s(1.0));
        assert_eq!(waits.late_from(), None);
    }
}
