//! What one member sends and receives in a long operation: blocks, from memory to memory.
//!
//! Lists in the order in which each link carries them; both ends of a link have the same order. A receiver grants the right to
//! send: it counts the receives that it has posted, and the sender sends no more blocks than that.
//!
//! Blocks are folded in the order in which their receives were added, whichever comes first: sums of floating-point numbers are the
//! same in every run. Receives of such blocks are posted in that order, too, over all links: those that are folded next have scratch
//! memory first, and never wait for it behind others.

use std::ops::Range;

/// Folded blocks are received into scratch memory, this many at a time for each operation.
const SCRATCH_BLOCKS: usize = 8;

/// Receives that are posted at a time on each link for each operation.
const POSTED_MAX: usize = 32;

/// Sends that are posted at a time on each link for each operation: enough that the link never idles.
const SENDS_MAX: usize = 4;

/// A block that comes from another member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Receive {
    pub(crate) from: u32,
    /// Where it belongs in memory.
    pub(crate) place: Range<u64>,
    /// It is folded there, instead of replacing what is there.
    pub(crate) folds: bool,
    /// The send that must have completed before, since it reads the same memory.
    pub(crate) after: Option<u32>,
    /// How many transfers were added before it.
    number: usize,
    /// It has come, but may have to be folded.
    has_come: bool,
    is_done: bool,
}

/// A block that goes to another member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Send {
    pub(crate) to: u32,
    /// Where it is in memory.
    pub(crate) place: Range<u64>,
    /// The receive that must be done before, since it makes the block; see [`Order::Rounds`].
    pub(crate) after: Option<u32>,
    /// How many transfers were added before it.
    number: usize,
    is_done: bool,
}

/// What one link carries in one direction, in order.
#[derive(Clone, Debug)]
struct Lane {
    peer: u32,
    /// Indices of receives, or of sends.
    blocks: Vec<u32>,
    /// How many of them were posted, and how many are complete.
    posted: usize,
    completed: usize,
    /// How many the other member has granted: of sends only.
    granted: usize,
}

/// What sends wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Order {
    /// For the receive that makes the block.
    #[default]
    Blocks,
    /// For all receives up to that one: a block may be made of several.
    Rounds,
    /// For the receive that makes the block, and for the sends before: they are posted in the order in which they were added, over
    /// all links. Each must need no more than what a schedule has completed before it, at all members; otherwise members would
    /// wait for each other.
    ///
    /// For schedules with at most one send per round. Otherwise blocks of later rounds could be ahead of the current round's in the
    /// queue of a port that serves posts in order (head-of-line blocking).
    Sends,
}

/// The transfers of one member in one operation, and how far they are.
#[derive(Clone, Debug, Default)]
pub(crate) struct Transfers {
    receives: Vec<Receive>,
    sends: Vec<Send>,
    inbound: Vec<Lane>,
    outbound: Vec<Lane>,
    /// Receives whose blocks are folded, in order.
    folds: Vec<u32>,
    /// How many of those were posted, and how many of their blocks were folded.
    posted_folds: usize,
    folded: usize,
    completed: usize,
    /// All receives before this one are done.
    received: usize,
    order: Order,
    posted_sends: usize,
}

impl Transfers {
    /// Returns no transfers.
    pub(crate) fn new(order: Order) -> Self {
        Self { order, ..Self::default() }
    }

    /// Adds a receive, behind all others of that member, in the order of rounds. Returns its index.
    pub(crate) fn receive(
        &mut self,
        from: u32,
        place: Range<u64>,
        folds: bool,
        after: Option<u32>,
    ) -> u32 {
        let index = self.receives.len() as u32;
        let number = self.receives.len() + self.sends.len();
        self.receives.push(Receive {
            from,
            place,
            folds,
            after,
            number,
            has_come: false,
            is_done: false,
        });
        self.folds.extend(folds.then_some(index));
        Lane::of(&mut self.inbound, from).blocks.push(index);
        index
    }

    /// Adds a send, behind all others to that member, in the order of rounds. Returns its index.
    pub(crate) fn send(&mut self, to: u32, place: Range<u64>, after: Option<u32>) -> u32 {
        let index = self.sends.len() as u32;
        let number = self.receives.len() + self.sends.len();
        self.sends.push(Send { to, place, after, number, is_done: false });
        Lane::of(&mut self.outbound, to).blocks.push(index);
        index
    }

    /// Returns the members from which blocks come.
    pub(crate) fn sources(&self) -> impl Iterator<Item = u32> + '_ {
        self.inbound.iter().map(|lane| lane.peer)
    }

    /// Returns the members to which blocks go.
    pub(crate) fn targets(&self) -> impl Iterator<Item = u32> + '_ {
        self.outbound.iter().map(|lane| lane.peer)
    }

    /// Returns whether everything has come and was sent.
    pub(crate) fn are_complete(&self) -> bool {
        self.completed == self.receives.len() + self.sends.len()
    }

    /// Takes the next receive from a member that can be posted now, with its index.
    pub(crate) fn next_receive(&mut self, from: u32) -> Option<(u32, &Receive)> {
        let lane = self.inbound.iter_mut().find(|lane| lane.peer == from)?;
        let index = *lane.blocks.get(lane.posted)?;
        let receive = &self.receives[index as usize];
        let is_free = |send: u32| self.sends[send as usize].is_done;
        let is_next = self.folds.get(self.posted_folds) == Some(&index);
        let has_scratch = is_next && self.posted_folds - self.folded < SCRATCH_BLOCKS;
        let may_post = lane.posted - lane.completed < POSTED_MAX;
        if receive.folds && !has_scratch || !may_post || !receive.after.is_none_or(is_free) {
            return None;
        }
        lane.posted += 1;
        self.posted_folds += usize::from(receive.folds);
        Some((index, receive))
    }

    /// Takes the next send to a member that can be posted now, with its index.
    pub(crate) fn next_send(&mut self, to: u32) -> Option<(u32, &Send)> {
        let lane = self.outbound.iter_mut().find(|lane| lane.peer == to)?;
        let index = *lane.blocks.get(lane.posted)?;
        let send = &self.sends[index as usize];
        let has_come = |receive: u32| match self.order {
            Order::Rounds => (receive as usize) < self.received,
            Order::Blocks | Order::Sends => self.receives[receive as usize].is_done,
        };
        let is_next = self.order != Order::Sends || index as usize == self.posted_sends;
        let may_post = lane.posted < lane.granted && lane.posted - lane.completed < SENDS_MAX;
        if !is_next || !may_post || !send.after.is_none_or(has_come) {
            return None;
        }
        lane.posted += 1;
        self.posted_sends += 1;
        Some((index, send))
    }

    /// Returns how many receives from a member were posted.
    pub(crate) fn posted_receives(&self, from: u32) -> u32 {
        let lane = self.inbound.iter().find(|lane| lane.peer == from);
        lane.map_or(0, |lane| lane.posted as u32)
    }

    /// Notes how many blocks a member has granted in all. Returns whether that is possible.
    pub(crate) fn granted(&mut self, by: u32, blocks: u32) -> bool {
        let blocks = blocks as usize;
        let Some(lane) = self.outbound.iter_mut().find(|lane| lane.peer == by) else {
            return false;
        };
        let is_possible = (lane.granted..=lane.blocks.len()).contains(&blocks);
        if is_possible {
            lane.granted = blocks;
        }
        is_possible
    }

    /// Returns whether all receives from a member were posted.
    pub(crate) fn has_posted_receives(&self, from: u32) -> bool {
        self.inbound.iter().all(|lane| lane.peer != from || lane.posted == lane.blocks.len())
    }

    /// Returns whether all sends to a member were posted.
    pub(crate) fn has_posted_sends(&self, to: u32) -> bool {
        self.outbound.iter().all(|lane| lane.peer != to || lane.posted == lane.blocks.len())
    }

    /// Takes the next block that can be folded, with the index of its receive: it has to be folded at once.
    pub(crate) fn next_fold(&mut self) -> Option<(u32, Range<u64>)> {
        let index = *self.folds.get(self.folded)?;
        let receive = &self.receives[index as usize];
        let place = receive.has_come.then(|| receive.place.clone())?;
        self.folded += 1;
        self.done(index);
        Some((index, place))
    }

    /// Notes that a block has come. One that has to be folded is done afterwards: [`Transfers::next_fold`].
    pub(crate) fn received(&mut self, index: u32) {
        let Some(receive) = self.receives.get_mut(index as usize).filter(|it| !it.has_come) else {
            return;
        };
        receive.has_come = true;
        let folds = receive.folds;
        Lane::of(&mut self.inbound, receive.from).completed += 1;
        if !folds {
            self.done(index);
        }
    }

    fn done(&mut self, index: u32) {
        self.receives[index as usize].is_done = true;
        self.completed += 1;
        while self.receives.get(self.received).is_some_and(|receive| receive.is_done) {
            self.received += 1;
        }
    }

    /// Notes that a send has completed: its memory may change.
    pub(crate) fn sent(&mut self, index: u32) {
        let Some(send) = self.sends.get_mut(index as usize).filter(|it| !it.is_done) else {
            return;
        };
        send.is_done = true;
        Lane::of(&mut self.outbound, send.to).completed += 1;
        self.completed += 1;
    }

    /// Returns the members that have to send something, or to receive: in the order in which their first transfers that are not done
    /// were added. As that is the order of rounds, the first ones do not wait for each other in a circle, unless a network carries
    /// blocks in another order.
    pub(crate) fn awaited(&self) -> Vec<u32> {
        let missing = self.inbound.iter().filter_map(|lane| {
            let mut receives = lane.blocks.iter().map(|&index| &self.receives[index as usize]);
            Some((receives.find(|receive| !receive.has_come)?.number, lane.peer))
        });
        let stuck = self.outbound.iter().filter_map(|lane| {
            let mut sends = lane.blocks.iter().map(|&index| &self.sends[index as usize]);
            Some((sends.find(|send| !send.is_done)?.number, lane.peer))
        });
        let mut all: Vec<_> = missing.chain(stuck).collect();
        all.sort_unstable();
        all.into_iter().map(|(_, peer)| peer).collect()
    }
}

impl Lane {
    /// Returns the lane of a member, which is made if there is none.
    fn of(lanes: &mut Vec<Self>, peer: u32) -> &mut Self {
        let at = lanes.iter().position(|lane| lane.peer == peer).unwrap_or(lanes.len());
        if at == lanes.len() {
            lanes.push(Self { peer, blocks: Vec::new(), posted: 0, completed: 0, granted: 0 });
        }
        &mut lanes[at]
    }
}
