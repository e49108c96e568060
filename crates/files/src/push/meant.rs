//! Whether the receiver that has answered is the one that the user of a push has named.

use std::net::SocketAddr;

use crate::{connect::is_same_end, messages::Introduction, reason::shortened};

/// What a root knows of a connection that it has made.
pub(super) struct Meant<'a> {
    /// As the user has named it, without a port.
    pub(super) host: &'a str,
    /// To which it has connected.
    pub(super) address: SocketAddr,
    /// The receiver has proved by a certificate that it is this host.
    pub(super) is_certified: bool,
}

impl Meant<'_> {
    /// All receivers of one secret authenticate alike, so an attacker that can redirect a connection, without the secret, could
    /// have one
    /// receiver take the place of another. A receiver therefore says, over the authenticated connection, who it is: by its names, if it
    /// has any, and otherwise by the address at which it got the connection.
    ///
    /// Errors: it is another one; with the remedy.
    pub(super) fn check(&self, receiver: &Introduction) -> Result<(), String> {
        let Self { host, address, is_certified } = self;
        if !receiver.names.is_empty() {
            // Several receivers of one host have one name.
            let own_port = receiver.address.port();
            let is_meant = receiver.names.iter().any(|name| {
                let (name, port) = split(name).unwrap_or((name, own_port));
                name.eq_ignore_ascii_case(host) && port == address.port()
            });
            let names = shortened(&receiver.names.join(", "));
            return is_meant.then_some(()).ok_or_else(|| {
                let port = address.port();
                format!("another receiver has answered: {names} at port {own_port}; if it is the right one, also give it --name \
                         {host}:{port}")
            });
        }
        if *is_certified || is_same_end(*address, receiver.address) {
            return Ok(());
        }
        let other = SocketAddr::new(receiver.address.ip().to_canonical(), receiver.address.port());
        Err(format!(
            "the receiver that answered got the connection to {address} at {other}: something in between redirects connections; \
             if that is intended (address translation, a forwarded port), start the receiver with --name {host}:{}",
            address.port()
        ))
    }
}

/// The host and port of a name that has both; an IPv6 address then is in brackets.
fn split(name: &str) -> Option<(&str, u16)> {
    let (host, port) = name.rsplit_once(':')?;
    let host = match host.strip_prefix('[') {
        Some(host) => host.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    Some((host, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(
        meant: (&str, &str),
        is_certified: bool,
        names: &[&str],
        at: &str,
    ) -> Result<(), String> {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        let (host, address) = (meant.0, meant.1.parse().unwrap());
        let receiver = Introduction {
            host: "0.0.0.0:7000".into(),
            names,
            address: at.parse().unwrap(),
            token: None,
            wants: None,
        };
        Meant { host, address, is_certified }.check(&receiver)
    }

    const NODE: (&str, &str) = ("node1", "10.0.0.1:7000");

    #[test]
    fn a_receiver_without_names_has_the_address_that_was_connected_to() {
        assert!(check(NODE, false, &[], "10.0.0.1:7000").is_ok());
        assert!(check(NODE, false, &[], "[::ffff:10.0.0.1]:7000").is_ok());
        assert!(check(("0", "0.0.0.0:7000"), false, &[], "127.0.0.1:7000").is_ok());
        for other in ["10.0.0.2:7000", "10.0.0.1:7001", "[fd00::1]:7000"] {
            let refused = check(NODE, false, &[], other).unwrap_err();
            assert!(refused.contains(other) && refused.contains("--name node1:7000"), "{refused}");
        }
        assert!(check(("0", "0.0.0.0:7000"), false, &[], "10.0.0.2:7000").is_err());
        assert!(check(NODE, true, &[], "172.17.0.2:7000").is_ok(), "its certificate names it");
    }

    #[test]
    fn names_decide_where_there_are_any() {
        assert!(check(NODE, false, &["other", "NODE1"], "172.17.0.2:7000").is_ok());
        // Another receiver of that host.
        assert!(check(NODE, false, &["node1"], "172.17.0.2:7001").is_err());
        assert!(
            check(NODE, false, &["node1:7000"], "172.17.0.2:30000").is_ok(),
            "a forwarded port"
        );
        let v6 = ("fd00::1", "[fd00::1]:7000");
        assert!(check(v6, false, &["fd00::1"], "[fd00::9]:7000").is_ok());
        assert!(check(v6, false, &["[fd00::1]:7000"], "[fd00::9]:30000").is_ok());
        assert!(check(v6, false, &["[fd00::1]:7001"], "[fd00::9]:7000").is_err());
        // The same address may be what a false answer of the name service said.
        for is_certified in [false, true] {
            let refused = check(NODE, is_certified, &["node2"], "10.0.0.1:7000").unwrap_err();
            assert!(refused.contains("another receiver has answered: node2"), "{refused}");
        }
    }
}
