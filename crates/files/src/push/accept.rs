//! Listeners for receivers that connect to the root.

use std::{
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    time::Duration,
};

use rdmc::{Error, Secret};
use session::{Channel, Credentials, Deadline, Listener};

use super::{
    host_tokens::HostTokens,
    inbox::{Event, Events},
};
use crate::{
    messages::{Introduction, ToReceiver, ToRoot},
    ports::{PortRange, start_at},
    system::system,
};

/// The longest name of a host.
const NAME_BYTES_MAX: usize = 1000;
/// How long a receiver may take to send its name.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Accepts receivers' control connections until it is dropped.
pub(super) struct Acceptor {
    pub(super) address: SocketAddr,
    _listener: Listener,
}

impl Acceptor {
    /// Accepts authenticated receivers whose name is one of `hosts`, with its token; listens at one of these ports.
    ///
    /// Errors: the system refuses all addresses.
    pub(super) fn for_hosts(
        local_only: bool,
        ports: Option<PortRange>,
        secret: Secret,
        hosts: Vec<String>,
        tokens: Option<HostTokens>,
        events: Events,
    ) -> Result<Self, Error> {
        // On Linux an IPv6 socket accepts IPv4 connections as well; IPv4 alone where there is no IPv6.
        let all = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
        let local = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
        let addresses = if local_only { &local[..] } else { &all };
        let listen = |port| {
            let at: Vec<_> = addresses.iter().map(|&ip| SocketAddr::new(ip, port)).collect();
            TcpListener::bind(&at[..]).map_err(|error| system("listening for receivers", error))
        };
        let listener = start_at(ports, listen)?;
        Self::start(listener, secret.into(), move |channel| {
            accept_host(channel, &hosts, tokens.as_ref(), &events)
        })
    }

    /// Accepts all authenticated receivers at this address, as requests to join.
    ///
    /// Errors: the system refuses that address.
    pub(super) fn for_joining(
        address: SocketAddr,
        credentials: Credentials,
        events: Events,
    ) -> Result<Self, Error> {
        let what = format!("listening on {address} for receivers that join");
        let listener = TcpListener::bind(address).map_err(|error| system(&what, error))?;
        Self::start(listener, credentials, move |mut channel| {
            let deadline = Deadline::after(HELLO_TIMEOUT);
            let name = receive_hello(&mut channel, deadline)?.host;
            check_certificate(&mut channel, &name, deadline)?;
            let requested = Event::JoinRequested { name, shares: false, connection: channel };
            let _ = events.send(requested.into());
            Ok(())
        })
    }

    fn start(
        listener: TcpListener,
        credentials: Credentials,
        accept: impl Fn(Channel) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let failed = |error| system("listening for receivers", error);
        let address = listener.local_addr().map_err(failed)?;
        let on_channel = move |channel: Result<Channel, session::Error>| {
            if let Err(error) = channel.map_err(Error::from).and_then(&accept) {
                tracing::warn!(%error, "rejected a connection");
            }
        };
        let listener = Listener::open(listener, credentials, on_channel).map_err(failed)?;
        Ok(Self { address, _listener: listener })
    }
}

/// A receiver with a certificate has one of its names. Errors: it has none, and was notified of that.
pub(super) fn check_certificate(
    channel: &mut Channel,
    name: &str,
    deadline: Deadline,
) -> Result<(), Error> {
    let names = channel.peer_names();
    if names.is_empty() || names.iter().any(|own| own.eq_ignore_ascii_case(name)) {
        return Ok(());
    }
    let cause = format!("its certificate is for {}, not for {name}: use --name", names.join(", "));
    Err(refused(channel, cause, deadline))
}

/// Tells a receiver why it is refused, if it still reads, and returns that as an error.
pub(super) fn refused(channel: &mut Channel, cause: String, deadline: Deadline) -> Error {
    let _ = channel.send(&ToReceiver::Abort { reason: cause.clone(), keep: true }, deadline);
    Error::Peer { address: channel.peer(), cause }
}

fn accept_host(
    mut channel: Channel,
    hosts: &[String],
    tokens: Option<&HostTokens>,
    events: &Events,
) -> Result<(), Error> {
    let deadline = Deadline::after(HELLO_TIMEOUT);
    let Introduction { host: name, token, .. } = receive_hello(&mut channel, deadline)?;
    let Some(host) = hosts.iter().position(|host| *host == name) else {
        let reason = format!("{name} is not one of this push's hosts");
        return Ok(channel.send(&ToReceiver::Abort { reason, keep: true }, deadline)?);
    };
    if tokens.is_some_and(|tokens| token != Some(tokens.of(&name))) {
        let cause =
            format!("it claims to be {name}, but lacks the token of the receiver started there");
        return Err(refused(&mut channel, cause, deadline));
    }
    let _ = events.send(Event::Connected(host, channel).into());
    Ok(())
}

/// What a receiver sends first.
pub(super) fn receive_hello(
    channel: &mut Channel,
    deadline: Deadline,
) -> Result<Introduction, Error> {
    let cause = match channel.receive(deadline)? {
        ToRoot::Hello(own) if own.host.len() <= NAME_BYTES_MAX => return Ok(own),
        ToRoot::Hello(_) => format!("has a name of more than {NAME_BYTES_MAX} bytes"),
        _ => "did not send its name first".into(),
    };
    Err(Error::Peer { address: channel.peer(), cause })
}
