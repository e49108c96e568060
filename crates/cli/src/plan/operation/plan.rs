//! The writes of an operation.

use collective::{
    BroadcastTree, Call, Choice, HEADER_BYTES, Halving, Kind, MEMBERS_MAX, Op, PartTree, Partners,
    Reduction, ReductionTree, RingRounds, Type, Way,
    model::{Bounds, Team, WriteCosts},
};
use rdmc::TeamSettings;
use schedule::{Algorithm, Schedule};

use super::{
    options::Operation,
    write::{Part, Phase, Write},
};
use crate::{
    failure::Failure,
    plan::{message::MAX_TRANSFERS, transfers::Transfers},
};

/// An operation of a team with the library's settings.
pub struct Plan {
    pub operation: Operation,
    pub members: u32,
    pub root: u32,
    pub way: Way,
    pub block_bytes: u64,
    pub call: Call,
    costs: WriteCosts,
}

impl Plan {
    /// The plan for `bytes` of each member, or in a part, by the way that the library takes with these costs. Errors: too many members; a root that
    /// is not a member, or not rank 0 for a reduction.
    pub fn new(
        operation: Operation,
        members: u32,
        root: u32,
        bytes: u64,
        costs: &WriteCosts,
    ) -> Result<Self, Failure> {
        if members > MEMBERS_MAX {
            return Err(Failure::Usage(format!(
                "a team has at most {MEMBERS_MAX} members, not {members}"
            )));
        }
        if root >= members {
            return Err(Failure::Usage(format!(
                "root {root} is not a rank: with {members} members, ranks are 0 to {}",
                members - 1
            )));
        }
        if operation.folds() && root != 0 {
            return Err(Failure::Usage(format!(
                "{} combines contributions at rank 0, in the order of ranks; leave out --root {root}",
                operation.name()
            )));
        }
        let (call, costs) = (call(operation, root, bytes), *costs);
        let Choice { way, block_bytes } = team(members, &costs).choose(&call);
        Ok(Self { operation, members, root, way, block_bytes, call, costs })
    }

    /// The same operation otherwise.
    pub fn by(self, Choice { way, block_bytes }: Choice) -> Self {
        Self { way, block_bytes, ..self }
    }

    /// The same operation along trees of a degree.
    pub fn by_trees(self, degree: Option<u32>) -> Self {
        let block_bytes = self.team().slot_room_bytes.into();
        self.by(Choice { way: Way::Trees { degree }, block_bytes })
    }

    /// How it goes.
    pub fn choice(&self) -> Choice {
        Choice { way: self.way, block_bytes: self.block_bytes }
    }

    /// The model of its team.
    pub fn team(&self) -> Team<'_> {
        team(self.members, &self.costs)
    }

    /// Checks that the plan can be shown. Errors: it has too many writes.
    pub fn check_size(&self) -> Result<(), Failure> {
        let writes = self.write_count();
        if writes <= MAX_TRANSFERS {
            return Ok(());
        }
        Err(Failure::Usage(format!(
            "this plan has {writes} writes, and rdmc plan shows at most {MAX_TRANSFERS}; use fewer --members or \
             --bytes, or --explain for the times alone"
        )))
    }

    fn write_count(&self) -> u64 {
        let (members, others) = (u64::from(self.members), u64::from(self.members - 1));
        let halves = if self.operation == Operation::Allreduce { 2 } else { 1 };
        match self.way {
            Way::Trees { degree: Some(_) } if self.operation != Operation::Reduce => 2 * others,
            Way::Trees { .. } | Way::Direct => others,
            Way::Circulant if self.has_parts() => others,
            Way::Exchange => Partners::new(self.members, true).writes(),
            Way::Halving => halves * members * u64::from(Halving::new(self.members).rounds()) / 2,
            Way::Ring if self.has_parts() => members * others,
            Way::Ring if self.operation == Operation::Allreduce => 2 * members * others,
            Way::Chain if self.operation == Operation::Allreduce => 2 * others * self.blocks(),
            Way::Circulant | Way::Ring | Way::Chain => others * self.blocks(),
        }
    }

    /// The length of a block of a long message; the last may be shorter.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes.min(self.call.bytes)
    }

    /// The length of one of as many chunks of an allreduce as there are members, rounded up; or of a part.
    pub fn chunk_bytes(&self) -> u64 {
        match self.operation {
            Operation::Allreduce => self.call.bytes.div_ceil(self.members.into()),
            _ => self.call.bytes,
        }
    }

    /// The number of blocks of a long message, or of the parts of all.
    pub fn blocks(&self) -> u64 {
        let parts = if self.has_parts() { self.members.into() } else { 1 };
        parts * self.call.bytes.div_ceil(self.block_bytes).max(1)
    }

    /// Whether each member has a part.
    pub fn has_parts(&self) -> bool {
        self.call.kind.has_parts()
    }

    fn parts(&self) -> Option<PartTree> {
        match self.way {
            _ if !self.has_parts() => None,
            Way::Trees { .. } | Way::Circulant => Some(PartTree::new(self.members, self.root)),
            Way::Direct => Some(PartTree::direct(self.members, self.root)),
            _ => None,
        }
    }

    /// The phase in which parts go along a tree, with its steps.
    fn phase_of_parts(&self) -> Option<(Phase, u64)> {
        let phase =
            if self.operation == Operation::Gather { Phase::Gather } else { Phase::Scatter };
        let steps = match self.way {
            Way::Direct => u64::from(self.members - 1),
            _ => BroadcastTree::new(self.members, self.root).rounds().into(),
        };
        self.parts().map(|_| (phase, steps))
    }

    fn reduction(&self) -> Option<ReductionTree> {
        match self.way {
            Way::Trees { degree: Some(degree) } => Some(ReductionTree::new(self.members, degree)),
            _ => None,
        }
    }

    fn broadcast(&self) -> Option<BroadcastTree> {
        let has_message = matches!(self.operation, Operation::Broadcast | Operation::Allreduce);
        let is_tree = matches!(self.way, Way::Trees { .. }) && has_message;
        is_tree.then(|| BroadcastTree::new(self.members, self.root))
    }

    /// Steps of each phase that the operation has, in order.
    pub fn phases(&self) -> Vec<(Phase, u64)> {
        let others = u64::from(self.members - 1);
        // Blocks are pipelined over this number of hops.
        let pipeline = |hops| if hops > 0 { self.blocks() - 1 + hops } else { 0 };
        match self.way {
            Way::Trees { .. } => {
                let reduction = self.reduction().map(|tree| (Phase::Reduce, tree.steps().into()));
                let broadcast =
                    self.broadcast().map(|tree| (Phase::Broadcast, tree.rounds().into()));
                reduction.into_iter().chain(broadcast).chain(self.phase_of_parts()).collect()
            }
            Way::Exchange => {
                vec![(Phase::Exchange, Partners::new(self.members, true).steps().into())]
            }
            Way::Halving => {
                let half = (Halving::new(self.members).rounds() / 2).into();
                self.halves(half)
            }
            Way::Direct => self.phase_of_parts().into_iter().collect(),
            Way::Circulant if self.has_parts() => self.phase_of_parts().into_iter().collect(),
            Way::Circulant => {
                let hops = BroadcastTree::new(self.members, self.root).rounds();
                vec![(Phase::Broadcast, pipeline(hops.into()))]
            }
            Way::Ring if self.operation != Operation::Reduce => self.halves(others),
            Way::Chain if self.operation == Operation::Allreduce => {
                vec![(Phase::Reduce, pipeline(2 * others))]
            }
            Way::Ring | Way::Chain => vec![(Phase::Reduce, pipeline(others))],
        }
    }

    /// Phases of this many steps each: an allreduce has both.
    fn halves(&self, steps: u64) -> Vec<(Phase, u64)> {
        let gather = (self.operation == Operation::Allreduce).then_some((Phase::AllGather, steps));
        [(Phase::ReduceScatter, steps)].into_iter().chain(gather).collect()
    }

    pub fn steps(&self) -> u64 {
        self.phases().iter().map(|(_, steps)| steps).sum()
    }

    /// All writes, by step and within a step by source. None for a chain, which the library takes only for functions that do not
    /// commute.
    pub fn writes(&self) -> Box<dyn Iterator<Item = Write> + '_> {
        let members = self.members;
        match self.way {
            Way::Trees { .. } | Way::Direct => Box::new(self.writes_of_trees().into_iter()),
            Way::Circulant if self.has_parts() => Box::new(self.writes_of_trees().into_iter()),
            Way::Exchange => Box::new(writes_of_exchange(members)),
            Way::Halving => Box::new(writes_of_halving(members, self.steps())),
            Way::Circulant => Box::new(self.writes_of_blocks()),
            Way::Ring if self.operation != Operation::Reduce => {
                Box::new(writes_of_ring(members, self.steps()))
            }
            Way::Ring => Box::new(self.writes_around_ring()),
            Way::Chain => Box::new(std::iter::empty()),
        }
    }

    fn writes_of_trees(&self) -> Vec<Write> {
        let (reduction, part) = (self.reduction(), Part::All);
        let first = reduction.map_or(0, |tree| tree.steps());
        let up = reduction.into_iter().flat_map(|tree| {
            (0..self.members).filter_map(move |source| {
                let (step, target) = tree.step(source).zip(tree.parent(source))?;
                Some(Write { step: step.into(), phase: Phase::Reduce, source, target, part })
            })
        });
        let broadcast = self.broadcast();
        let down = broadcast.iter().flat_map(|tree| {
            (0..self.members).filter_map(move |target| {
                let (round, source) = tree.round(target).zip(tree.parent(target))?;
                let step = (first + round).into();
                Some(Write { step, phase: Phase::Broadcast, source, target, part })
            })
        });
        let parts = self.writes_of_parts(first);
        let mut writes: Vec<Write> = up.chain(down).chain(parts).collect();
        writes.sort_by_key(|write| (write.step, write.source));
        writes
    }

    /// A scatter from this step on, or a gather.
    fn writes_of_parts(&self, first: u32) -> impl Iterator<Item = Write> + use<> {
        let (members, phase) = (self.members, self.phase_of_parts());
        self.parts().zip(phase).into_iter().flat_map(move |(tree, (phase, steps))| {
            (0..members).filter_map(move |rank| {
                let branch = tree.branch(rank);
                let (parent, round) = branch.parent?;
                let (parent, last) = (tree.rank(parent), tree.rank(branch.subtree.end - 1));
                // A gather goes backwards.
                let (source, target, round) = match phase {
                    Phase::Gather => (rank, parent, steps - 1 - u64::from(round)),
                    _ => (parent, rank, u64::from(round)),
                };
                let step = u64::from(first) + round;
                Some(Write { step, phase, source, target, part: Part::Chunks(rank, last) })
            })
        })
    }

    /// A broadcast on the circulant graph.
    fn writes_of_blocks(&self) -> impl Iterator<Item = Write> + use<> {
        let schedule = Schedule::new(Algorithm::Circulant, self.members, self.root);
        let schedule = schedule.expect("members and root were checked");
        // This many blocks are never shown: see `check_size`.
        let blocks = u32::try_from(self.blocks()).unwrap_or(u32::MAX);
        Transfers::new(schedule, blocks).map(|transfer| Write {
            step: transfer.step,
            phase: Phase::Broadcast,
            source: transfer.source,
            target: transfer.target,
            part: Part::Block(transfer.block),
        })
    }

    /// A reduction around the ring: blocks go from rank 1 to higher ranks, and from the highest to rank 0.
    fn writes_around_ring(&self) -> impl Iterator<Item = Write> + use<> {
        let (members, blocks, steps) = (self.members, self.blocks(), self.steps());
        (0..steps).flat_map(move |step| {
            // The first block is furthest ahead. The casts are lossless: ranks are less than the number of members.
            let first = (step + 2).saturating_sub(blocks).max(1) as u32;
            let last = (step + 1).min(u64::from(members) - 1) as u32;
            (first..=last).map(move |source| {
                let part = Part::Block((step + 1) as u32 - source);
                let target = (source + 1) % members;
                Write { step, phase: Phase::Reduce, source, target, part }
            })
        })
    }

    /// The time of the operation by the model.
    pub fn time_us(&self) -> f64 {
        self.team().time_us(&self.call, self.choice())
    }

    /// Its best and worst case.
    pub fn bounds(&self) -> Bounds {
        self.team().bounds(&self.call, self.choice())
    }
}

fn writes_of_exchange(members: u32) -> impl Iterator<Item = Write> {
    let partners = Partners::new(members, true);
    (0..partners.steps()).flat_map(move |step| {
        (0..members).filter_map(move |source| {
            let (phase, part) = (Phase::Exchange, Part::All);
            let target = partners.at(source, step).to?;
            Some(Write { step: step.into(), phase, source, target, part })
        })
    })
}

fn writes_of_halving(members: u32, steps: u64) -> impl Iterator<Item = Write> {
    let halving = Halving::new(members);
    (0..halving.rounds()).take(steps as usize).flat_map(move |round| {
        (0..members).map(move |source| {
            let sent = halving.sent(source, round);
            Write {
                step: round.into(),
                phase: if halving.folds(round) { Phase::ReduceScatter } else { Phase::AllGather },
                source,
                target: halving.to(source, round),
                part: Part::Chunks(sent.first, (sent.first + sent.count - 1) % members),
            }
        })
    })
}

/// An allreduce on the ring, or a reduce-scatter: as many steps of it.
fn writes_of_ring(members: u32, steps: u64) -> impl Iterator<Item = Write> {
    let rounds = RingRounds::new(members);
    (0..rounds.rounds()).take(steps as usize).flat_map(move |round| {
        (0..members).map(move |source| Write {
            step: round.into(),
            phase: if rounds.folds(round) { Phase::ReduceScatter } else { Phase::AllGather },
            source,
            target: (source + 1) % members,
            part: Part::Chunk(rounds.sent(source, round)),
        })
    })
}

/// The call of a member; contributions are sums of bytes, which commute and can be split anywhere.
fn call(operation: Operation, root: u32, bytes: u64) -> Call {
    let sum = Reduction::Elements(Type::U8, Op::Sum);
    match operation {
        Operation::Broadcast => Call::new(Kind::Broadcast, root, bytes),
        Operation::Reduce => Call::folding(Kind::Reduce, root, bytes, &sum),
        Operation::Allreduce => Call::folding(Kind::AllReduce, root, bytes, &sum),
        Operation::ReduceScatter => Call::folding(Kind::ReduceScatter, root, bytes, &sum),
        Operation::Scatter => Call::new(Kind::Scatter, root, bytes),
        Operation::Gather => Call::new(Kind::Gather, root, bytes),
    }
}

/// A team with the library's slots.
fn team(members: u32, costs: &WriteCosts) -> Team<'_> {
    let slot_bytes = TeamSettings::new(0, Vec::new(), 0).slot_bytes;
    Team { members, slot_room_bytes: slot_bytes - HEADER_BYTES as u32, costs }
}
