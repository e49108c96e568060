//! Connecting to receivers that listen.

use std::{io, thread, time::Duration};

use rdmc::Error;
use session::{Channel, Credentials, Deadline};

use super::{
    accept::receive_hello,
    inbox::{Event, Events},
    meant::Meant,
};
use crate::{
    connect::{connect, host_of},
    messages::{Introduction, ToReceiver},
};

/// How long the wrong receiver may take to read why it is left.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Connects to a receiver on a thread that ends by the deadline, and reports the outcome as an event.
pub(super) fn start(
    host: usize,
    start: u32,
    address: String,
    credentials: Credentials,
    timeout: Duration,
    events: Events,
) -> io::Result<()> {
    let body = move || {
        let deadline = Deadline::after(timeout);
        let connected = connect(&address, &credentials, deadline).and_then(|mut channel| {
            let receiver = receive_hello(&mut channel, deadline)?;
            check(&address, &credentials, channel, &receiver)
        });
        let event = match connected {
            Ok(channel) => Event::Connected(host, channel),
            // The report starts with the host's name already.
            Err(Error::Peer { address: at, cause }) if at.to_string() == address => {
                Event::HostFailed { host, start, reason: cause }
            }
            Err(error) => Event::HostFailed { host, start, reason: error.to_string() },
        };
        let _ = events.send(event.into());
    };
    thread::Builder::new().name("rdmc-connect".into()).spawn(body).map(drop)
}

/// Errors: another receiver has answered, which receives the reason.
fn check(
    address: &str,
    credentials: &Credentials,
    mut channel: Channel,
    receiver: &Introduction,
) -> Result<Channel, Error> {
    let (host, address) = (host_of(address), channel.peer());
    let is_certified = matches!(credentials, Credentials::Certificates(_));
    let Err(cause) = (Meant { host, address, is_certified }).check(receiver) else {
        return Ok(channel);
    };
    let reason = format!("this push meant to reach the receiver at {host}: {cause}");
    let soon = Deadline::after(FAREWELL_TIMEOUT);
    let _ = channel.send(&ToReceiver::Abort { reason, keep: true }, soon);
    Err(Error::Peer { address, cause })
}
