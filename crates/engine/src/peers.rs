//! The connected neighbours of a group, and what is posted for them.

use std::collections::BTreeMap;

use transport::{EndpointId, PostError, Transport};

use crate::{error::Fault, words::Word};

/// The neighbours of one group at one member.
#[derive(Default)]
pub(crate) struct Peers {
    /// By rank.
    endpoints: BTreeMap<u32, EndpointId>,
    /// How many posts are open. While there are any, the transport may access memory.
    posts_open: usize,
    /// The first post that the transport has refused.
    refused: Option<(u32, PostError)>,
}

impl Peers {
    pub(crate) fn insert(&mut self, rank: u32, endpoint: EndpointId) {
        self.endpoints.insert(rank, endpoint);
    }

    pub(crate) fn remove(&mut self, rank: u32) {
        self.endpoints.remove(&rank);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.endpoints.is_empty()
    }

    pub(crate) fn get(&self, rank: u32) -> Option<EndpointId> {
        self.endpoints.get(&rank).copied()
    }

    /// Iterates over ranks and endpoints, by rank.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (u32, EndpointId)> + '_ {
        self.endpoints.iter().map(|(&rank, &endpoint)| (rank, endpoint))
    }

    /// Writes a word to a neighbour, if it is connected. Errors: there is no room for it; the
    /// neighbour would wait for ever for a lost word.
    pub(crate) fn write<T: Transport>(
        &self,
        transport: &mut T,
        rank: u32,
        word: &Word,
    ) -> Result<(), Fault> {
        let Some(endpoint) = self.get(rank) else { return Ok(()) };
        match transport.write_control(endpoint, &word.encode()) {
            // A completion reports the end of that endpoint.
            Ok(()) | Err(PostError::EndpointGone(_)) => Ok(()),
            Err(error) => Err(Fault::ControlRefused { rank, error }),
        }
    }

    /// Writes a word to all neighbours but one. Errors: the first of [`Peers::write`]; the word was
    /// written to all others.
    pub(crate) fn write_to_all<T: Transport>(
        &self,
        transport: &mut T,
        word: &Word,
        but: Option<u32>,
    ) -> Result<(), Fault> {
        let mut outcome = Ok(());
        for &rank in self.endpoints.keys().filter(|&&rank| Some(rank) != but) {
            outcome = outcome.and(self.write(transport, rank, word));
        }
        outcome
    }

    /// Closes all connections.
    pub(crate) fn close<T: Transport>(&self, transport: &mut T) {
        self.endpoints.values().for_each(|&endpoint| transport.close(endpoint));
    }

    /// Counts a post for `rank` if the transport has accepted it, and returns whether it has. If
    /// not, no completion of that block will follow: the group fails once all completions until
    /// then are processed, since the cause may be the end of a connection that is not reported yet.
    pub(crate) fn record_post(&mut self, rank: u32, outcome: Result<(), PostError>) -> bool {
        match outcome {
            Ok(()) => self.posts_open += 1,
            // A completion reports the end of that endpoint.
            Err(PostError::EndpointGone(_)) => return false,
            Err(error) => {
                self.refused.get_or_insert((rank, error));
                return false;
            }
        }
        true
    }

    /// Notes that a post has completed.
    pub(crate) fn post_completed(&mut self) {
        self.posts_open -= 1;
    }

    /// Returns whether no post is open.
    pub(crate) fn posts_are_done(&self) -> bool {
        self.posts_open == 0
    }

    /// Returns whether a post was refused.
    pub(crate) fn is_refused(&self) -> bool {
        self.refused.is_some()
    }

    /// Takes the first post that was refused: for which neighbour, and why.
    pub(crate) fn take_refused(&mut self) -> Option<(u32, PostError)> {
        self.refused.take()
    }
}
