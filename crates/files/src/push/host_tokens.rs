//! Which receiver was started for which host.

use std::io;

use rdmc::Secret;

/// Tokens by which a root tells the receivers that it has started apart. Each gets its own with the session's secret, which all have, and
/// returns it when it connects.
#[derive(Clone, Debug)]
pub struct HostTokens {
    key: Secret,
    are_shared: bool,
}

impl HostTokens {
    /// Of a push. `are_shared`: one invitation is for all hosts, which then can pose as each other.
    ///
    /// Errors: no random numbers.
    pub fn random(are_shared: bool) -> io::Result<Self> {
        Ok(Self { key: Secret::random()?, are_shared })
    }

    /// The token of a host of this name; nobody can compute one from others.
    pub fn of(&self, host: &str) -> Secret {
        let host = if self.are_shared { "" } else { host };
        Secret::from_bytes(blake3::keyed_hash(self.key.as_bytes(), host.as_bytes()).into())
    }
}
