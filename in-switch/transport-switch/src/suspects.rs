//! A root's receivers that may have failed, and whether their hosts still acknowledge what is sent over TCP. Pure:
//! time and evidence are arguments.
//!
//! They are asked over the existing connection: new ones may be filtered, and fill the backlog of a stopped process;
//! `TCP_USER_TIMEOUT` counts from the first retransmission only; a link that has lost its carrier may return.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use packet_socket::Heard;
use transport::EndpointId;

/// How often suspected hosts are asked.
pub(crate) const ASK_INTERVAL: Duration = Duration::from_millis(50);
/// An acknowledgement this long before a host was last asked counts as the answer: its time is known to a tick of the kernel's
/// clock, 10 ms at
/// most.
const CLOCK_TICK: Duration = Duration::from_millis(10);

/// All receivers of a group.
pub(crate) struct Suspects {
    hosts: BTreeMap<EndpointId, Host>,
    answer_within: Duration,
}

struct Host {
    address: Option<IpAddr>,
    /// `None` while nothing speaks against it.
    asked: Option<Asked>,
}

struct Asked {
    why: String,
    since: Instant,
    /// When it was asked last.
    last: Option<Instant>,
    /// How many times it was asked without an answer to the time before.
    unanswered: u32,
}

impl Suspects {
    /// A host has failed if it acknowledges nothing for `answer_within`, although asked.
    pub(crate) const fn new(answer_within: Duration) -> Self {
        Self { hosts: BTreeMap::new(), answer_within }
    }

    pub(crate) fn add(&mut self, endpoint: EndpointId, address: Option<IpAddr>) {
        self.hosts.insert(endpoint, Host { address, asked: None });
    }

    pub(crate) fn remove(&mut self, endpoint: EndpointId) {
        self.hosts.remove(&endpoint);
    }

    /// A switch suspects one. Its words replace those of [`Suspects::suspect_all`], which name no cause.
    pub(crate) fn suspect(&mut self, member: IpAddr, why: &str, now: Instant) {
        for host in self.hosts.values_mut().filter(|host| host.address == Some(member)) {
            why.clone_into(&mut host.ask(now).why);
        }
    }

    /// All are suspected.
    pub(crate) fn suspect_all(&mut self, why: &str, now: Instant) {
        for host in self.hosts.values_mut() {
            let known = &mut host.ask(now).why;
            if known.is_empty() {
                why.clone_into(known);
            }
        }
    }

    /// Whether none is being asked.
    pub(crate) fn is_empty(&self) -> bool {
        self.hosts.values().all(|host| host.asked.is_none())
    }

    /// Asks the hosts of suspected receivers, and returns those that have failed, and why. `ask` has to send
    /// something, and returns `None` for an endpoint that has ended.
    ///
    /// Calls may come late, if this process was stopped: the time in which it did not ask is no evidence.
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        mut ask: impl FnMut(EndpointId) -> Option<Heard>,
    ) -> Vec<(EndpointId, String)> {
        let times_min = (self.answer_within.as_millis() / ASK_INTERVAL.as_millis() / 2) as u32;
        let mut failed = Vec::new();
        for (&endpoint, host) in &mut self.hosts {
            let Some(asked) = &mut host.asked else { continue };
            let Some(heard) = ask(endpoint).filter(|heard| !asked.is_answered(heard, now)) else {
                host.asked = None;
                continue;
            };
            asked.last = Some(now);
            let silent_for = heard.ago.min(now.saturating_duration_since(asked.since));
            if silent_for >= self.answer_within && asked.unanswered >= times_min {
                let (why, ms) = (&asked.why, heard.ago.as_millis());
                let why = format!("{why}, and its host has acknowledged nothing for {ms} ms");
                failed.push((endpoint, why));
                host.asked = None;
            }
        }
        failed
    }
}

impl Host {
    fn ask(&mut self, now: Instant) -> &mut Asked {
        let asked = || Asked { why: String::new(), since: now, last: None, unanswered: 0 };
        self.asked.get_or_insert_with(asked)
    }
}

impl Asked {
    /// Whether all was acknowledged that was sent, or something since it was asked last. Counts otherwise.
    fn is_answered(&mut self, heard: &Heard, now: Instant) -> bool {
        let is_new = self.last.is_some_and(|last| {
            let since_last = now.saturating_duration_since(last);
            self.unanswered += 1;
            heard.ago <= since_last + CLOCK_TICK
        });
        is_new || !heard.is_waiting
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: EndpointId = EndpointId(3);
    const OTHER: EndpointId = EndpointId(8);

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    const fn heard(is_waiting: bool, ago_ms: u64) -> Option<Heard> {
        Some(Heard { is_waiting, ago: ms(ago_ms) })
    }

    fn at(start: Instant, ms: u64) -> Instant {
        start + Duration::from_millis(ms)
    }

    fn suspects() -> Suspects {
        let mut suspects = Suspects::new(ms(300));
        suspects.add(ONE, Some([10, 0, 0, 1].into()));
        suspects.add(OTHER, Some([10, 0, 0, 2].into()));
        suspects
    }

    #[test]
    fn a_host_that_acknowledges_nothing_has_failed() {
        let (mut suspects, start) = (suspects(), Instant::now());
        assert!(suspects.is_empty());
        suspects.suspect_all("no answers", start);
        suspects.suspect([10, 0, 0, 2].into(), "tor: it is silent", at(start, 100));
        suspects.suspect([10, 0, 0, 9].into(), "tor: a stranger", start);
        let mut asked = Vec::new();
        // Nothing was sent in the five seconds before, and nothing is acknowledged.
        let mut judge = |suspects: &mut Suspects, ms| {
            suspects.judge(at(start, ms), |endpoint| {
                asked.push(endpoint);
                heard(true, 5_000 + ms)
            })
        };
        for ms in [0, 100, 200, 299] {
            assert_eq!(judge(&mut suspects, ms), [], "after {ms} ms");
        }
        // It is asked since the first time.
        suspects.suspect_all("still no answers", at(start, 250));
        let failed = judge(&mut suspects, 300);
        let why = |why| format!("{why}, and its host has acknowledged nothing for 5300 ms");
        assert_eq!(failed, [(ONE, why("no answers")), (OTHER, why("tor: it is silent"))]);
        assert_eq!(asked, [ONE, OTHER].repeat(5));
        assert!(suspects.is_empty(), "each is reported once");
        suspects.suspect([10, 0, 0, 2].into(), "tor: it is silent", start);
        suspects.judge(start, |endpoint| {
            assert_eq!(endpoint, OTHER, "the other is not asked");
            None
        });
    }

    #[test]
    fn a_host_that_acknowledges_is_no_suspect_any_more() {
        let start = Instant::now();
        // Since it was asked 400 ms ago: the rest is not acknowledged yet.
        for answer in [heard(true, 399), heard(true, 405), heard(false, 60_000), None] {
            let mut suspects = suspects();
            suspects.suspect_all("no answers", start);
            assert_eq!(suspects.judge(start, |_| heard(true, 5_000)), []);
            assert_eq!(suspects.judge(at(start, 400), |_| answer), []);
            assert!(suspects.is_empty(), "{answer:?}");
        }
        let mut suspects = suspects();
        suspects.suspect_all("no answers", start);
        suspects.judge(start, |_| heard(true, 5_000));
        assert!(!suspects.is_empty());
        suspects.remove(ONE);
        suspects.remove(OTHER);
        assert!(suspects.is_empty());
    }

    #[test]
    fn time_in_which_nothing_was_asked_is_no_evidence() {
        let (mut suspects, start) = (suspects(), Instant::now());
        suspects.suspect_all("no answers", start);
        // This process is stopped for a minute, and has just sent something.
        for ms in [60_000, 60_050, 60_100] {
            assert_eq!(suspects.judge(at(start, ms), |_| heard(true, ms)), [], "after {ms} ms");
        }
        assert_eq!(suspects.judge(at(start, 60_150), |_| heard(true, 60_150)).len(), 2);
    }
}
