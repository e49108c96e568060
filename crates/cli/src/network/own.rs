//! The networks of this machine.

use std::cmp::Reverse;

use if_addrs::{IfAddr, Interface};
use rdmc::Fabric;

use super::network::Network;
use crate::failure::Failure;

/// The networks of this machine, without loopback and link-local ones: fastest first, IPv4 before IPv6 at equal rates.
///
/// Errors: the system cannot list them.
pub fn own() -> Result<Vec<Network>, Failure> {
    let interfaces =
        if_addrs::get_if_addrs().map_err(Failure::while_doing("listing network interfaces"))?;
    let usable = |it: &&Interface| !it.is_loopback() && !it.is_link_local();
    let mut all: Vec<Network> = interfaces.iter().filter(usable).map(network_of).collect();
    sort(&mut all);
    Ok(all)
}

fn network_of(interface: &Interface) -> Network {
    let prefix_bits = match &interface.addr {
        IfAddr::V4(address) => address.prefixlen,
        IfAddr::V6(address) => address.prefixlen,
    };
    Network {
        interface: interface.name.clone(),
        address: interface.ip(),
        prefix_bits,
        bits_per_second: Fabric::Tcp.link_rate(interface.ip()),
    }
}

fn sort(networks: &mut [Network]) {
    let rate = |it: &Network| Reverse(it.bits_per_second.unwrap_or(0));
    networks.sort_by_key(|it| (rate(it), it.address.is_ipv6()));
}

#[cfg(test)]
mod tests {
    use super::{super::network::tests::roots, *};

    #[test]
    fn the_fastest_come_first() {
        let mut all = roots();
        sort(&mut all);
        let order: Vec<String> = all.iter().map(|it| it.address.to_string()).collect();
        assert_eq!(order, ["10.1.0.1", "fd00::1", "172.17.0.1", "192.168.0.1", "10.8.0.1"]);
        assert_eq!(all[0].to_string(), "ib0 (10.1.0.1/16, 100gbit)");
        assert_eq!(all[4].to_string(), "tun0 (10.8.0.1/24)");
    }
}
