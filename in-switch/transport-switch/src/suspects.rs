//! A root's receivers that may have failed, and whether their hosts still acknowledge what is sent over TCP. Pure:
//! time and evidence are arguments.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    time::{Duration, Instant},
};

use packet_socket::Heard;
use transport::EndpointId;

/// A host has failed if it has acknowledged nothing for this long, although asked. As long as the daemons of
/// `rdmc switch join` wait for an answer: with the time that an agent takes it is below the 8 timeouts of 134 ms after
/// which an adapter gives up. A lost packet is sent again meanwhile (after 200 ms), and further ones follow it.
pub(crate) const ANSWER_WITHIN: Duration = Duration::from_millis(300);

/// All receivers of a group.
#[derive(Default)]
pub(crate) struct Suspects {
    hosts: BTreeMap<EndpointId, Host>,
}

struct Host {
    address: Option<IpAddr>,
    /// Since when it is asked, and why; `None` while nothing speaks against it.
    asked: Option<(Instant, String)>,
}

impl Suspects {
    pub(crate) fn add(&mut self, endpoint: EndpointId, address: Option<IpAddr>) {
        self.hosts.insert(endpoint, Host { address, asked: None });
    }

    pub(crate) fn remove(&mut self, endpoint: EndpointId) {
        self.hosts.remove(&endpoint);
    }

    /// A switch suspects one. Its words replace those of [`Suspects::suspect_all`], which name no cause.
    pub(crate) fn suspect(&mut self, member: IpAddr, why: &str, now: Instant) {
        for host in self.hosts.values_mut().filter(|host| host.address == Some(member)) {
            why.clone_into(&mut host.ask(now).1);
        }
    }

    /// All are suspected.
    pub(crate) fn suspect_all(&mut self, why: &str, now: Instant) {
        for host in self.hosts.values_mut() {
            let known = &mut host.ask(now).1;
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
    pub(crate) fn judge(
        &mut self,
        now: Instant,
        mut ask: impl FnMut(EndpointId) -> Option<Heard>,
    ) -> Vec<(EndpointId, String)> {
        let mut failed = Vec::new();
        for (&endpoint, host) in &mut self.hosts {
            let Some((since, why)) = &host.asked else { continue };
            let asked_for = now.saturating_duration_since(*since);
            match ask(endpoint) {
                Some(heard) if !heard.is_waiting || heard.ago < ANSWER_WITHIN / 2 => {}
                Some(heard) if heard.ago.min(asked_for) >= ANSWER_WITHIN => {
                    let ms = heard.ago.as_millis();
                    failed.push((
                        endpoint,
                        format!("{why}, and its host has acknowledged nothing for {ms} ms"),
                    ));
                }
                Some(_) => continue,
                None => {}
            }
            host.asked = None;
        }
        failed
    }
}

impl Host {
    fn ask(&mut self, now: Instant) -> &mut (Instant, String) {
        self.asked.get_or_insert_with(|| (now, String::new()))
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

    fn suspects() -> Suspects {
        let mut suspects = Suspects::default();
        suspects.add(ONE, Some([10, 0, 0, 1].into()));
        suspects.add(OTHER, Some([10, 0, 0, 2].into()));
        suspects
    }

    #[test]
    fn a_host_that_acknowledges_nothing_has_failed() {
        let (mut suspects, start) = (suspects(), Instant::now());
        assert!(suspects.is_empty());
        suspects.suspect_all("no answers", start);
        suspects.suspect([10, 0, 0, 2].into(), "tor: it is silent", start + ms(100));
        suspects.suspect([10, 0, 0, 9].into(), "tor: a stranger", start);
        // Nothing was sent before for so long.
        let mut asked = Vec::new();
        let mut judge = |suspects: &mut Suspects, at, heard| {
            suspects.judge(start + at, |endpoint| {
                asked.push(endpoint);
                heard
            })
        };
        assert_eq!(judge(&mut suspects, ms(0), heard(true, 5_000)), []);
        // It is asked since the first time.
        suspects.suspect_all("still no answers", start + ms(250));
        assert_eq!(judge(&mut suspects, ms(299), heard(true, 5_299)), []);
        let failed = judge(&mut suspects, ms(300), heard(true, 5_300));
        let why = |why| format!("{why}, and its host has acknowledged nothing for 5300 ms");
        assert_eq!(failed, [(ONE, why("no answers")), (OTHER, why("tor: it is silent"))]);
        assert_eq!(asked, [ONE, OTHER, ONE, OTHER, ONE, OTHER]);
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
        for answer in [heard(true, 149), heard(false, 60_000), None] {
            let mut suspects = suspects();
            suspects.suspect_all("no answers", start);
            assert_eq!(suspects.judge(start + ms(400), |_| answer), []);
            assert!(suspects.is_empty(), "{answer:?}");
        }
        // An acknowledgement from the time when it was asked is neither.
        let mut suspects = suspects();
        suspects.suspect_all("no answers", start);
        assert_eq!(suspects.judge(start + ms(301), |_| heard(true, 299)), []);
        assert!(!suspects.is_empty());
        suspects.remove(ONE);
        suspects.remove(OTHER);
        assert!(suspects.is_empty());
    }
}
