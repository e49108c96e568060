//! The linked members of a team.

use std::collections::BTreeMap;

use collective::{Fault, Header, InvalidHeader, Member, Ring};
use transport::{EndpointId, PostError, Transport};

use crate::{Error, TeamSettings, outgoing::Outgoing, slots::Slots, staging::Staging, words::Word};

/// One linked member.
pub(crate) struct Peer {
    pub(crate) rank: u32,
    /// `None` once it has ended.
    pub(crate) endpoint: Option<EndpointId>,
    /// What it writes here.
    pub(crate) slots: Slots,
    /// What is written to it.
    pub(crate) outgoing: Outgoing,
    /// It was asked to wake this member by its next write, and nothing has come since.
    pub(crate) is_asked: bool,
    /// It has exposed its rings.
    pub(crate) is_exposed: bool,
    /// It has completed everything, and may close its link.
    pub(crate) has_left: bool,
}

impl Peer {
    pub(crate) fn new(
        rank: u32,
        endpoint: EndpointId,
        slots: Slots,
        settings: &TeamSettings,
    ) -> Self {
        Self {
            rank,
            endpoint: Some(endpoint),
            slots,
            outgoing: Outgoing::new(settings),
            is_asked: false,
            is_exposed: false,
            has_left: false,
        }
    }

    /// Returns how many writes were seen, if its next one would not end a wait and the member was not asked to have it reported: it has to
    /// be told.
    pub(crate) fn ask_to_wake(&mut self) -> Option<[u64; 2]> {
        let has_to_be_told =
            self.slots.needs_asking() && !std::mem::replace(&mut self.is_asked, true);
        has_to_be_told.then(|| self.slots.seen())
    }

    /// Gives what the member has written since the last look to this one's operations. Returns whether
    /// there was anything. Errors: it violates the protocol, or has called something else.
    pub(crate) fn look(&mut self, core: &mut Member) -> Result<bool, Fault> {
        let mut has_found = false;
        for ring in Ring::ALL {
            let what = "an invalid header of a slot";
            let invalid = |InvalidHeader| Fault::Protocol { member: self.rank, what };
            while let Some((slot, header)) = self.slots.next(ring).map_err(invalid)? {
                has_found = true;
                core.written(self.rank, ring, slot, header)?;
            }
        }
        self.is_asked &= !has_found;
        Ok(has_found)
    }
}

/// The linked members, by rank.
pub(crate) struct Peers {
    all: Vec<Peer>,
    by_endpoint: BTreeMap<EndpointId, usize>,
}

impl Peers {
    /// Opens the links to these members, and exposes the rings that they write.
    ///
    /// Errors: the transport cannot use a link, or one is missing.
    pub(crate) fn open<T: Transport>(
        transport: &mut T,
        settings: &TeamSettings,
        links: impl IntoIterator<Item = (u32, T::Link)>,
    ) -> Result<Self, Error> {
        let (mut all, mut by_endpoint) = (Vec::new(), BTreeMap::new());
        for (rank, link) in links {
            let failed = |error| Error::Link { member: rank, error };
            let endpoint = transport.open(link).map_err(failed)?;
            let mut slots = Slots::new(settings);
            let exposed = slots.expose(transport, endpoint, settings);
            let word = exposed.map(|marks| Word::Exposed(marks).encode());
            match word.and_then(|word| transport.write_control(endpoint, &word)) {
                // It has ended already: a completion reports why, and the team fails.
                Ok(()) | Err(PostError::EndpointGone(_)) => {}
                Err(error) => return Err(failed(error)),
            }
            all.push(Peer::new(rank, endpoint, slots, settings));
        }
        all.sort_unstable_by_key(|peer| peer.rank);
        let endpoints = all.iter().enumerate();
        by_endpoint.extend(endpoints.filter_map(|(index, peer)| Some((peer.endpoint?, index))));
        let is_missing = |rank: &u32| all.binary_search_by_key(rank, |peer| peer.rank).is_err();
        match settings.links().into_iter().find(is_missing) {
            Some(rank) => Err(Error::NoLink(rank)),
            None => Ok(Self { all, by_endpoint }),
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

    /// Looks at the next slots of all members whose writes are not reported: one load for each ring if there is nothing.
    /// Returns whether there was anything. Errors: as [`Peer::look`].
    pub(crate) fn look(&mut self, core: &mut Member) -> Result<bool, Fault> {
        let mut has_found = false;
        for peer in self.all.iter_mut().filter(|peer| peer.slots.has_marks()) {
            has_found |= peer.look(core)?;
        }
        Ok(has_found)
    }

    /// Returns whether [`Peers::look`] sees the writes of all members.
    pub(crate) fn all_show(&self) -> bool {
        self.all.iter().all(|peer| peer.slots.has_marks())
    }

    /// Returns whether [`Peers::look`] would find something.
    pub(crate) fn show_something(&self) -> bool {
        let shows = |peer: &Peer| Ring::ALL.into_iter().any(|ring| peer.slots.shows_next(ring));
        self.all.iter().any(shows)
    }

    /// Writes contents of an operation to a member's ring. Does nothing if its endpoint has ended: a completion reports that.
    ///
    /// Errors: of the transport.
    pub(crate) fn write<T: Transport>(
        &mut self,
        transport: &mut T,
        staging: &mut Staging,
        to: u32,
        ring: Ring,
        contents: &[u8],
        header: Header,
    ) -> Result<(), String> {
        let Some(peer) = self.of_rank(to) else { return Ok(()) };
        let Some(endpoint) = peer.endpoint else { return Ok(()) };
        match peer.outgoing.write(transport, endpoint, staging, ring, contents, header) {
            Ok(()) | Err(PostError::EndpointGone(_)) => Ok(()),
            Err(error) => Err(format!("a write to member {to}: {error}")),
        }
    }

    /// Closes all links.
    pub(crate) fn close<T: Transport>(&self, transport: &mut T) {
        self.by_endpoint.keys().for_each(|&endpoint| transport.close(endpoint));
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
