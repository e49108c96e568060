//! What is being created at one member.

use std::net::SocketAddr;

use super::{messages::Request, terms::Terms};

/// What is being created at one member.
pub struct Joining {
    /// Number of the group or the team.
    pub number: u64,
    /// This member's rank.
    pub rank: u32,
    /// Where each member listens, by rank.
    pub addresses: Vec<SocketAddr>,
    /// The members to which this one has links.
    pub neighbours: Vec<u32>,
    /// What has to be the same at all members.
    pub terms: Terms,
    /// Whether links may be channels of shared connections.
    pub is_shared: bool,
}

impl Joining {
    /// Asks a member for the link to it. `context` and `attempt`: see [`Request`].
    pub(crate) fn request(
        &self,
        to: u32,
        (context, attempt): (u128, u64),
        timeout_ms: u64,
    ) -> Request {
        Request {
            group: self.number,
            from: self.rank,
            to,
            context,
            attempt,
            terms: self.terms.clone(),
            offer: Vec::new(),
            timeout_ms,
        }
    }
}
