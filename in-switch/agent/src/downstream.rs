//! Downstream agents of a switch.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    str::FromStr,
};

use mcrdma::Port;
use routes::Hop;

/// A downstream agent: `WHERE=HOST:PORT`, where WHERE is one of this switch's ports, or the prefix of
/// addresses of hosts behind that agent, such as `10.2.0.0/16` (plain switches may be between).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NextAgent {
    /// The members behind it.
    pub at: Location,
    /// The agent's address.
    pub agent: String,
}

/// Where an agent is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Location {
    /// On the path of all members behind this port.
    Port(String),
    /// On the path of all members with these addresses.
    Prefix(IpAddr, u8),
}

/// A text that is no [`NextAgent`].
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "\"{0}\" does not say where an agent is; use PORT=HOST:PORT or PREFIX/LENGTH=HOST:PORT, as in swp1=spine:4790 or 10.2.0.0/16=tor-b:4790"
)]
pub struct InvalidNextAgent(String);

impl FromStr for NextAgent {
    type Err = InvalidNextAgent;

    fn from_str(text: &str) -> Result<Self, InvalidNextAgent> {
        let parsed = text.split_once('=').and_then(|(at, agent)| {
            let has_port = agent
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
            let at = match at.split_once('/') {
                Some((address, bits)) => prefix(address, bits)?,
                None if at.is_empty() => return None,
                None => Location::Port(at.to_owned()),
            };
            has_port.then(|| Self { at, agent: agent.to_owned() })
        });
        parsed.ok_or_else(|| InvalidNextAgent(text.to_owned()))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(name) => f.write_str(name),
            Self::Prefix(address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

fn prefix(address: &str, bits: &str) -> Option<Location> {
    let address: IpAddr = address.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    (bits <= all).then_some(Location::Prefix(address, bits))
}

fn is_in(address: IpAddr, start: IpAddr, bits: u8) -> bool {
    let differs = match (address, start) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    differs >= bits.into()
}

/// The downstream agents of a switch, by port and by prefix.
#[derive(Clone, Debug, Default)]
pub(crate) struct Downstream {
    by_port: BTreeMap<Port, BTreeSet<String>>,
    by_prefix: Vec<((IpAddr, u8), String)>,
}

impl Downstream {
    pub(crate) fn new(nexts: &[NextAgent], ports: &BTreeMap<String, Port>) -> Result<Self, String> {
        let mut downstream = Self::default();
        for NextAgent { at, agent } in nexts {
            match at {
                Location::Prefix(address, bits) => {
                    downstream.by_prefix.push(((*address, *bits), agent.clone()));
                }
                Location::Port(name) => {
                    let port = ports.get(name).ok_or_else(|| {
                        format!("{name} is not a port of this switch, so no agent can be behind it")
                    })?;
                    downstream.by_port.entry(*port).or_default().insert(agent.clone());
                }
            }
        }
        Ok(downstream)
    }

    /// The agents of which one is on each path to a host; none if there are paths without one.
    pub(crate) fn agents(&self, address: IpAddr, hops: &BTreeSet<Hop>) -> BTreeSet<String> {
        let known =
            self.by_prefix.iter().filter(|((start, bits), _)| is_in(address, *start, *bits));
        if let Some(longest) = known.clone().map(|((_, bits), _)| *bits).max() {
            let all = known.filter(|((_, bits), _)| *bits == longest);
            return all.map(|(_, agent)| agent.clone()).collect();
        }
        let at = |hop: &Hop| self.by_port.get(&hop.port);
        if !hops.iter().all(|hop| at(hop).is_some()) {
            return BTreeSet::new();
        }
        hops.iter().filter_map(at).flatten().cloned().collect()
    }

    /// The agents behind a port.
    pub(crate) fn at_port(&self, port: Port) -> Vec<String> {
        self.by_port.get(&port).into_iter().flatten().cloned().collect()
    }

    /// Agents by prefix, as they were given.
    pub(crate) fn prefixes(&self) -> Vec<String> {
        let show =
            |((address, bits), agent): &((IpAddr, u8), String)| format!("{address}/{bits}={agent}");
        self.by_prefix.iter().map(show).collect()
    }

    /// All agents.
    pub(crate) fn all(&self) -> BTreeSet<String> {
        let by_port = self.by_port.values().flatten();
        by_port.chain(self.by_prefix.iter().map(|(_, agent)| agent)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use roce::Mac;

    fn hops(ports: &[Port]) -> BTreeSet<Hop> {
        ports.iter().map(|&port| Hop { port, gateway: None, mac: Mac::default() }).collect()
    }

    #[test]
    fn next_agents_round_trip_and_others_are_refused() {
        for text in ["swp1=spine:4790", "10.2.0.0/16=tor-b:4790", "fd00::/8=[fd00::1]:4790"] {
            let next: NextAgent = text.parse().unwrap();
            assert_eq!(format!("{}={}", next.at, next.agent), text);
        }
        for text in
            ["", "swp1", "=a:1", "swp1=a", "swp1=:1", "10.0.0.0/33=a:1", "x/8=a:1", "swp1=a:99999"]
        {
            let error = text.parse::<NextAgent>().unwrap_err();
            assert!(error.to_string().contains("10.2.0.0/16=tor-b:4790"), "{error}");
        }
    }

    #[test]
    fn the_longest_prefix_counts_and_then_all_ports() {
        let ports =
            BTreeMap::from([("up0".to_owned(), 1), ("up1".to_owned(), 2), ("h".to_owned(), 3)]);
        let nexts = ["up0=s0:1", "up1=s1:1", "10.2.0.0/16=t:1", "10.2.3.0/24=u:1"];
        let nexts: Vec<NextAgent> = nexts.iter().map(|next| next.parse().unwrap()).collect();
        let downstream = Downstream::new(&nexts, &ports).unwrap();
        let agents = |address: &str, ports: &[Port]| {
            downstream
                .agents(address.parse().unwrap(), &hops(ports))
                .into_iter()
                .collect::<Vec<_>>()
        };
        assert_eq!(agents("10.9.0.1", &[1, 2]), ["s0:1", "s1:1"]);
        assert_eq!(agents("10.2.0.1", &[1, 2]), ["t:1"]);
        assert_eq!(agents("10.2.3.1", &[1]), ["u:1"]);
        assert!(agents("10.9.0.1", &[1, 3]).is_empty(), "one of the ways has no agent");
        assert!(agents("fd00::1", &[3]).is_empty());
        let unknown = ["up9=s0:1".parse().unwrap()];
        assert!(Downstream::new(&unknown, &ports).unwrap_err().contains("up9"));
    }
}
