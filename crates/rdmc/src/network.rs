//! The transports of a context behind one type: a kind of fabric each. Groups whose blocks switches copy are part of the one over
//! sockets.

use std::{
    net::IpAddr,
    os::fd::OwnedFd,
    sync::Arc,
    time::{Duration, Instant},
};

use session::{Channel, Deadline};
use transport::{EndpointId, PostError, Transport, Watched};
#[cfg(feature = "fabric")]
use transport_fabric::{FabricLink, FabricSettings, FabricTransport};
use transport_shm::{Beside, BesideLink, PipeEnd, ShmLink, ShmSettings, ShmTransport};
pub(crate) use transport_tcp::{ConnectionId, SharedEvent, TcpLink};
use transport_tcp::{SharedConnections, StreamKeys, TcpSettings, TcpTransport};

pub(crate) use self::sockets::GroupEnd;
use self::sockets::Sockets;
use crate::{
    Error, Fabric, Protection,
    own_link::{Carrier, Offers, OwnLink},
};

/// The transport over sockets. It is TCP alone while there are no groups whose blocks switches copy.
#[cfg(feature = "switch")]
mod sockets {
    use std::time::Instant;

    use transport::Watched;
    use transport_switch::SwitchLink;
    pub(crate) use transport_switch::{GroupEnd, SwitchTransport as Sockets};
    use transport_tcp::{TcpLink, TcpTransport};

    pub(super) fn over(tcp: TcpTransport) -> Sockets {
        Sockets::over(tcp)
    }

    pub(super) fn tcp(sockets: &mut Sockets) -> &mut TcpTransport {
        sockets.tcp_mut()
    }

    pub(super) fn into_tcp(sockets: Sockets) -> TcpTransport {
        sockets.into_tcp()
    }

    /// Returns when a poll is due whatever TCP's descriptor reports: at once with groups whose blocks switches copy, which have others.
    pub(super) fn next_tick(sockets: &mut Sockets) -> Option<Instant> {
        if sockets.is_idle() { sockets.tcp_mut().next_tick() } else { Some(Instant::now()) }
    }

    pub(super) fn link(link: TcpLink, end: Option<GroupEnd>) -> SwitchLink {
        match end {
            Some(end) => SwitchLink::of_group(link, end),
            None => SwitchLink::plain(link),
        }
    }
}

/// The transport over sockets, where switches copy nothing.
#[cfg(not(feature = "switch"))]
mod sockets {
    use std::time::Instant;

    use transport::Watched;
    use transport_tcp::TcpLink;
    pub(super) use transport_tcp::TcpTransport as Sockets;

    /// This member's end of a group whose blocks switches copy: there are none.
    #[derive(Clone)]
    pub(crate) enum GroupEnd {}

    pub(super) fn over(tcp: Sockets) -> Sockets {
        tcp
    }

    pub(super) fn tcp(sockets: &mut Sockets) -> &mut Sockets {
        sockets
    }

    pub(super) fn into_tcp(sockets: Sockets) -> Sockets {
        sockets
    }

    /// Returns when a poll is due whatever the descriptor reports.
    pub(super) fn next_tick(sockets: &mut Sockets) -> Option<Instant> {
        sockets.next_tick()
    }

    pub(super) fn link(link: TcpLink, _: Option<GroupEnd>) -> TcpLink {
        link
    }
}

/// The transport of a context.
pub(crate) enum Network {
    Tcp(Box<Sockets>),
    /// Some members are reached through shared memory: see [`Network::beside`].
    Beside(Box<Beside<TcpTransport>>),
    #[cfg(feature = "fabric")]
    Libfabric(Box<FabricTransport>),
}

/// A link of a [`Network`].
pub(crate) enum Link {
    /// With this member's end of the group, if switches copy its blocks.
    Tcp(TcpLink, Option<GroupEnd>),
    /// A channel of a shared connection.
    Shared(ReservedLink),
    /// To a process of this machine.
    SharedMemory(ShmLink),
    #[cfg(feature = "fabric")]
    Libfabric(Box<FabricLink>),
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
            Fabric::Tcp => Ok(Self::Tcp(Box::new(sockets::over(tcp_transport(tcp)?)))),
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

    /// Joins a network over TCP that has no endpoints with shared memory, through which some of the links of a team go.
    ///
    /// Errors: the process has no file descriptors left.
    pub(crate) fn beside(self, shm: ShmTransport) -> Result<Self, Error> {
        let Self::Tcp(tcp) = self else { return Ok(self) };
        let beside = Beside::new(shm, sockets::into_tcp(*tcp));
        let beside = beside.map_err(|error| Error::Transport(error.to_string()))?;
        Ok(Self::Beside(Box::new(beside)))
    }

    /// Starts the transport for links of a team that need not go through this network; `None` if all go through it. `is_crowded`:
    /// a wait leaves the processor to other members at once.
    pub(crate) fn shared_memory(
        &self,
        tcp: &TcpSettings,
        is_crowded: bool,
    ) -> Option<ShmTransport> {
        if !matches!(self, Self::Tcp(_)) || !tcp.allows_bypass() {
            return None;
        }
        let mut settings = ShmSettings::default()
            .silence_timeout(tcp.silence_timeout)
            .drain_timeout(tcp.drain_timeout);
        if is_crowded {
            settings = settings.spin(Duration::ZERO);
        }
        let shm = ShmTransport::new(settings);
        shm.inspect_err(|error| tracing::debug!(%error, "no shared memory")).ok()
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
            Self::Tcp(transport) => Ok(sockets::tcp(transport)),
            _ => Err(PostError::System("only connections over TCP are shared".into())),
        }
    }

    /// As [`Watched::watch`]. Errors: the network is another one; the process has no file descriptors left.
    pub(crate) fn watch(&mut self) -> Result<OwnedFd, Error> {
        let tcp = self.tcp().map_err(|error| Error::Transport(error.to_string()))?;
        let what = "making a descriptor to wait for";
        tcp.watch().map_err(|error| Error::System { what: what.into(), error })
    }

    /// Returns when a poll is due at the latest, whatever the descriptor of [`Network::watch`] reports; `None` over other networks.
    pub(crate) fn next_tick(&mut self) -> Option<Instant> {
        match self {
            Self::Tcp(transport) => sockets::next_tick(transport),
            _ => None,
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
    pub(crate) fn is_wanted(&mut self, reserved: &ReservedLink) -> bool {
        let Some(link) = &reserved.link else { return false };
        self.tcp().is_ok_and(|tcp| tcp.is_wanted(link))
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

    /// As [`SharedConnections::refuse`].
    pub(crate) fn refuse(&mut self, connection: ConnectionId, why: &str) {
        if let Ok(tcp) = self.tcp() {
            tcp.refuse(connection, why);
        }
    }

    /// As [`SharedConnections::take_shared_events`].
    pub(crate) fn take_shared_events(&mut self) -> Vec<SharedEvent> {
        self.tcp().map(SharedConnections::take_shared_events).unwrap_or_default()
    }
}

impl Link {
    /// Returns whether blocks and words pass through memory that both processes have mapped.
    pub(crate) fn shares_memory(&self) -> bool {
        match self {
            Self::Tcp(link, _) => link.is_through_memory(),
            Self::Shared(reserved) => {
                reserved.link.as_ref().is_some_and(TcpLink::is_through_memory)
            }
            Self::SharedMemory(_) => true,
            #[cfg(feature = "fabric")]
            Self::Libfabric(_) => false,
        }
    }

    /// Makes a link of connections of its own, with this member's end of the group if switches copy its
    /// blocks. Errors: the neighbour's offer is invalid, or it has sent too much.
    pub(crate) fn of_own(
        own: OwnLink,
        protection: Protection,
        end: Option<GroupEnd>,
    ) -> Result<Self, String> {
        match own.carrier {
            Carrier::Tcp => Ok(Self::Tcp(tcp_link(own.channels, protection)?, end)),
            Carrier::SharedMemory(link) => Ok(Self::SharedMemory(link)),
            #[cfg(feature = "fabric")]
            Carrier::Libfabric { role, ours, theirs } => {
                let lifeline = tcp_link(own.channels, protection)?;
                FabricLink::new(lifeline, role, ours, &theirs)
                    .map(|link| Self::Libfabric(Box::new(link)))
                    .map_err(|error| error.to_string())
            }
        }
    }
}

/// Errors: a system call fails.
fn tcp_transport(settings: &TcpSettings) -> Result<TcpTransport, Error> {
    let what = "starting the transport";
    TcpTransport::new(settings.clone()).map_err(|error| Error::System { what: what.into(), error })
}

/// Makes a link of authenticated connections. Errors: a peer has sent too much, or the number of connections.
pub(crate) fn tcp_link(channels: Vec<Channel>, protection: Protection) -> Result<TcpLink, String> {
    let count = channels.len();
    let with_keys = |(index, channel): (usize, Channel)| {
        let purpose = format!("encrypted stream {index} of {count}");
        let (stream, keys) = channel.into_stream_with_keys(&purpose)?;
        Ok((stream, StreamKeys::new(*keys.sending, *keys.receiving)))
    };
    let of_peer = |error: session::Error| error.to_string();
    let link = match protection {
        Protection::None => {
            let streams: Result<_, _> = channels.into_iter().map(Channel::into_stream).collect();
            TcpLink::new(streams.map_err(of_peer)?)
        }
        Protection::Encrypt => {
            let streams: Result<_, _> = channels.into_iter().enumerate().map(with_keys).collect();
            TcpLink::protected(streams.map_err(of_peer)?)
        }
    };
    link.map_err(|error| error.to_string())
}

/// Makes a connection that groups share of authenticated ones, or of the pipe that both ends have begun in place of the only one.
/// Waits for the other end's half of a pipe.
///
/// Errors: a peer has sent too much, or the number of connections; the other end of the pipe fails.
pub(crate) fn shared_link(
    channels: Vec<Channel>,
    pipe: Option<PipeEnd>,
    protection: Protection,
    deadline: Deadline,
) -> Result<TcpLink, String> {
    let Some(pipe) = pipe else { return tcp_link(channels, protection) };
    let pipe = pipe.finish(deadline.left()).map_err(|error| error.to_string())?;
    let connection = channels.into_iter().next().ok_or("no connection")?;
    let connection = connection.into_stream().map_err(|error| error.to_string())?;
    Ok(TcpLink::through_memory(connection, pipe))
}

/// Calls a method of the current transport.
macro_rules! either {
    ($network:expr, $transport:ident => $call:expr) => {
        match $network {
            Network::Tcp($transport) => $call,
            Network::Beside($transport) => $call,
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
        close, poll, flush, waker, finish
    );

    fn open(&mut self, link: Link) -> Result<EndpointId, PostError> {
        match (self, link) {
            (network, Link::Shared(mut reserved)) => {
                let gone = || PostError::System("the channel was given back".into());
                let link = reserved.link.take().ok_or_else(gone)?;
                network.tcp()?.open(link)
            }
            (Self::Tcp(transport), Link::Tcp(link, end)) => {
                transport.open(sockets::link(link, end))
            }
            (Self::Beside(transport), Link::Tcp(link, _)) => {
                transport.open(BesideLink::Other(link))
            }
            (Self::Beside(transport), Link::SharedMemory(link)) => {
                transport.open(BesideLink::Shm(link))
            }
            #[cfg(feature = "fabric")]
            (Self::Libfabric(transport), Link::Libfabric(link)) => transport.open(*link),
            _ => Err(PostError::System("a link of another transport".into())),
        }
    }
}
