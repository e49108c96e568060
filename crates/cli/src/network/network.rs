//! A network of a machine; which of the root's networks a host shares.

use std::{fmt, net::IpAddr};

use plan::size;
use serde::{Deserialize, Serialize};

/// An address of a machine, with its network.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Network {
    pub interface: String,
    pub address: IpAddr,
    /// The length of the network's prefix.
    pub prefix_bits: u8,
    /// The rate of the link, if the system knows it.
    pub bits_per_second: Option<u64>,
}

impl Network {
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

/// Whether two addresses have the same prefix of this length.
pub fn is_within(one: IpAddr, other: IpAddr, prefix_bits: u8) -> bool {
    let differs = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        _ => return false,
    };
    differs >= u32::from(prefix_bits)
}

/// The fastest of the root's networks that this machine shares, if it is faster than the used one.
pub fn faster<'a>(roots: &'a [Network], used: IpAddr, own: &[Network]) -> Option<&'a Network> {
    let used = roots.iter().find(|network| network.address == used)?.bits_per_second?;
    // Networks inside machines, such as those of containers, have the same address on all machines.
    let is_inside = |it: &Network| own.iter().any(|own| own.address == it.address);
    let is_shared =
        |it: &&Network| !is_inside(it) && own.iter().any(|own| it.contains(own.address));
    let best = roots.iter().filter(is_shared).max_by_key(|it| it.bits_per_second)?;
    (best.bits_per_second? > used).then_some(best)
}

#[cfg(test)]
pub mod tests {
    use super::*;

    pub fn network(interface: &str, address: &str, prefix_bits: u8, gigabits: u64) -> Network {
        let bits_per_second = (gigabits > 0).then_some(gigabits * 1_000_000_000);
        let address = address.parse().unwrap();
        Network { interface: interface.into(), address, prefix_bits, bits_per_second }
    }

    pub fn roots() -> Vec<Network> {
        vec![
            network("eno1", "192.168.0.1", 24, 1),
            network("tun0", "10.8.0.1", 24, 0),
            network("docker0", "172.17.0.1", 16, 10),
            network("ib0", "fd00::1", 64, 100),
            network("ib0", "10.1.0.1", 16, 100),
        ]
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
        // A network of unknown rate is not reported.
        assert_eq!(faster(&roots(), "10.8.0.1".parse().unwrap(), &own), None);
    }
}
