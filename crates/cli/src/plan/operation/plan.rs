//! The writes of an operation.

use collective::{
    BroadcastTree, MEMBERS_MAX, ReductionTree,
    model::{Bounds, PAPER_BLOCK_BYTES, Parameters, allreduce_us, broadcast_us, reduce_us},
};

use super::options::Operation;
use crate::failure::Failure;

/// A part of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    Reduce,
    Broadcast,
}

impl Phase {
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reduce => "reduce",
            Self::Broadcast => "broadcast",
        }
    }
}

/// A member writes what it has to another one's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Write {
    /// From 0, over both phases.
    pub step: u32,
    pub phase: Phase,
    pub source: u32,
    pub target: u32,
}

/// An operation of a team.
pub struct Plan {
    pub operation: Operation,
    pub members: u32,
    pub root: u32,
    /// Of the reduction; `None` for a broadcast.
    pub degree: Option<u32>,
}

impl Plan {
    /// `degree` is ignored where there is no reduction. Errors: too many members; a root that is none, or that is not
    /// rank 0 for a reduction.
    pub fn new(
        operation: Operation,
        members: u32,
        root: u32,
        degree: u32,
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
        let reduces = operation != Operation::Broadcast;
        if reduces && root != 0 {
            return Err(Failure::Usage(format!(
                "{} combines contributions at rank 0, in the order of ranks; leave out --root {root}",
                operation.name()
            )));
        }
        Ok(Self { operation, members, root, degree: reduces.then_some(degree) })
    }

    fn reduction(&self) -> Option<ReductionTree> {
        self.degree.map(|degree| ReductionTree::new(self.members, degree))
    }

    fn broadcast(&self) -> Option<BroadcastTree> {
        (self.operation != Operation::Reduce).then(|| BroadcastTree::new(self.members, self.root))
    }

    /// Steps of each phase that the operation has, in order.
    pub fn phases(&self) -> impl Iterator<Item = (Phase, u32)> {
        let reduction = self.reduction().map(|tree| (Phase::Reduce, tree.steps()));
        let broadcast = self.broadcast().map(|tree| (Phase::Broadcast, tree.rounds()));
        reduction.into_iter().chain(broadcast)
    }

    pub fn steps(&self) -> u32 {
        self.phases().map(|(_, steps)| steps).sum()
    }

    /// All writes, by step and within a step by source.
    pub fn writes(&self) -> Vec<Write> {
        let reduction = self.reduction();
        let first = reduction.map_or(0, |tree| tree.steps());
        let up = reduction.into_iter().flat_map(|tree| {
            (0..self.members).filter_map(move |source| {
                let (step, target) = tree.step(source).zip(tree.parent(source))?;
                Some(Write { step, phase: Phase::Reduce, source, target })
            })
        });
        let broadcast = self.broadcast();
        let down = broadcast.iter().flat_map(|tree| {
            (0..self.members).filter_map(move |target| {
                let (round, source) = tree.round(target).zip(tree.parent(target))?;
                Some(Write { step: first + round, phase: Phase::Broadcast, source, target })
            })
        });
        let mut writes: Vec<Write> = up.chain(down).collect();
        writes.sort_by_key(|write| (write.step, write.source));
        writes
    }

    /// How long the operation takes by the model.
    pub fn time(&self, bytes: u64, parameters: &Parameters) -> Bounds {
        let (members, degree) = (self.members, self.degree.unwrap_or(1));
        match self.operation {
            Operation::Broadcast => {
                let us = broadcast_us(members, bytes, PAPER_BLOCK_BYTES, parameters);
                Bounds { best_us: us, worst_us: us }
            }
            Operation::Reduce => reduce_us(members, degree, bytes, parameters),
            Operation::Allreduce => {
                allreduce_us(members, degree, bytes, PAPER_BLOCK_BYTES, parameters)
            }
        }
    }
}
