//! Which way of an operation is the fastest.

use super::{
    allreduce_us, bounds::Bounds, broadcast_us, chain_allreduce_us, circulant_us, direct_us,
    exchange_us, gather_us, halving_allgather_us, halving_allreduce_us, halving_reduce_scatter_us,
    line_reduce_us, reduce_us, ring_allgather_us, ring_allreduce_us, ring_reduce_scatter_us,
    scatter_us, work::Work, write_costs::WriteCosts,
};
use crate::{
    BroadcastTree, Call, Choice, Kind, ReductionTree, Way, links::ALL_PAIRS_MAX, partners::Partners,
};

/// The degrees along whose trees members of a team are linked that has not all pairs.
pub const LINKED_DEGREES: [u32; 3] = [1, 3, 7];

/// Lengths of blocks that are considered: powers of two. One that is not best by less than the factor sqrt(2) costs 6 % at most.
const BLOCK_BYTES: std::ops::RangeInclusive<u32> = 10..=22;

/// A team whose operations are timed.
#[derive(Clone, Copy, Debug)]
pub struct Team<'a> {
    /// Number of members; at least 1.
    pub members: u32,
    /// The most bytes of contents that a slot has room for.
    pub slot_room_bytes: u32,
    /// What things cost.
    pub costs: &'a WriteCosts,
}

impl Team<'_> {
    /// Returns the choice with the least [`Team::time_us`].
    ///
    /// It depends on the arguments alone, by sums, products, quotients and comparisons that IEEE 754 defines exactly: it is the same
    /// at all members.
    pub fn choose(&self, call: &Call) -> Choice {
        let timed =
            self.possible(call).into_iter().map(|choice| (self.time_us(call, choice), choice));
        let least = timed.min_by(|a, b| a.0.total_cmp(&b.0));
        least.expect("every operation has a way").1
    }

    /// Returns the ways that a call can go, with all degrees for whose trees members are linked, and several lengths of blocks. Never
    /// empty.
    pub fn possible(&self, call: &Call) -> Vec<Choice> {
        let block_bytes = self.slot_room_bytes.into();
        let short = |way| Choice { way, block_bytes };
        let trees = || {
            let degrees = match self.members {
                0..=ALL_PAIRS_MAX => (1..self.members.max(2)).collect(),
                _ => LINKED_DEGREES.to_vec(),
            };
            degrees.into_iter().map(move |degree| short(Way::Trees { degree: Some(degree) }))
        };
        let no_trees = short(Way::Trees { degree: None });
        let (mut choices, long): (Vec<_>, &[Way]) = match call.kind {
            Kind::Broadcast => (vec![no_trees], &[Way::Circulant]),
            Kind::Reduce => (trees().collect(), &[Way::Ring]),
            Kind::AllGather => (trees().collect(), &[Way::Halving, Way::Ring]),
            Kind::Scatter | Kind::Gather => match self.members {
                0..=ALL_PAIRS_MAX => (vec![no_trees], &[Way::Direct, Way::Circulant]),
                _ => (vec![no_trees], &[Way::Circulant]),
            },
            Kind::Barrier | Kind::Close | Kind::AllReduce | Kind::ReduceScatter => {
                let exchange = [short(Way::Exchange)].into_iter();
                (exchange.chain(trees()).collect(), &[Way::Halving, Way::Ring])
            }
        };
        // Without bytes there are no blocks to wait for.
        if self.members > 1 && call.bytes > 0 {
            let long = if call.is_commutative() { long } else { &[Way::Chain] };
            choices.extend(long.iter().flat_map(|&way| self.in_blocks(way, call)));
        }
        choices
    }

    fn in_blocks(&self, way: Way, call: &Call) -> impl Iterator<Item = Choice> {
        let bytes = match (way, call.kind) {
            (Way::Ring, Kind::AllReduce) => call.bytes.div_ceil(self.members.into()),
            (Way::Halving | Way::Circulant, _) => call.all_bytes(self.members),
            _ => call.bytes,
        };
        // Those that it does not fit into, and one more.
        let lengths = BLOCK_BYTES.map(|log| 1_u64 << log);
        let several = lengths.clone().filter(|&length| length < bytes).count();
        let call = *call;
        lengths.take(several + 1).map(move |length| Choice::in_blocks(way, length, &call))
    }

    /// Returns the time of a call: the mean of its [`Team::bounds`], and for how long a member waits for others that share its core.
    ///
    /// # Panics
    /// The call cannot go this way.
    pub fn time_us(&self, call: &Call, choice: Choice) -> f64 {
        let Bounds { best_us, worst_us } = self.bounds(call, choice);
        let others = (self.costs.members_per_core - 1.0).max(0.0);
        let work_us = Work::of(self.members, call, choice).time_us(self.costs);
        (best_us + worst_us) / 2.0 + work_us / f64::from(self.members) * others
    }

    /// Returns the best and the worst time of a call. A barrier is an allreduce of nothing, and a reduction ends at rank 0.
    ///
    /// # Panics
    /// The call cannot go this way.
    pub fn bounds(&self, call: &Call, choice: Choice) -> Bounds {
        self.modelled(call, choice) + self.other_pieces_us(call, choice)
    }

    /// The paper's model knows no more than a copy of a message's other slots: here each of them is posted, too, in every step.
    fn other_pieces_us(&self, call: &Call, Choice { way, block_bytes }: Choice) -> f64 {
        let members = self.members;
        let down = || BroadcastTree::new(members, 0).rounds();
        let (steps, bytes) = match way {
            Way::Exchange => (Partners::of(call, members).steps(), call.all_bytes(members)),
            Way::Trees { degree } => {
                let up = degree.map_or(0, |degree| ReductionTree::new(members, degree).steps());
                // Those of a scatter or gather are in its time.
                let down = match call.kind {
                    Kind::Broadcast | Kind::AllReduce | Kind::AllGather => down(),
                    _ => 0,
                };
                (up + down, call.all_bytes(members))
            }
            _ => return 0.0,
        };
        let others = bytes.div_ceil(block_bytes).saturating_sub(1);
        let WriteCosts { post_us, library_us, .. } = *self.costs;
        f64::from(steps) * others as f64 * (post_us + library_us)
    }

    fn modelled(&self, call: &Call, Choice { way, block_bytes }: Choice) -> Bounds {
        let (members, bytes, costs) = (self.members, call.bytes, self.costs);
        let all_bytes = call.all_bytes(members);
        let kind = if call.kind.is_barrier() { Kind::AllReduce } else { call.kind };
        match (kind, way) {
            (Kind::Broadcast, Way::Trees { .. }) => {
                Bounds::exactly(broadcast_us(members, bytes, block_bytes, costs))
            }
            (Kind::Broadcast, Way::Circulant) => circulant_us(members, bytes, block_bytes, costs),
            (Kind::Reduce, Way::Trees { degree: Some(degree) }) => {
                reduce_us(members, degree, bytes, costs)
            }
            (Kind::Reduce, Way::Ring | Way::Chain) => {
                line_reduce_us(members, bytes, block_bytes, costs)
            }
            (Kind::AllReduce, Way::Trees { degree: Some(degree) }) => {
                allreduce_us(members, degree, bytes, block_bytes, costs)
            }
            (Kind::AllReduce, Way::Exchange) => {
                let partners = Partners::of(call, members);
                Bounds::exactly(exchange_us(partners, bytes, block_bytes, costs))
            }
            (Kind::AllReduce, Way::Halving) => {
                halving_allreduce_us(members, bytes, block_bytes, costs)
            }
            (Kind::AllReduce, Way::Ring) => ring_allreduce_us(members, bytes, block_bytes, costs),
            (Kind::AllReduce, Way::Chain) => chain_allreduce_us(members, bytes, block_bytes, costs),
            (Kind::AllGather, Way::Trees { degree: Some(degree) }) => {
                gather_us(members, degree, bytes, costs)
                    + broadcast_us(members, all_bytes, block_bytes, costs)
            }
            (Kind::AllGather, Way::Halving) => {
                halving_allgather_us(members, bytes, block_bytes, costs)
            }
            (Kind::AllGather, Way::Ring) => ring_allgather_us(members, bytes, block_bytes, costs),
            (Kind::ReduceScatter, Way::Trees { degree: Some(degree) }) => {
                reduce_us(members, degree, all_bytes, costs)
                    + scatter_us(members, bytes, block_bytes, costs)
            }
            (Kind::ReduceScatter, Way::Exchange) => {
                let partners = Partners::of(call, members);
                Bounds::exactly(exchange_us(partners, all_bytes, block_bytes, costs))
            }
            (Kind::ReduceScatter, Way::Halving) => {
                halving_reduce_scatter_us(members, bytes, block_bytes, costs)
            }
            (Kind::ReduceScatter, Way::Ring) => {
                ring_reduce_scatter_us(members, bytes, block_bytes, costs)
            }
            (Kind::ReduceScatter, Way::Chain) => {
                // No block is of two parts. From rank 0 a part goes on to its member.
                let block_bytes = block_bytes.min(bytes).max(1);
                line_reduce_us(members + 1, all_bytes, block_bytes, costs)
            }
            (Kind::Scatter | Kind::Gather, Way::Trees { .. }) => {
                Bounds::exactly(scatter_us(members, bytes, block_bytes, costs))
            }
            (Kind::Scatter | Kind::Gather, Way::Circulant) => {
                // As many parts in each round. A member that passes parts on has its own among them, and copies it; up to three members
                // there is none.
                let copied = if members > 3 { bytes } else { 0 };
                let copy_us = costs.copy_us_per_byte * copied as f64;
                halving_allgather_us(members, bytes, block_bytes, costs) + copy_us
            }
            (Kind::Scatter | Kind::Gather, Way::Direct) => {
                direct_us(members, bytes, block_bytes, costs)
            }
            _ => panic!("{kind} by {way}"),
        }
    }
}
