//! Connecting to receivers that listen.

use std::{io, thread, time::Duration};

use rdmc::Error;
use session::{Credentials, Deadline};

use super::{
    accept::receive_hello,
    inbox::{Event, Events},
};
use crate::connect::connect;

/// Connects to a receiver on a thread that ends by the deadline, and reports the outcome as an event.
pub(super) fn start(
    (host, start): (usize, u32),
    address: String,
    credentials: Credentials,
    timeout: Duration,
    events: Events,
) -> io::Result<()> {
    let body = move || {
        let deadline = Deadline::after(timeout);
        let connected = connect(&address, &credentials, deadline)
            .and_then(|mut channel| receive_hello(&mut channel, deadline).map(|_| channel));
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
