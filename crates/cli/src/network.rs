//! Networks of this machine: which one a push uses, how fast it is, and whether hosts share a faster one.

use std::{fmt, fs, net::IpAddr};

use if_addrs::{IfAddr, Interface};
use plan::size;
use serde::{Deserialize, Serialize};

use crate::failure::Failure;

/// An address of a machine, and the network that it is in.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Network {
    pub interface: String,
    pub address: IpAddr,
    /// Leading bits of the address that all addresses of the network have.
    pub prefix_bits: u8,
    /// The link's, if the system knows it.
    pub bits_per_second: Option<u64>,
}

impl Network {
    /// Those of this machine, without loopback and link-local ones: the fastest first, of equally fast ones IPv4 before IPv6.
    ///
    /// Errors: the system does not list them.
    pub fn own() -> Result<Vec<Self>, Failure> {
        let interfaces =
            if_addrs::get_if_addrs().map_err(Failure::while_doing("listing network interfaces"))?;
        let usable = |it: &&Interface| !it.is_loopback() && !it.is_link_local();
        let mut all: Vec<Self> = interfaces.iter().filter(usable).map(Self::of).collect();
        sort(&mut all);
        Ok(all)
    }

    fn of(interface: &Interface) -> Self {
        let prefix_bits = match &interface.addr {
            IfAddr::V4(address) => address.prefixlen,
            IfAddr::V6(address) => address.prefixlen,
        };
        // Megabits; -1 where there is no link.
        let speed = fs::read_to_string(format!("/sys/class/net/{}/speed", interface.name));
        let megabits = speed.ok().and_then(|text| text.trim().parse::<u64>().ok());
        Self {
            interface: interface.name.clone(),
            address: interface.ip(),
            prefix_bits,
            bits_per_second: megabits.map(|megabits| megabits * 1_000_000),
        }
    }

    /// Whether another address is in this network.
    fn contains(&self, other: IpAddr) -> bool {
        is_within(other, self.address, self.prefix_bits)
    }
}

impl fmt::Display for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { interface, address, prefix_bits, bits_per_second } = self;
        write!(f, "{interface} ({address}/{prefix_bits}")?;
        match bits_per_second {
            Some(rate) => write!(f, ", {})", size::show_rate(*rate)),
            None => write!(f, ")"),
        }
    }
}

fn sort(networks: &mut [Network]) {
    let rate = |it: &Network| std::cmp::Reverse(it.bits_per_second.unwrap_or(0));
    networks.sort_by_key(|it| (rate(it), it.address.is_ipv6()));
}

/// Whether two addresses have so many leading bits in common.
fn is_within(one: IpAddr, other: IpAddr, prefix_bits: u8) -> bool {
    let differs = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        _ => return false,
    };
    differs >= u32::from(prefix_bits)
}

/// The fastest of the root's networks that this machine shares, if it is faster than the one that is used.
pub fn faster<'a>(roots: &'a [Network], used: IpAddr, own: &[Network]) -> Option<&'a Network> {
    let used = roots.iter().find(|network| network.address == used)?.bits_per_second?;
    // Networks inside of machines, such as those of containers, have the same address in all of them.
    let is_inside = |it: &Network| own.iter().any(|own| own.address == it.address);
    let is_shared =
        |it: &&Network| !is_inside(it) && own.iter().any(|own| it.contains(own.address));
    let best = roots.iter().filter(is_shared).max_by_key(|it| it.bits_per_second)?;
    (best.bits_per_second? > used).then_some(best)
}

/// The user's choice among this machine's networks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    #[default]
    Any,
    Interface(String),
    /// Those with an address in this range: the first address, and its prefix.
    Range(IpAddr, u8),
}

impl Choice {
    /// Parses `10.1.0.0/16`.
    pub fn parse_range(text: &str) -> Result<Self, String> {
        let wrong = || "use a network such as 10.1.0.0/16".to_owned();
        let (address, bits) = text.split_once('/').ok_or_else(wrong)?;
        let (address, bits): (IpAddr, u8) =
            (address.parse().map_err(|_| wrong())?, bits.parse().map_err(|_| wrong())?);
        let most = if address.is_ipv4() { 32 } else { 128 };
        if bits > most { Err(wrong()) } else { Ok(Self::Range(address, bits)) }
    }

    /// The chosen ones.
    ///
    /// Errors: there is none of those; names what there is.
    pub fn among(&self, networks: Vec<Network>) -> Result<Vec<Network>, Failure> {
        let names: Vec<String> = networks.iter().map(ToString::to_string).collect();
        let chosen: Vec<Network> = networks.into_iter().filter(|it| self.fits(it)).collect();
        if chosen.is_empty() && *self != Self::Any {
            let there = if names.is_empty() { "none".into() } else { names.join(", ") };
            return Err(Failure::Usage(format!(
                "{self}: this machine has no address there; it has {there}"
            )));
        }
        Ok(chosen)
    }

    fn fits(&self, network: &Network) -> bool {
        match self {
            Self::Any => true,
            Self::Interface(name) => network.interface == *name,
            Self::Range(address, bits) => is_within(network.address, *address, *bits),
        }
    }
}

/// As an option.
impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => f.write_str("any network"),
            Self::Interface(name) => write!(f, "--interface {name}"),
            Self::Range(address, bits) => write!(f, "--network {address}/{bits}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn network(interface: &str, address: &str, prefix_bits: u8, gigabits: u64) -> Network {
        let bits_per_second = (gigabits > 0).then_some(gigabits * 1_000_000_000);
        let address = address.parse().unwrap();
        Network { interface: interface.into(), address, prefix_bits, bits_per_second }
    }

    fn roots() -> Vec<Network> {
        vec![
            network("eno1", "192.168.0.1", 24, 1),
            network("tun0", "10.8.0.1", 24, 0),
            network("docker0", "172.17.0.1", 16, 10),
            network("ib0", "fd00::1", 64, 100),
            network("ib0", "10.1.0.1", 16, 100),
        ]
    }

    #[test]
    fn the_fastest_come_first() {
        let mut all = roots();
        sort(&mut all);
        let order: Vec<String> = all.iter().map(|it| it.address.to_string()).collect();
        assert_eq!(order, ["10.1.0.1", "fd00::1", "172.17.0.1", "192.168.0.1", "10.8.0.1"]);
        assert_eq!(all[0].to_string(), "ib0 (10.1.0.1/16, 100gbit)");
        assert_eq!(all[4].to_string(), "tun0 (10.8.0.1/24)");
    }

    #[test]
    fn a_faster_network_counts_if_it_is_shared() {
        let used = "192.168.0.1".parse().unwrap();
        let docker = network("docker0", "172.17.0.1", 16, 10);
        let manager = network("eno1", "192.168.0.7", 24, 1);
        let own = [docker, manager];
        assert_eq!(
            faster(&roots(), used, &own),
            None,
            "networks inside of machines are not shared"
        );
        let own = [&own[..], &[network("ib0", "10.1.3.7", 16, 100)]].concat();
        assert_eq!(faster(&roots(), used, &own).unwrap().address.to_string(), "10.1.0.1");
        assert_eq!(faster(&roots(), "10.1.0.1".parse().unwrap(), &own), None);
        // Of a network whose rate is not known nothing is said.
        assert_eq!(faster(&roots(), "10.8.0.1".parse().unwrap(), &own), None);
    }

    #[test]
    fn choices_name_what_there_is() {
        let chosen = |choice: Choice| {
            let all = choice.among(roots()).map_err(|failure| failure.to_string())?;
            Ok::<_, String>(all.iter().map(|it| it.address.to_string()).collect::<Vec<_>>())
        };
        let range = |text: &str| Choice::parse_range(text).unwrap();
        assert_eq!(chosen(Choice::Interface("ib0".into())).unwrap(), ["fd00::1", "10.1.0.1"]);
        assert_eq!(chosen(range("10.1.0.0/16")).unwrap(), ["10.1.0.1"]);
        assert_eq!(chosen(range("10.0.0.0/8")).unwrap(), ["10.8.0.1", "10.1.0.1"]);
        assert_eq!(chosen(range("fd00::/8")).unwrap(), ["fd00::1"]);
        assert_eq!(chosen(range("0.0.0.0/0")).unwrap().len(), 4);
        let error = chosen(Choice::Interface("ib1".into())).unwrap_err();
        assert!(
            error.starts_with("--interface ib1: this machine has no address there; it has eno1 (")
        );
        for wrong in ["10.1.0.0", "10.1.0.0/33", "ib0/8", "fd00::/129", "/8", "10.1.0.0/x"] {
            assert!(Choice::parse_range(wrong).is_err(), "{wrong}");
        }
    }
}
