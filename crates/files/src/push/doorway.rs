//! Where receivers come in: control connections that call, and those that are called.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener},
    thread,
    time::Duration,
};

use rdmc::{
    Error, Secret,
    bootstrap::{Channel, Credentials, Deadline, Listener, SessionError},
};

use super::inbox::{Event, Events};
use crate::{
    connect::connect,
    messages::{ToReceiver, ToRoot},
    system::system,
};

/// How long a caller may take to say who it is.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// A listener for receivers that call, until it is dropped.
pub(super) struct Doorway {
    pub(super) address: SocketAddr,
    _door: Listener,
}

/// All addresses of this machine, IPv4 and IPv6 alike, or only loopback.
pub(super) fn listening_addresses(local_only: bool) -> &'static [IpAddr] {
    const LOCAL: [IpAddr; 1] = [IpAddr::V4(Ipv4Addr::LOCALHOST)];
    // On Linux an IPv6 socket takes IPv4 connections as well; without IPv6 there is the other.
    const ALL: [IpAddr; 2] = [IpAddr::V6(Ipv6Addr::UNSPECIFIED), IpAddr::V4(Ipv4Addr::UNSPECIFIED)];
    if local_only { &LOCAL } else { &ALL }
}

impl Doorway {
    /// Listens, and reports each authenticated caller that is one of `hosts`.
    ///
    /// Errors: the system refuses all addresses.
    pub(super) fn open(
        local_only: bool,
        secret: Secret,
        hosts: Vec<String>,
        events: Events,
    ) -> Result<Self, Error> {
        let listener = bind_any(listening_addresses(local_only))
            .map_err(|error| system("listening for receivers", error))?;
        let greet = move |channel| greet(channel, &hosts, &events);
        Self::attend(listener, secret.into(), greet)
    }

    /// Listens at this address, and reports each authenticated caller by the name that it says.
    ///
    /// Errors: the system refuses that address.
    pub(super) fn open_to_all(
        address: SocketAddr,
        credentials: Credentials,
        events: Events,
    ) -> Result<Self, Error> {
        let what = format!("listening on {address} for receivers that join");
        let listener = TcpListener::bind(address).map_err(|error| system(&what, error))?;
        let greet = move |mut channel: Channel| {
            let name = hello(&mut channel, Deadline::after(HELLO_TIMEOUT))?;
            let _ = events.send(Event::Asks(name, channel).into());
            Ok(())
        };
        Self::attend(listener, credentials, greet)
    }

    fn attend(
        listener: TcpListener,
        credentials: Credentials,
        greet: impl Fn(Channel) -> Result<(), Error> + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        let failed = |error| system("listening for receivers", error);
        let address = listener.local_addr().map_err(failed)?;
        let admit = move |channel: Result<Channel, SessionError>| {
            if let Err(error) = channel.map_err(Error::from).and_then(&greet) {
                tracing::warn!(%error, "a caller was turned away");
            }
        };
        let door = Listener::open(listener, credentials, admit).map_err(failed)?;
        Ok(Self { address, _door: door })
    }
}

fn bind_any(addresses: &[IpAddr]) -> io::Result<TcpListener> {
    let sockets: Vec<SocketAddr> =
        addresses.iter().map(|&address| SocketAddr::new(address, 0)).collect();
    TcpListener::bind(&sockets[..])
}

fn greet(mut channel: Channel, hosts: &[String], events: &Events) -> Result<(), Error> {
    let deadline = Deadline::after(HELLO_TIMEOUT);
    let name = hello(&mut channel, deadline)?;
    match hosts.iter().position(|host| *host == name) {
        Some(host) => drop(events.send(Event::Came(host, channel).into())),
        None => {
            let reason = format!("{name} is not one of this push's hosts");
            channel.send(&ToReceiver::Abort { reason, keep: true }, deadline)?;
        }
    }
    Ok(())
}

fn hello(channel: &mut Channel, deadline: Deadline) -> Result<String, Error> {
    match channel.receive(deadline)? {
        ToRoot::Hello { host } => Ok(host),
        _ => Err(Error::Peer { address: channel.peer(), cause: "did not say who it is".into() }),
    }
}

/// Calls a receiver that listens, on a thread that ends by the deadline, and reports the outcome.
pub(super) fn call(
    (host, start): (usize, u32),
    address: String,
    credentials: Credentials,
    timeout: Duration,
    events: Events,
) -> io::Result<()> {
    let body = move || {
        let deadline = Deadline::after(timeout);
        let called = connect(&address, &credentials, deadline)
            .and_then(|mut channel| hello(&mut channel, deadline).map(|_| channel));
        let event = match called {
            Ok(channel) => Event::Came(host, channel),
            // The host's own name is said anyway.
            Err(Error::Peer { address: at, cause }) if at.to_string() == address => {
                Event::HostFailed { host, start, reason: cause }
            }
            Err(error) => Event::HostFailed { host, start, reason: error.to_string() },
        };
        let _ = events.send(event.into());
    };
    thread::Builder::new().name("rdmc-call".into()).spawn(body).map(drop)
}
