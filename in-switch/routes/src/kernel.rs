//! The kernel's state, by netlink.

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

// Notifications that say that a snapshot may have become old: `RTMGRP_*` and, for the last, the bit
// of `RTNLGRP_NEXTHOP`. Bridges' entries come with neighbours. Links and addresses that go take
// IPv4 routes with them of which nothing is said.
const LINKS: u32 = 0x1;
const NEIGHBOURS: u32 = 0x4;
const IPV4_ADDRESSES: u32 = 0x10;
const IPV4_ROUTES: u32 = 0x40;
const IPV6_ADDRESSES: u32 = 0x100;
const IPV6_ROUTES: u32 = 0x400;
const NEXT_HOPS: u32 = 0x8000_0000;
const ALL: u32 =
    LINKS | NEIGHBOURS | IPV4_ADDRESSES | IPV4_ROUTES | IPV6_ADDRESSES | IPV6_ROUTES | NEXT_HOPS;

/// How often all is read while parts change meanwhile.
const ATTEMPTS: u32 = 8;

/// Reads what the kernel forwards by, in the network namespace of the thread that opened it. Any
/// one thread may use it at a time.
#[derive(Debug)]
pub struct Kernel {
    requests: Socket,
    notifications: Socket,
}

impl Kernel {
    /// Opens two sockets. From now on changes are noticed. Needs no privileges.
    ///
    /// Errors: the system lets us have no netlink sockets.
    pub fn open() -> Result<Self, RoutesError> {
        Ok(Self { requests: Socket::open(0)?, notifications: Socket::open(ALL)? })
    }

    /// What the kernel forwards by now. Its parts are read one after another: who needs to be sure
    /// reads again when [`changed`](Self::changed) says so.
    ///
    /// Blocks while it reads: milliseconds as a rule, some seconds for a million routes, half a
    /// minute at most.
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

    /// Waits until something may have changed since this was last asked: links, addresses, routes,
    /// neighbours, bridges' forwarding entries. Answers whether that is so.
    ///
    /// It may come to nothing: neighbours whose state changes count, and so do changes that came
    /// too fast for the kernel to keep them. Equal snapshots tell.
    ///
    /// Errors: the socket fails.
    pub fn changed(&mut self, patience: Duration) -> Result<bool, RoutesError> {
        self.notifications.notified(patience)
    }

    /// Makes the kernel find out a neighbour's Ethernet address, as if it had a packet for it (ARP,
    /// neighbour discovery). A bridge learns the port from the answer. One that was known some time
    /// ago is asked when the kernel has not heard of it for some five seconds more; one that
    /// somebody entered by hand is not asked at all.
    ///
    /// Does not wait for the answer: [`changed`](Self::changed) tells of it. Needs CAP_NET_ADMIN,
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
