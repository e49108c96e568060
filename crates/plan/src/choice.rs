//! Which algorithm and which block size are fastest: a cost model.
//!
//! A message of `k` blocks takes as many steps as its schedule has (`k-1+ceil(log2 n)` for the
//! pipelines, `k+n-2` for the chain, `k ceil(log2 n)` for the tree). A step takes as long as one
//! block takes on a link or on a member's processor, whichever is longer, plus a fixed cost:
//!
//! `time = (steps(k) + fill) * (max(block / rate, busy) + gap) + hops * latency - hidden`
//!
//! Where members are in racks ([`ChoiceRequest::racks`]) `block / rate` grows by what goes between racks: if a part `c` of all sends does
//! and a rack's uplink carries a part `1 / o` of its hosts' rate ([`Costs::oversubscription`]), by `max(1, c o)`.
//!
//! `fill`: how many steps longer a pipeline of depth `q` takes because a block shares each of its `q`
//! hops with blocks for up to `q-1` other partners. `hidden`: the time that links which let a burst
//! through save on the first block at each hop but the first. Where a block is sent on while it arrives
//! ([`Costs::cut_through`]) pipelines have nothing to fill, and a member of a chain starts a part of a
//! block behind the one before it, not a block. Large blocks reduce the fixed costs; small ones fill
//! the pipeline sooner. docs/decisions/choice.md says where [`Costs`] come from.

use std::time::Duration;

use relay::BLOCK_BYTES_MAX;
use schedule::{Algorithm, Schedule};

use crate::{
    costs::{BLOCK_BYTES_MIN, Costs},
    crossing::{are_racks, between_racks},
};

/// The block sizes considered: powers of two from [`BLOCK_BYTES_MIN`] to [`BLOCK_BYTES_MAX`].
const BLOCK_BYTES_LOG2: std::ops::RangeInclusive<u32> =
    BLOCK_BYTES_MIN.ilog2()..=BLOCK_BYTES_MAX.ilog2();

/// The model has no cost for long blocks with switches, but there is one: a member copies a whole block
/// into or out of its queue pair's memory, and at most this much is in flight meanwhile
/// (docs/results/push.md).
const IN_SWITCH_BLOCK_BYTES_MAX: u64 = 256 << 10;

/// The share of a link's burst available to a block; packet headers and preceding traffic take the
/// rest.
const BURST_SHARE: f64 = 0.75;

/// What a member sends on at once while a block arrives over TCP: what links deliver together
/// (docs/decisions/cut-through.md).
const PART_BYTES: f64 = (16 << 10) as f64;

/// How much faster another algorithm must be to replace the pipeline, which loses least to a slow link
/// and whose receivers finish together.
const MARGIN: f64 = 1.01;

/// An algorithm and a block size for a message, with the predicted time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Who sends which block to whom.
    pub algorithm: Algorithm,
    /// Length of a block.
    pub block_bytes: u64,
    /// Number of blocks of the message.
    pub blocks: u32,
    /// Number of steps of the schedule.
    pub steps: u64,
    /// Predicted time.
    pub time: Duration,
}

/// A message to replicate, with constraints on the choice; `None` leaves a parameter open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChoiceRequest<'a> {
    /// Size of the group, the root included.
    pub members: u32,
    /// The rack of each rank, the root being rank 0; empty if nothing is known of racks, as with a list of another length.
    pub racks: &'a [u32],
    /// Length of the message.
    pub message_bytes: u64,
    /// Who sends which block to whom. Algorithms that need racks are considered without being asked for only where
    /// there are some: several, and one with several members.
    pub algorithm: Option<Algorithm>,
    /// Length of a block.
    pub block_bytes: Option<u64>,
}

/// An algorithm for the members of a request.
struct Candidate {
    algorithm: Algorithm,
    /// `None` if there is none for this many members.
    schedule: Option<Schedule>,
    /// By how much longer a block takes, because of what goes between racks.
    slowdown: f64,
    racks: u32,
    /// The largest rack.
    rack_members: u32,
}

impl ChoiceRequest<'_> {
    /// The fastest combination by the model. On a tie: the pipeline, and the smaller block.
    pub fn choose(&self, costs: &Costs) -> Choice {
        choose_of(&self.best_of_each(costs))
    }

    /// Every algorithm considered, each with its best block size, fastest first.
    pub fn compare(&self, costs: &Costs) -> Vec<Choice> {
        let mut choices = self.best_of_each(costs);
        let best = choose_of(&choices);
        choices.sort_by_key(|choice| choice.time);
        // The choice comes first even if another algorithm ties with it or is faster by less than MARGIN.
        choices.sort_by_key(|choice| choice.algorithm != best.algorithm);
        choices
    }

    /// One algorithm with every block size considered, ascending.
    pub fn compare_blocks(&self, algorithm: Algorithm, costs: &Costs) -> Vec<Choice> {
        let candidate = self.candidate(algorithm, costs);
        self.block_sizes(algorithm, costs)
            .map(|block_bytes| self.predict(&candidate, block_bytes, costs))
            .collect()
    }

    /// The algorithms that are considered, by preference. Both pipelines have the fewest steps; if the number
    /// of members is no power of two, those of the binomial pipeline run out of step and lose up to a
    /// tenth (docs/decisions/choice.md). Then come those of racks, so that they too are preferred to chains, which need not
    /// follow the racks.
    fn algorithms(&self) -> Vec<Algorithm> {
        if let Some(algorithm) = self.algorithm {
            return vec![algorithm];
        }
        let pipeline = match self.members.is_power_of_two() {
            true => Algorithm::BinomialPipeline,
            false => Algorithm::Circulant,
        };
        let of_racks: &[_] = match are_racks(self.racks_of_all()) {
            true => &[Algorithm::RacksPipeline, Algorithm::RacksChain],
            false => &[],
        };
        let others = [Algorithm::Chain, Algorithm::BinomialTree, Algorithm::Sequential];
        [&[pipeline], of_racks, &others].concat()
    }

    fn racks_of_all(&self) -> &[u32] {
        if self.racks.len() == self.members as usize { self.racks } else { &[] }
    }

    fn candidate(&self, algorithm: Algorithm, costs: &Costs) -> Candidate {
        let known = self.racks_of_all();
        let racks = if known.is_empty() { &vec![0; self.members as usize] } else { known };
        let schedule = Schedule::with_racks(algorithm, racks, 0).ok();
        let crossing = match &schedule {
            Some(schedule) if are_racks(known) => between_racks(schedule, known),
            _ => 0.0,
        };
        let mut sorted = racks.to_vec();
        sorted.sort_unstable();
        let each = || sorted.chunk_by(|a, b| a == b).map(|rack| rack.len() as u32);
        Candidate {
            algorithm,
            schedule,
            slowdown: (crossing * costs.oversubscription).max(1.0),
            racks: each().count() as u32,
            rack_members: each().max().unwrap_or(1),
        }
    }

    fn block_sizes(
        &self,
        algorithm: Algorithm,
        costs: &Costs,
    ) -> impl Iterator<Item = u64> + use<> {
        let (given, bytes) = (self.block_bytes, self.message_bytes);
        let longest = match algorithm {
            Algorithm::InSwitch => costs.block_bytes_max.min(IN_SWITCH_BLOCK_BYTES_MAX),
            Algorithm::Chain | Algorithm::Sequential => costs.block_bytes_max,
            _ => costs.block_bytes_max.min(costs.queued_bytes_max),
        };
        // A message has fewer than 2^32 blocks; a block twice as long as the message is of no use.
        let useful = move |&size: &u64| {
            let needed = size < bytes.saturating_mul(2) || size == 1 << BLOCK_BYTES_LOG2.start();
            let fewest = bytes.div_ceil(longest.max(1)) >= u64::from(u32::MAX);
            needed && (size <= longest || fewest) && bytes.div_ceil(size) < u64::from(u32::MAX)
        };
        let usual = BLOCK_BYTES_LOG2.map(|log2| 1 << log2).filter(useful);
        given.into_iter().chain(usual.filter(move |_| given.is_none()))
    }

    /// Every algorithm considered with its best block size, by preference.
    fn best_of_each(&self, costs: &Costs) -> Vec<Choice> {
        let best = |algorithm| self.best_block(&self.candidate(algorithm, costs), costs);
        self.algorithms().into_iter().map(best).collect()
    }

    fn best_block(&self, candidate: &Candidate, costs: &Costs) -> Choice {
        let sizes = self.block_sizes(candidate.algorithm, costs);
        let choices = sizes.map(|size| self.predict(candidate, size, costs));
        choices
            .reduce(|best, other| if other.time < best.time { other } else { best })
            .unwrap_or_else(|| self.predict(candidate, BLOCK_BYTES_MAX, costs))
    }

    /// Applies the model to one combination.
    fn predict(&self, candidate: &Candidate, block_bytes: u64, costs: &Costs) -> Choice {
        let algorithm = candidate.algorithm;
        let blocks = u32::try_from(self.message_bytes.div_ceil(block_bytes.max(1)).max(1))
            .unwrap_or(u32::MAX);
        let steps = candidate.steps(blocks);
        // The last block may be short; the model takes all as equal.
        let bytes = self.message_bytes as f64 / f64::from(blocks) * candidate.slowdown;
        let step = (bytes / costs.rate_bytes_per_second).max(costs.busy_seconds);
        let hops = candidate.hops(self.members);
        // With switches that copy members relay nothing.
        let is_pipelined = !matches!(
            algorithm,
            Algorithm::Sequential | Algorithm::BinomialTree | Algorithm::InSwitch
        );
        let relays = if is_pipelined { hops.saturating_sub(1) } else { 0 };
        let burst = costs.burst_bytes as f64 * BURST_SHARE / costs.rate_bytes_per_second;
        let part = PART_BYTES / costs.rate_bytes_per_second;
        let (steps_taken, delay) = match algorithm {
            _ if !(costs.cut_through && is_pipelined) => {
                let hidden = relays as f64 * burst.min(step);
                (steps + candidate.fill(self.members, blocks), -hidden)
            }
            // A member is behind by a part of a block, not by a step.
            Algorithm::Chain => (steps - relays, relays as f64 * (part.min(step) - burst).max(0.0)),
            // The root sends the last block to one partner after another, at its link's rate; and members that are not in step
            // share links with blocks of other steps, which costs one for each partner.
            _ => (steps + depth(self.members), 0.0),
        };
        let seconds = steps_taken as f64 * (step + costs.gap_seconds)
            + hops as f64 * costs.latency_seconds
            + delay;
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Choice { algorithm, block_bytes, blocks, steps, time }
    }
}

/// The first that no later one undercuts by more than the margin, one after another.
fn choose_of(choices: &[Choice]) -> Choice {
    let faster = |best: Choice, other: &Choice| {
        let is_faster = other.time.as_secs_f64() * MARGIN < best.time.as_secs_f64();
        if is_faster { *other } else { best }
    };
    choices[1..].iter().fold(choices[0], faster)
}

/// ceil(log2 n), at least 1.
fn depth(members: u32) -> u64 {
    members.max(2).next_power_of_two().ilog2().into()
}

impl Candidate {
    /// Steps of the schedule; with a single rack if it needs racks and none are known. With switches that copy: blocks on the
    /// root's link.
    fn steps(&self, blocks: u32) -> u64 {
        match &self.schedule {
            Some(schedule) if self.algorithm == Algorithm::InSwitch && schedule.members() > 1 => {
                blocks.into()
            }
            Some(schedule) => schedule.steps(blocks),
            None => 0,
        }
    }

    /// How often a block is sent on before the last member has it.
    fn hops(&self, members: u32) -> u64 {
        let (racks, rack) = (u64::from(self.racks.max(1)), depth(self.rack_members));
        match self.algorithm {
            Algorithm::Chain => members.saturating_sub(1).into(),
            Algorithm::Sequential | Algorithm::InSwitch => 1,
            Algorithm::RacksChain => (racks - 1) * (rack + 1) + rack,
            Algorithm::RacksPipeline if racks > 1 => depth(self.racks) * (rack + 1) + rack,
            _ => depth(members),
        }
    }

    /// How many steps longer a message takes because blocks share links with those of other steps, where whole blocks are sent on.
    /// Sequential send and the tree forward whole messages: no pipeline to fill. A message of few blocks never has more
    /// in flight.
    fn fill(&self, members: u32, blocks: u32) -> u64 {
        let (all, rack) = (depth(members), depth(self.rack_members));
        let fill = match self.algorithm {
            Algorithm::Chain
            | Algorithm::Sequential
            | Algorithm::InSwitch
            | Algorithm::BinomialTree => 0,
            Algorithm::Circulant => (all - 1).pow(2),
            Algorithm::RacksChain => {
                u64::from(self.racks.saturating_sub(1)) * (rack * (rack - 1) + 3)
                    + (rack - 1).pow(2)
            }
            // Racks that are out of step stay so.
            Algorithm::RacksPipeline if self.racks > 2 => return u64::from(blocks) * 3 / 4,
            _ => all * (all - 1) + 1,
        };
        fill.min(u64::from(blocks / 2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::costs::{Machine, Network};

    const MIB: u64 = 1 << 20;
    const MACHINE: Machine = Machine { processors: 2, copies_directly: true };

    fn of_rate(rate_bits_per_second: u64) -> Costs {
        Costs::between_hosts(Network::Tcp, Some(rate_bits_per_second))
    }

    fn request(members: u32, message_bytes: u64) -> ChoiceRequest<'static> {
        ChoiceRequest { members, racks: &[], message_bytes, algorithm: None, block_bytes: None }
    }

    /// `racks` racks of `members` members, which follow each other or take turns.
    fn racks_of(racks: u32, members: u32) -> [Vec<u32>; 2] {
        let all = 0..racks * members;
        [all.clone().map(|rank| rank / members).collect(), all.map(|rank| rank % racks).collect()]
    }

    #[test]
    fn racks_get_a_schedule_of_racks_for_long_messages() {
        // Half of a pipeline's sends leave racks of four in a group of sixteen, a quarter leave two of eight.
        for (racks, members, oversubscription) in
            [(2, 8, 8.0), (4, 4, 4.0), (4, 16, 4.0), (16, 32, 4.0)]
        {
            let costs = Costs { oversubscription, ..of_rate(10_000_000_000) };
            for layout in racks_of(racks, members) {
                let long = ChoiceRequest { racks: &layout, ..request(racks * members, 4096 * MIB) };
                let choice = long.choose(&costs);
                assert_eq!(choice.algorithm, Algorithm::RacksPipeline, "{racks} of {members}");
                let one_copy = 4096.0 * MIB as f64 / 1.25e9;
                assert!(choice.time.as_secs_f64() < 1.05 * one_copy, "{choice:?}");
                let unknown = ChoiceRequest { racks: &layout[1..], ..long };
                assert_eq!(unknown.choose(&costs).algorithm, Algorithm::BinomialPipeline);
            }
        }
    }

    #[test]
    fn racks_whose_uplinks_cost_nothing_get_what_there_is_without_racks() {
        for layout in racks_of(4, 16) {
            for bytes in [MIB, 64 * MIB, 4096 * MIB] {
                let costs = Costs { oversubscription: 1.0, ..of_rate(10_000_000_000) };
                let without = request(64, bytes).choose(&costs);
                let choice = ChoiceRequest { racks: &layout, ..request(64, bytes) }.choose(&costs);
                assert_eq!(choice, without);
            }
        }
    }

    #[test]
    fn whole_blocks_between_many_racks_go_along_a_chain_of_them() {
        let costs = Costs::between_hosts(Network::Device, None);
        let [packed, _] = racks_of(4, 16);
        let choice = ChoiceRequest { racks: &packed, ..request(64, 8192 * MIB) }.choose(&costs);
        assert_eq!(choice.algorithm, Algorithm::RacksChain);
    }

    #[test]
    fn time_is_steps_times_blocks() {
        let costs = Costs {
            rate_bytes_per_second: 1e6,
            busy_seconds: 0.5,
            gap_seconds: 0.25,
            latency_seconds: 10.0,
            burst_bytes: 0,
            block_bytes_max: u64::MAX,
            queued_bytes_max: u64::MAX,
            cut_through: false,
            oversubscription: 1.0,
        };
        let chain = ChoiceRequest {
            algorithm: Some(Algorithm::Chain),
            block_bytes: Some(1_000_000),
            ..request(5, 3_000_000)
        };
        let choice = chain.choose(&costs);
        assert_eq!((choice.blocks, choice.steps), (3, 6));
        assert!((choice.time.as_secs_f64() - (6.0 * 1.25 + 4.0 * 10.0)).abs() < 1e-9);
        // A processor slower than the link.
        let slow = chain.choose(&Costs { busy_seconds: 2.0, ..costs });
        assert!((slow.time.as_secs_f64() - (6.0 * 2.25 + 40.0)).abs() < 1e-9);
        // Three of the four hops let 0.4 s of each first block through at once, of 1 s.
        let bursts = Costs { burst_bytes: 533_333, ..costs };
        let hidden = 3.0 * 0.4;
        let seconds = chain.choose(&bursts).time.as_secs_f64();
        assert!((seconds - (6.0 * 1.25 + 40.0 - hidden)).abs() < 1e-5, "{seconds}");
        let tree = ChoiceRequest { algorithm: Some(Algorithm::BinomialTree), ..chain };
        assert_eq!(tree.choose(&bursts), tree.choose(&costs));
        // 3 blocks over 3 levels, with nothing to fill.
        let seconds = tree.choose(&costs).time.as_secs_f64();
        assert!((seconds - (9.0 * 1.25 + 3.0 * 10.0)).abs() < 1e-9, "{seconds}");
    }

    #[test]
    fn switches_take_one_block_time_for_each_block_and_are_never_chosen_unasked() {
        for members in [2, 3, 64] {
            let asked = ChoiceRequest {
                algorithm: Some(Algorithm::InSwitch),
                ..request(members, 64 * MIB)
            };
            let costs = of_rate(1_000_000_000);
            let choice = asked.choose(&costs);
            assert_eq!(choice.steps, u64::from(choice.blocks));
            assert_eq!(choice.block_bytes, IN_SWITCH_BLOCK_BYTES_MAX);
            let longer = ChoiceRequest { block_bytes: Some(MIB), ..asked };
            assert_eq!(longer.choose(&costs).block_bytes, MIB, "who asks for it gets it");
            let unasked = request(members, 64 * MIB).compare(&costs);
            assert!(unasked.iter().all(|choice| choice.algorithm != Algorithm::InSwitch));
        }
    }

    #[test]
    fn bursts_favour_a_chain_for_short_messages() {
        let plain = of_rate(250_000_000);
        let bursts = Costs { burst_bytes: 64 << 10, ..plain };
        assert_eq!(request(16, 8 * MIB).choose(&plain).algorithm, Algorithm::BinomialPipeline);
        let choice = request(16, 8 * MIB).choose(&bursts);
        assert_eq!(choice.algorithm, Algorithm::Chain);
        assert!(choice.block_bytes >= bursts.burst_bytes, "{choice:?}");
        assert_eq!(request(16, 256 * MIB).choose(&bursts).algorithm, Algorithm::BinomialPipeline);
    }

    #[test]
    fn full_hypercubes_get_the_binomial_pipeline_and_others_the_circulant() {
        for members in [2, 3, 4, 5, 13, 16, 1_000, 1_024] {
            let choice = request(members, 256 * MIB).choose(&of_rate(1_000_000_000));
            let full = u32::is_power_of_two(members);
            let expected = if full { Algorithm::BinomialPipeline } else { Algorithm::Circulant };
            assert_eq!(choice.algorithm, expected, "{members}");
        }
    }

    #[test]
    fn faster_links_and_longer_messages_get_longer_blocks() {
        let block = |rate, bytes| request(8, bytes).choose(&of_rate(rate)).block_bytes;
        assert!(block(250_000_000, 8 * MIB) <= 32 << 10);
        assert!(block(250_000_000, 256 * MIB) <= 128 << 10);
        assert!(block(100_000_000_000, 256 * MIB) >= MIB);
        // However long the message is: what the queues of cheap switches hold of several links.
        let longest = [1_000_000, 250_000_000, 500_000_000, 1_000_000_000, 10_000_000_000]
            .map(|rate| block(rate, 1 << 40) >> 10);
        assert_eq!(longest, [16, 32, 64, 128, 1024]);
        let together = |network, copies_directly| {
            let machine = Machine { copies_directly, ..MACHINE };
            let costs = Costs::of_one_machine(network, 8, machine);
            request(8, 256 * MIB).choose(&costs).block_bytes
        };
        // What stays in a cache, and what gains no more.
        assert_eq!(together(Network::Tcp, false), 256 << 10);
        assert_eq!(together(Network::Tcp, true), 2 * MIB);
        assert!(together(Network::Device, false) >= MIB);
        assert!(block(100_000_000_000, 8 * MIB) <= block(100_000_000_000, 256 * MIB));
    }

    #[test]
    fn every_length_and_group_size_has_a_choice() {
        for bytes in [0, 1, 16 << 10, (16 << 10) + 1, 1 << 40, 1 << 50] {
            for members in [1, 2, 3, 4_096] {
                let choice =
                    request(members, bytes).choose(&Costs::between_hosts(Network::Tcp, None));
                assert!(choice.blocks >= 1 && choice.time < Duration::MAX, "{bytes} {choice:?}");
                let covered = u64::from(choice.blocks) * choice.block_bytes;
                assert!(covered >= bytes, "{bytes} bytes to {members}: {choice:?}");
                let together = Costs::of_one_machine(Network::Tcp, members, MACHINE);
                assert!(request(members, bytes).choose(&together).time < Duration::MAX);
            }
        }
    }

    #[test]
    fn constraints_are_kept() {
        let given = ChoiceRequest {
            algorithm: Some(Algorithm::NestedPipelines),
            block_bytes: Some(12_345),
            ..request(8, MIB)
        };
        let costs = Costs::of_one_machine(Network::Tcp, 8, MACHINE);
        let choice = given.choose(&costs);
        assert_eq!((choice.algorithm, choice.block_bytes), (Algorithm::NestedPipelines, 12_345));
        assert_eq!(given.compare(&costs), [choice]);
    }

    #[test]
    fn a_comparison_begins_with_the_choice() {
        let costs = of_rate(1_000_000_000);
        for members in [2, 3, 16] {
            let all = request(members, 8 * MIB).compare(&costs);
            assert_eq!(all.len(), 4);
            assert_eq!(all[0], request(members, 8 * MIB).choose(&costs));
        }
    }
}
