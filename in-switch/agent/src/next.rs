//! Which agents are behind a switch.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    net::IpAddr,
    str::FromStr,
};

use mcrdma::Port;
use routes::Hop;

/// Who copies behind this switch: `WHERE=HOST:PORT`, where WHERE is one of this switch's ports, or the
/// prefix of addresses of hosts behind that agent, such as `10.2.0.0/16` (several plain switches may
/// be between).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Next {
    /// Whose way goes there.
    pub at: At,
    /// The agent's address.
    pub agent: String,
}

/// Members that an agent is on the way to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum At {
    /// All that are behind this port.
    Port(String),
    /// All with such an address.
    Prefix(IpAddr, u8),
}

/// A text that says nothing of the kind.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "\"{0}\" does not say where an agent is; use PORT=HOST:PORT or PREFIX/LENGTH=HOST:PORT, as in swp1=spine:4790 or 10.2.0.0/16=tor-b:4790"
)]
pub struct NoNext(String);

impl FromStr for Next {
    type Err = NoNext;

    fn from_str(text: &str) -> Result<Self, NoNext> {
        let parsed = text.split_once('=').and_then(|(at, agent)| {
            let has_port = agent
                .rsplit_once(':')
                .is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
            let at = match at.split_once('/') {
                Some((address, bits)) => prefix(address, bits)?,
                None if at.is_empty() => return None,
                None => At::Port(at.to_owned()),
            };
            has_port.then(|| Self { at, agent: agent.to_owned() })
        });
        parsed.ok_or_else(|| NoNext(text.to_owned()))
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Port(name) => f.write_str(name),
            Self::Prefix(address, bits) => write!(f, "{address}/{bits}"),
        }
    }
}

fn prefix(address: &str, bits: &str) -> Option<At> {
    let address: IpAddr = address.parse().ok()?;
    let bits: u8 = bits.parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    (bits <= all).then_some(At::Prefix(address, bits))
}

fn is_in(address: IpAddr, (start, bits): (IpAddr, u8)) -> bool {
    let differs = match (address, start) {
        (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros(),
        _ => return false,
    };
    differs >= bits.into()
}

/// What a switch was told of the agents behind it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Behind {
    by_port: BTreeMap<Port, BTreeSet<String>>,
    by_prefix: Vec<((IpAddr, u8), String)>,
}

impl Behind {
    pub(crate) fn new(nexts: &[Next], ports: &BTreeMap<String, Port>) -> Result<Self, String> {
        let mut behind = Self::default();
        for Next { at, agent } in nexts {
            match at {
                At::Prefix(address, bits) => {
                    behind.by_prefix.push(((*address, *bits), agent.clone()));
                }
                At::Port(name) => {
                    let port = ports.get(name).ok_or_else(|| {
                        format!(
                            "{name} is none of this switch's ports, so no agent can be behind it"
                        )
                    })?;
                    behind.by_port.entry(*port).or_default().insert(agent.clone());
                }
            }
        }
        Ok(behind)
    }

    /// The agents of which one is on each way to a host; none if there are ways without one.
    pub(crate) fn agents(&self, address: IpAddr, hops: &BTreeSet<Hop>) -> BTreeSet<String> {
        let known = self.by_prefix.iter().filter(|(prefix, _)| is_in(address, *prefix));
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

    /// The agent behind a port.
    pub(crate) fn at_port(&self, port: Port) -> Vec<String> {
        self.by_port.get(&port).into_iter().flatten().cloned().collect()
    }

    /// Agents by prefix, as people wrote them.
    pub(crate) fn prefixes(&self) -> Vec<String> {
        let show =
            |((address, bits), agent): &((IpAddr, u8), String)| format!("{address}/{bits}={agent}");
        self.by_prefix.iter().map(show).collect()
    }

    /// All of them.
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
    fn what_says_where_comes_back_and_else_is_refused() {
        for text in ["swp1=spine:4790", "10.2.0.0/16=tor-b:4790", "fd00::/8=[fd00::1]:4790"] {
            let next: Next = text.parse().unwrap();
            assert_eq!(format!("{}={}", next.at, next.agent), text);
        }
        for text in
            ["", "swp1", "=a:1", "swp1=a", "swp1=:1", "10.0.0.0/33=a:1", "x/8=a:1", "swp1=a:99999"]
        {
            let error = text.parse::<Next>().unwrap_err();
            assert!(error.to_string().contains("10.2.0.0/16=tor-b:4790"), "{error}");
        }
    }

    #[test]
    fn the_longest_prefix_says_it_and_else_all_ports() {
        let ports =
            BTreeMap::from([("up0".to_owned(), 1), ("up1".to_owned(), 2), ("h".to_owned(), 3)]);
        let nexts = ["up0=s0:1", "up1=s1:1", "10.2.0.0/16=t:1", "10.2.3.0/24=u:1"];
        let nexts: Vec<Next> = nexts.iter().map(|next| next.parse().unwrap()).collect();
        let behind = Behind::new(&nexts, &ports).unwrap();
        let agents = |address: &str, ports: &[Port]| {
            behind.agents(address.parse().unwrap(), &hops(ports)).into_iter().collect::<Vec<_>>()
        };
        assert_eq!(agents("10.9.0.1", &[1, 2]), ["s0:1", "s1:1"]);
        assert_eq!(agents("10.2.0.1", &[1, 2]), ["t:1"]);
        assert_eq!(agents("10.2.3.1", &[1]), ["u:1"]);
        assert!(agents("10.9.0.1", &[1, 3]).is_empty(), "one of the ways has no agent");
        assert!(agents("fd00::1", &[3]).is_empty());
        let unknown = ["up9=s0:1".parse().unwrap()];
        assert!(Behind::new(&unknown, &ports).unwrap_err().contains("up9"));
    }
}
