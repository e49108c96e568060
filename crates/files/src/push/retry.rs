//! Retries of hosts that were lost.

use std::time::Duration;

use super::host::{Host, Step};

/// The mean delay of the first retry; it doubles with each further one.
const BACKOFF_MIN: Duration = Duration::from_millis(250);
/// The largest mean delay.
const BACKOFF_MAX: Duration = Duration::from_secs(30);

/// The delay of the `start`th retry: the mean times 0.5 to 1.5, by the host's name, so that hosts that were lost
/// together do not return together.
fn backoff(name: &str, start: u32) -> Duration {
    let doubled = BACKOFF_MIN.saturating_mul(1 << start.saturating_sub(1).min(16)).min(BACKOFF_MAX);
    let digest =
        blake3::Hasher::new().update(&start.to_le_bytes()).update(name.as_bytes()).finalize();
    let [one, other, ..] = *digest.as_bytes();
    doubled.mul_f64(0.5 + f64::from(u16::from_le_bytes([one, other])) / f64::from(u16::MAX))
}

/// Whether a lost host is tried again: as often as configured, and beyond that while others receive, since it
/// could get its copy from them.
pub(super) fn may_come_back(hosts: &[Host], host: usize, bytes: u64) -> bool {
    let known = &hosts[host];
    let others = hosts.iter().enumerate().filter(|&(other, _)| other != host);
    let receives = |other: &Host| other.is_ready() && !other.has.covers((0, bytes));
    known.start < known.retries
        || known.retries > 0 && others.into_iter().any(|(_, other)| receives(other))
}

/// The state of a lost host until its retry.
pub(super) fn backed_off(lost: &Host, reason: &str, now: Duration) -> Host {
    let start = lost.start + 1;
    let until = now + backoff(&lost.plan.name, start);
    Host {
        step: Step::Backoff(until),
        start,
        has_joined: lost.has_joined || lost.ip.is_some(),
        lost_reason: reason.to_owned(),
        repeated_bytes: lost.repeated_bytes,
        apart_from: lost.apart_from.clone(),
        apart: lost.apart.clone(),
        deferred_at: lost.deferred_at,
        may_have_published: lost.may_have_published,
        ..Host::new(lost.plan.clone(), lost.retries, until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostPlan, Reach};

    #[test]
    fn a_host_that_was_connected_and_stays_away_was_lost() {
        let (name, destination) = ("one".to_owned(), String::new());
        let plan = HostPlan { name, destination, rack: 0, reach: Reach::Calls };
        let mut host = Host::new(plan, 5, Duration::ZERO);
        let lateness = |host: &Host| host.lateness(Duration::from_secs(2));
        let never = backed_off(&host, "no login", Duration::ZERO);
        assert!(lateness(&never).starts_with("did not connect within 2 s; "));
        host.ip = Some("10.0.0.1".parse().unwrap());
        let lost = backed_off(&host, "reset", Duration::ZERO);
        assert_eq!(lateness(&lost), "was lost (reset) and did not come back within 2 s");
        let again = backed_off(&lost, "no login", Duration::ZERO);
        assert_eq!(lateness(&again), "was lost (no login) and did not come back within 2 s");
    }

    #[test]
    fn delays_grow_to_a_limit_and_differ_between_hosts() {
        for start in 1..200 {
            let (one, other) = (backoff("one", start), backoff("other", start));
            assert!(one >= BACKOFF_MIN / 2 && one <= BACKOFF_MAX * 3 / 2, "{one:?}");
            assert!(backoff("one", start + 2) > one || one >= BACKOFF_MAX / 2, "{start}: {one:?}");
            assert_ne!(one, other);
        }
        let all: Duration = (1..=5).map(|start| backoff("one", start)).sum();
        assert!(all > Duration::from_secs(3), "{all:?}");
    }
}
