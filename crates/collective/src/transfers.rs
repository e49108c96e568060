//! What one member sends and receives in a long operation: blocks, from memory to memory.
//!
//! Lists in the order in which each link carries them; both ends of a link have the same order. A receiver grants the right to
//! send: it counts the receives that it has posted, and the sender sends no more blocks than that.

use std::ops::Range;

/// Folded blocks are received into scratch memory, this many at a time for each operation.
const SCRATCH_BLOCKS: u32 = 8;

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
    is_done: bool,
}

/// A block that goes to another member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Send {
    pub(crate) to: u32,
    /// Where it is in memory.
    pub(crate) place: Range<u64>,
    /// The receive that must have completed before, since it makes the block.
    pub(crate) after: Option<u32>,
    /// How many transfers were added before it.
    number: usize,
    is_done: bool,
}

/// What one link carries in one direction, in order.
#[derive(Debug)]
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

/// The transfers of one member in one operation, and how far they are.
#[derive(Debug, Default)]
pub(crate) struct Transfers {
    receives: Vec<Receive>,
    sends: Vec<Send>,
    inbound: Vec<Lane>,
    outbound: Vec<Lane>,
    /// Blocks of scratch memory in use.
    scratch: u32,
    completed: usize,
    /// Sends are posted in the order in which they were added, over all links, and not only on each.
    is_in_order: bool,
    posted_sends: usize,
}

impl Transfers {
    /// Returns no transfers, of which sends are to be posted in the order in which they are added, over all links. Each must need
    /// no more than what a schedule has completed before it, at all members; otherwise members would wait for each other.
    ///
    /// For schedules whose rounds have one send at most: without it a port that serves posts in order sends blocks that nobody waits
    /// for yet, while those of the present round wait behind them.
    pub(crate) fn in_order() -> Self {
        Self { is_in_order: true, ..Self::default() }
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
        self.receives.push(Receive { from, place, folds, after, number, is_done: false });
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
        let has_scratch = !receive.folds || self.scratch < SCRATCH_BLOCKS;
        let may_post = lane.posted - lane.completed < POSTED_MAX;
        if !has_scratch || !may_post || !receive.after.is_none_or(is_free) {
            return None;
        }
        lane.posted += 1;
        self.scratch += u32::from(receive.folds);
        Some((index, receive))
    }

    /// Takes the next send to a member that can be posted now, with its index.
    pub(crate) fn next_send(&mut self, to: u32) -> Option<(u32, &Send)> {
        let lane = self.outbound.iter_mut().find(|lane| lane.peer == to)?;
        let index = *lane.blocks.get(lane.posted)?;
        let send = &self.sends[index as usize];
        let has_come = |receive: u32| self.receives[receive as usize].is_done;
        let is_next = !self.is_in_order || index as usize == self.posted_sends;
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

    /// Notes that a receive has completed, and its block was folded if it had to be.
    pub(crate) fn received(&mut self, index: u32) {
        let Some(receive) = self.receives.get_mut(index as usize).filter(|it| !it.is_done) else {
            return;
        };
        receive.is_done = true;
        self.scratch -= u32::from(receive.folds);
        Lane::of(&mut self.inbound, receive.from).completed += 1;
        self.completed += 1;
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
            Some((receives.find(|receive| !receive.is_done)?.number, lane.peer))
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
