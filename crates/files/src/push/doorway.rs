//! Where receivers come in: control connections that call, and those that are called.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::Sender,
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use rdmc::{
    Error, Secret,
    bootstrap::{Channel, Deadline},
};

use super::Event;
use crate::messages::{ToReceiver, ToRoot};

/// How long a caller may take to prove itself and say who it is.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(10);

/// A listener for receivers that call, and its thread, until it is dropped.
pub(super) struct Doorway {
    pub(super) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
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
        events: Sender<Event>,
    ) -> Result<Self, Error> {
        let system = |error| Error::System { what: "listening for receivers".into(), error };
        let listener = bind_any(listening_addresses(local_only)).map_err(system)?;
        listener.set_nonblocking(true).map_err(system)?;
        let address = listener.local_addr().map_err(system)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let guest_book = Arc::new((secret, hosts, events));
        let accept = move || {
            while !stopped.load(Ordering::Relaxed) {
                let Ok((stream, _)) = listener.accept() else {
                    thread::sleep(PAUSE);
                    continue;
                };
                let guest_book = Arc::clone(&guest_book);
                let greet = move || {
                    let (secret, hosts, events) = &*guest_book;
                    if let Err(error) = greet(stream, secret, hosts, events) {
                        tracing::warn!(%error, "a caller was turned away");
                    }
                };
                // Without a thread the caller is hung up on, which it reports.
                let _ = thread::Builder::new().name("rdmc-greet".into()).spawn(greet);
            }
        };
        let thread =
            thread::Builder::new().name("rdmc-doorway".into()).spawn(accept).map_err(system)?;
        Ok(Self { address, stop, thread: Some(thread) })
    }
}

impl Drop for Doorway {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn bind_any(addresses: &[IpAddr]) -> io::Result<TcpListener> {
    let sockets: Vec<SocketAddr> =
        addresses.iter().map(|&address| SocketAddr::new(address, 0)).collect();
    TcpListener::bind(&sockets[..])
}

fn greet(
    stream: TcpStream,
    secret: &Secret,
    hosts: &[String],
    events: &Sender<Event>,
) -> Result<(), Error> {
    let system = |error| Error::System { what: "accepting a receiver".into(), error };
    stream.set_nonblocking(false).map_err(system)?;
    let deadline = Deadline::after(HANDSHAKE_TIMEOUT);
    let mut channel = Channel::accept(stream, secret, deadline)?;
    let name = hello(&mut channel, deadline)?;
    match hosts.iter().position(|host| *host == name) {
        Some(host) => drop(events.send(Event::Came(host, channel))),
        None => {
            let reason = format!("{name} is not one of this push's hosts");
            channel.send(&ToReceiver::Abort { reason }, deadline)?;
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
    host: usize,
    address: String,
    secret: Secret,
    timeout: Duration,
    events: Sender<Event>,
) -> io::Result<()> {
    let body = move || {
        let event = match connect(&address, &secret, Deadline::after(timeout)) {
            Ok(channel) => Event::Came(host, channel),
            // The host's own name is said anyway.
            Err(Error::Peer { address: at, cause }) if at.to_string() == address => {
                Event::HostFailed(host, cause)
            }
            Err(error) => Event::HostFailed(host, error.to_string()),
        };
        let _ = events.send(event);
    };
    thread::Builder::new().name("rdmc-call".into()).spawn(body).map(drop)
}

fn connect(address: &str, secret: &Secret, deadline: Deadline) -> Result<Channel, Error> {
    let resolved = address
        .to_socket_addrs()
        .map_err(|error| Error::System { what: format!("looking up {address}"), error })?;
    let mut outcome = Err(Error::Setting(format!("{address} has no address")));
    for address in resolved {
        outcome = Channel::connect(address, secret, deadline).and_then(|mut channel| {
            hello(&mut channel, deadline)?;
            Ok(channel)
        });
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}
