//! Parses netlink messages into a snapshot.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use mcrdma::Port;
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{InfoKind, LinkAttribute, LinkFlags, LinkInfo, LinkMessage},
    neighbour::{NeighbourAddress, NeighbourAttribute, NeighbourMessage, NeighbourState},
    route::{
        RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteLwEnCapType, RouteMessage,
        RouteNextHopFlags, RouteType, RouteVia,
    },
};
use roce::Mac;

use crate::{Link, LinkKind, Neighbour, NextHop, Prefix, Route, Snapshot, Target};

const OBJECT: &str = "its next hops are objects that the kernel does not expand; sysctl -w net.ipv4.nexthop_compat_mode=1";
const ENCAPSULATED: &str = "it encapsulates packets; give the switch a plain route";

/// Adds a message's contents, if they are relevant.
pub fn insert(snapshot: &mut Snapshot, message: RouteNetlinkMessage) {
    match message {
        RouteNetlinkMessage::NewLink(link) => insert_link(snapshot, link),
        RouteNetlinkMessage::NewRoute(route) => {
            if let Some((prefix, route)) = read_route(&route) {
                snapshot.insert_route(prefix, route);
            }
        }
        RouteNetlinkMessage::NewNeighbour(neighbour)
            if neighbour.header.family == AddressFamily::Bridge =>
        {
            insert_station(snapshot, &neighbour);
        }
        RouteNetlinkMessage::NewNeighbour(neighbour) => insert_neighbour(snapshot, &neighbour),
        _ => {}
    }
}

fn insert_link(snapshot: &mut Snapshot, message: LinkMessage) {
    let is_up = message.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp);
    let (mut name, mut master, mut over, mut is_elsewhere) = (String::new(), None, None, false);
    let (mut is_bridge, mut is_macvlan) = (false, false);
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(is) => name = is,
            LinkAttribute::Controller(is) => master = Some(is),
            LinkAttribute::Link(is) => over = Some(is),
            LinkAttribute::LinkNetNsId(_) => is_elsewhere = true,
            LinkAttribute::LinkInfo(infos) => {
                is_bridge = infos.contains(&LinkInfo::Kind(InfoKind::Bridge));
                is_macvlan = infos.contains(&LinkInfo::Kind(InfoKind::MacVlan));
            }
            _ => {}
        }
    }
    let kind = match over {
        _ if is_bridge => LinkKind::Bridge,
        Some(over) if is_macvlan && !is_elsewhere => LinkKind::MacVlan { over },
        _ => LinkKind::Other,
    };
    snapshot.insert_link(message.header.index, Link { name, is_up, master, kind });
}

/// A route of the main table that packets to hosts could take.
fn read_route(message: &RouteMessage) -> Option<(Prefix, Route)> {
    let header = &message.header;
    let (mut table, mut metric) = (u32::from(header.table), 0);
    let mut to: IpAddr = match header.address_family {
        AddressFamily::Inet => Ipv4Addr::UNSPECIFIED.into(),
        AddressFamily::Inet6 => Ipv6Addr::UNSPECIFIED.into(),
        _ => return None,
    };
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(is) => table = *is,
            RouteAttribute::Priority(is) => metric = *is,
            RouteAttribute::Destination(is) => to = address(is)?,
            _ => {}
        }
    }
    // Clones are exceptions, such as a path's MTU.
    let counts = table == u32::from(RouteHeader::RT_TABLE_MAIN)
        && header.source_prefix_length == 0
        && header.tos == 0
        && !header.flags.contains(RouteFlags::Cloned);
    let target = match header.kind {
        RouteType::Unicast => read_target(message),
        RouteType::BlackHole | RouteType::Unreachable | RouteType::Prohibit | RouteType::Throw => {
            Target::Nowhere
        }
        _ => return None,
    };
    let prefix = Prefix::new(to, header.destination_prefix_length);
    counts.then_some((prefix, Route { metric, target }))
}

fn read_target(message: &RouteMessage) -> Target {
    let is_alive = !message.header.flags.intersects(RouteFlags::Dead | RouteFlags::Linkdown);
    let attributes = &message.attributes;
    let interface = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Oif(interface) => Some(*interface),
        _ => None,
    });
    let several = attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::MultiPath(hops) => Some(hops),
        _ => None,
    });
    let mut all: Vec<(bool, Port, &[RouteAttribute])> = Vec::new();
    all.extend(interface.map(|interface| (is_alive, interface, &attributes[..])));
    all.extend(several.into_iter().flatten().map(|hop| {
        let down = RouteNextHopFlags::Dead | RouteNextHopFlags::Linkdown;
        (!hop.flags.intersects(down), hop.interface_index, &hop.attributes[..])
    }));
    if all.is_empty() {
        return Target::Unknown { why: OBJECT };
    }
    let is_encapsulated = |attribute: &RouteAttribute| match attribute {
        RouteAttribute::EncapType(kind) => *kind != RouteLwEnCapType::None,
        _ => false,
    };
    if all.iter().any(|(.., attributes)| attributes.iter().any(is_encapsulated)) {
        return Target::Unknown { why: ENCAPSULATED };
    }
    let hops = all.into_iter().filter(|(is_alive, ..)| *is_alive).map(|(_, interface, about)| {
        NextHop { interface, gateway: about.iter().find_map(gateway) }
    });
    Target::Hops(hops.collect())
}

fn gateway(attribute: &RouteAttribute) -> Option<IpAddr> {
    match attribute {
        RouteAttribute::Gateway(gateway) => address(gateway),
        RouteAttribute::Via(RouteVia::Inet(gateway)) => Some((*gateway).into()),
        RouteAttribute::Via(RouteVia::Inet6(gateway)) => Some((*gateway).into()),
        _ => None,
    }
}

fn address(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

fn insert_neighbour(snapshot: &mut Snapshot, message: &NeighbourMessage) {
    let is_known = matches!(
        message.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
            | NeighbourState::Noarp
    );
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Destination(NeighbourAddress::Inet(is)) => Some((*is).into()),
        NeighbourAttribute::Destination(NeighbourAddress::Inet6(is)) => Some((*is).into()),
        _ => None,
    });
    if let (true, Some(address), Some(mac)) = (is_known, address, mac(message)) {
        let neighbour = Neighbour { address, interface: message.header.ifindex };
        snapshot.insert_neighbour(neighbour, mac);
    }
}

/// An entry of a bridge. Those without a bridge are a network card's own.
fn insert_station(snapshot: &mut Snapshot, message: &NeighbourMessage) {
    let bridge = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::Controller(bridge) => Some(*bridge),
        _ => None,
    });
    // Permanent ones are the bridge's and its ports' own addresses.
    let is_elsewhere = message.header.state != NeighbourState::Permanent;
    if let (true, Some(bridge), Some(mac)) = (is_elsewhere, bridge, mac(message)) {
        snapshot.insert_station(bridge, message.header.ifindex, mac);
    }
}

/// The Ethernet address of one station.
fn mac(message: &NeighbourMessage) -> Option<Mac> {
    let bytes = message.attributes.iter().find_map(|attribute| match attribute {
        NeighbourAttribute::LinkLayerAddress(bytes) => Some(bytes),
        _ => None,
    })?;
    let mac: [u8; 6] = bytes[..].try_into().ok()?;
    (mac != [0; 6] && mac[0] & 1 == 0).then_some(Mac(mac))
}
