//! Addresses of peers that a host has to do with.

use std::{fmt, net::IpAddr, str::FromStr};

/// Networks whose hosts may be peers; nobody else is connected to or answered.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Peers(Vec<PeerNetwork>);

/// A network: an address, or the addresses that have its first bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct PeerNetwork {
    address: IpAddr,
    prefix_bits: u8,
}

impl Peers {
    /// Whether an address is in one of the networks. An IPv4 address in its IPv6 form counts as itself.
    #[must_use]
    pub fn contain(&self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        self.0.iter().any(|network| network.contains(address))
    }
}

impl PeerNetwork {
    fn contains(self, address: IpAddr) -> bool {
        let differs = match (self.address, address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                (one.to_bits() ^ other.to_bits()).leading_zeros()
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => {
                (one.to_bits() ^ other.to_bits()).leading_zeros()
            }
            _ => return false,
        };
        differs >= u32::from(self.prefix_bits)
    }
}

impl FromStr for Peers {
    type Err = String;

    /// Parses networks that are separated by commas, such as `10.1.0.0/16,fd00::/8,10.2.0.7`. Errors: one is none.
    fn from_str(text: &str) -> Result<Self, String> {
        text.split(',').map(network).collect::<Result<_, _>>().map(Self)
    }
}

fn network(text: &str) -> Result<PeerNetwork, String> {
    let wrong = || format!("{text:?} is neither a network such as 10.1.0.0/16 nor an address");
    let (address, bits) = text.split_once('/').unzip();
    let address: IpAddr = address.unwrap_or(text).parse().map_err(|_| wrong())?;
    let bits_max = if address.is_ipv4() { 32 } else { 128 };
    let prefix_bits = bits.map_or(Ok(bits_max), str::parse).map_err(|_| wrong())?;
    if prefix_bits > bits_max { Err(wrong()) } else { Ok(PeerNetwork { address, prefix_bits }) }
}

impl fmt::Display for Peers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, PeerNetwork { address, prefix_bits }) in self.0.iter().enumerate() {
            let comma = if index > 0 { "," } else { "" };
            write!(f, "{comma}{address}/{prefix_bits}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_in_networks_by_their_first_bits() {
        let peers: Peers = "10.1.0.0/16,fd00::/8,10.2.0.7".parse().unwrap();
        assert_eq!(peers.to_string(), "10.1.0.0/16,fd00::/8,10.2.0.7/32");
        let is_in = |address: &str| peers.contain(address.parse().unwrap());
        assert!(["10.1.255.1", "::ffff:10.1.0.1", "fd12::1", "10.2.0.7"].into_iter().all(is_in));
        assert!(!["10.2.0.8", "10.0.255.255", "fe80::1", "::1"].into_iter().any(is_in));
        let all: Peers = "0.0.0.0/0".parse().unwrap();
        assert!(all.contain("203.0.113.9".parse().unwrap()));
        assert!(!all.contain("::1".parse().unwrap()));
    }

    #[test]
    fn what_is_no_network_is_refused() {
        for text in ["", "10.0.0.1/33", "::/129", "host", "10.0.0.0/", "10.0.0.1,", "1.1.1.1/-1"] {
            assert!(text.parse::<Peers>().is_err(), "{text:?}");
        }
    }
}
