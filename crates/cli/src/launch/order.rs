//! The order that `rdmc launch` reads from standard input, and the reports that it writes to standard output: lines of JSON.

use std::net::IpAddr;

use rdmc::Secret;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::{
    hosts::{HOSTS_MAX, Host, checked},
    invitation::hex,
    network::Network,
};

/// The common part of the invitations of all receivers.
#[derive(Clone)]
pub struct Callback {
    /// The root's addresses.
    pub addresses: Vec<IpAddr>,
    /// The root's networks at these addresses, where known.
    pub networks: Vec<Network>,
    /// The root's port.
    pub port: u16,
    /// The session's secret.
    pub secret: Secret,
    /// Receivers create missing directories for their copies.
    pub makes_directories: bool,
}

/// A host on which a receiver is started.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Recipient {
    /// The index in the push.
    pub host: usize,
    pub name: String,
    /// The token of the host's invitation.
    #[serde(with = "hex")]
    pub token: Secret,
}

/// Longer lines are not orders.
pub const LINE_BYTES_MAX: u64 = 4 << 20;
/// Longer texts of reports are truncated.
pub const TEXT_CHARS_MAX: usize = 500;

/// The line that follows the invitation of the host that reads it: further hosts to start receivers on, and how.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Order {
    /// The first host is the one that reads the order.
    pub hosts: Vec<Recipient>,
    /// The launcher's words; `{host}` stands for the host.
    pub words: Vec<String>,
    /// The receiver's program, quoted if the launcher needs that.
    pub rdmc: String,
    /// Whether the program that reads the order is copied to the others and run there.
    pub copies_self: bool,
    pub fanout: usize,
    pub depth: u8,
    pub timeout_ms: u64,
    pub verbose: bool,
}

impl Order {
    /// The line, with its end.
    pub fn to_line(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(serde_json::to_string(self).unwrap_or_default());
        text.push('\n');
        text
    }

    /// Parses a line. Errors: not an order, or an order that no push sends.
    pub fn from_line(line: &str) -> Result<Self, String> {
        let order: Self = serde_json::from_str(line).map_err(|error| {
            format!("standard input has no order of `rdmc push` ({error}); it is for launchers")
        })?;
        let names = order.hosts.iter().map(|to| Host::named(to.name.clone()));
        checked(names.collect())?;
        if order.hosts.len() > HOSTS_MAX || order.words.is_empty() || order.fanout == 0 {
            return Err("the order on standard input has no hosts, or no launcher".into());
        }
        Ok(order)
    }
}

/// A receiver could not be started, or has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Report {
    /// Index of the host.
    pub host: usize,
    pub reason: String,
    /// The last line of its standard error.
    pub line: Option<String>,
}

impl Report {
    /// The line, with its end.
    pub fn to_line(&self) -> String {
        serde_json::to_string(self).unwrap_or_default() + "\n"
    }

    /// Parses a line; `None` for other lines, such as those of a login shell.
    pub fn from_line(line: &str) -> Option<Self> {
        let Self { host, reason, line } = serde_json::from_str(line).ok()?;
        let cut = |text: String| text.chars().take(TEXT_CHARS_MAX).collect();
        Some(Self { host, reason: cut(reason), line: line.map(cut) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_and_reports_come_back() {
        let token = |host| Secret::from_bytes([host as u8; 32]);
        let to = |host, name: &str| Recipient { host, name: name.into(), token: token(host) };
        let order = Order {
            hosts: vec![to(3, "me@a"), to(4, "b")],
            words: vec!["ssh".into(), "{host}".into()],
            rdmc: "'my rdmc'".into(),
            copies_self: true,
            fanout: 32,
            depth: 1,
            timeout_ms: 30_000,
            verbose: false,
        };
        let line = order.to_line();
        assert_eq!(line.lines().count(), 1);
        assert_eq!(Order::from_line(&line), Ok(order.clone()));
        for broken in [
            Order { hosts: vec![to(0, "-oProxyCommand=x")], ..order.clone() },
            Order { hosts: Vec::new(), ..order.clone() },
            Order { words: Vec::new(), ..order.clone() },
            Order { fanout: 0, ..order },
        ] {
            assert!(Order::from_line(&broken.to_line()).is_err(), "{broken:?}");
        }
        let report = Report { host: 3, reason: "no\nway".into(), line: None };
        assert_eq!(Report::from_line(&report.to_line()), Some(report));
        let long = Report { host: 3, reason: "x".repeat(9999), line: None };
        assert_eq!(Report::from_line(&long.to_line()).unwrap().reason.len(), TEXT_CHARS_MAX);
        assert_eq!(Report::from_line("Welcome to node 7"), None);
    }
}
