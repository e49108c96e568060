//! One operation at one member: what has come, and what was sent.
//!
//! A short one has two parts. In the first, contributions go up a reduction tree to rank 0; in the second, a message goes down
//! a broadcast tree. What a link carries for a part is cut into pieces, one for each slot, and each piece goes on as soon as
//! it can. Or members exchange what they have folded. A long one is a list of transfers of blocks.

use crate::{
    BroadcastTree, Call, Choice, Kind, ReductionTree, Ring, Way, exchange::Exchange, parts::Parts,
    pieces::Pieces, routes, settings::Settings, transfers::Transfers,
};

/// One operation at one member.
#[derive(Clone, Debug)]
pub(crate) struct Operation {
    pub(crate) call: Call,
    pub(crate) up: Option<Up>,
    pub(crate) down: Option<Down>,
    pub(crate) exchange: Option<Exchange>,
    /// Those of a long operation. Boxed, as most have none.
    pub(crate) transfers: Option<Box<Transfers>>,
}

/// Contributions that go up to rank 0, or to the root of a gather.
#[derive(Clone, Debug)]
pub(crate) struct Up {
    /// In ascending order, in which they are folded.
    pub(crate) children: Vec<Pieces>,
    /// `None` where they go to.
    pub(crate) parent: Option<Pieces>,
    /// Pieces of the contributions of this member's subtree.
    pieces: u64,
    /// Contributions stand side by side, instead of being folded.
    pub(crate) gathers: bool,
}

/// A message that goes down from its source.
#[derive(Clone, Debug)]
pub(crate) struct Down {
    /// `None` at the source.
    pub(crate) parent: Option<Pieces>,
    pub(crate) children: Vec<Pieces>,
    pub(crate) pieces: u64,
    /// How many of them are in this member's memory.
    pub(crate) present: u64,
    /// Each child gets parts of it, instead of all.
    pub(crate) scatters: bool,
}

impl Operation {
    pub(crate) fn new(call: Call, choice: Choice, settings: &Settings) -> Self {
        let mut operation = Self { call, up: None, down: None, exchange: None, transfers: None };
        match choice.way {
            Way::Trees { degree } => {
                operation.up = match (degree, call.kind) {
                    (_, Kind::Gather) => Some(Up::gathering(&call, choice.way, settings)),
                    (degree, _) => degree.map(|degree| Up::new(&call, degree, settings)),
                };
                operation.down = match call.kind {
                    Kind::Gather => None,
                    Kind::Scatter | Kind::ReduceScatter => {
                        Some(Down::scattering(&call, choice.way, settings))
                    }
                    _ => Down::new(&call, settings),
                };
            }
            Way::Exchange => operation.exchange = Some(Exchange::new(&call, settings)),
            _ => operation.transfers = Some(Box::new(routes::transfers(&call, choice, settings))),
        }
        operation
    }

    /// Returns the rings on which something has to be sent.
    pub(crate) fn sends(&self) -> impl Iterator<Item = (Ring, u32)> + '_ {
        let up = self.up.iter().filter_map(|up| Some((Ring::Up, up.parent.as_ref()?.peer)));
        let down = self.down.iter().flat_map(|down| &down.children);
        let exchanged = self.exchange.iter().flat_map(Exchange::targets);
        let exchanged = exchanged.map(|target| (Ring::Up, target));
        up.chain(down.map(|child| (Ring::Down, child.peer))).chain(exchanged)
    }

    /// Returns the rings on which something has to come.
    pub(crate) fn receives(&self) -> impl Iterator<Item = (Ring, u32)> + '_ {
        let up = self.up.iter().flat_map(|up| &up.children).map(|child| (Ring::Up, child.peer));
        let down =
            self.down.iter().filter_map(|down| Some((Ring::Down, down.parent.as_ref()?.peer)));
        let exchanged = self.exchange.iter().flat_map(Exchange::sources);
        up.chain(down).chain(exchanged.map(|source| (Ring::Up, source)))
    }

    /// Returns whether this member has nothing left to do.
    pub(crate) fn is_complete(&self) -> bool {
        let up = self
            .up
            .as_ref()
            .is_none_or(|up| up.is_ready() && up.parent.as_ref().is_none_or(Pieces::are_done));
        let down = self.down.as_ref().is_none_or(|down| {
            down.present == down.pieces && down.children.iter().all(Pieces::are_done)
        });
        let exchanged = self.exchange.as_ref().is_none_or(Exchange::is_complete);
        up && down && exchanged && self.transfers.as_deref().is_none_or(Transfers::are_complete)
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
            if !gathers {
                return 0..call.all_bytes(settings.members);
            }
            let ranks = tree.subtree(rank);
            u64::from(ranks.start) * call.bytes..u64::from(ranks.end) * call.bytes
        };
        let children = tree.children(settings.rank);
        let own = place(settings.rank);
        Self {
            children: children
                .map(|(_, from)| Pieces::new(from, place(from), call, settings))
                .collect(),
            pieces: settings.pieces(call, own.end - own.start),
            parent: tree.parent(settings.rank).map(|to| Pieces::new(to, own, call, settings)),
            gathers,
        }
    }

    /// Parts on their way to the root of a gather.
    fn gathering(call: &Call, way: Way, settings: &Settings) -> Self {
        let parts = Parts::of(call, way, settings);
        // In ascending order of their places.
        let children = parts.children().rev();
        let parent = parts.parent().map(|to| Pieces::new(to, parts.own(), call, settings));
        Self {
            children: children
                .map(|(from, place)| Pieces::new(from, place, call, settings))
                .collect(),
            pieces: parent.as_ref().map_or(1, |parent| parent.total),
            parent,
            gathers: true,
        }
    }

    /// Returns the members that this one waits for: others may wait for it, until pieces of all are folded.
    fn awaited(&self) -> Vec<u32> {
        let missing = in_order_of_pieces(&self.children);
        let full = self.parent.iter().filter(|parent| !parent.are_done());
        missing.chain(full.map(|parent| parent.peer)).collect()
    }

    /// Returns whether the contributions of this member's subtree are complete.
    pub(crate) fn is_ready(&self) -> bool {
        self.ready() == self.pieces
    }

    /// Returns how many pieces of this member's subtree are complete.
    pub(crate) fn ready(&self) -> u64 {
        if !self.gathers {
            return self.children.iter().map(|child| child.done).min().unwrap_or(self.pieces);
        }
        // Pieces of the whole are not those of the parts.
        let all_have_come = self.children.iter().all(Pieces::are_done);
        if all_have_come { self.pieces } else { 0 }
    }
}

impl Down {
    /// As [`Up::awaited`].
    fn awaited(&self) -> Vec<u32> {
        let missing = self.parent.iter().filter(|parent| !parent.are_done());
        missing.map(|parent| parent.peer).chain(in_order_of_pieces(&self.children)).collect()
    }

    /// Returns how many of its pieces a child may get.
    pub(crate) fn ready(&self) -> u64 {
        match self.scatters {
            false => self.present,
            // Pieces of the whole are not those of the parts.
            true if self.present == self.pieces => u64::MAX,
            true => 0,
        }
    }

    /// Returns `None` at members that the message does not reach.
    fn new(call: &Call, settings: &Settings) -> Option<Self> {
        let source = if call.kind == Kind::Broadcast { call.root } else { 0 };
        let tree = BroadcastTree::new(settings.members, source);
        let bytes = call.all_bytes(settings.members);
        let mut children: Vec<u32> = tree.children(settings.rank).collect();
        if call.kind == Kind::Reduce {
            let path = tree.path(call.root);
            let at = path.iter().position(|&rank| rank == settings.rank)?;
            children = path.get(at + 1).copied().into_iter().collect();
        }
        let all = |peer| Pieces::new(peer, 0..bytes, call, settings);
        let parent = tree.parent(settings.rank);
        let pieces = settings.pieces(call, bytes);
        let is_present = call.kind == Kind::Broadcast && parent.is_none();
        Some(Self {
            parent: parent.map(all),
            children: children.into_iter().map(all).collect(),
            pieces,
            present: if is_present { pieces } else { 0 },
            scatters: false,
        })
    }

    /// Parts on their way from the root of a scatter, or from rank 0.
    fn scattering(call: &Call, way: Way, settings: &Settings) -> Self {
        let parts = Parts::of(call, way, settings);
        let parent = parts.parent().map(|from| Pieces::new(from, parts.own(), call, settings));
        let pieces = parent.as_ref().map_or(1, |parent| parent.total);
        let is_present = call.kind == Kind::Scatter && parent.is_none();
        Self {
            parent,
            children: parts
                .children()
                .map(|(to, place)| Pieces::new(to, place, call, settings))
                .collect(),
            pieces,
            present: if is_present { pieces } else { 0 },
            scatters: true,
        }
    }
}

/// Returns the members of which pieces are left: first the one with the fewest done.
fn in_order_of_pieces(all: &[Pieces]) -> impl Iterator<Item = u32> + use<> {
    let left = all.iter().filter(|it| !it.are_done());
    let mut left: Vec<_> = left.map(|it| (it.done, it.peer)).collect();
    left.sort_by_key(|&(done, _)| done);
    left.into_iter().map(|(_, peer)| peer)
}
