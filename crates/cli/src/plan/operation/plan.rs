//! The writes of an operation.

use collective::{
    BroadcastTree, Call, Kind, MEMBERS_MAX, Op, Reduction, ReductionTree, RingRounds, Settings,
    Type, Way,
    model::{Bounds, Parameters, way_us},
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
    call: Call,
    settings: Settings,
}

impl Plan {
    /// The plan for `bytes` of each member, by the way that the library takes. Errors: too many members; a root that is not a
    /// member, or not rank 0 for a reduction.
    pub fn new(operation: Operation, members: u32, root: u32, bytes: u64) -> Result<Self, Failure> {
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
        if operation != Operation::Broadcast && root != 0 {
            return Err(Failure::Usage(format!(
                "{} combines contributions at rank 0, in the order of ranks; leave out --root {root}",
                operation.name()
            )));
        }
        let (call, settings) = (call(operation, root, bytes), settings(members));
        let way = settings.way(&call);
        Ok(Self { operation, members, root, way, call, settings })
    }

    /// The same operation by another way.
    pub fn by(self, way: Way) -> Self {
        Self { way, ..self }
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
        match self.way {
            Way::Trees { .. } if self.operation == Operation::Allreduce => 2 * others,
            Way::Trees { .. } => others,
            Way::Exchange(partners) => members * u64::from(partners.steps()),
            Way::Ring if self.operation == Operation::Allreduce => 2 * members * others,
            Way::Chain if self.operation == Operation::Allreduce => 2 * others * self.blocks(),
            Way::Circulant | Way::Ring | Way::Chain => others * self.blocks(),
        }
    }

    /// The length of a block of a long message; the last may be shorter.
    pub fn block_bytes(&self) -> u64 {
        self.settings.block_bytes(&self.call).min(self.call.bytes)
    }

    /// The length of the chunk that a member of a ring sends in a round of an allreduce, rounded up.
    pub fn chunk_bytes(&self) -> u64 {
        self.call.bytes.div_ceil(self.members.into())
    }

    /// The number of blocks of a long message.
    pub fn blocks(&self) -> u64 {
        self.call.bytes.div_ceil(self.settings.block_bytes(&self.call)).max(1)
    }

    fn reduction(&self) -> Option<ReductionTree> {
        match self.way {
            Way::Trees { degree: Some(degree) } => Some(ReductionTree::new(self.members, degree)),
            _ => None,
        }
    }

    fn broadcast(&self) -> Option<BroadcastTree> {
        let is_tree = matches!(self.way, Way::Trees { .. }) && self.operation != Operation::Reduce;
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
                reduction.into_iter().chain(broadcast).collect()
            }
            Way::Exchange(partners) => vec![(Phase::Exchange, partners.steps().into())],
            Way::Circulant => {
                let hops = BroadcastTree::new(self.members, self.root).rounds();
                vec![(Phase::Broadcast, pipeline(hops.into()))]
            }
            Way::Ring if self.operation == Operation::Allreduce => {
                vec![(Phase::ReduceScatter, others), (Phase::AllGather, others)]
            }
            Way::Chain if self.operation == Operation::Allreduce => {
                vec![(Phase::Reduce, pipeline(2 * others))]
            }
            Way::Ring | Way::Chain => vec![(Phase::Reduce, pipeline(others))],
        }
    }

    pub fn steps(&self) -> u64 {
        self.phases().iter().map(|(_, steps)| steps).sum()
    }

    /// All writes, by step and within a step by source. None for a chain, which the library takes only for functions that do not
    /// commute.
    pub fn writes(&self) -> Box<dyn Iterator<Item = Write> + '_> {
        let members = self.members;
        match self.way {
            Way::Trees { .. } => Box::new(self.writes_of_trees().into_iter()),
            Way::Exchange(partners) => Box::new((0..partners.steps()).flat_map(move |step| {
                (0..members).map(move |source| Write {
                    step: step.into(),
                    phase: Phase::Exchange,
                    source,
                    target: partners.partner(source, step),
                    part: Part::All,
                })
            })),
            Way::Circulant => Box::new(self.writes_of_blocks()),
            Way::Ring if self.operation == Operation::Allreduce => {
                Box::new(writes_of_ring(members))
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
        let mut writes: Vec<Write> = up.chain(down).collect();
        writes.sort_by_key(|write| (write.step, write.source));
        writes
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
    pub fn time(&self, parameters: &Parameters) -> Bounds {
        let time = way_us(self.way, &self.call, &self.settings, parameters);
        time.expect("every way of these operations has a model")
    }
}

/// An allreduce on the ring.
fn writes_of_ring(members: u32) -> impl Iterator<Item = Write> {
    let rounds = RingRounds::new(members);
    (0..rounds.rounds()).flat_map(move |round| {
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
    }
}

/// The library's settings of a team.
fn settings(members: u32) -> Settings {
    let library = TeamSettings::new(0, Vec::new(), 0);
    Settings {
        members,
        rank: 0,
        slots: library.slots,
        slot_bytes: library.slot_bytes,
        degrees: library.degrees,
        exchange_bytes: library.exchange_bytes,
        long_bytes: library.long_bytes,
        block_bytes: library.block_bytes,
    }
}
