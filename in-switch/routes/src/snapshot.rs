//! The kernel's forwarding state as data, and lookups in it.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::IpAddr,
};

use mcrdma::Port;
use roce::Mac;

use crate::{Hop, Neighbour, NoHop, Station};

/// The kernel's links, routes, neighbours and bridge forwarding entries at one time.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Snapshot {
    links: BTreeMap<Port, Link>,
    routes: BTreeMap<Prefix, Vec<Route>>,
    neighbours: BTreeMap<(Port, IpAddr), Mac>,
    /// Bridges' forwarding entries: bridge and port.
    stations: BTreeMap<Mac, BTreeSet<(Port, Port)>>,
}

/// A network interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// It is up and has a carrier.
    pub is_up: bool,
    /// The bridge, bond or VRF that it is part of.
    pub master: Option<Port>,
    /// What it is.
    pub kind: LinkKind,
}

/// Kinds of interfaces, as far as they differ here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkKind {
    /// A bridge.
    Bridge,
    /// Another Ethernet address on top of an interface (macvlan).
    MacVlan {
        /// On top of which.
        over: Port,
    },
    /// Anything else.
    Other,
}

/// A range of addresses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Prefix {
    address: IpAddr,
    bits: u8,
}

impl Prefix {
    /// All addresses that have the first bits of this one; at most all of its bits count.
    #[must_use]
    pub fn new(address: IpAddr, bits: u8) -> Self {
        let bits = bits.min(bits_of(address));
        let address = match address {
            IpAddr::V4(address) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
                IpAddr::V4((address.to_bits() & mask).into())
            }
            IpAddr::V6(address) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(bits)).unwrap_or(0);
                IpAddr::V6((address.to_bits() & mask).into())
            }
        };
        Self { address, bits }
    }
}

const fn bits_of(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(_) => 32,
        IpAddr::V6(_) => 128,
    }
}

/// A route of the main table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Route {
    /// Of routes to one prefix the lowest metric is used.
    pub metric: u32,
    /// Where it leads.
    pub target: Target,
}

/// Where a route leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Target {
    /// These, at equal cost.
    Hops(Vec<NextHop>),
    /// Packets are dropped.
    Nowhere,
    /// Not supported.
    Unknown {
        /// Why, and the remedy.
        why: &'static str,
    },
}

/// A route's next hop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NextHop {
    /// By which interface.
    pub interface: Port,
    /// To which router. `None`: hosts are on this link.
    pub gateway: Option<IpAddr>,
}

impl Snapshot {
    /// Adds an interface, by its index.
    pub fn insert_link(&mut self, interface: Port, link: Link) {
        self.links.insert(interface, link);
    }

    /// Adds a route. Of IPv4 routes that differ in nothing but their targets the first counts, as
    /// for the kernel; of such IPv6 routes all do.
    pub fn insert_route(&mut self, to: Prefix, route: Route) {
        self.routes.entry(to).or_default().push(route);
    }

    /// Adds a neighbour whose Ethernet address is known.
    pub fn insert_neighbour(&mut self, neighbour: Neighbour, mac: Mac) {
        self.neighbours.insert((neighbour.interface, neighbour.address), mac);
    }

    /// Adds a forwarding entry of a bridge, learnt or static.
    pub fn insert_station(&mut self, bridge: Port, port: Port, mac: Mac) {
        self.stations.entry(mac).or_default().insert((bridge, port));
    }

    /// The equal-cost next hops to a station of a switch with these ports.
    ///
    /// 1. If a bridge has learnt the station's Ethernet address at one of the ports, that port.
    /// 2. Otherwise the longest prefix with the lowest metric. Hops over links that are down are skipped; if
    ///    none is left, the next best route is taken.
    /// 3. Each next hop is at a port, or behind a bridge (or a macvlan over one) that has learnt the port.
    ///
    /// Never blocks.
    ///
    /// Errors: one of the equal-cost next hops is not known.
    pub fn hops(&self, ports: &BTreeSet<Port>, to: Station) -> Result<BTreeSet<Hop>, NoHop> {
        if let Some(mac) = to.mac
            && let Some(port) = self.learnt(mac, |_, port| ports.contains(&port))?
        {
            return Ok(BTreeSet::from([Hop { port, gateway: None, mac }]));
        }
        let routed = self.next_hops(to.address).and_then(|hops| {
            hops.into_iter().map(|hop| self.resolve(ports, to.address, hop)).collect()
        });
        match (routed, to.mac) {
            // Only a bridge could have learnt it.
            (Err(routes @ (NoHop::NoRoute { .. } | NoHop::NotAPort { .. })), Some(mac))
                if ports.iter().any(|&port| self.is_bridged(port)) =>
            {
                Err(NoHop::Station { address: to.address, mac, routes: Box::new(routes) })
            }
            (routed, _) => routed,
        }
    }

    /// Next hops by the main table.
    fn next_hops(&self, to: IpAddr) -> Result<Vec<NextHop>, NoHop> {
        let best = (0..=bits_of(to)).rev().find_map(|bits| {
            self.routes.get(&Prefix::new(to, bits)).and_then(|routes| self.best(to, routes))
        });
        match best {
            Some(Target::Hops(hops)) => Ok(hops),
            Some(Target::Unknown { why }) => Err(NoHop::Route { address: to, why }),
            Some(Target::Nowhere) | None => Err(NoHop::NoRoute { address: to }),
        }
    }

    /// The best of the routes to one prefix that lead anywhere.
    fn best(&self, to: IpAddr, routes: &[Route]) -> Option<Target> {
        let mut usable: Vec<(u32, Target)> =
            routes.iter().filter_map(|route| Some((route.metric, self.usable(route)?))).collect();
        usable.sort_by_key(|(metric, _)| *metric);
        let mut usable = usable.into_iter();
        let (lowest, mut best) = usable.next()?;
        if let Target::Hops(hops) = &mut best
            && to.is_ipv6()
        {
            for (_, target) in usable.take_while(|(metric, _)| *metric == lowest) {
                match target {
                    Target::Hops(more) => hops.extend(more),
                    Target::Nowhere | Target::Unknown { .. } => {}
                }
            }
        }
        Some(best)
    }

    /// A route's target without links that are down, if anything is left of it.
    fn usable(&self, route: &Route) -> Option<Target> {
        let Target::Hops(hops) = &route.target else {
            return Some(route.target.clone());
        };
        let mut hops = hops.clone();
        hops.retain(|hop| self.is_up(hop.interface));
        (!hops.is_empty()).then_some(Target::Hops(hops))
    }

    /// A next hop's port and Ethernet address.
    fn resolve(&self, ports: &BTreeSet<Port>, to: IpAddr, next: NextHop) -> Result<Hop, NoHop> {
        let NextHop { interface, gateway } = next;
        let not_a_port = |port| NoHop::NotAPort { address: to, interface: self.name(port) };
        let bridge = match self.bridge_below(interface) {
            _ if ports.contains(&interface) => None,
            Some(bridge) if self.has_one_of(bridge, ports) => Some(bridge),
            _ => return Err(not_a_port(interface)),
        };
        let neighbour = Neighbour { address: gateway.unwrap_or(to), interface };
        let Some(&mac) = self.neighbours.get(&(interface, neighbour.address)) else {
            return Err(NoHop::Neighbour { neighbour, interface: self.name(interface) });
        };
        let Some(bridge) = bridge else {
            return Ok(Hop { port: interface, gateway, mac });
        };
        match self.learnt(mac, |at, _| at == bridge)? {
            Some(port) if ports.contains(&port) => Ok(Hop { port, gateway, mac }),
            Some(port) => Err(not_a_port(port)),
            None => Err(NoHop::NotLearnt { bridge: self.name(bridge), mac, neighbour }),
        }
    }

    /// The port that is up at which a bridge has learnt an address, of bridges and ports that `counts` accepts.
    fn learnt(&self, mac: Mac, counts: impl Fn(Port, Port) -> bool) -> Result<Option<Port>, NoHop> {
        let known = self.stations.get(&mac).into_iter().flatten();
        let ports: BTreeSet<Port> = known
            .filter(|&&(bridge, port)| counts(bridge, port) && self.is_up(port))
            .map(|&(_, port)| port)
            .collect();
        if ports.len() > 1 {
            let names: Vec<String> = ports.iter().map(|&port| self.name(port)).collect();
            return Err(NoHop::SeveralPorts { mac, ports: names.join(", ") });
        }
        Ok(ports.first().copied())
    }

    fn is_up(&self, interface: Port) -> bool {
        self.links.get(&interface).is_some_and(|link| link.is_up)
    }

    fn is_bridge(&self, interface: Port) -> bool {
        self.links.get(&interface).is_some_and(|link| link.kind == LinkKind::Bridge)
    }

    fn is_bridged(&self, port: Port) -> bool {
        let master = self.links.get(&port).and_then(|link| link.master);
        master.is_some_and(|master| self.is_bridge(master))
    }

    fn has_one_of(&self, bridge: Port, ports: &BTreeSet<Port>) -> bool {
        let master = |port| self.links.get(port).and_then(|link: &Link| link.master);
        ports.iter().any(|port| master(port) == Some(bridge))
    }

    /// The bridge that an interface's packets go through.
    fn bridge_below(&self, interface: Port) -> Option<Port> {
        let below = match self.links.get(&interface)?.kind {
            LinkKind::Bridge => interface,
            LinkKind::MacVlan { over } => over,
            LinkKind::Other => return None,
        };
        self.is_bridge(below).then_some(below)
    }

    /// For messages.
    fn name(&self, interface: Port) -> String {
        match self.links.get(&interface) {
            Some(link) => link.name.clone(),
            None => format!("interface {interface}"),
        }
    }
}
