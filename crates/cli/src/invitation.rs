//! The invitation that a launched receiver reads from its standard input: one line of JSON.
//!
//! Standard input is private to the two processes (and encrypted by ssh), unlike arguments and environment, which
//! other users may see.

use std::net::IpAddr;

use rdmc::Secret;
use serde::{Deserialize, Serialize};
use trace::Part;
use zeroize::Zeroizing;

use crate::network::Network;

/// The variable with the host's name, for invitations without a name: all nodes of a job get the same invitation.
pub const NODE_NAME: &str = "SLURMD_NODENAME";
/// What a receiver prints before the name of a shared network of the root that is faster than the used one.
pub const FASTER_NETWORK: &str = "rdmc: a faster network: ";
/// Longer lines are not invitations.
pub const LINE_BYTES_MAX: u64 = 64 * 1024;

/// The root's addresses and the session's secret.
pub struct Invitation {
    /// The receiver's name in the push. Empty: the name is in [`NODE_NAME`].
    pub host: String,
    /// The session's secret.
    pub secret: Secret,
    /// The token by which the root recognizes the receiver that it has started on this host.
    pub token: Secret,
    /// The root's addresses; the receiver tries all of them.
    pub addresses: Vec<IpAddr>,
    /// The root's networks at these addresses, where known.
    pub networks: Vec<Network>,
    /// The root's port.
    pub port: u16,
    /// The receiver creates missing directories for its copy.
    pub makes_directories: bool,
    /// The part of a trace that the receiver writes to standard output.
    pub trace: Option<Part>,
}

#[derive(Serialize, Deserialize)]
struct Line {
    version: u16,
    host: String,
    #[serde(with = "hex")]
    secret: Secret,
    #[serde(with = "hex")]
    token: Secret,
    addresses: Vec<IpAddr>,
    #[serde(default)]
    networks: Vec<Network>,
    port: u16,
    makes_directories: bool,
    #[serde(default)]
    trace: Option<Part>,
}

/// Secrets as hexadecimal digits, for lines that only their reader sees.
pub mod hex {
    use rdmc::Secret;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};
    use zeroize::Zeroizing;

    pub fn serialize<S: Serializer>(secret: &Secret, into: S) -> Result<S::Ok, S::Error> {
        into.serialize_str(&secret.to_hex())
    }

    pub fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Secret, D::Error> {
        Secret::from_hex(&Zeroizing::<String>::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// The field that all versions have.
#[derive(Deserialize)]
struct Version {
    version: u16,
}

impl Invitation {
    /// The line, with its end.
    pub fn to_line(&self) -> Zeroizing<String> {
        let line = Line {
            version: session::PROTOCOL_VERSION,
            host: self.host.clone(),
            secret: self.secret.clone(),
            token: self.token.clone(),
            addresses: self.addresses.clone(),
            networks: self.networks.clone(),
            port: self.port,
            makes_directories: self.makes_directories,
            trace: self.trace.clone(),
        };
        let mut text = Zeroizing::new(serde_json::to_string(&line).unwrap_or_default());
        text.push('\n');
        text
    }

    /// Parses a line. Errors: not an invitation, or of another version.
    pub fn from_line(line: &str) -> Result<Self, String> {
        let wrong = |error| {
            format!(
                "standard input has no invitation of `rdmc push` ({error}); see `rdmc help receive`"
            )
        };
        // The version is parsed first: all other fields may differ between versions.
        let Version { version } = serde_json::from_str(line).map_err(wrong)?;
        let own = session::PROTOCOL_VERSION;
        if version != own {
            return Err(format!(
                "the root uses version {version} of the protocol, this rdmc version {own}; install \
                 the same rdmc on all hosts"
            ));
        }
        let line: Line = serde_json::from_str(line).map_err(wrong)?;
        let Line {
            host, secret, token, addresses, networks, port, makes_directories, trace, ..
        } = line;
        Ok(Self { host, secret, token, addresses, networks, port, makes_directories, trace })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn invitation() -> Invitation {
        Invitation {
            host: "a\nb".into(),
            secret: Secret::from_bytes([9; 32]),
            token: Secret::from_bytes([8; 32]),
            addresses: vec!["10.0.0.1".parse().unwrap(), "::1".parse().unwrap()],
            networks: Vec::new(),
            port: 7,
            makes_directories: true,
            trace: Some(Part::alone(None)),
        }
    }

    #[test]
    fn an_invitation_is_one_line_and_comes_back() {
        let one = invitation();
        let line = one.to_line();
        assert_eq!(line.lines().count(), 1);
        let again = Invitation::from_line(&line).unwrap();
        assert_eq!((again.host.as_str(), again.port, again.addresses.len()), ("a\nb", 7, 2));
        assert_eq!(*again.secret.to_hex(), "09".repeat(32));
        assert_eq!(*again.token.to_hex(), "08".repeat(32));
        assert_eq!((again.trace, again.makes_directories), (one.trace, true));
    }

    #[test]
    fn other_lines_and_versions_are_refused() {
        assert!(Invitation::from_line("").is_err());
        let line = invitation().to_line();
        let own = format!("\"version\":{}", session::PROTOCOL_VERSION);
        let other = line.replace(&own, "\"version\":99");
        assert!(Invitation::from_line(&other).err().unwrap().contains("version 99"));
        let new = "{\"version\":99,\"addresses\":{\"v4\":[]}}";
        assert!(Invitation::from_line(new).err().unwrap().contains("version 99"));
        let short = line.replace("0909", "");
        assert!(Invitation::from_line(&short).err().unwrap().contains("64 hexadecimal"));
    }
}
