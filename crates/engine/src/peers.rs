//! The connected neighbours of a group.

use std::collections::BTreeMap;

use transport::{EndpointId, PostError, Transport};

use crate::{local_error::LocalError, words::Word};

/// Endpoints of neighbours, by rank.
#[derive(Default)]
pub(crate) struct Peers(BTreeMap<u32, EndpointId>);

impl Peers {
    pub(crate) fn insert(&mut self, rank: u32, endpoint: EndpointId) {
        self.0.insert(rank, endpoint);
    }

    pub(crate) fn remove(&mut self, rank: u32) {
        self.0.remove(&rank);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn get(&self, rank: u32) -> Option<EndpointId> {
        self.0.get(&rank).copied()
    }

    /// Iterates over ranks and endpoints, by rank.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (u32, EndpointId)> + '_ {
        self.0.iter().map(|(&rank, &endpoint)| (rank, endpoint))
    }

    /// Writes a word to a neighbour, if it is connected. Errors: there is no room for it; the
    /// neighbour would wait for ever for a lost word.
    pub(crate) fn write<T: Transport>(
        &self,
        transport: &mut T,
        rank: u32,
        word: &Word,
    ) -> Result<(), LocalError> {
        let Some(endpoint) = self.get(rank) else { return Ok(()) };
        match transport.write_control(endpoint, &word.encode()) {
            // A completion reports the end of that endpoint.
            Ok(()) | Err(PostError::EndpointGone(_)) => Ok(()),
            Err(error) => Err(LocalError::ControlRefused { rank, error }),
        }
    }

    /// Writes a word to all neighbours but one. Errors: the first of [`Peers::write`]; the word was
    /// written to all others.
    pub(crate) fn write_to_all<T: Transport>(
        &self,
        transport: &mut T,
        word: &Word,
        but: Option<u32>,
    ) -> Result<(), LocalError> {
        let mut outcome = Ok(());
        for &rank in self.0.keys().filter(|&&rank| Some(rank) != but) {
            outcome = outcome.and(self.write(transport, rank, word));
        }
        outcome
    }

    /// Closes all connections.
    pub(crate) fn close<T: Transport>(&self, transport: &mut T) {
        self.0.values().for_each(|&endpoint| transport.close(endpoint));
    }
}
