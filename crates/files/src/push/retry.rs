//! Hosts that were lost and may come back: when they are tried again, and for how long.

use std::time::Duration;

use super::host::{Host, Step};

/// The pause before a host is tried again for the first time, on average; it doubles each time.
const PAUSE_MIN: Duration = Duration::from_millis(250);
/// No pause is longer, on average.
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// The pause before a host is tried again for the `start`th time: from half to one and a half of the
/// average, so that hosts that were lost together do not come back together.
fn pause(name: &str, start: u32) -> Duration {
    let doubled = PAUSE_MIN.saturating_mul(1 << start.saturating_sub(1).min(16)).min(PAUSE_MAX);
    let digest =
        blake3::Hasher::new().update(&start.to_le_bytes()).update(name.as_bytes()).finalize();
    let [one, other, ..] = *digest.as_bytes();
    doubled.mul_f64(0.5 + f64::from(u16::from_le_bytes([one, other])) / f64::from(u16::MAX))
}

/// Whether a host that is lost is tried again: as often as was asked for, and on while others
/// receive, since it could get its copy from them.
pub(super) fn may_come_back(hosts: &[Host], host: usize, bytes: u64) -> bool {
    let known = &hosts[host];
    let others = hosts.iter().enumerate().filter(|&(other, _)| other != host);
    let receives = |other: &Host| other.is_ready() && !other.has.covers((0, bytes));
    known.start < known.retries
        || known.retries > 0 && others.into_iter().any(|(_, other)| receives(other))
}

/// A host that was lost, as it is until it is tried again after a pause.
pub(super) fn rested(lost: &Host, reason: &str, now: Duration) -> Host {
    let start = lost.start + 1;
    let until = now + pause(&lost.plan.name, start);
    Host {
        step: Step::Resting(until),
        start,
        lost_by: reason.to_owned(),
        repeated_bytes: lost.repeated_bytes,
        set_aside: lost.set_aside,
        may_have_published: lost.may_have_published,
        ..Host::new(lost.plan.clone(), lost.retries, until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_limit_and_differ_between_hosts() {
        for start in 1..200 {
            let (one, other) = (pause("one", start), pause("other", start));
            assert!(one >= PAUSE_MIN / 2 && one <= PAUSE_MAX * 3 / 2, "{one:?}");
            assert!(pause("one", start + 2) > one || one >= PAUSE_MAX / 2, "{start}: {one:?}");
            assert_ne!(one, other);
        }
        let all: Duration = (1..=5).map(|start| pause("one", start)).sum();
        assert!(all > Duration::from_secs(3), "{all:?}");
    }
}
