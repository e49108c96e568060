//! Control connections to a listening peer.

use std::{
    io::{self, ErrorKind},
    net::{SocketAddr, ToSocketAddrs},
    sync::mpsc,
    thread,
};

use rdmc::Error;
use session::{Channel, Credentials, Deadline};

use crate::system::system;

/// Connects to `host:port`, to the first of its addresses that works.
///
/// Blocks until then, or the deadline. Errors: the lookup fails; none of its addresses can be reached or
/// authenticates.
pub(crate) fn connect(
    address: &str,
    credentials: &Credentials,
    deadline: Deadline,
) -> Result<Channel, Error> {
    let host = host_of(address);
    let addresses = lookup(address, deadline, |name| Ok(name.to_socket_addrs()?.collect()))
        .map_err(|error| system(&format!("looking up {address}"), error))?;
    let mut outcome = Err(Error::Setting {
        name: "address",
        value: format!("{address:?}"),
        allowed: "a host name that resolves to an address".into(),
    });
    for address in addresses {
        outcome = Channel::connect_to(host, address, credentials, deadline).map_err(Error::from);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// The host of `host:port`; an IPv6 address is in brackets there.
pub(crate) fn host_of(address: &str) -> &str {
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

/// Whether a connection to `meant` has reached the one whose end of it is at `reached`. Connecting to the unspecified address reaches
/// this machine.
pub(crate) fn is_same_end(meant: SocketAddr, reached: SocketAddr) -> bool {
    let (to, at) = (meant.ip().to_canonical(), reached.ip().to_canonical());
    let is_same_host = to == at || to.is_unspecified() && at.is_loopback();
    is_same_host && meant.port() == reached.port()
}

/// Looks up a name on a thread of its own, since the system's resolver has no deadline. After the deadline the
/// thread remains until the resolver returns.
fn lookup(
    address: &str,
    deadline: Deadline,
    resolve: impl FnOnce(&str) -> io::Result<Vec<SocketAddr>> + Send + 'static,
) -> io::Result<Vec<SocketAddr>> {
    if let Ok(address) = address.parse() {
        return Ok(vec![address]);
    }
    let (sender, resolved) = mpsc::channel();
    let name = address.to_owned();
    // Sending fails only after the deadline.
    let body = move || drop(sender.send(resolve(&name)));
    thread::Builder::new().name("rdmc-lookup".into()).spawn(body)?;
    resolved.recv_timeout(deadline.left()).unwrap_or_else(|_| {
        Err(io::Error::new(ErrorKind::TimedOut, "the name service did not answer in time"))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lookup_ends_at_the_deadline() {
        let (_hold, held) = mpsc::channel::<()>();
        let resolve = move |_: &str| {
            let _ = held.recv();
            Ok(Vec::new())
        };
        let error = lookup("host:1", Deadline::after(Duration::ZERO), resolve).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn addresses_are_not_looked_up() {
        let deadline = Deadline::after(Duration::ZERO);
        let unused = |_: &str| unreachable!("an address");
        assert_eq!(lookup("[::1]:7", deadline, unused).unwrap(), ["[::1]:7".parse().unwrap()]);
    }
}
