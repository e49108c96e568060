//! The linked members of a team.

use std::{collections::BTreeMap, time::Duration};

use transport::EndpointId;

use crate::slots::Slots;

/// One linked member.
pub(crate) struct Peer {
    pub(crate) rank: u32,
    /// `None` once it has ended.
    pub(crate) endpoint: Option<EndpointId>,
    /// What it writes here.
    pub(crate) slots: Slots,
    /// It has exposed its rings.
    pub(crate) is_exposed: bool,
    /// It has completed everything, and may close its link.
    pub(crate) has_left: bool,
    /// How many operations it has called at least, if it has told.
    pub(crate) called: Option<u64>,
    /// The operation that it waits in, for whom in the end, and when it told so.
    pub(crate) waits: Option<(u64, u32, Duration)>,
}

/// The linked members, by rank.
pub(crate) struct Peers {
    all: Vec<Peer>,
    by_endpoint: BTreeMap<EndpointId, usize>,
}

impl Peers {
    /// Takes linked members in ascending order of ranks.
    pub(crate) fn new(all: Vec<Peer>) -> Self {
        let endpoints = all.iter().enumerate();
        let by_endpoint =
            endpoints.filter_map(|(index, peer)| Some((peer.endpoint?, index))).collect();
        Self { all, by_endpoint }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Peer> {
        self.all.iter()
    }

    pub(crate) fn of_rank(&mut self, rank: u32) -> Option<&mut Peer> {
        let index = self.all.binary_search_by_key(&rank, |peer| peer.rank).ok()?;
        self.all.get_mut(index)
    }

    pub(crate) fn of_endpoint(&mut self, endpoint: EndpointId) -> Option<&mut Peer> {
        let index = *self.by_endpoint.get(&endpoint)?;
        self.all.get_mut(index)
    }

    /// Returns the member for which an awaited one waits in the end, or that member itself: as it has told since then. A member
    /// that leaves (`leaving`) does not wait for those that have left.
    pub(crate) fn held_by(&mut self, awaited: u32, since: Duration, leaving: bool) -> u32 {
        let waits = self.of_rank(awaited).and_then(|peer| peer.waits);
        let Some((_, held_by, at)) = waits else { return awaited };
        let has_left = leaving && self.of_rank(held_by).is_some_and(|peer| peer.has_left);
        if at < since || has_left { awaited } else { held_by }
    }

    /// Notes that an endpoint has ended. Returns the member, if it was one.
    pub(crate) fn remove(&mut self, endpoint: EndpointId) -> Option<&mut Peer> {
        let index = self.by_endpoint.remove(&endpoint)?;
        let peer = self.all.get_mut(index)?;
        peer.endpoint = None;
        Some(peer)
    }

    /// Returns whether no link is left.
    pub(crate) fn have_ended(&self) -> bool {
        self.by_endpoint.is_empty()
    }
}
