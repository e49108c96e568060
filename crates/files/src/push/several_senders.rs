//! Whether a host that fetches gets the object faster from several hosts that have it than from one.
//!
//! It does if their links are the limit. If its own link is, what comes from several fills the queue before that link: then those that
//! get the object through it are slower (with equal links of 200 Mbit/s in a lab 6 to 7 s instead of 4.4). Links do not tell their
//! rates, so one host tries it, and what it sees holds for the session.

use std::time::Duration;

use super::host::Host;

/// How long rates are measured for.
const WINDOW: Duration = Duration::from_secs(2);
/// A host tries it only if it would take this many windows longer.
const WINDOWS_LEFT: u32 = 2;
/// How much faster the host has to become.
const FASTER: f64 = 1.25;
/// How many trials may end without a result.
const TRIALS_MAX: u32 = 3;

/// What is known.
#[derive(Default, Debug)]
pub(super) struct SeveralSenders {
    state: State,
    trials: u32,
}

#[derive(Default, Debug)]
enum State {
    #[default]
    Unknown,
    /// A host gets everything by this link.
    Watching {
        link: u64,
        since: Progress,
    },
    /// It gets shares, after this rate by one link, in bytes per second.
    Trying {
        since: Progress,
        before: f64,
    },
    Known {
        is_faster: bool,
    },
}

/// How far a host was at some time.
#[derive(Clone, Copy, Debug)]
struct Progress {
    host: usize,
    at: Duration,
    bytes: u64,
}

impl Progress {
    fn of(host: usize, hosts: &[Host], at: Duration) -> Self {
        Self { host, at, bytes: hosts[host].bytes }
    }

    /// In bytes per second.
    fn rate(&self, hosts: &[Host], now: Duration) -> f64 {
        let bytes = hosts[self.host].bytes.saturating_sub(self.bytes);
        bytes as f64 / now.saturating_sub(self.at).as_secs_f64()
    }
}

/// The links of hosts that get the object from hosts that have everything.
pub(super) struct Heads {
    /// By host, of those that get it by one link.
    pub(super) alone: Vec<(usize, u64)>,
    /// Hosts that get shares.
    pub(super) shared: Vec<usize>,
    /// Other hosts with the whole object are no senders now.
    pub(super) are_some_idle: bool,
}

impl SeveralSenders {
    /// Whether the result of a trial is known: nothing is tried any more.
    pub(super) fn is_known(&self) -> bool {
        matches!(self.state, State::Known { .. })
    }

    /// Whether this host is to get shares.
    pub(super) fn has_several(&self, host: usize) -> bool {
        match &self.state {
            State::Trying { since, .. } => since.host == host,
            State::Known { is_faster } => *is_faster,
            State::Unknown | State::Watching { .. } => false,
        }
    }

    /// When a rate is known.
    pub(super) fn deadline(&self) -> Option<Duration> {
        match &self.state {
            State::Watching { since, .. } | State::Trying { since, .. } => Some(since.at + WINDOW),
            State::Unknown | State::Known { .. } => None,
        }
    }

    /// Returns a host whose links are to be replaced: it gets shares from now on, or no longer. `bytes`: length of the object.
    pub(super) fn advance(
        &mut self,
        heads: &Heads,
        hosts: &[Host],
        bytes: u64,
        now: Duration,
    ) -> Option<usize> {
        let is_over = |since: &Progress| now >= since.at + WINDOW;
        match &self.state {
            State::Unknown => {
                let first = heads.alone.first().filter(|_| heads.are_some_idle);
                if let Some(&(host, link)) = first {
                    self.state = State::Watching { link, since: Progress::of(host, hosts, now) };
                }
                None
            }
            State::Watching { link, since } => {
                let host = since.host;
                if !heads.alone.contains(&(host, *link)) || !heads.are_some_idle {
                    self.state = State::Unknown;
                } else if is_over(since) {
                    let before = since.rate(hosts, now);
                    let left = bytes.saturating_sub(hosts[host].bytes) as f64;
                    let since = Progress::of(host, hosts, now);
                    if left > before * (WINDOW * WINDOWS_LEFT).as_secs_f64() && before > 0.0 {
                        self.state = State::Trying { since, before };
                        return Some(host);
                    }
                    self.state = State::Unknown;
                }
                None
            }
            State::Trying { since, before } if is_over(since) => {
                let host = since.host;
                self.trials += 1;
                if heads.shared.contains(&host) {
                    let is_faster = since.rate(hosts, now) >= before * FASTER;
                    self.state = State::Known { is_faster };
                    return (!is_faster).then_some(host);
                }
                let is_last = self.trials >= TRIALS_MAX;
                self.state =
                    if is_last { State::Known { is_faster: false } } else { State::Unknown };
                None
            }
            State::Trying { .. } | State::Known { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{HostPlan, Reach};

    const BYTES: u64 = 100_000;

    /// A host that gets `rates` in bytes per second, each for one window. Returns the hosts whose links are replaced, by window.
    fn replaced(rates: &[u64], heads: impl Fn(usize) -> Heads) -> (Vec<Option<usize>>, bool) {
        let (name, destination) = ("one".to_owned(), String::new());
        let plan = HostPlan { name, destination, rack: 0, reach: Reach::Calls };
        let mut hosts = vec![Host::new(plan, 0, Duration::ZERO)];
        let mut several = SeveralSenders::default();
        several.advance(&heads(0), &hosts, BYTES, Duration::ZERO);
        let mut replaced = Vec::new();
        for (window, rate) in (1..).zip(rates) {
            hosts[0].bytes += rate * WINDOW.as_secs();
            let now = WINDOW * window;
            replaced.push(several.advance(&heads(window as usize), &hosts, BYTES, now));
        }
        (replaced, several.has_several(0) && several.has_several(7))
    }

    /// One link until a host tries several.
    fn heads(window: usize) -> Heads {
        let (alone, shared) = if window < 2 { (vec![(0, 5)], vec![]) } else { (vec![], vec![0]) };
        Heads { alone, shared, are_some_idle: true }
    }

    #[test]
    fn several_send_if_one_host_became_faster() {
        assert_eq!(replaced(&[1_000, 2_000], heads), (vec![Some(0), None], true));
        assert_eq!(replaced(&[1_000, 1_240], heads), (vec![Some(0), Some(0)], false));
        assert_eq!(replaced(&[1_000, 1_240, 9_000, 9_000], heads).0[2..], [None, None], "once");
    }

    #[test]
    fn nobody_tries_it_for_a_short_rest_or_alone() {
        // 76,000 bytes are left, of which 40,000 come in two windows; then 16,000.
        assert_eq!(replaced(&[12_000], heads).0, [Some(0)]);
        assert_eq!(replaced(&[21_000], heads).0, [None]);
        assert_eq!(replaced(&[0], heads).0, [None]);
        let alone = |_| Heads { alone: vec![(0, 5)], shared: vec![], are_some_idle: false };
        assert_eq!(replaced(&[1_000; 4], alone), (vec![None; 4], false));
    }

    #[test]
    fn a_trial_without_shares_is_repeated_few_times() {
        let never = |_| Heads { alone: vec![(0, 5)], shared: vec![], are_some_idle: true };
        let (replaced, is_faster) = replaced(&[100; 20], never);
        assert_eq!(replaced.iter().flatten().count(), TRIALS_MAX as usize);
        assert!(!is_faster);
    }
}
