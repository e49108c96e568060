//! The linked members of a team.

use std::{collections::BTreeMap, time::Duration};

use transport::{EndpointId, Transport};

use crate::{Error, TeamSettings, slots::Slots};

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
    /// How many operations it has called, as far as it has told.
    pub(crate) called: u64,
    /// The operation that it waits in, for whom in the end, and when it told so.
    pub(crate) waits: Option<(u64, u32, Duration)>,
}

/// The linked members, by rank.
pub(crate) struct Peers {
    all: Vec<Peer>,
    by_endpoint: BTreeMap<EndpointId, usize>,
}

impl Peers {
    /// Opens the links to these members, and exposes the rings that they write.
    ///
    /// Errors: the transport cannot use a link.
    pub(crate) fn open<T: Transport>(
        transport: &mut T,
        settings: &TeamSettings,
        links: impl IntoIterator<Item = (u32, T::Link)>,
    ) -> Result<Self, Error> {
        let (mut all, mut by_endpoint) = (Vec::new(), BTreeMap::new());
        for (rank, link) in links {
            let failed = |error| Error::Link { member: rank, error };
            let endpoint = transport.open(link).map_err(failed)?;
            let slots = Slots::new(settings.slots, settings.slot_bytes);
            slots.expose(transport, endpoint).map_err(failed)?;
            all.push(Peer {
                rank,
                endpoint: Some(endpoint),
                slots,
                is_exposed: false,
                has_left: false,
                called: 0,
                waits: None,
            });
        }
        all.sort_unstable_by_key(|peer| peer.rank);
        let endpoints = all.iter().enumerate();
        by_endpoint.extend(endpoints.filter_map(|(index, peer)| Some((peer.endpoint?, index))));
        Ok(Self { all, by_endpoint })
    }

    /// Returns the member at the end of the chain of members that wait for each other, as far as they have told since `oldest`,
    /// from the one that this member, `rank`, waits for.
    pub(crate) fn held_by(&mut self, awaited: u32, rank: u32, oldest: Duration) -> u32 {
        match self.of_rank(awaited).and_then(|peer| peer.waits) {
            Some((_, held_by, at)) if at >= oldest && held_by != rank => held_by,
            _ => awaited,
        }
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
