//! The transports of a context behind one type. Blocks over TCP pass through [`TcpTransport`]
//! alone, except while the context has groups whose blocks switches copy.

use std::{
    net::{IpAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use session::{Channel, SessionKeys};
use transport::{Completion, EndpointId, PostError, Transport};
#[cfg(feature = "fabric")]
use transport_fabric::{FabricLink, FabricSettings, FabricTransport, Role};
#[cfg(feature = "switch")]
pub(crate) use transport_switch::GroupEnd;
#[cfg(feature = "switch")]
use transport_switch::{SwitchLink, SwitchTransport};
pub(crate) use transport_tcp::{ConnectionId, SharedEvent, TcpLink};
use transport_tcp::{LinkError, SharedConnections, StreamKeys, TcpSettings, TcpTransport};

use crate::{Error, Fabric, Protection};

/// This member's end of a group whose blocks switches copy. Without the feature there are none.
#[cfg(not(feature = "switch"))]
#[derive(Clone)]
pub(crate) enum GroupEnd {}

/// The transport of a context.
pub(crate) enum Network {
    Tcp(Box<TcpTransport>),
    /// From the first link of a group whose blocks switches copy until its last such group has
    /// ended.
    #[cfg(feature = "switch")]
    Switch(Box<SwitchTransport>),
    /// Only while one of the two above is converted to the other.
    #[cfg(feature = "switch")]
    Changing,
    #[cfg(feature = "fabric")]
    Libfabric(Box<FabricTransport>),
}

/// A link of a [`Network`].
pub(crate) enum Link {
    /// With this member's end of the group, if switches copy its blocks.
    Tcp(TcpLink, Option<GroupEnd>),
    /// A channel of a shared connection.
    Shared(ReservedLink),
    #[cfg(feature = "fabric")]
    Libfabric(Box<FabricLink>),
}

/// Makes this end's offer for a new link.
#[derive(Clone)]
pub(crate) enum Offers {
    /// Empty offers: the connection itself is the link.
    Tcp,
    #[cfg(feature = "fabric")]
    Libfabric(transport_fabric::Offers),
}

/// What this end of a link sends to the other in the handshake.
pub(crate) enum Offer {
    Tcp,
    #[cfg(feature = "fabric")]
    Libfabric(transport_fabric::Offer),
}

/// A link that has connections of its own, authenticated, with the offers of both ends.
#[cfg_attr(not(feature = "fabric"), allow(dead_code, reason = "TCP needs no offers"))]
pub(crate) struct OwnLink {
    /// One for each stream.
    pub(crate) channels: Vec<Channel>,
    pub(crate) ours: Offer,
    pub(crate) theirs: Vec<u8>,
    /// Whether this end has connected and the other accepted.
    pub(crate) connected_here: bool,
}

/// Gives a reserved channel back to the transport, from any thread.
pub(crate) type Release = Arc<dyn Fn(TcpLink) + Send + Sync>;

/// A reserved channel of a shared connection, given back if it is dropped.
pub(crate) struct ReservedLink {
    link: Option<TcpLink>,
    release: Release,
}

impl ReservedLink {
    pub(crate) fn new(link: TcpLink, release: Release) -> Self {
        Self { link: Some(link), release }
    }
}

impl Drop for ReservedLink {
    fn drop(&mut self) {
        if let Some(link) = self.link.take() {
            (self.release)(link);
        }
    }
}

/// How long an ordered close waits for a live peer. The loss of a peer ends the wait.
#[cfg(feature = "fabric")]
const LIBFABRIC_DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

impl Network {
    /// Starts the transport of a fabric; if it has several devices, on the one with the address
    /// `near`.
    ///
    /// Errors: this host does not have the fabric, or a system call fails.
    pub(crate) fn start(fabric: &Fabric, near: IpAddr, tcp: &TcpSettings) -> Result<Self, Error> {
        match fabric {
            Fabric::Tcp => {
                let transport = TcpTransport::new(tcp.clone()).map_err(|error| Error::System {
                    what: "starting the transport".into(),
                    error,
                })?;
                Ok(Self::Tcp(Box::new(transport)))
            }
            Fabric::Libfabric { provider, devices } => {
                Self::libfabric(provider, devices, near, tcp)
            }
        }
    }

    #[cfg(feature = "fabric")]
    fn libfabric(
        provider: &str,
        devices: &[String],
        near: IpAddr,
        tcp: &TcpSettings,
    ) -> Result<Self, Error> {
        let mut settings = FabricSettings::new(provider);
        settings.devices = devices.to_vec();
        settings.near = Some(near);
        settings.answer_timeout = settings.answer_timeout.max(tcp.silence_timeout);
        // Queue pairs may wait for seconds before they retransmit.
        let drain_timeout = tcp.drain_timeout.max(LIBFABRIC_DRAIN_TIMEOUT);
        match FabricTransport::start(settings, tcp.clone().drain_timeout(drain_timeout)) {
            Ok(transport) => Ok(Self::Libfabric(Box::new(transport))),
            Err(error) => {
                Err(Error::Fabric { fabric: provider.to_owned(), cause: error.to_string() })
            }
        }
    }

    #[cfg(not(feature = "fabric"))]
    fn libfabric(provider: &str, _: &[String], _: IpAddr, _: &TcpSettings) -> Result<Self, Error> {
        let cause = "this rdmc was built without libfabric; build it with the feature `fabric`, \
                     or use the fabric tcp"
            .to_owned();
        Err(Error::Fabric { fabric: provider.to_owned(), cause })
    }

    pub(crate) fn offers(&self) -> Offers {
        match self {
            #[cfg(feature = "fabric")]
            Self::Libfabric(transport) => Offers::Libfabric(transport.offers()),
            _ => Offers::Tcp,
        }
    }

    /// Returns the transport over TCP. Errors: the network is another one, whose connections are not shared.
    fn tcp(&mut self) -> Result<&mut TcpTransport, PostError> {
        match self {
            Self::Tcp(transport) => Ok(transport),
            #[cfg(feature = "switch")]
            Self::Switch(transport) => Ok(transport.tcp_mut()),
            #[cfg(any(feature = "fabric", feature = "switch"))]
            _ => Err(PostError::System("only connections over TCP are shared".into())),
        }
    }

    /// As [`SharedConnections::share`].
    pub(crate) fn share(&mut self, link: TcpLink) -> Result<ConnectionId, PostError> {
        self.tcp()?.share(link)
    }

    /// As [`SharedConnections::reserve`].
    pub(crate) fn reserve(
        &mut self,
        connection: ConnectionId,
        channel: u32,
    ) -> Result<TcpLink, PostError> {
        self.tcp()?.reserve(connection, channel)
    }

    /// As [`SharedConnections::is_wanted`].
    pub(crate) fn is_wanted(&self, reserved: &ReservedLink) -> bool {
        let Some(link) = &reserved.link else { return false };
        match self {
            Self::Tcp(transport) => transport.is_wanted(link),
            #[cfg(feature = "switch")]
            Self::Switch(transport) => transport.tcp().is_wanted(link),
            #[cfg(any(feature = "fabric", feature = "switch"))]
            _ => false,
        }
    }

    /// As [`SharedConnections::release`].
    pub(crate) fn release(&mut self, link: TcpLink) {
        if let Ok(tcp) = self.tcp() {
            tcp.release(link);
        }
    }

    /// As [`SharedConnections::write_message`].
    pub(crate) fn write_message(
        &mut self,
        connection: ConnectionId,
        message: &[u8],
    ) -> Result<(), PostError> {
        self.tcp()?.write_message(connection, message)
    }

    /// As [`SharedConnections::take_shared_events`].
    pub(crate) fn take_shared_events(&mut self) -> Vec<SharedEvent> {
        self.tcp().map(SharedConnections::take_shared_events).unwrap_or_default()
    }

    /// Adds support for groups whose blocks switches copy. Endpoints, posts and wakers of TCP stay
    /// valid.
    #[cfg(feature = "switch")]
    fn add_switches(&mut self) {
        *self = match std::mem::replace(self, Self::Changing) {
            Self::Tcp(tcp) => Self::Switch(Box::new(SwitchTransport::over(*tcp))),
            other => other,
        };
    }

    /// Reverts [`Network::add_switches`] once the last of those groups has ended.
    #[cfg(feature = "switch")]
    fn remove_idle_switches(&mut self) {
        if matches!(self, Self::Switch(transport) if transport.is_idle()) {
            *self = match std::mem::replace(self, Self::Changing) {
                Self::Switch(transport) => Self::Tcp(Box::new(transport.into_tcp())),
                other => other,
            };
        }
    }
}

impl Offers {
    /// Makes the offer for one new link. Errors: the system has no random numbers.
    pub(crate) fn make(&self) -> Result<Offer, Error> {
        match self {
            Self::Tcp => Ok(Offer::Tcp),
            #[cfg(feature = "fabric")]
            Self::Libfabric(offers) => match offers.make() {
                Ok(offer) => Ok(Offer::Libfabric(offer)),
                Err(error) => {
                    Err(Error::Fabric { fabric: "libfabric".into(), cause: error.to_string() })
                }
            },
        }
    }
}

impl Offer {
    /// Returns the offer as it is sent to the other end.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Tcp => Vec::new(),
            #[cfg(feature = "fabric")]
            Self::Libfabric(offer) => offer.bytes().to_vec(),
        }
    }
}

impl Link {
    /// Makes a link of connections of its own, with this member's end of the group if switches copy its
    /// blocks. Errors: the neighbour's offer is invalid, or it has sent too much.
    pub(crate) fn of_own(
        own: OwnLink,
        protection: Protection,
        end: Option<GroupEnd>,
    ) -> Result<Self, String> {
        match own.ours {
            Offer::Tcp => Ok(Self::Tcp(tcp_link(own.channels, protection)?, end)),
            #[cfg(feature = "fabric")]
            Offer::Libfabric(ours) => {
                let role = if own.connected_here { Role::Connect } else { Role::Accept };
                let lifeline = tcp_link(own.channels, protection)?;
                FabricLink::new(lifeline, role, ours, &own.theirs)
                    .map(|link| Self::Libfabric(Box::new(link)))
                    .map_err(|error| error.to_string())
            }
        }
    }
}

/// Makes a link of authenticated connections. Errors: a peer has sent too much, or the number of connections.
pub(crate) fn tcp_link(channels: Vec<Channel>, protection: Protection) -> Result<TcpLink, String> {
    let streams: Result<_, session::Error> =
        channels.into_iter().map(Channel::into_stream).collect();
    protected(streams.map_err(|error| error.to_string())?, protection)
        .map_err(|error| error.to_string())
}

/// Makes a link whose streams have the protection on which the members have agreed.
fn protected(
    streams: Vec<(TcpStream, SessionKeys)>,
    protection: Protection,
) -> Result<TcpLink, LinkError> {
    let keys = |keys: SessionKeys| {
        StreamKeys::new(*keys.sending, *keys.receiving, protection == Protection::Encrypt)
    };
    match protection {
        Protection::None => TcpLink::new(streams.into_iter().map(|(stream, _)| stream).collect()),
        _ => TcpLink::protected(streams.into_iter().map(|(s, k)| (s, keys(k))).collect()),
    }
}

/// Calls a method of the current transport.
macro_rules! either {
    ($network:expr, $transport:ident => $call:expr) => {
        match $network {
            Network::Tcp($transport) => $call,
            #[cfg(feature = "switch")]
            Network::Switch($transport) => $call,
            #[cfg(feature = "switch")]
            Network::Changing => unreachable!("no call is made during the conversion"),
            #[cfg(feature = "fabric")]
            Network::Libfabric($transport) => $call,
        }
    };
}

impl Transport for Network {
    type Link = Link;

    transport::forward!(
        either!;
        now, block_bytes_max, register, post_receive, post_send, write_control, one_sided, cut_through, triggered,
        close, flush, waker, finish
    );

    fn open(&mut self, link: Link) -> Result<EndpointId, PostError> {
        #[cfg(feature = "switch")]
        if let (Self::Tcp(_), Link::Tcp(_, Some(_))) = (&*self, &link) {
            self.add_switches();
        }
        match (self, link) {
            (network, Link::Shared(mut reserved)) => {
                let gone = || PostError::System("the channel was given back".into());
                let link = reserved.link.take().ok_or_else(gone)?;
                network.tcp()?.open(link)
            }
            (Self::Tcp(transport), Link::Tcp(link, None)) => transport.open(link),
            #[cfg(feature = "switch")]
            (Self::Switch(transport), Link::Tcp(link, end)) => transport.open(match end {
                Some(end) => SwitchLink::of_group(link, end),
                None => SwitchLink::plain(link),
            }),
            #[cfg(feature = "fabric")]
            (Self::Libfabric(transport), Link::Libfabric(link)) => transport.open(*link),
            #[cfg(any(feature = "fabric", feature = "switch"))]
            _ => Err(PostError::System("a link of another transport".into())),
        }
    }

    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        either!(self, transport => transport.poll(completions, wait));
        #[cfg(feature = "switch")]
        self.remove_idle_switches();
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use transport::{Region, Token};

    use super::*;

    fn start() -> Network {
        Network::start(&Fabric::Tcp, IpAddr::from([127, 0, 0, 1]), &TcpSettings::default()).unwrap()
    }

    fn links() -> [TcpLink; 2] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        [one, listener.accept().unwrap().0].map(TcpLink::from)
    }

    /// Two members with a TCP link between them.
    fn pair() -> [(Network, EndpointId); 2] {
        links().map(|link| {
            let mut network = start();
            let endpoint = network.open(Link::Tcp(link, None)).unwrap();
            (network, endpoint)
        })
    }

    /// Polls both until one of them reports this completion.
    fn wait_for(
        [one, other]: &mut [(Network, EndpointId); 2],
        is_expected: impl Fn(&Completion) -> bool,
    ) {
        let (mut completions, begin) = (Vec::new(), one.0.now());
        while !completions.iter().any(&is_expected) {
            assert!(one.0.now() < begin + Duration::from_secs(30), "{completions:?}");
            one.0.poll(&mut completions, Duration::ZERO);
            other.0.poll(&mut completions, Duration::from_millis(1));
        }
    }

    fn send(members: &mut [(Network, EndpointId); 2], from: &Region, token: u64) {
        let (network, endpoint) = &mut members[0];
        let from = from.read(0..from.len()).unwrap();
        network.post_send(*endpoint, from, 0, Token(token)).unwrap();
    }

    fn receive(members: &mut [(Network, EndpointId); 2], into: &Region, token: u64) {
        let (network, endpoint) = &mut members[1];
        let into = into.write(0..into.len()).unwrap();
        network.post_receive(*endpoint, into, Token(token)).unwrap();
    }

    fn received(of: u64) -> impl Fn(&Completion) -> bool {
        move |completion| matches!(completion, Completion::Received { token, .. } if token.0 == of)
    }

    #[test]
    fn blocks_over_tcp_pass_the_tcp_transport_alone() {
        let mut members = pair();
        let (from, into) = (Region::from_vec(vec![7; 300_000]), Region::zeroed(300_000));
        receive(&mut members, &into, 1);
        send(&mut members, &from, 2);
        wait_for(&mut members, received(1));
        for (network, _) in &members {
            assert!(matches!(network, Network::Tcp(_)));
        }
    }

    /// A receiver's end, in a network namespace with one interface; `None` without root.
    #[cfg(feature = "switch")]
    fn group_end() -> Option<GroupEnd> {
        use transport_switch::{Member, Unconnected};

        if let Err(error) = lab::enter_own_network() {
            println!("SKIPPED: needs root: {error}");
            return None;
        }
        lab::ip("link add h0 type veth peer name h1").unwrap();
        lab::ip("addr add 10.9.0.1/24 dev h0").unwrap();
        lab::ip("link set lo up").unwrap();
        lab::quiet("h0", 1500).unwrap();
        lab::quiet("h1", 1500).unwrap();
        let root = IpAddr::from([10, 9, 0, 2]);
        let open = Unconnected::open(IpAddr::from([10, 9, 0, 1]), &[root]).unwrap();
        let member = Member { root, qpn: 17, psn_first: 5, mtu_bytes: 1024 };
        Some(GroupEnd::receiver(open.connect_member(&member).unwrap()))
    }

    #[cfg(feature = "switch")]
    #[test]
    fn a_block_goes_on_while_switches_are_added_and_removed() {
        let Some(end) = group_end() else { return };
        let mut members = pair();
        let bytes = 8 << 20;
        let (from, into) = (Region::from_vec(vec![7; bytes]), Region::zeroed(bytes));
        let waker = members[1].0.waker();
        receive(&mut members, &into, 1);
        send(&mut members, &from, 2);
        // The socket buffer is filled; the rest of the block waits for the receiver.
        members[0].0.poll(&mut Vec::new(), Duration::ZERO);
        members[1].0.poll(&mut Vec::new(), Duration::ZERO);
        let [lifeline, _peer] = links();
        let of_group = members[1].0.open(Link::Tcp(lifeline, Some(end))).unwrap();
        assert!(matches!(members[1].0, Network::Switch(_)));
        waker();
        members[1].0.poll(&mut Vec::new(), Duration::from_secs(30));
        wait_for(&mut members, received(1));
        assert!(into.read(0..bytes).unwrap().iter().all(|&byte| byte == 7));

        receive(&mut members, &into, 3);
        send(&mut members, &from, 4);
        members[0].0.poll(&mut Vec::new(), Duration::ZERO);
        members[1].0.close(of_group);
        members[1].0.poll(&mut Vec::new(), Duration::ZERO);
        assert!(matches!(members[1].0, Network::Tcp(_)));
        wait_for(&mut members, received(3));
    }
}
