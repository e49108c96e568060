//! The settings of a lab.

use std::{collections::BTreeSet, net::Ipv4Addr, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{Error, Link, Rate};

/// The most hosts: a bridge has 1024 ports, and one may lead to the other racks.
const HOSTS_MAX: u32 = 1_000;

/// The settings of a lab.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LabSettings {
    /// How many hosts: 1 to 1000.
    pub hosts: u32,
    /// What joins each host to its switch.
    pub link: Link,
    /// How many racks of equal size, but for one host; neighbours by number share a rack. With 1
    /// all hosts are at one switch.
    pub racks: u32,
    /// What joins each rack to the others; needed with more than one rack.
    pub uplink: Option<Link>,
    /// Hosts with links of other rates.
    pub slow_hosts: Vec<SlowHost>,
    /// Pairs of hosts with a rate of their own for what they send each other.
    pub slow_links: Vec<SlowLink>,
}

/// A host whose link has another rate, both ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowHost {
    /// Its number.
    pub host: u32,
    /// Its rate.
    pub rate: Rate,
}

/// Two hosts that are slow to reach each other: each way has this rate, while what they exchange
/// with others keeps that of their links.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowLink {
    /// The numbers of the two.
    pub hosts: [u32; 2],
    /// The rate in each direction.
    pub rate: Rate,
}

impl LabSettings {
    /// Hosts at one switch, with links that are all alike.
    pub fn new(hosts: u32, link: Link) -> Self {
        let (slow_hosts, slow_links) = (Vec::new(), Vec::new());
        Self { hosts, link, racks: 1, uplink: None, slow_hosts, slow_links }
    }

    /// Errors: what cannot be made, and why.
    pub fn check(&self) -> Result<(), Error> {
        let wrong = |why: String| Err(Error::Usage(why));
        if !(1..=HOSTS_MAX).contains(&self.hosts) {
            return wrong(format!("a lab has 1 to {HOSTS_MAX} hosts, not {}", self.hosts));
        }
        if !(1..=self.hosts).contains(&self.racks) {
            return wrong(format!("{} hosts do not make {} racks", self.hosts, self.racks));
        }
        match (self.racks, self.uplink) {
            (1, Some(_)) => return wrong("an uplink needs racks: add --racks".into()),
            (2.., None) => return wrong("racks need an uplink: add --uplink".into()),
            _ => {}
        }
        for link in [Some(self.link), self.uplink].into_iter().flatten() {
            if link.burst_bytes.is_some_and(|bytes| bytes < Link::BURST_BYTES_MIN) {
                return wrong(format!("a burst holds at least {} bytes", Link::BURST_BYTES_MIN));
            }
            if !Link::QUEUES_MS.contains(&link.queue_ms) {
                let (least, most) = Link::QUEUES_MS.into_inner();
                return wrong(format!("a queue holds {least} to {most} ms, not {}", link.queue_ms));
            }
            if !Link::MTUS.contains(&link.mtu_bytes) || link.mtu_bytes != self.link.mtu_bytes {
                let (least, most) = Link::MTUS.into_inner();
                return wrong(format!("all links have the same MTU, of {least} to {most} bytes"));
            }
        }
        let named = self.slow_links.iter().flat_map(|link| link.hosts);
        if let Some(host) = self
            .slow_hosts
            .iter()
            .map(|slow| slow.host)
            .chain(named)
            .find(|&host| host >= self.hosts)
        {
            return wrong(format!("there is no host {host}: hosts are 0 to {}", self.hosts - 1));
        }
        let mut seen = BTreeSet::new();
        if let Some(slow) = self.slow_hosts.iter().find(|slow| !seen.insert([slow.host; 2])) {
            return wrong(format!("host {} is slow twice", slow.host));
        }
        for SlowLink { hosts: [a, b], .. } in &self.slow_links {
            if a == b {
                return wrong(format!("host {a} has no link to itself"));
            }
            if !seen.insert([*a.min(b), *a.max(b)]) {
                return wrong(format!("the link {a}-{b} is slow twice"));
            }
        }
        Ok(())
    }

    /// The rack of a host.
    pub fn rack_of(&self, host: u32) -> u32 {
        (u64::from(host) * u64::from(self.racks) / u64::from(self.hosts.max(1))) as u32
    }

    /// The address of a host.
    pub fn address(&self, host: u32) -> Ipv4Addr {
        let [.., high, low] = (host + 1).to_be_bytes();
        Ipv4Addr::new(10, 77, high, low)
    }

    /// What joins this host to its switch.
    pub fn link_of(&self, host: u32) -> Link {
        let slow = self.slow_hosts.iter().find(|slow| slow.host == host);
        slow.map_or(self.link, |slow| self.link.at_rate(slow.rate))
    }

    /// The addresses that a host reaches slowly, and the links.
    pub(crate) fn slow_from(&self, host: u32) -> Vec<(Ipv4Addr, Link)> {
        let from_here = |slow: &SlowLink| match slow.hosts {
            [here, there] | [there, here] if here == host => {
                Some((self.address(there), self.link.at_rate(slow.rate)))
            }
            _ => None,
        };
        self.slow_links.iter().filter_map(from_here).collect()
    }

    /// What one host can send to another while no other host sends.
    pub fn rate_between(&self, from: u32, to: u32) -> Rate {
        let uplink = self.uplink.filter(|_| self.rack_of(from) != self.rack_of(to));
        let slow = self.slow_links.iter().find(
            |slow| matches!(slow.hosts, [a, b] if [a, b] == [from, to] || [b, a] == [from, to]),
        );
        [Some(self.link_of(from).rate), Some(self.link_of(to).rate)]
            .into_iter()
            .chain([uplink.map(|link| link.rate), slow.map(|slow| slow.rate)])
            .flatten()
            .min()
            .unwrap_or(self.link.rate)
    }
}

impl FromStr for SlowHost {
    type Err = String;

    /// Reads `3:100mbit`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (host, rate) = text.split_once(':').ok_or("write HOST:RATE, as in 3:100mbit")?;
        Ok(Self { host: number(host)?, rate: rate.parse()? })
    }
}

impl FromStr for SlowLink {
    type Err = String;

    /// Reads `3-7:125mbit`.
    fn from_str(text: &str) -> Result<Self, String> {
        let parts =
            text.split_once(':').and_then(|(hosts, rate)| Some((hosts.split_once('-')?, rate)));
        let ((a, b), rate) = parts.ok_or("write HOST-HOST:RATE, as in 3-7:125mbit")?;
        Ok(Self { hosts: [number(a)?, number(b)?], rate: rate.parse()? })
    }
}

fn number(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("\"{text}\" is not the number of a host"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> LabSettings {
        let link = |mbit| Link::of_rate(Rate::from_mbit(mbit));
        LabSettings {
            racks: 3,
            uplink: Some(link(400)),
            slow_hosts: vec!["1:100mbit".parse().unwrap()],
            slow_links: vec!["2-7:125mbit".parse().unwrap()],
            ..LabSettings::new(8, link(1_000))
        }
    }

    #[test]
    fn racks_hold_neighbours_and_are_of_equal_size() {
        let racks: Vec<u32> = (0..8).map(|host| settings().rack_of(host)).collect();
        assert_eq!(racks, [0, 0, 0, 1, 1, 1, 2, 2]);
    }

    #[test]
    fn the_slowest_link_on_the_path_counts() {
        let settings = settings();
        settings.check().unwrap();
        let between = |from, to| settings.rate_between(from, to).mbit();
        assert!((between(3, 4) - 1_000.0).abs() < 1e-9);
        assert!((between(0, 1) - 100.0).abs() < 1e-9 && (between(1, 7) - 100.0).abs() < 1e-9);
        assert!((between(3, 7) - 400.0).abs() < 1e-9);
        assert!((between(2, 7) - 125.0).abs() < 1e-9 && (between(7, 2) - 125.0).abs() < 1e-9);
    }

    #[test]
    fn both_ends_of_a_slow_link_have_it() {
        let settings = settings();
        let from =
            |host| settings.slow_from(host).into_iter().map(|(address, _)| address).collect();
        let (two, seven, others): (Vec<_>, Vec<_>, Vec<_>) = (from(2), from(7), from(3));
        assert_eq!((two, seven), (vec![settings.address(7)], vec![settings.address(2)]));
        assert!(others.is_empty());
    }

    #[test]
    fn hosts_have_addresses_of_their_own() {
        let settings = settings();
        assert_eq!(settings.address(0), Ipv4Addr::new(10, 77, 0, 1));
        assert_eq!(settings.address(255), Ipv4Addr::new(10, 77, 1, 0));
    }

    #[test]
    fn invalid_settings_are_refused() {
        let good = settings();
        let slow_links = |all: &[&str]| all.iter().map(|text| text.parse().unwrap()).collect();
        let bad = [
            LabSettings { hosts: 0, ..good.clone() },
            LabSettings { hosts: 1_001, ..good.clone() },
            LabSettings { racks: 0, ..good.clone() },
            LabSettings { racks: 9, ..good.clone() },
            LabSettings { racks: 1, ..good.clone() },
            LabSettings { uplink: None, ..good.clone() },
            LabSettings { link: Link { burst_bytes: Some(5_999), ..good.link }, ..good.clone() },
            LabSettings { link: good.link.with_mtu(4_200), ..good.clone() },
            LabSettings { link: good.link.with_queue(0), ..good.clone() },
            LabSettings { link: good.link.with_mtu(9_001), racks: 1, uplink: None, ..good.clone() },
            LabSettings { slow_hosts: vec!["8:1mbit".parse().unwrap()], ..good.clone() },
            LabSettings { slow_hosts: vec!["3:1mbit".parse().unwrap(); 2], ..good.clone() },
            LabSettings { slow_links: slow_links(&["3-3:1mbit"]), ..good.clone() },
            LabSettings { slow_links: slow_links(&["3-8:1mbit"]), ..good.clone() },
            LabSettings { slow_links: slow_links(&["3-4:1mbit", "4-3:2mbit"]), ..good.clone() },
        ];
        for settings in bad {
            assert!(matches!(settings.check(), Err(Error::Usage(_))), "{settings:?}");
        }
        for text in ["3", "3:", "x:1mbit", "3:100", "-1:1mbit"] {
            assert!(text.parse::<SlowHost>().is_err(), "{text}");
        }
        for text in ["3:1mbit", "3-7", "3-:1mbit", "3-x:1mbit"] {
            assert!(text.parse::<SlowLink>().is_err(), "{text}");
        }
    }
}
