//! Control connections to whoever listens.

use std::net::ToSocketAddrs;

use rdmc::{
    Error,
    bootstrap::{Channel, Credentials, Deadline},
};

use crate::system::system;

/// Calls somebody at `host:port`: the first of its addresses that can be had.
pub(crate) fn connect(
    address: &str,
    credentials: &Credentials,
    deadline: Deadline,
) -> Result<Channel, Error> {
    // An IPv6 address is in brackets.
    let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let resolved = address
        .to_socket_addrs()
        .map_err(|error| system(&format!("looking up {address}"), error))?;
    let mut outcome = Err(Error::Setting {
        name: "address",
        value: format!("{address:?}"),
        allowed: "a name that has one".into(),
    });
    for address in resolved {
        outcome = Channel::connect_to(host, address, credentials, deadline).map_err(Error::from);
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}
