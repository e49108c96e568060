//! The transports that a context can have, as one: what is chosen when it starts.

use std::{
    net::{IpAddr, TcpStream},
    time::Duration,
};

use session::{Channel, SessionKeys};
use transport::{
    Completion, EndpointId, OneSidedWrites, PostError, ReadLease, Token, Transport, TriggeredSends,
    Waker, WriteLease,
};
#[cfg(feature = "fabric")]
use transport_fabric::{FabricLink, FabricSettings, FabricTransport, Role};
#[cfg(feature = "switch")]
pub(crate) use transport_switch::GroupEnd;
#[cfg(feature = "switch")]
use transport_switch::{SwitchLink, SwitchTransport};
#[cfg(not(feature = "switch"))]
use transport_tcp::TcpTransport;
use transport_tcp::{LinkError, StreamKeys, TcpConfig, TcpLink};

use crate::{Error, Fabric, Protection};

/// What blocks over TCP move by, and its links: that of groups that switches copy is TCP, too.
#[cfg(feature = "switch")]
type Tcp = SwitchTransport;
#[cfg(not(feature = "switch"))]
type Tcp = TcpTransport;

/// This member's end of a group that switches copy; there are none.
#[cfg(not(feature = "switch"))]
#[derive(Clone)]
pub(crate) enum GroupEnd {}

/// The transport of a context.
pub(crate) enum Network {
    Tcp(Box<Tcp>),
    #[cfg(feature = "fabric")]
    Libfabric(Box<FabricTransport>),
}

/// A link of whichever transport.
pub(crate) enum Link {
    Tcp(<Tcp as Transport>::Link),
    #[cfg(feature = "fabric")]
    Libfabric(Box<FabricLink>),
}

/// Makes what this end of a new link tells the other in the handshake.
#[derive(Clone)]
pub(crate) enum Offers {
    /// Nothing: the connection itself is the link.
    Tcp,
    #[cfg(feature = "fabric")]
    Libfabric(transport_fabric::Offers),
}

/// What this end of a link tells the other.
pub(crate) enum Offer {
    Tcp,
    #[cfg(feature = "fabric")]
    Libfabric(transport_fabric::Offer),
}

/// An authenticated connection to a neighbour, with what both ends have told each other.
#[cfg_attr(not(feature = "fabric"), allow(dead_code, reason = "TCP needs no offers"))]
pub(crate) struct Wire {
    pub(crate) channel: Channel,
    pub(crate) ours: Offer,
    pub(crate) theirs: Vec<u8>,
    /// This end has connected and the other accepted.
    pub(crate) connected_here: bool,
}

/// How long an ordered close waits for a peer that lives; one that does not ends it at once.
#[cfg(feature = "fabric")]
const LIBFABRIC_DRAIN_TIMEOUT_MS: u64 = 10_000;

impl Network {
    /// Starts the transport of a fabric; of several devices, on that with the address `near`.
    ///
    /// Errors: this host does not have it, or the system refuses.
    pub(crate) fn start(fabric: &Fabric, near: IpAddr, tcp: &TcpConfig) -> Result<Self, Error> {
        match fabric {
            Fabric::Tcp => {
                let transport = Tcp::new(tcp.clone()).map_err(|error| Error::System {
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
        tcp: &TcpConfig,
    ) -> Result<Self, Error> {
        let mut settings = FabricSettings::new(provider);
        settings.devices = devices.to_vec();
        settings.near = Some(near);
        let silence_timeout = Duration::from_millis(tcp.silence_timeout_ms);
        settings.answer_timeout = settings.answer_timeout.max(silence_timeout);
        // Queue pairs may wait for seconds before they send again what was lost.
        let drain_timeout_ms = tcp.drain_timeout_ms.max(LIBFABRIC_DRAIN_TIMEOUT_MS);
        match FabricTransport::start(settings, TcpConfig { drain_timeout_ms, ..tcp.clone() }) {
            Ok(transport) => Ok(Self::Libfabric(Box::new(transport))),
            Err(error) => {
                Err(Error::Fabric { fabric: provider.to_owned(), cause: error.to_string() })
            }
        }
    }

    #[cfg(not(feature = "fabric"))]
    fn libfabric(provider: &str, _: &[String], _: IpAddr, _: &TcpConfig) -> Result<Self, Error> {
        let cause = "this rdmc was built without libfabric; build it with the feature `fabric`, \
                     or use the fabric tcp"
            .to_owned();
        Err(Error::Fabric { fabric: provider.to_owned(), cause })
    }

    pub(crate) fn offers(&self) -> Offers {
        match self {
            Self::Tcp(_) => Offers::Tcp,
            #[cfg(feature = "fabric")]
            Self::Libfabric(transport) => Offers::Libfabric(transport.offers()),
        }
    }
}

impl Offers {
    /// For one new link. Errors: the system has no random numbers.
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
    /// What the other end gets to see.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Tcp => Vec::new(),
            #[cfg(feature = "fabric")]
            Self::Libfabric(offer) => offer.bytes().to_vec(),
        }
    }
}

impl Link {
    /// Of the connections to one neighbour; with this member's end of the group, if switches copy
    /// its blocks. Errors: what the neighbour has told makes no sense.
    pub(crate) fn new(
        mut wires: Vec<Wire>,
        protection: Protection,
        end: Option<GroupEnd>,
    ) -> Result<Self, String> {
        match wires.first().map(|wire| &wire.ours) {
            #[cfg(feature = "fabric")]
            Some(Offer::Libfabric(_)) => {
                let Wire { channel, ours, theirs, connected_here } = wires.swap_remove(0);
                let (stream, keys) = channel.into_stream().map_err(|error| error.to_string())?;
                let Offer::Libfabric(ours) = ours else { return Err("mixed offers".into()) };
                let role = if connected_here { Role::Connect } else { Role::Accept };
                let lifeline = protected(vec![(stream, keys)], protection)
                    .map_err(|error| error.to_string())?;
                FabricLink::new(lifeline, role, ours, &theirs)
                    .map(|link| Self::Libfabric(Box::new(link)))
                    .map_err(|error| error.to_string())
            }
            _ => {
                let streams: Result<_, session::Error> =
                    wires.drain(..).map(|wire| wire.channel.into_stream()).collect();
                let lifeline = protected(streams.map_err(|error| error.to_string())?, protection)
                    .map_err(|error| error.to_string())?;
                Ok(Self::Tcp(tcp_link(lifeline, end)))
            }
        }
    }
}

#[cfg(feature = "switch")]
fn tcp_link(lifeline: TcpLink, end: Option<GroupEnd>) -> SwitchLink {
    match end {
        Some(end) => SwitchLink::of_group(lifeline, end),
        None => SwitchLink::plain(lifeline),
    }
}

#[cfg(not(feature = "switch"))]
fn tcp_link(link: TcpLink, end: Option<GroupEnd>) -> TcpLink {
    match end {
        Some(end) => match end {},
        None => link,
    }
}

/// A link whose streams are protected as the members have agreed.
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

/// Calls the same method of whichever transport it is.
macro_rules! either {
    ($network:expr, $transport:ident => $call:expr) => {
        match $network {
            Network::Tcp($transport) => $call,
            #[cfg(feature = "fabric")]
            Network::Libfabric($transport) => $call,
        }
    };
}

impl Transport for Network {
    type Link = Link;

    fn now(&self) -> Duration {
        either!(self, transport => transport.now())
    }

    fn block_bytes_max(&self) -> u64 {
        either!(self, transport => transport.block_bytes_max())
    }

    fn open(&mut self, link: Link) -> Result<EndpointId, PostError> {
        match (self, link) {
            (Self::Tcp(transport), Link::Tcp(link)) => transport.open(link),
            #[cfg(feature = "fabric")]
            (Self::Libfabric(transport), Link::Libfabric(link)) => transport.open(*link),
            #[cfg(feature = "fabric")]
            _ => Err(PostError::System("a link of another transport".into())),
        }
    }

    fn post_receive(
        &mut self,
        endpoint: EndpointId,
        into: WriteLease,
        token: Token,
    ) -> Result<(), PostError> {
        either!(self, transport => transport.post_receive(endpoint, into, token))
    }

    fn post_send(
        &mut self,
        endpoint: EndpointId,
        from: ReadLease,
        immediate: u32,
        token: Token,
    ) -> Result<(), PostError> {
        either!(self, transport => transport.post_send(endpoint, from, immediate, token))
    }

    fn write_control(&mut self, endpoint: EndpointId, word: &[u8]) -> Result<(), PostError> {
        either!(self, transport => transport.write_control(endpoint, word))
    }

    fn one_sided(&mut self) -> Option<&mut dyn OneSidedWrites> {
        either!(self, transport => transport.one_sided())
    }

    fn triggered(&mut self) -> Option<&mut dyn TriggeredSends> {
        either!(self, transport => transport.triggered())
    }

    fn close(&mut self, endpoint: EndpointId) {
        either!(self, transport => transport.close(endpoint));
    }

    fn poll(&mut self, completions: &mut Vec<Completion>, wait: Duration) {
        either!(self, transport => transport.poll(completions, wait));
    }

    fn waker(&self) -> Waker {
        either!(self, transport => transport.waker())
    }

    fn finish(&mut self) {
        either!(self, transport => transport.finish());
    }
}
