//! One operation at one member: what has come, and what was sent.
//!
//! A short one has two parts. In the first, contributions go up a reduction tree to rank 0; in the second, a message goes down
//! a broadcast tree. What a link carries for a part is cut into pieces, one for each slot, and each piece goes on as soon as
//! it can. Or members exchange what they have folded. A long one is a list of transfers of blocks.

use crate::{
    BroadcastTree, Call, Choice, Kind, ReductionTree, Ring, Way,
    exchange::Exchange,
    part::{Incoming, Outgoing},
    routes,
    settings::Settings,
    transfers::Transfers,
};

/// One operation at one member.
#[derive(Debug)]
pub(crate) struct Operation {
    pub(crate) call: Call,
    pub(crate) up: Option<Up>,
    pub(crate) down: Option<Down>,
    pub(crate) exchange: Option<Exchange>,
    /// Those of a long operation.
    pub(crate) transfers: Option<Transfers>,
}

/// Contributions that go up to rank 0.
#[derive(Debug)]
pub(crate) struct Up {
    /// In ascending order, in which they are folded.
    pub(crate) children: Vec<Incoming>,
    /// `None` at rank 0.
    pub(crate) parent: Option<Outgoing>,
    /// Pieces of the contributions of this member's subtree.
    pieces: u64,
    /// Contributions stand side by side, instead of being folded.
    pub(crate) gathers: bool,
}

/// A message that goes down from its source.
#[derive(Debug)]
pub(crate) struct Down {
    /// `None` at the source.
    pub(crate) parent: Option<Incoming>,
    pub(crate) children: Vec<Outgoing>,
    pub(crate) pieces: u64,
    /// How many of them are in this member's memory.
    pub(crate) present: u64,
}

impl Operation {
    pub(crate) fn new(call: Call, choice: Choice, settings: &Settings) -> Self {
        let mut operation = Self { call, up: None, down: None, exchange: None, transfers: None };
        match choice.way {
            Way::Trees { degree } => {
                operation.up = degree.map(|degree| Up::new(&call, degree, settings));
                operation.down = Down::new(&call, settings);
            }
            Way::Exchange => operation.exchange = Some(Exchange::new(&call, settings)),
            _ => operation.transfers = Some(routes::transfers(&call, choice, settings)),
        }
        operation
    }

    /// Returns the rings on which something has to be sent.
    pub(crate) fn sends(&self) -> impl Iterator<Item = (Ring, u32)> + '_ {
        let up = self.up.iter().filter_map(|up| Some((Ring::Up, up.parent.as_ref()?.to)));
        let down = self.down.iter().flat_map(|down| &down.children);
        let exchanged = self.exchange.iter().flat_map(Exchange::targets);
        let exchanged = exchanged.map(|target| (Ring::Up, target));
        up.chain(down.map(|child| (Ring::Down, child.to))).chain(exchanged)
    }

    /// Returns the rings on which something has to come.
    pub(crate) fn receives(&self) -> impl Iterator<Item = (Ring, u32)> + '_ {
        let up = self.up.iter().flat_map(|up| &up.children).map(|child| (Ring::Up, child.from));
        let down =
            self.down.iter().filter_map(|down| Some((Ring::Down, down.parent.as_ref()?.from)));
        let exchanged = self.exchange.iter().flat_map(Exchange::sources);
        up.chain(down).chain(exchanged.map(|source| (Ring::Up, source)))
    }

    /// Returns whether this member has nothing left to do.
    pub(crate) fn is_complete(&self) -> bool {
        let up = self.up.as_ref().is_none_or(|up| {
            up.is_ready() && up.parent.as_ref().is_none_or(|parent| parent.pieces == up.pieces)
        });
        let down = self.down.as_ref().is_none_or(|down| {
            down.present == down.pieces
                && down.children.iter().all(|child| child.pieces == down.pieces)
        });
        let exchanged = self.exchange.as_ref().is_none_or(Exchange::is_complete);
        up && down && exchanged && self.transfers.as_ref().is_none_or(Transfers::are_complete)
    }

    /// Returns the members that have to send something, or to make room for it: first the one that this member needs next. One may
    /// be there twice.
    pub(crate) fn awaited(&self) -> Vec<u32> {
        if let Some(transfers) = &self.transfers {
            return transfers.awaited();
        }
        if let Some(exchange) = &self.exchange {
            return exchange.awaited();
        }
        let up = self.up.iter().flat_map(Up::awaited);
        up.chain(self.down.iter().flat_map(Down::awaited)).collect()
    }
}

impl Up {
    fn new(call: &Call, degree: u32, settings: &Settings) -> Self {
        let gathers = call.kind == Kind::AllGather;
        let tree = ReductionTree::new(settings.members, degree);
        let place = |rank| {
            let ranks = if gathers { tree.subtree(rank) } else { 0..1 };
            u64::from(ranks.start) * call.bytes..u64::from(ranks.end) * call.bytes
        };
        let children = tree.children(settings.rank);
        let own = place(settings.rank);
        Self {
            children: children
                .map(|(_, from)| Incoming::new(from, place(from), call, settings))
                .collect(),
            pieces: settings.pieces(call, own.end - own.start),
            parent: tree.parent(settings.rank).map(|to| Outgoing { to, place: own, pieces: 0 }),
            gathers,
        }
    }

    /// Returns the members that this one waits for: others may wait for it, until pieces of all are folded.
    fn awaited(&self) -> Vec<u32> {
        let missing = self.children.iter().filter(|child| child.pieces < child.total);
        let mut missing: Vec<_> = missing.map(|child| (child.pieces, child.from)).collect();
        missing.sort_by_key(|&(pieces, _)| pieces);
        let full = self.parent.iter().filter(|parent| parent.pieces < self.pieces);
        missing.into_iter().map(|(_, child)| child).chain(full.map(|parent| parent.to)).collect()
    }

    /// Returns whether the contributions of this member's subtree are complete.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready() == self.pieces
    }

    /// Returns how many pieces of this member's subtree are complete.
    pub(crate) fn ready(&self) -> u64 {
        if !self.gathers {
            return self.children.iter().map(|child| child.pieces).min().unwrap_or(self.pieces);
        }
        // Pieces of the whole are not those of the parts.
        let all_have_come = self.children.iter().all(|child| child.pieces == child.total);
        if all_have_come { self.pieces } else { 0 }
    }
}

impl Down {
    /// As [`Up::awaited`].
    fn awaited(&self) -> Vec<u32> {
        let missing = self.parent.iter().filter(|parent| parent.pieces < parent.total);
        let full = self.children.iter().filter(|child| child.pieces < self.pieces);
        let mut full: Vec<_> = full.map(|child| (child.pieces, child.to)).collect();
        full.sort_by_key(|&(pieces, _)| pieces);
        missing.map(|parent| parent.from).chain(full.into_iter().map(|(_, child)| child)).collect()
    }

    /// Returns `None` at members that the message does not reach.
    fn new(call: &Call, settings: &Settings) -> Option<Self> {
        let source = if call.kind == Kind::Broadcast { call.root } else { 0 };
        let tree = BroadcastTree::new(settings.members, source);
        let bytes = match call.kind {
            Kind::AllGather => call.bytes * u64::from(settings.members),
            _ => call.bytes,
        };
        let mut children: Vec<u32> = tree.children(settings.rank).collect();
        if call.kind == Kind::Reduce {
            let path = tree.path(call.root);
            let at = path.iter().position(|&rank| rank == settings.rank)?;
            children = path.get(at + 1).copied().into_iter().collect();
        }
        let outgoing = |to| Outgoing { to, place: 0..bytes, pieces: 0 };
        let parent = tree.parent(settings.rank);
        let pieces = settings.pieces(call, bytes);
        let is_present = call.kind == Kind::Broadcast && parent.is_none();
        Some(Self {
            parent: parent.map(|from| Incoming::new(from, 0..bytes, call, settings)),
            children: children.into_iter().map(outgoing).collect(),
            pieces,
            present: if is_present { pieces } else { 0 },
        })
    }
}
