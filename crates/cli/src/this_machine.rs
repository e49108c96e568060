//! Finds this machine in a list of hosts.

use std::net::{IpAddr, ToSocketAddrs};

use rustix::system::uname;

/// The name of this machine.
pub fn own_name() -> String {
    uname().nodename().to_string_lossy().into_owned()
}

/// The names and addresses of this machine.
#[derive(Debug)]
pub struct ThisMachine {
    name: String,
    addresses: Vec<IpAddr>,
}

impl ThisMachine {
    /// Queries the system for them; unknown ones are left out.
    pub fn new() -> Self {
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        Self {
            name: own_name(),
            addresses: interfaces.iter().map(if_addrs::Interface::ip).collect(),
        }
    }

    /// Returns the index of this machine among these entries: by its name, or else by its addresses, for which
    /// names are looked up.
    pub fn position(&self, entries: &[&str]) -> Option<usize> {
        let hosts: Vec<&str> = entries.iter().map(|entry| host_of(entry)).collect();
        let by_name = hosts.iter().position(|host| self.is_named(host));
        by_name.or_else(|| hosts.iter().position(|host| self.has_address(host)))
    }

    /// Whether this is the machine's name, with or without its domain.
    fn is_named(&self, host: &str) -> bool {
        let first = |name: &str| name.split('.').next().unwrap_or_default().to_ascii_lowercase();
        let has_domain = |name: &str| name.contains('.');
        if has_domain(host) && has_domain(&self.name) {
            return host.eq_ignore_ascii_case(&self.name);
        }
        host.parse::<IpAddr>().is_err() && first(host) == first(&self.name)
    }

    fn has_address(&self, host: &str) -> bool {
        let is_own = |address: &IpAddr| address.is_loopback() || self.addresses.contains(address);
        match host.parse() {
            Ok(address) => is_own(&address),
            Err(_) => {
                (host, 0).to_socket_addrs().is_ok_and(|mut all| all.any(|it| is_own(&it.ip())))
            }
        }
    }
}

/// The host of `USER@HOST:PORT`.
fn host_of(entry: &str) -> &str {
    let host = entry.rsplit_once('@').map_or(entry, |(_, host)| host);
    let host = match host.rsplit_once(':') {
        Some((before, _)) if !before.contains(':') || before.ends_with(']') => before,
        _ => host,
    };
    host.trim_start_matches('[').trim_end_matches(']')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine(name: &str) -> ThisMachine {
        ThisMachine { name: name.into(), addresses: vec!["10.0.0.7".parse().unwrap()] }
    }

    #[test]
    fn a_machine_is_found_by_name_with_and_without_domain() {
        let short = machine("node7");
        assert_eq!(short.position(&["node1", "node7"]), Some(1));
        assert_eq!(short.position(&["me@NODE7.cluster.example:7000"]), Some(0));
        assert_eq!(short.position(&["10.0.0.8"]), None);
        let long = machine("node7.cluster.example");
        assert_eq!(long.position(&["10.0.0.8", "node7"]), Some(1));
        assert_eq!(long.position(&["node7.cluster.example"]), Some(0));
        assert!(!long.is_named("node7.other.example"), "another domain is another machine");
    }

    #[test]
    fn a_machine_is_found_by_address() {
        let machine = machine("node7");
        assert_eq!(machine.position(&["10.0.0.8", "10.0.0.7:7000"]), Some(1));
        assert_eq!(machine.position(&["[::1]:7000"]), Some(0));
        assert_eq!(machine.position(&["10.0.0.8", "localhost"]), Some(1));
        assert_eq!(machine.position(&[]), None);
    }

    #[test]
    fn hosts_of_entries() {
        for (entry, host) in [
            ("a", "a"),
            ("me@a", "a"),
            ("a:70", "a"),
            ("me@[::1]:70", "::1"),
            ("::1", "::1"),
            ("fe80::1%eth0", "fe80::1%eth0"),
        ] {
            assert_eq!(host_of(entry), host);
        }
    }
}
