//! The roots that connect to a receiver that listens.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr, SocketAddr},
};

use aws_lc_rs::digest::{SHA256, digest};
use session::Channel;

/// The maximum number of names that are kept of a certificate.
const NAMES_MAX: usize = 4;
/// Leading bits of an IPv6 address that hosts cannot choose by themselves.
const PREFIX_BITS: u32 = 64;

/// A root that has authenticated.
#[derive(Clone, Debug)]
pub struct Root {
    address: SocketAddr,
    /// Names of the certificate: those that are allowed by name, or all; empty if a secret authenticates the root.
    names: Vec<String>,
    /// The SHA-256 digest of a certificate without names, in hexadecimal.
    fingerprint: Option<String>,
}

impl Root {
    /// `allowed`: the names of roots that are accepted; empty for all. `certified`: the root has a certificate, not the secret.
    pub fn of(channel: &Channel, allowed: &[String], certified: bool) -> Self {
        let names = channel.peer_names();
        let is_allowed = |name: &&String| allowed.iter().any(|one| one.eq_ignore_ascii_case(name));
        let matching: Vec<String> = names.iter().filter(is_allowed).cloned().collect();
        let mut names = if matching.is_empty() { names } else { matching };
        names.truncate(NAMES_MAX);
        let is_nameless = certified && names.is_empty();
        let fingerprint = is_nameless.then(|| fingerprint(&channel.peer_identity()));
        Self { address: channel.peer(), names, fingerprint }
    }

    /// A root that a secret has authenticated.
    #[cfg(test)]
    pub fn at(address: SocketAddr) -> Self {
        Self { address, names: Vec::new(), fingerprint: None }
    }

    /// The key by which the limits of one root count: a name of its certificate, or the certificate if it has no name; with a
    /// secret, which all roots share, its address, or of IPv6 addresses the network, whose hosts can choose any number of
    /// addresses.
    pub fn identity(&self) -> String {
        match (self.names.first().or(self.fingerprint.as_ref()), self.address.ip().to_canonical()) {
            (Some(name), _) => name.clone(),
            (None, IpAddr::V4(address)) => address.to_string(),
            (None, IpAddr::V6(address)) => {
                let network = address.to_bits() >> (u128::BITS - PREFIX_BITS);
                Ipv6Addr::from_bits(network << (u128::BITS - PREFIX_BITS)).to_string()
            }
        }
    }
}

impl fmt::Display for Root {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.names, &self.fingerprint) {
            ([], Some(fingerprint)) => {
                write!(f, "{} (certificate without names, SHA-256 {fingerprint})", self.address)
            }
            ([], None) => write!(f, "{} (by the secret)", self.address),
            (names, _) => write!(f, "{} (certificate of {})", self.address, names.join(", ")),
        }
    }
}

/// The SHA-256 fingerprint as OpenSSL prints it, without colons.
fn fingerprint(certificate: &[u8]) -> String {
    let digest = digest(&SHA256, certificate);
    digest.as_ref().iter().map(|byte| format!("{byte:02X}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roots_count_by_certificate_or_by_address() {
        let root = |address: &str, names: &[&str]| Root {
            names: names.iter().map(|&name| name.to_owned()).collect(),
            ..Root::at(address.parse().unwrap())
        };
        assert_eq!(root("10.0.0.1:5", &["login1", "login"]).identity(), "login1");
        assert_eq!(root("[::ffff:10.0.0.1]:5", &[]).identity(), "10.0.0.1");
        let network = root("[fd00:1:2:3:4::9]:5", &[]).identity();
        assert_eq!(network, "fd00:1:2:3::");
        assert_eq!(root("[fd00:1:2:3:ffff::1]:6", &[]).identity(), network);
        let shown = root("10.0.0.1:5", &["login1"]).to_string();
        assert_eq!(shown, "10.0.0.1:5 (certificate of login1)");
        assert_eq!(root("10.0.0.1:5", &[]).to_string(), "10.0.0.1:5 (by the secret)");
        let known = "BA7816BF8F01CFEA414140DE5DAE2223B00361A396177A9CB410FF61F20015AD";
        assert_eq!(fingerprint(b"abc"), known);
        let nameless = Root { fingerprint: Some(known.into()), ..root("10.0.0.1:5", &[]) };
        let shown = format!("10.0.0.1:5 (certificate without names, SHA-256 {known})");
        assert_eq!((nameless.to_string(), nameless.identity()), (shown, known.to_owned()));
    }
}
