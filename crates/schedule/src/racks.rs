//! Two layers for networks with slow links between racks ("Hybrid Algorithms" in DSN section 4.3 and the
//! RDMC preprints): one member leads each rack, the leaders relay among themselves, and each leader is the root
//! of a binomial pipeline inside its rack. A block enters each rack exactly once.
//!
//! # Both layers at once
//!
//! A leader belongs to both layers but has one port, so the layers take turns: the leaders use even steps and the
//! racks odd ones. A rack's pipeline needs block b at its leader by its own step b, whereas the leader may get it
//! as late as step b + lag of the leaders' layer; so step j of the rack is step 2(j + lag) + 1 of the whole.
//! With a single rack, or one member per rack, only one layer exists and uses every step.

use alloc::sync::Arc;

use crate::{
    chain::Chain,
    flow::{Flow, Hop, ceil_log2},
    pipeline::Pipeline,
    rack_table::RackTable,
};

/// How the leaders relay among themselves.
#[derive(Debug, Clone)]
pub(crate) enum Leaders {
    Chain(Chain),
    Pipeline(Pipeline),
}

impl Leaders {
    fn flow(&self) -> &dyn Flow {
        match self {
            Self::Chain(chain) => chain,
            Self::Pipeline(pipeline) => pipeline,
        }
    }

    fn lag(&self, rack: u32) -> u32 {
        match self {
            Self::Chain(chain) => chain.lag(rack),
            Self::Pipeline(pipeline) => pipeline.lag(rack),
        }
    }
}

/// Leaders in one layer and racks in the other. Members are real ranks here.
#[derive(Debug, Clone)]
pub(crate) struct Hybrid {
    table: Arc<RackTable>,
    /// `None` when there is a single rack.
    leaders: Option<Leaders>,
    /// 2 when both layers exist, otherwise 1.
    stride: u64,
    /// The largest lag + ceil(log2 size) of a rack with more than one member; `None` without one.
    slowest_rack: Option<u64>,
}

/// One member's part in one layer: its number there, and when the layer's steps happen.
struct Part<'a> {
    flow: &'a dyn Flow,
    member: u32,
    /// Step j of the layer is step `first + stride * j` of the whole.
    first: u64,
    stride: u64,
}

impl Part<'_> {
    /// Returns the layer's step that happens at `step`, if there is one.
    fn local_step(&self, step: u64, blocks: u32) -> Option<u64> {
        let since = step.checked_sub(self.first)?;
        let local = since / self.stride;
        (since % self.stride == 0 && local < self.flow.steps(blocks)).then_some(local)
    }

    /// The layer's first step that happens at `step` or later.
    fn local_from(&self, step: u64) -> u64 {
        step.saturating_sub(self.first).div_ceil(self.stride)
    }

    fn whole_step(&self, local: u64) -> u64 {
        self.first + self.stride * local
    }
}

impl Hybrid {
    pub(crate) fn table(&self) -> &RackTable {
        &self.table
    }

    /// A chain of leaders; `racks` is not empty and `root` is in range.
    pub(crate) fn chain_of_racks(racks: &[u32], root: u32) -> Self {
        Self::new(racks, root, |members| Leaders::Chain(Chain { members }))
    }

    /// A binomial pipeline of leaders; `racks` is not empty and `root` is in range.
    pub(crate) fn nested_pipelines(racks: &[u32], root: u32) -> Self {
        Self::new(racks, root, |members| Leaders::Pipeline(Pipeline::new(members)))
    }

    fn new(racks: &[u32], root: u32, leaders: impl Fn(u32) -> Leaders) -> Self {
        let table = RackTable::new(racks, root);
        let leaders = (table.racks() > 1).then(|| leaders(table.racks()));
        let slowest_rack = (0..table.racks())
            .filter(|&rack| table.size(rack) > 1)
            .map(|rack| u64::from(lag(leaders.as_ref(), rack) + ceil_log2(table.size(rack))))
            .max();
        let stride = 1 + u64::from(leaders.is_some() && slowest_rack.is_some());
        Self { table: Arc::new(table), leaders, stride, slowest_rack }
    }

    /// The step of the whole at which a rack's own step 0 happens.
    fn rack_first(&self, rack: u32) -> u64 {
        self.stride * u64::from(lag(self.leaders.as_ref(), rack)) + self.stride - 1
    }

    /// Queries the member's part in the leaders' layer, if it leads a rack.
    fn among_leaders<T>(&self, member: u32, ask: impl FnOnce(&Part<'_>) -> Option<T>) -> Option<T> {
        let (rack, local) = self.table.place(member);
        let flow = self.leaders.as_ref()?.flow();
        if local != 0 {
            return None;
        }
        ask(&Part { flow, member: rack, first: 0, stride: self.stride })
    }

    /// Queries the member's part in its rack's layer, if it is not alone there.
    fn in_rack<T>(&self, member: u32, ask: impl FnOnce(&Part<'_>) -> Option<T>) -> Option<T> {
        let (rack, local) = self.table.place(member);
        let size = self.table.size(rack);
        if size < 2 {
            return None;
        }
        let flow = Pipeline::new(size);
        ask(&Part { flow: &flow, member: local, first: self.rack_first(rack), stride: self.stride })
    }

    /// A hop of the leaders' layer in real ranks.
    fn leaders_hop(&self, step: u64, hop: Hop) -> Hop {
        Hop { step, peer: self.table.rank(hop.peer, 0), block: hop.block }
    }

    /// A hop of the layer of the member's rack in real ranks.
    fn rack_hop(&self, member: u32, step: u64, hop: Hop) -> Hop {
        let (rack, _) = self.table.place(member);
        Hop { step, peer: self.table.rank(rack, hop.peer), block: hop.block }
    }

    /// Returns what `ask` finds in either layer at exactly `step`.
    fn at(
        &self,
        member: u32,
        step: u64,
        blocks: u32,
        ask: impl Fn(&dyn Flow, u32, u64, u32) -> Option<Hop>,
    ) -> Option<Hop> {
        let ask =
            |part: &Part<'_>| ask(part.flow, part.member, part.local_step(step, blocks)?, blocks);
        self.among_leaders(member, ask)
            .map(|hop| self.leaders_hop(step, hop))
            .or_else(|| self.in_rack(member, ask).map(|hop| self.rack_hop(member, step, hop)))
    }

    /// Returns the earlier of what `ask` finds in the two layers at `from` or later.
    fn next(
        &self,
        member: u32,
        from: u64,
        blocks: u32,
        ask: impl Fn(&dyn Flow, u32, u64, u32) -> Option<Hop>,
    ) -> Option<Hop> {
        let ask = |part: &Part<'_>| {
            let hop = ask(part.flow, part.member, part.local_from(from), blocks)?;
            Some((part.whole_step(hop.step), hop))
        };
        let leaders =
            self.among_leaders(member, ask).map(|(step, hop)| self.leaders_hop(step, hop));
        let rack = self.in_rack(member, ask).map(|(step, hop)| self.rack_hop(member, step, hop));
        leaders.into_iter().chain(rack).min_by_key(|hop| hop.step)
    }
}

fn lag(leaders: Option<&Leaders>, rack: u32) -> u32 {
    leaders.map_or(0, |leaders| leaders.lag(rack))
}

impl Flow for Hybrid {
    fn steps(&self, blocks: u32) -> u64 {
        let leaders = self.leaders.as_ref().map_or(0, |leaders| {
            let steps = leaders.flow().steps(blocks);
            self.stride * (steps - 1) + 1
        });
        // The rack with lag g and m members ends at its local step k-2+ceil(log2 m), which is step
        // stride * (k-2 + ceil(log2 m) + g) + stride-1 of the whole.
        let racks =
            self.slowest_rack.map_or(0, |slowest| self.stride * (u64::from(blocks) - 1 + slowest));
        leaders.max(racks)
    }

    fn send(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        self.at(member, step, blocks, |flow, member, step, blocks| flow.send(member, step, blocks))
    }

    fn receive(&self, member: u32, step: u64, blocks: u32) -> Option<Hop> {
        self.at(member, step, blocks, |flow, member, step, blocks| {
            flow.receive(member, step, blocks)
        })
    }

    fn next_send(&self, member: u32, from: u64, blocks: u32) -> Option<Hop> {
        self.next(member, from, blocks, |flow, member, from, blocks| {
            flow.next_send(member, from, blocks)
        })
    }

    fn next_receive(&self, member: u32, from: u64, blocks: u32) -> Option<Hop> {
        self.next(member, from, blocks, |flow, member, from, blocks| {
            flow.next_receive(member, from, blocks)
        })
    }

    fn received_at(&self, member: u32, block: u32, blocks: u32) -> u64 {
        let ask = |part: &Part<'_>| {
            Some(part.whole_step(part.flow.received_at(part.member, block, blocks)))
        };
        // A leader gets its blocks from other leaders; any other member from its rack.
        self.among_leaders(member, ask).or_else(|| self.in_rack(member, ask)).unwrap_or(0)
    }

    fn announcer(&self, member: u32) -> u32 {
        let ask = |part: &Part<'_>| Some(part.flow.announcer(part.member));
        let (rack, _) = self.table.place(member);
        self.among_leaders(member, ask)
            .map(|leader| self.table.rank(leader, 0))
            .or_else(|| self.in_rack(member, ask).map(|local| self.table.rank(rack, local)))
            .unwrap_or(member)
    }

    fn neighbour_candidates(&self, member: u32) -> u32 {
        let ask = |part: &Part<'_>| Some(part.flow.neighbour_candidates(part.member));
        self.among_leaders(member, ask).unwrap_or(0) + self.in_rack(member, ask).unwrap_or(0)
    }

    fn neighbour(&self, member: u32, index: u32) -> Option<u32> {
        let (rack, _) = self.table.place(member);
        let leaders = self
            .among_leaders(member, |part| Some(part.flow.neighbour_candidates(part.member)))
            .unwrap_or(0);
        match index.checked_sub(leaders) {
            None => self
                .among_leaders(member, |part| part.flow.neighbour(part.member, index))
                .map(|leader| self.table.rank(leader, 0)),
            Some(index) => self
                .in_rack(member, |part| part.flow.neighbour(part.member, index))
                .map(|local| self.table.rank(rack, local)),
        }
    }
}
