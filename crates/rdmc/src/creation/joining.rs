//! What is being created at one member.

use std::sync::Arc;

use super::{choice::Decision, messages::Request, terms::Terms};
use crate::network::{Offers, Wire};

/// The connections to each neighbour, by rank.
pub(crate) type Wires = Vec<(u32, Vec<Wire>)>;

/// What is being created at one member.
pub(crate) struct Joining {
    /// Number of the group or the team.
    pub(crate) number: u64,
    /// This member's rank.
    pub(crate) rank: u32,
    /// The members to which this one has links.
    pub(crate) neighbours: Vec<u32>,
    /// Makes offers of the transport that the links are for.
    pub(crate) offers: Offers,
    pub(crate) terms: Terms,
    /// What is answered to questions about the root's choice.
    pub(crate) decision: Arc<Decision>,
    /// Whether links may be channels of shared connections.
    pub(crate) is_shared: bool,
}

impl Joining {
    /// Asks a member for the first or the only stream of a link.
    pub(crate) fn request(&self, to: u32, timeout_ms: u64) -> Request {
        Request {
            group: self.number,
            from: self.rank,
            to,
            stream: 0,
            terms: self.terms.clone(),
            offer: Vec::new(),
            timeout_ms,
        }
    }
}
