//! All operations of a team at one member.

use std::collections::VecDeque;

use crate::{
    Call, Choice, Contents, Effect, Fault, Header, Ring, WaySelection,
    exchange::{Exchange, Step},
    grants::{Grant, Grants},
    operation::Operation,
    parts::Parts,
    pieces::Pieces,
    place::Piece,
    ring,
    settings::Settings,
    transfers::{Receive, Send, Transfers},
};

/// How many calls are remembered, to name what differs.
const CALLS_MAX: usize = 256;

/// How many choices, and how many short operations, are remembered: programs repeat few calls, and short ones take less time than a
/// choice, or than finding their trees.
const CHOICES_MAX: usize = 16;
const OPERATIONS_MAX: usize = 16;

/// One member of a team: events in, [`Effect`]s out.
///
/// Operations have numbers in the order of calls. Several may be under way; on each ring they are sent in the order of their
/// numbers, so that what a member needs for an operation never waits behind what it has not called yet.
#[derive(Debug)]
pub struct Member {
    settings: Settings,
    /// By rank.
    links: Vec<Link>,
    /// Operations that are not complete, or wait for an earlier one. Boxed, as they are moved often.
    operations: VecDeque<Option<Box<Operation>>>,
    /// Number of `operations[0]`.
    first: u64,
    /// The last calls; the last is that of the last operation.
    calls: VecDeque<Call>,
    /// The last choices.
    choices: VecDeque<(Call, Choice)>,
    /// The last short operations, as they begin.
    remembered: VecDeque<Box<Operation>>,
    effects: VecDeque<Effect>,
    is_leaving: bool,
}

/// What this member and another count.
#[derive(Debug)]
struct Link {
    rank: u32,
    grants: Grants,
    outgoing: [ring::Outgoing; 2],
    incoming: [ring::Incoming; 2],
    /// How many operations it had called when it left.
    left: Option<u64>,
}

impl Member {
    /// Makes a member that has called nothing.
    pub fn new(settings: Settings) -> Self {
        let link = |rank| Link {
            rank,
            grants: Grants::default(),
            outgoing: Default::default(),
            incoming: Default::default(),
            left: None,
        };
        Self {
            links: settings.links().into_iter().map(link).collect(),
            settings,
            operations: VecDeque::new(),
            first: 0,
            calls: VecDeque::new(),
            choices: VecDeque::new(),
            remembered: VecDeque::new(),
            effects: VecDeque::new(),
            is_leaving: false,
        }
    }

    /// Returns the members to which this one is linked, in ascending order.
    pub fn linked(&self) -> impl Iterator<Item = u32> + '_ {
        self.links.iter().map(|link| link.rank)
    }

    /// Sets how ways are chosen; before the first call. Links stay as they are.
    pub fn set_ways(&mut self, ways: WaySelection) {
        self.settings.ways = ways;
        self.choices.clear();
        self.remembered.clear();
    }

    /// Returns how a call goes.
    pub fn choice(&mut self, call: &Call) -> Choice {
        // Roots make no difference.
        let call = Call { root: 0, ..*call };
        if let Some((_, choice)) = self.choices.iter().find(|(known, _)| *known == call) {
            return *choice;
        }
        let choice = self.settings.choice(&call);
        if self.choices.len() == CHOICES_MAX {
            self.choices.pop_front();
        }
        self.choices.push_back((call, choice));
        choice
    }

    /// Returns an operation before it has begun.
    fn new_operation(&mut self, call: Call) -> Box<Operation> {
        if let Some(known) = self.remembered.iter().find(|known| known.call == call) {
            return known.clone();
        }
        let choice = self.choice(&call);
        let operation = Box::new(Operation::new(call, choice, &self.settings));
        // Long ones have a list of blocks, and take time anyway.
        if operation.transfers.is_none() {
            if self.remembered.len() == OPERATIONS_MAX {
                self.remembered.pop_front();
            }
            self.remembered.push_back(operation.clone());
        }
        operation
    }

    /// Returns the length in bytes of this member's memory for a call: [`Call::all_bytes`], but in a scatter or gather only at the
    /// root. Other members have their part there, first, and parts on their way to and from others behind it.
    pub fn memory_bytes(&mut self, call: &Call) -> u64 {
        if !call.kind.has_parts_at_root() {
            return call.all_bytes(self.settings.members);
        }
        let way = self.choice(call).way;
        Parts::of(call, way, &self.settings).memory_bytes()
    }

    /// Returns how many operations were called.
    pub fn called(&self) -> u64 {
        self.first + self.operations.len() as u64
    }

    /// Returns how many operations are complete, those behind an incomplete one not counted.
    pub fn completed(&self) -> u64 {
        self.first
    }

    /// Returns the next effect, if any.
    pub fn poll_effect(&mut self) -> Option<Effect> {
        self.effects.pop_front()
    }

    /// Starts the next operation, and returns its number.
    ///
    /// Errors: another member has called something else; the team cannot go on.
    pub fn start(&mut self, call: Call) -> Result<u64, Fault> {
        let number = self.called();
        let operation = self.new_operation(call);
        for (ring, peer) in operation.sends() {
            let index = self.index(peer);
            self.links[index].outgoing[ring as usize].operations.push_back(number);
        }
        for (ring, peer) in operation.receives() {
            let index = self.index(peer);
            self.links[index].incoming[ring as usize].operations.push_back(number);
        }
        if let Some(transfers) = &operation.transfers {
            transfers.sources().for_each(|peer| self.grants(peer).receiving.push_back(number));
            transfers.targets().for_each(|peer| self.grants(peer).sending.push_back(number));
        }
        self.operations.push_back(Some(operation));
        self.calls.push_back(call);
        if self.calls.len() > CALLS_MAX {
            self.calls.pop_front();
        }
        self.check_left()?;
        for index in 0..self.links.len() {
            Ring::ALL.into_iter().try_for_each(|ring| self.check_first(index, ring))?;
            if let Some(grant) = self.links[index].grants.take(number) {
                self.grant(self.links[index].rank, grant)?;
            }
        }
        self.advance()?;
        Ok(number)
    }

    /// Takes the header of the next slot that a member has written.
    ///
    /// Errors: it violates the protocol, or has called something else; the team cannot go on.
    pub fn written(
        &mut self,
        from: u32,
        ring: Ring,
        slot: u32,
        header: Header,
    ) -> Result<(), Fault> {
        let protocol = |what| Err(Fault::Protocol { member: from, what });
        let slots = self.settings.slots;
        let Ok(index) = self.links.binary_search_by_key(&from, |link| link.rank) else {
            return protocol("a write of a member without a link");
        };
        let incoming = &mut self.links[index].incoming[ring as usize];
        if incoming.written.len() >= slots as usize || incoming.next(slots) != slot {
            return protocol("a write to a slot that is not the next");
        }
        incoming.written.push_back(header);
        self.check_first(index, ring)?;
        self.advance()
    }

    /// Takes a member's report of how many slots it has freed in all.
    ///
    /// Errors: as [`Member::written`].
    pub fn freed(&mut self, by: u32, ring: Ring, count: u64) -> Result<(), Fault> {
        let index = self.links.binary_search_by_key(&by, |link| link.rank);
        let noted =
            index.is_ok_and(|index| self.links[index].outgoing[ring as usize].note_freed(count));
        if !noted {
            return Err(Fault::Protocol {
                member: by,
                what: "it frees slots that were not written",
            });
        }
        self.advance()
    }

    /// Takes a member's grant of this many blocks of an operation in all, with its call.
    ///
    /// Errors: as [`Member::written`].
    pub fn granted(
        &mut self,
        by: u32,
        operation: u64,
        call: Call,
        blocks: u32,
    ) -> Result<(), Fault> {
        let grant = Grant { operation, call, blocks };
        if operation < self.called() {
            self.grant(by, grant)?;
            return self.advance();
        }
        let index = self.links.binary_search_by_key(&by, |link| link.rank);
        let is_kept = index.is_ok_and(|index| self.links[index].grants.keep(grant));
        let what = "it takes back blocks that it has granted, or grants too far ahead";
        if is_kept { Ok(()) } else { Err(Fault::Protocol { member: by, what }) }
    }

    fn grant(&mut self, by: u32, grant: Grant) -> Result<(), Fault> {
        let Grant { operation, call, blocks } = grant;
        self.compare(by, operation, call)?;
        // Complete operations have no use for grants.
        let is_possible = self.transfers(operation).is_none_or(|it| it.granted(by, blocks));
        let what = "it grants blocks that the operation does not have";
        if is_possible { Ok(()) } else { Err(Fault::Protocol { member: by, what }) }
    }

    /// Notes that a block has come: [`Effect::Receive`].
    ///
    /// Errors: as [`Member::written`].
    pub fn received(&mut self, operation: u64, index: u32) -> Result<(), Fault> {
        if let Some(transfers) = self.transfers(operation) {
            transfers.received(index);
        }
        self.advance()
    }

    /// Notes that a block was sent: [`Effect::Send`].
    ///
    /// Errors: as [`Member::written`].
    pub fn sent(&mut self, operation: u64, index: u32) -> Result<(), Fault> {
        if let Some(transfers) = self.transfers(operation) {
            transfers.sent(index);
        }
        self.advance()
    }

    fn transfers(&mut self, operation: u64) -> Option<&mut Transfers> {
        let index = operation.checked_sub(self.first)?;
        self.operations.get_mut(index as usize)?.as_mut()?.transfers.as_deref_mut()
    }

    fn grants(&mut self, peer: u32) -> &mut Grants {
        let index = self.index(peer);
        &mut self.links[index].grants
    }

    /// Compares a member's call with this member's, if that is known.
    ///
    /// Errors: they differ; the team cannot go on.
    pub fn compare(&self, member: u32, operation: u64, theirs: Call) -> Result<(), Fault> {
        let Some(ours) = self.call(operation) else { return Ok(()) };
        match ours.difference(&theirs) {
            None => Ok(()),
            Some(difference) => {
                Err(Fault::Disagreement { operation, member, difference, ours, theirs })
            }
        }
    }

    /// Returns this member's call of an operation, if it has called it, and lately.
    pub fn call(&self, operation: u64) -> Option<Call> {
        let behind = self.called().checked_sub(operation + 1)?;
        let index = (self.calls.len() as u64).checked_sub(behind + 1)?;
        self.calls.get(index as usize).copied()
    }

    /// Notes that a member has left the team, and how many operations it has called. Without this a broadcast's root, which waits
    /// for no member, would close with success although others never called it.
    ///
    /// Errors: this member has called more, or has left with fewer; the team cannot go on.
    pub fn left(&mut self, member: u32, operations: u64) -> Result<(), Fault> {
        if let Ok(index) = self.links.binary_search_by_key(&member, |link| link.rank) {
            self.links[index].left = Some(operations);
        }
        self.check_left()
    }

    /// Notes that this member calls nothing more.
    ///
    /// Errors: another has called more; the team cannot go on.
    pub fn leave(&mut self) -> Result<(), Fault> {
        self.is_leaving = true;
        self.check_left()
    }

    fn check_left(&self) -> Result<(), Fault> {
        let ours = self.called();
        let differing = self.links.iter().find_map(|link| {
            let theirs = link.left?;
            (theirs < ours || self.is_leaving && theirs > ours).then_some((link.rank, theirs))
        });
        differing.map_or(Ok(()), |(member, theirs)| Err(Fault::Left { member, theirs, ours }))
    }

    /// Returns the first operation that is not complete, with the members that have to do something for it: first the one that this
    /// member needs next. Then those for later operations, whose blocks may occupy a port. One may be there twice.
    pub fn awaited(&self) -> Option<(u64, Vec<u32>)> {
        let operation = self.operations.front()?.as_ref()?;
        let mut awaited = operation.awaited();
        if awaited.is_empty() {
            return None;
        }
        let later = self.operations.iter().skip(1).flatten();
        awaited.extend(later.flat_map(|operation| operation.awaited()));
        Some((self.first, awaited))
    }

    fn index(&self, rank: u32) -> usize {
        let index = self.links.binary_search_by_key(&rank, |link| link.rank);
        index.expect("trees use links only")
    }

    /// Checks that the first slot of a ring is of the operation of which something has to come.
    fn check_first(&self, index: usize, ring: Ring) -> Result<(), Fault> {
        let Link { rank, incoming, .. } = &self.links[index];
        let (member, incoming) = (*rank, &incoming[ring as usize]);
        let Some(header) = incoming.written.front() else { return Ok(()) };
        let expected = incoming.operations.front();
        if header.operation >= self.called() && expected.is_none() {
            // It is ahead.
            return Ok(());
        }
        self.compare(member, header.operation, header.call)?;
        match expected {
            Some(&operation) if operation == header.operation => Ok(()),
            Some(&operation) if operation < header.operation => {
                Err(Fault::Skipped { operation, member, at: header.operation })
            }
            _ => {
                Err(Fault::Protocol { member, what: "a write that the operation has no place for" })
            }
        }
    }

    /// Does what can be done.
    fn advance(&mut self) -> Result<(), Fault> {
        let mut index = 0;
        while index < self.operations.len() {
            let Some(mut operation) = self.operations[index].take() else {
                index += 1;
                continue;
            };
            let number = self.first + index as u64;
            if let Some(transfers) = &mut operation.transfers {
                self.advance_transfers(number, operation.call, transfers);
            } else if let Some(exchange) = &mut operation.exchange {
                self.advance_exchange(number, operation.call, exchange)?;
            } else {
                self.advance_up(number, &mut operation)?;
                self.advance_down(number, &mut operation)?;
            }
            if operation.is_complete() {
                self.effects.push_back(Effect::Complete { operation: number });
            } else {
                self.operations[index] = Some(operation);
            }
            index += 1;
        }
        while matches!(self.operations.front(), Some(None)) {
            self.operations.pop_front();
            self.first += 1;
        }
        Ok(())
    }

    /// Posts receives and grants them, and posts sends that were granted, each link's in the order of operations.
    fn advance_transfers(&mut self, number: u64, call: Call, transfers: &mut Transfers) {
        let Self { links, effects, .. } = self;
        while let Some((index, place)) = transfers.next_fold() {
            let (at, bytes) = (place.start, place.end - place.start);
            effects.push_back(Effect::FoldBlock { operation: number, index, at, bytes });
        }
        let posted: Vec<u32> =
            links.iter().map(|link| transfers.posted_receives(link.rank)).collect();
        Self::post_receives(links, effects, number, transfers);
        for (Link { rank, .. }, posted) in links.iter().zip(posted) {
            let blocks = transfers.posted_receives(*rank);
            if blocks > posted {
                effects.push_back(Effect::Grant { to: *rank, operation: number, call, blocks });
            }
        }
        self.advance_sends(number, transfers);
    }

    fn post_receives(
        links: &mut [Link],
        effects: &mut VecDeque<Effect>,
        number: u64,
        transfers: &mut Transfers,
    ) {
        // One of a member of lower rank may have waited for scratch memory behind one of a higher rank.
        let mut has_posted = true;
        while std::mem::take(&mut has_posted) {
            for Link { rank, grants, .. } in links.iter_mut() {
                while grants.receiving.front() == Some(&number)
                    && let Some((index, receive)) = transfers.next_receive(*rank)
                {
                    let Receive { from, ref place, folds, .. } = *receive;
                    let (at, bytes) = (place.start, place.end - place.start);
                    effects.push_back(Effect::Receive {
                        operation: number,
                        index,
                        from,
                        at,
                        bytes,
                        folds,
                    });
                    has_posted = true;
                    if transfers.has_posted_receives(*rank) {
                        grants.receiving.pop_front();
                    }
                }
            }
        }
    }

    fn advance_sends(&mut self, number: u64, transfers: &mut Transfers) {
        let Self { links, effects, .. } = self;
        // A send may have waited for one to a member of higher rank.
        let mut has_posted = true;
        while std::mem::take(&mut has_posted) {
            for Link { rank, grants, .. } in links.iter_mut() {
                while grants.sending.front() == Some(&number)
                    && let Some((index, send)) = transfers.next_send(*rank)
                {
                    let Send { to, ref place, .. } = *send;
                    let (at, bytes) = (place.start, place.end - place.start);
                    effects.push_back(Effect::Send { operation: number, index, to, at, bytes });
                    has_posted = true;
                    if transfers.has_posted_sends(*rank) {
                        grants.sending.pop_front();
                    }
                }
            }
        }
    }

    /// Writes pieces that were folded in the step before, and takes those of the other member whose own ones were written.
    fn advance_exchange(
        &mut self,
        number: u64,
        call: Call,
        exchange: &mut Exchange,
    ) -> Result<(), Fault> {
        let mut ready = exchange.pieces;
        for Step { outgoing, incoming, folds } in &mut exchange.steps {
            if let Some(outgoing) = outgoing {
                self.send(number, call, Ring::Up, outgoing, ready);
                ready = outgoing.done;
            }
            let Some(incoming) = incoming else { continue };
            while incoming.done < ready
                && let Some((contents, at)) = self.receive(number, Ring::Up, incoming)?
            {
                let effect = if *folds {
                    let is_left = incoming.peer < self.settings.rank;
                    Effect::Fold { is_left, operation: number, contents, at }
                } else {
                    Effect::Copy { operation: number, contents, at }
                };
                self.used(effect, contents)?;
            }
            ready = incoming.done;
        }
        Ok(())
    }

    fn advance_up(&mut self, number: u64, operation: &mut Operation) -> Result<(), Fault> {
        let Some(up) = &mut operation.up else { return Ok(()) };
        // A piece is folded once that of the member before is.
        let mut limit = u64::MAX;
        for child in &mut up.children {
            while child.done < limit
                && let Some((contents, at)) = self.receive(number, Ring::Up, child)?
            {
                let effect = if up.gathers {
                    Effect::Copy { operation: number, contents, at }
                } else {
                    Effect::Fold { is_left: false, operation: number, contents, at }
                };
                self.used(effect, contents)?;
            }
            if !up.gathers {
                limit = child.done;
            }
        }
        let ready = up.ready();
        if let Some(parent) = &mut up.parent {
            self.send(number, operation.call, Ring::Up, parent, ready);
        }
        Ok(())
    }

    fn advance_down(&mut self, number: u64, operation: &mut Operation) -> Result<(), Fault> {
        let Some(down) = &mut operation.down else { return Ok(()) };
        if let Some(parent) = &mut down.parent {
            while let Some((contents, at)) = self.receive(number, Ring::Down, parent)? {
                down.present += 1;
                self.used(Effect::Copy { operation: number, contents, at }, contents)?;
            }
        } else if let Some(up) = &operation.up {
            down.present = match up.gathers || down.scatters {
                // Pieces of the whole are not those of the contributions, or of the parts.
                true if up.is_ready() => down.pieces,
                true => 0,
                false => up.ready(),
            };
        }
        let ready = down.ready();
        for child in &mut down.children {
            self.send(number, operation.call, Ring::Down, child, ready);
        }
        Ok(())
    }

    /// Takes the next piece from a member, if it has come: its contents, and their position in memory.
    fn receive(
        &mut self,
        number: u64,
        ring: Ring,
        from: &mut Pieces,
    ) -> Result<Option<(Contents, u64)>, Fault> {
        let slots = self.settings.slots;
        let index = self.index(from.peer);
        let incoming = &mut self.links[index].incoming[ring as usize];
        if from.are_done() || incoming.operations.front() != Some(&number) {
            return Ok(None);
        }
        let Some(header) = incoming.written.front() else { return Ok(None) };
        let Piece { offset, at, bytes } = from.next();
        if (header.offset, header.bytes) != (offset, bytes) {
            let what = "a piece that is not the next";
            return Err(Fault::Protocol { member: from.peer, what });
        }
        let contents = Contents { from: from.peer, ring, slot: incoming.first(slots), bytes };
        from.done += 1;
        if from.are_done() {
            incoming.operations.pop_front();
        }
        Ok(Some((contents, at)))
    }

    /// Has a slot's contents used, and frees the slot.
    fn used(&mut self, effect: Effect, Contents { from, ring, .. }: Contents) -> Result<(), Fault> {
        let slots = self.settings.slots;
        self.effects.push_back(effect);
        let index = self.index(from);
        let count = self.links[index].incoming[ring as usize].free(slots);
        self.effects.extend(count.map(|count| Effect::Freed { to: from, ring, count }));
        self.check_first(index, ring)
    }

    /// Writes pieces up to the first `ready`, as far as slots are free and it is the operation's turn.
    fn send(&mut self, number: u64, call: Call, ring: Ring, target: &mut Pieces, ready: u64) {
        let slots = self.settings.slots;
        let index = self.index(target.peer);
        let outgoing = &mut self.links[index].outgoing[ring as usize];
        while target.done < ready.min(target.total)
            && outgoing.operations.front() == Some(&number)
            && let Some(slot) = outgoing.take(slots)
        {
            let Piece { offset, at, bytes } = target.next();
            let header = Header { operation: number, call, offset, bytes, flag: 1 };
            self.effects.push_back(Effect::Write { to: target.peer, ring, slot, at, header });
            target.done += 1;
            if target.are_done() {
                outgoing.operations.pop_front();
            }
        }
    }
}
