//! The choice of a network for a push.

use std::{fmt, net::IpAddr};

use super::network::{Network, is_within};
use crate::failure::Failure;

/// The user's choice among this machine's networks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Choice {
    #[default]
    Any,
    Interface(String),
    /// Networks with an address in this range: its first address and prefix length.
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

    /// The chosen networks.
    ///
    /// Errors: no network matches; names the existing ones.
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

/// The choice as a command-line option.
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
    use super::{super::network::tests::roots, *};

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
