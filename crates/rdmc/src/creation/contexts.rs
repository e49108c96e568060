//! The other contexts: which connections to them are shared, and which are being made.

use std::{
    collections::HashMap,
    net::{IpAddr, SocketAddr},
};

use transport_tcp::ConnectionId;

/// The other contexts that this one knows.
#[derive(Default)]
pub(crate) struct Contexts {
    by_address: HashMap<SocketAddr, Known>,
    peers: HashMap<ConnectionId, Peer>,
    dials: HashMap<u64, Dial>,
    /// How many connections were begun.
    begun: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// By this dial.
    Connecting(u64),
    Shared(ConnectionId),
}

struct Peer {
    address: SocketAddr,
    /// The other end of the connection, whatever address it says that its context has.
    from: IpAddr,
    /// The next channel that this end asks for: the end that has connected asks for odd ones.
    next_channel: u32,
}

/// A connection that is being made.
pub(crate) struct Dial {
    pub(crate) address: SocketAddr,
    /// The group or team, its attempt, and the member, for which it was begun.
    pub(crate) number: u64,
    pub(crate) attempt: u64,
    pub(crate) member: u32,
}

/// How another context is reached.
pub(crate) enum Way {
    Shared(ConnectionId),
    Connecting,
    None,
}

impl Contexts {
    /// Returns the shared connection to the context at an address.
    pub(crate) fn way(&self, address: SocketAddr) -> Way {
        match self.by_address.get(&address) {
            Some(&Known::Shared(connection)) => Way::Shared(connection),
            Some(Known::Connecting(_)) => Way::Connecting,
            None => Way::None,
        }
    }

    /// Begins to connect; `shares`: others wait for the connection, too. Returns the number of the dial.
    pub(crate) fn begin(&mut self, dial: Dial, shares: bool) -> u64 {
        let number = self.begun;
        self.begun += 1;
        if shares {
            self.by_address.insert(dial.address, Known::Connecting(number));
        }
        self.dials.insert(number, dial);
        number
    }

    /// Forgets a dial that has ended. Returns it, unless it was given up.
    pub(crate) fn end(&mut self, number: u64) -> Option<Dial> {
        let dial = self.dials.remove(&number)?;
        if self.by_address.get(&dial.address) == Some(&Known::Connecting(number)) {
            self.by_address.remove(&dial.address);
        }
        Some(dial)
    }

    /// Returns the dials that were begun for this attempt.
    pub(crate) fn dials_of(&self, number: u64, attempt: u64) -> Vec<u64> {
        let is_of = |dial: &Dial| (dial.number, dial.attempt) == (number, attempt);
        let mut dials: Vec<u64> =
            self.dials.iter().filter(|(_, dial)| is_of(dial)).map(|(&it, _)| it).collect();
        dials.sort_unstable();
        dials
    }

    /// Adds a shared connection with the context at an address. The end that has connected asks for odd channels.
    /// If both connect at once there are two, and each serves the groups that were created over it.
    pub(crate) fn add(
        &mut self,
        connection: ConnectionId,
        address: SocketAddr,
        from: IpAddr,
        connected_here: bool,
    ) {
        let next_channel = if connected_here { 1 } else { 2 };
        self.peers.insert(connection, Peer { address, from, next_channel });
        let known = self.by_address.entry(address).or_insert(Known::Shared(connection));
        if matches!(known, Known::Connecting(_)) {
            *known = Known::Shared(connection);
        }
    }

    /// Returns the channel to ask for next; `None` if the connection has ended.
    pub(crate) fn next_channel(&mut self, connection: ConnectionId) -> Option<u32> {
        let peer = self.peers.get_mut(&connection)?;
        let channel = peer.next_channel;
        // Two for each link: four billion do not come together.
        peer.next_channel = channel.wrapping_add(2);
        Some(channel)
    }

    /// Returns the address of the context at the other end, and that from which it has connected, or to which this one has.
    pub(crate) fn addresses(&self, connection: ConnectionId) -> Option<(SocketAddr, IpAddr)> {
        self.peers.get(&connection).map(|peer| (peer.address, peer.from))
    }

    /// Forgets a connection that has ended.
    pub(crate) fn forget(&mut self, connection: ConnectionId) {
        if let Some(peer) = self.peers.remove(&connection)
            && self.by_address.get(&peer.address) == Some(&Known::Shared(connection))
        {
            self.by_address.remove(&peer.address);
        }
    }
}
