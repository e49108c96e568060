//! Interfaces that cannot carry packets.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use mcrdma::Port;
use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_route::{
    RouteNetlinkMessage,
    link::{LinkAttribute, LinkExtentMask, LinkFlags, LinkMessage},
};

use crate::{
    RoutesError,
    kernel::LINKS,
    socket::{PATIENCE, Socket},
};

/// Follows the carriers of all interfaces in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Carriers {
    requests: Socket,
    notifications: Socket,
    /// Interfaces that are up and have a carrier; `None` if they have to be read again.
    up: Option<BTreeSet<Port>>,
}

impl Carriers {
    /// Opens two netlink sockets, and subscribes to changes of links. Needs no privileges.
    ///
    /// Errors: a socket cannot be opened.
    pub fn open() -> Result<Self, RoutesError> {
        Ok(Self { requests: Socket::open(0)?, notifications: Socket::open(LINKS)?, up: None })
    }

    /// The interfaces that are up and have a carrier. Reads them only after the kernel has reported a change.
    ///
    /// Blocks for less than a millisecond for each hundred interfaces.
    ///
    /// Errors: the kernel refuses, or is too slow.
    pub fn up(&mut self) -> Result<&BTreeSet<Port>, RoutesError> {
        if self.notifications.notified(Duration::ZERO)? {
            self.up = None;
        }
        let up = match self.up.take() {
            Some(up) => up,
            None => self.read()?,
        };
        Ok(self.up.insert(up))
    }

    /// A change during the dump is notified, too, and read with the next call.
    fn read(&mut self) -> Result<BTreeSet<Port>, RoutesError> {
        let mut request = LinkMessage::default();
        request.attributes.push(LinkAttribute::ExtMask(vec![LinkExtentMask::SkipStats]));
        let (request, mut up) = (RouteNetlinkMessage::GetLink(request), BTreeSet::new());
        let mut take = |message| {
            if let RouteNetlinkMessage::NewLink(link) = message
                && link.header.flags.contains(LinkFlags::Up | LinkFlags::LowerUp)
            {
                up.insert(link.header.index);
            }
        };
        let deadline = Instant::now() + PATIENCE;
        self.requests.request("read links", NLM_F_DUMP, request, deadline, &mut take)?;
        Ok(up)
    }
}
