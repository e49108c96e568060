//! The kernel's forwarding state, by netlink.

use std::time::{Duration, Instant};

use netlink_packet_core::{NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP};
use netlink_packet_route::{
    AddressFamily, RouteNetlinkMessage,
    link::{LinkAttribute, LinkExtentMask, LinkMessage},
    neighbour::{NeighbourAttribute, NeighbourFlags, NeighbourMessage},
    route::RouteMessage,
};

use crate::{
    Neighbour, RoutesError, Snapshot, messages,
    socket::{PATIENCE, Socket},
};

// Notifications after which a snapshot may be outdated: `RTMGRP_*` and, for the last, the bit of
// `RTNLGRP_NEXTHOP`. Bridges' entries come with neighbours. IPv4 routes that are removed with a link or an
// address are not notified, so those are subscribed to as well.
pub(crate) const LINKS: u32 = 0x1;
const NEIGHBOURS: u32 = 0x4;
const IPV4_ADDRESSES: u32 = 0x10;
const IPV4_ROUTES: u32 = 0x40;
const IPV6_ADDRESSES: u32 = 0x100;
const IPV6_ROUTES: u32 = 0x400;
const NEXT_HOPS: u32 = 0x8000_0000;
const ALL: u32 =
    LINKS | NEIGHBOURS | IPV4_ADDRESSES | IPV4_ROUTES | IPV6_ADDRESSES | IPV6_ROUTES | NEXT_HOPS;

/// Attempts to read a consistent snapshot.
const ATTEMPTS: u32 = 8;

/// Reads the kernel's forwarding state, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Kernel {
    requests: Socket,
    notifications: Socket,
}

impl Kernel {
    /// Opens two netlink sockets, and subscribes to changes. Needs no privileges.
    ///
    /// Errors: a socket cannot be opened.
    pub fn open() -> Result<Self, RoutesError> {
        Ok(Self { requests: Socket::open(0)?, notifications: Socket::open(ALL)? })
    }

    /// Reads the current state. Its parts are read one after another: read again when
    /// [`changed`](Self::changed) returns true.
    ///
    /// Blocks: usually for milliseconds, for a million routes some seconds, at most half a minute.
    ///
    /// Errors: the kernel refuses, is too slow, or changes all the time.
    pub fn snapshot(&mut self) -> Result<Snapshot, RoutesError> {
        let (requests, deadline) = (requests(), Instant::now() + PATIENCE);
        for _ in 0..ATTEMPTS {
            let (mut snapshot, mut is_whole) = (Snapshot::default(), true);
            for (step, request) in &requests {
                let mut take = |message| messages::insert(&mut snapshot, message);
                let request = request.clone();
                is_whole &=
                    self.requests.request(step, NLM_F_DUMP, request, deadline, &mut take)?;
            }
            if is_whole {
                return Ok(snapshot);
            }
        }
        Err(RoutesError::Restless { times: ATTEMPTS })
    }

    /// Waits for changes since the last call: of links, addresses, routes, neighbours, bridges' forwarding
    /// entries. Returns whether there may be some.
    ///
    /// May be spurious: a neighbour's change of state counts, and so do lost notifications. Compare snapshots.
    ///
    /// Errors: the socket fails.
    pub fn changed(&mut self, timeout: Duration) -> Result<bool, RoutesError> {
        self.notifications.notified(timeout)
    }

    /// Has the kernel resolve a neighbour, as if it had a packet for it (ARP, neighbour discovery). A bridge
    /// learns the port from the reply. A stale entry is probed after some five seconds; a permanent one is
    /// not.
    ///
    /// Does not wait for the reply, after which [`changed`](Self::changed) returns true. Needs CAP_NET_ADMIN,
    /// and an address of the switch's own on that link.
    ///
    /// Errors: the kernel refuses, for instance because there is no such interface.
    pub fn ask(&mut self, neighbour: Neighbour) -> Result<(), RoutesError> {
        let mut message = NeighbourMessage::default();
        message.header.family = match neighbour.address.is_ipv4() {
            true => AddressFamily::Inet,
            false => AddressFamily::Inet6,
        };
        message.header.ifindex = neighbour.interface;
        message.header.flags = NeighbourFlags::Use;
        message.attributes.push(NeighbourAttribute::Destination(neighbour.address.into()));
        let request = RouteNetlinkMessage::NewNeighbour(message);
        let flags = NLM_F_ACK | NLM_F_CREATE;
        let deadline = Instant::now() + PATIENCE;
        let step = "ask for a neighbour";
        self.requests.request(step, flags, request, deadline, &mut drop).map(drop)
    }
}

/// What a snapshot is made of.
fn requests() -> [(&'static str, RouteNetlinkMessage); 6] {
    let mut links = LinkMessage::default();
    links.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
    let neighbours = |family| {
        let mut message = NeighbourMessage::default();
        message.header.family = family;
        RouteNetlinkMessage::GetNeighbour(message)
    };
    let routes = |family| {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        RouteNetlinkMessage::GetRoute(message)
    };
    [
        ("read links", RouteNetlinkMessage::GetLink(links)),
        ("read IPv4 routes", routes(AddressFamily::Inet)),
        ("read IPv6 routes", routes(AddressFamily::Inet6)),
        ("read IPv4 neighbours", neighbours(AddressFamily::Inet)),
        ("read IPv6 neighbours", neighbours(AddressFamily::Inet6)),
        ("read bridges' forwarding entries", neighbours(AddressFamily::Bridge)),
    ]
}
