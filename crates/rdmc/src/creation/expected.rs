//! A group or a team that is being created here, and the links that others have made for it so far.

use std::{collections::BTreeMap, net::SocketAddr};

use super::{
    joining::{Joining, Wires},
    messages::Request,
    terms::Terms,
};
use crate::{
    Error,
    network::{Offers, Wire},
};

/// A group or a team that is being created here, and the links accepted for it so far.
pub(crate) struct Expected {
    rank: u32,
    offers: Offers,
    terms: Terms,
    wires: BTreeMap<u32, Vec<Option<Wire>>>,
    problem: Option<(u32, SocketAddr, String)>,
}

impl Expected {
    /// Expects links from members of these ranks.
    pub(crate) fn new(joining: &Joining, ranks: &[u32]) -> Self {
        let empty = || (0..joining.terms.streams()).map(|_| None).collect::<Vec<_>>();
        Self {
            rank: joining.rank,
            offers: joining.offers.clone(),
            terms: joining.terms.clone(),
            wires: ranks.iter().map(|&rank| (rank, empty())).collect(),
            problem: None,
        }
    }

    /// Returns what makes offers for its links.
    pub(crate) fn offers(&self) -> Offers {
        self.offers.clone()
    }

    /// Takes a connection as a part of the link to a member.
    pub(crate) fn take(&mut self, request: &Request, wire: Wire) {
        if let Some(wires) = self.wires.get_mut(&request.from)
            && let Some(place) = wires.get_mut(usize::from(request.stream))
        {
            *place = Some(wire);
        }
    }

    /// Returns all links once they are there; `None` while some are missing. Errors: the first problem.
    pub(crate) fn take_all(&mut self) -> Result<Option<Wires>, Error> {
        if let Some((member, address, cause)) = self.problem.take() {
            return Err(Error::Member { member, address, cause });
        }
        if !self.is_complete() {
            return Ok(None);
        }
        let wires = std::mem::take(&mut self.wires).into_iter();
        let all = wires.map(|(rank, wires)| (rank, wires.into_iter().flatten().collect()));
        Ok(Some(all.collect()))
    }

    /// Returns the members whose links are missing.
    pub(crate) fn missing(&self) -> Vec<u32> {
        let missing = self.wires.iter().filter(|(_, it)| it.iter().any(Option::is_none));
        missing.map(|(&rank, _)| rank).collect()
    }

    /// Returns whether a link is wanted, and notes the first problem.
    ///
    /// Errors: why it is refused.
    pub(crate) fn judge(&mut self, request: &Request, peer: SocketAddr) -> Result<(), String> {
        let Some(problem) = self.problem_with(request) else { return Ok(()) };
        self.problem.get_or_insert((request.from, peer, problem.clone()));
        Err(problem)
    }

    /// Takes a channel of a shared connection as the whole link to a member.
    pub(crate) fn take_shared(&mut self, from: u32, wire: Wire) {
        self.wires.insert(from, vec![Some(wire)]);
    }

    fn problem_with(&self, request: &Request) -> Option<String> {
        let Request { group, from, to, stream, terms, .. } = request;
        if let Some(difference) = self.terms.difference(terms) {
            return Some(format!(
                "members {} and {from} have different settings for group {group}: \
                 {difference} (seen from member {})",
                self.rank, self.rank
            ));
        }
        if *to != self.rank {
            return Some(format!(
                "this is member {}, not member {to}: the member lists differ",
                self.rank
            ));
        }
        let Some(wires) = self.wires.get(from) else {
            return Some(format!(
                "member {from} is not expected to connect to member {}",
                self.rank
            ));
        };
        match wires.get(usize::from(*stream)) {
            Some(None) => None,
            _ => Some(format!("member {from} has connected already; is it running twice?")),
        }
    }

    fn is_complete(&self) -> bool {
        self.wires.values().flatten().all(Option::is_some)
    }
}
