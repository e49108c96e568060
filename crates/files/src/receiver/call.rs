//! Connecting to a root, or to a server.

use std::{net::IpAddr, sync::mpsc, thread, time::Duration};

use rdmc::{Error, Secret};
use session::{Channel, Credentials, Deadline};

use crate::{
    connect::connect,
    messages::{Introduction, ToReceiver, ToRoot, Wanted},
    reason::shortened,
    server_status::ServerStatus,
    system::system,
};

/// Connects to a root that listens on one of these addresses. Tries all, each 100 ms after the previous one, and
/// takes the first that authenticates.
///
/// Blocks until then, or the timeout. Errors: none can be reached or authenticates; that of the last attempt.
pub fn call(
    addresses: &[IpAddr],
    port: u16,
    secret: &Secret,
    timeout: Duration,
) -> Result<Channel, Error> {
    let deadline = Deadline::after(timeout);
    let (sender, attempts) = mpsc::channel();
    for (index, &address) in (0..).zip(addresses) {
        let (sender, secret) = (sender.clone(), secret.clone());
        let attempt = move || {
            thread::sleep(Duration::from_millis(100) * index);
            // Fails if another attempt was first; that drops the connection.
            let _ = sender.send(Channel::connect((address, port).into(), &secret, deadline));
        };
        thread::Builder::new()
            .name("rdmc-call".into())
            .spawn(attempt)
            .map_err(|error| system("starting a thread", error))?;
    }
    drop(sender);
    let mut last = None;
    for attempt in attempts {
        match attempt {
            Ok(channel) => return Ok(channel),
            Err(error) => last = Some(Error::from(error)),
        }
    }
    Err(last.unwrap_or_else(|| Error::Setting {
        name: "addresses",
        value: "empty".into(),
        allowed: "one or more of the root".into(),
    }))
}

/// Asks a server at `host:port` what is fetched from it. `name`: of this host.
///
/// Blocks until the answer, or the timeout. Errors: it cannot be reached, authentication fails; it is no server, or refuses.
pub fn status(
    server: &str,
    credentials: &Credentials,
    name: &str,
    timeout: Duration,
) -> Result<ServerStatus, Error> {
    let deadline = Deadline::after(timeout);
    let mut channel = connect(server, credentials, deadline)?;
    let address = channel.local_address();
    let introduction = Introduction {
        host: name.to_owned(),
        names: Vec::new(),
        address: address.map_err(|error| system("asking for the address", error))?,
        token: None,
        wants: Some(Wanted::Status),
    };
    channel.send(&ToRoot::Hello(introduction), deadline)?;
    let cause = match channel.receive(deadline)? {
        ToReceiver::Status(status) => return Ok(status),
        ToReceiver::Abort { reason, .. } => shortened(&reason),
        other => format!("answered with something else: {}", other.kind()),
    };
    Err(Error::Peer { address: channel.peer(), cause })
}

/// Connects to a root at `host:port` that admits receivers ([`crate::Admission`]).
///
/// Blocks until then, or the timeout. Errors: it cannot be reached, or authentication fails.
pub fn join(root: &str, credentials: &Credentials, timeout: Duration) -> Result<Channel, Error> {
    connect(root, credentials, Deadline::after(timeout))
}
