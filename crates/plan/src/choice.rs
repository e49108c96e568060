//! Which algorithm and which block size are fastest: a cost model.
//!
//! A message of `k` blocks takes as many steps as its schedule has (design and papers count them:
//! `k-1+ceil(log2 n)` for the pipelines, `k+n-2` for the chain, `k ceil(log2 n)` for the tree). A
//! step takes the time of one block on a link, or that which a member's processor needs for a
//! block, whichever is longer, and a little on top that nothing hides. So
//!
//! `time = (steps(k) + fill) * (max(block / rate, busy) + gap) + hops * latency - hidden`
//!
//! where `fill` is what a pipeline of depth `q` takes longer because members have blocks for all of
//! their `q` partners under way at once: on each of the `q` hops a block shares the link with up to
//! `q-1` others; and `hidden` is what links save on a message's first block on each hop but the
//! first if they let a burst through at once, as token buckets do. Large blocks have few of the fixed costs and a pipeline that fills slowly; small
//! blocks the opposite. The figures in [`Costs`] are measured: docs/decisions/choice.md says how.

use std::{num::NonZeroUsize, thread, time::Duration};

use rdmc::{Algorithm, BLOCK_BYTES_DEFAULT, Fabric, Schedule};

/// What a processor's second cache holds besides other things.
const CACHED_BYTES: u64 = 256 << 10;

/// Blocks that are considered: powers of two from 16 KiB to 2 GiB.
const BLOCK_BYTES_LOG2: std::ops::RangeInclusive<u32> = 14..=31;

/// With switches the model knows no cost of long blocks, but there is one: a member copies a block as a
/// whole, into its queue pair's memory or out of it, and what is on its way meanwhile is no more than
/// this (docs/results/push.md).
const IN_SWITCH_BLOCK_BYTES_MAX: u64 = 256 << 10;

/// The part of a link's burst that a block can count on: headers of its packets and what came just
/// before take the rest.
const BURST_SHARE: f64 = 0.75;

/// Another algorithm has to be this much faster than the pipeline to be taken, which loses least to
/// a slow link, and whose receivers end together.
const MARGIN: f64 = 1.003;

/// What replicating costs in a network; all members and links alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Costs {
    /// What one link carries in each direction, in bytes per second.
    pub rate_bytes_per_second: f64,
    /// How long a block must take on a link for a member's processor to keep up in good time with
    /// receiving and sending it. Hidden behind the link while that is slower.
    pub busy_seconds: f64,
    /// What a step costs on top, hidden by nothing.
    pub gap_seconds: f64,
    /// From a member to the next, for an empty block.
    pub latency_seconds: f64,
    /// What a link lets through at once after a pause, however low its rate: links that a token
    /// bucket limits do so, as those of many rented machines; 0 for others.
    pub burst_bytes: u64,
    /// Longer blocks are not considered unless asked for.
    pub block_bytes_max: u64,
}

impl Costs {
    /// Links between hosts of their own. If nobody has told the rate, 10 Gbit/s over TCP and
    /// 100 Gbit/s over anything else, where the processor has less to do.
    pub fn of_fabric(fabric: &Fabric, rate_bits_per_second: Option<u64>) -> Self {
        let (usual_rate, busy_seconds, block_bytes_max) = match fabric {
            Fabric::Tcp => (10_000_000_000, 60e-6, 4 << 20),
            _ => (100_000_000_000, 10e-6, 16 << 20),
        };
        let rate = rate_bits_per_second.unwrap_or(usual_rate).max(1);
        Self {
            rate_bytes_per_second: rate as f64 / 8.0,
            busy_seconds,
            gap_seconds: 2e-6,
            latency_seconds: 100e-6,
            burst_bytes: 0,
            block_bytes_max,
        }
    }

    /// The same where `members` hosts share the processors of this machine, as in a lab.
    pub fn on_shared_processors(self, members: u32) -> Self {
        let share = (f64::from(members) / processors()).max(1.0);
        Self { busy_seconds: self.busy_seconds * share, ..self }
    }

    /// `members` members that share this machine: copying and system calls are all that there is,
    /// and its processors do them for everybody.
    pub fn of_one_machine(fabric: &Fabric, members: u32) -> Self {
        let copies = f64::from(members.saturating_sub(1).max(1));
        let copies_per_core = (copies / processors()).max(1.0);
        // Sockets copy twice, and cheaply if a block is still in the cache when it is sent on.
        // Shared memory copies once; there a block costs wake-ups rather than copies.
        let (rate, gap_seconds, block_bytes_max) = match fabric {
            Fabric::Tcp => (1.5e9, 5e-6, CACHED_BYTES),
            _ => (3e9, 100e-6, 1 << BLOCK_BYTES_LOG2.end()),
        };
        Self {
            rate_bytes_per_second: rate / copies_per_core,
            busy_seconds: 0.0,
            gap_seconds: gap_seconds * copies_per_core,
            latency_seconds: 100e-6,
            burst_bytes: 0,
            block_bytes_max,
        }
    }
}

fn processors() -> f64 {
    thread::available_parallelism().map_or(1, NonZeroUsize::get) as f64
}

/// One way to replicate a message, and what the model says of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Choice {
    /// Who sends which block to whom.
    pub algorithm: Algorithm,
    /// Length of a block.
    pub block_bytes: u64,
    /// How many blocks the message has then.
    pub blocks: u32,
    /// How many steps the schedule has.
    pub steps: u64,
    /// How long it should take.
    pub time: Duration,
}

/// What is asked for; whatever is `None` is chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wish {
    /// Size of the group, the root included.
    pub members: u32,
    /// Length of the message.
    pub message_bytes: u64,
    /// Who sends which block to whom; one that needs racks is answered as it is.
    pub algorithm: Option<Algorithm>,
    /// Length of a block.
    pub block_bytes: Option<u64>,
}

impl Wish {
    /// The fastest way by the model. Among equals, the pipeline and the smaller block.
    pub fn choose(&self, costs: &Costs) -> Choice {
        let (first, others) = self.algorithms();
        others.iter().map(|&algorithm| self.best_block(algorithm, costs)).fold(
            self.best_block(first, costs),
            |best, other| {
                if other.time.as_secs_f64() * MARGIN < best.time.as_secs_f64() {
                    other
                } else {
                    best
                }
            },
        )
    }

    /// The best block for each algorithm that is considered, the fastest first.
    pub fn compare(&self, costs: &Costs) -> Vec<Choice> {
        let (first, others) = self.algorithms();
        let all = std::iter::once(&first).chain(others);
        let mut choices: Vec<Choice> =
            all.map(|&algorithm| self.best_block(algorithm, costs)).collect();
        let best = self.choose(costs);
        choices.sort_by_key(|choice| choice.time);
        // A stable order would not do: what is chosen stands first even where it is a tie.
        choices.sort_by_key(|choice| choice.algorithm != best.algorithm);
        choices
    }

    /// The same algorithm with every block size that is considered, from small to large.
    pub fn compare_blocks(&self, algorithm: Algorithm, costs: &Costs) -> Vec<Choice> {
        self.block_sizes(algorithm, costs)
            .map(|block_bytes| self.predict(algorithm, block_bytes, costs))
            .collect()
    }

    /// What is preferred, and what else is considered. Both pipelines have the fewest steps; where
    /// a hypercube has vertices to spare its members run out of step and lose up to a tenth
    /// (docs/decisions/choice.md).
    fn algorithms(&self) -> (Algorithm, &'static [Algorithm]) {
        let others = &[Algorithm::Chain, Algorithm::BinomialTree, Algorithm::Sequential];
        match self.algorithm {
            Some(algorithm) => (algorithm, &[]),
            None if self.members.is_power_of_two() => (Algorithm::BinomialPipeline, others),
            None => (Algorithm::Circulant, others),
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
            _ => costs.block_bytes_max,
        };
        // A message has less than 2^32 blocks, and needs none that is twice as long as itself.
        let useful = move |&size: &u64| {
            let needed = size < bytes.saturating_mul(2) || size == 1 << BLOCK_BYTES_LOG2.start();
            let fewest = bytes.div_ceil(longest.max(1)) >= u64::from(u32::MAX);
            needed && (size <= longest || fewest) && bytes.div_ceil(size) < u64::from(u32::MAX)
        };
        let usual = BLOCK_BYTES_LOG2.map(|log2| 1 << log2).filter(useful);
        given.into_iter().chain(usual.filter(move |_| given.is_none()))
    }

    fn best_block(&self, algorithm: Algorithm, costs: &Costs) -> Choice {
        let choices =
            self.block_sizes(algorithm, costs).map(|size| self.predict(algorithm, size, costs));
        choices
            .reduce(|best, other| if other.time < best.time { other } else { best })
            .unwrap_or_else(|| self.predict(algorithm, BLOCK_BYTES_DEFAULT, costs))
    }

    /// What the model says of one way.
    fn predict(&self, algorithm: Algorithm, block_bytes: u64, costs: &Costs) -> Choice {
        let blocks = u32::try_from(self.message_bytes.div_ceil(block_bytes.max(1)).max(1))
            .unwrap_or(u32::MAX);
        let steps = steps(algorithm, self.members, blocks);
        // The last block may be short; all are taken to be equal.
        let bytes = self.message_bytes as f64 / f64::from(blocks);
        let step = (bytes / costs.rate_bytes_per_second).max(costs.busy_seconds);
        let depth = u64::from(self.members.max(2).next_power_of_two().ilog2());
        let (hops, fill) = match algorithm {
            Algorithm::Chain => (u64::from(self.members.saturating_sub(1)), 0),
            Algorithm::Sequential | Algorithm::InSwitch => (1, 0),
            Algorithm::Circulant => (depth, (depth - 1).pow(2)),
            _ => (depth, depth * (depth - 1) + 1),
        };
        // Sequential send and the tree forward whole messages: no burst holds one.
        let is_pipelined = !matches!(algorithm, Algorithm::Sequential | Algorithm::BinomialTree);
        let relays = if is_pipelined { hops.saturating_sub(1) } else { 0 };
        // A message of few blocks never has so many under way.
        let fill = fill.min(u64::from(blocks / 2));
        let burst = costs.burst_bytes as f64 * BURST_SHARE / costs.rate_bytes_per_second;
        let seconds = (steps + fill) as f64 * (step + costs.gap_seconds)
            + hops as f64 * costs.latency_seconds
            - relays as f64 * burst.min(step);
        let time = Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX);
        Choice { algorithm, block_bytes, blocks, steps, time }
    }
}

/// Steps of the schedule; of one that needs racks, those that it has with a single one. Of one that
/// switches copy, those that the root's link sees: one for each block.
fn steps(algorithm: Algorithm, members: u32, blocks: u32) -> u64 {
    if algorithm == Algorithm::InSwitch && members > 1 {
        return blocks.into();
    }
    let racks = vec![0; members as usize];
    Schedule::with_racks(algorithm, &racks, 0).map_or(0, |schedule| schedule.steps(blocks))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn of_rate(rate_bits_per_second: u64) -> Costs {
        Costs::of_fabric(&Fabric::Tcp, Some(rate_bits_per_second))
    }

    fn wish(members: u32, message_bytes: u64) -> Wish {
        Wish { members, message_bytes, algorithm: None, block_bytes: None }
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
        };
        let chain = Wish {
            algorithm: Some(Algorithm::Chain),
            block_bytes: Some(1_000_000),
            ..wish(5, 3_000_000)
        };
        let choice = chain.choose(&costs);
        assert_eq!((choice.blocks, choice.steps), (3, 6));
        assert!((choice.time.as_secs_f64() - (6.0 * 1.25 + 4.0 * 10.0)).abs() < 1e-9);
        // A processor that is slower than the link.
        let slow = chain.choose(&Costs { busy_seconds: 2.0, ..costs });
        assert!((slow.time.as_secs_f64() - (6.0 * 2.25 + 40.0)).abs() < 1e-9);
        // Three of the four hops let 0.4 s of each first block through at once, of 1 s.
        let bursts = Costs { burst_bytes: 533_333, ..costs };
        let hidden = 3.0 * 0.4;
        let seconds = chain.choose(&bursts).time.as_secs_f64();
        assert!((seconds - (6.0 * 1.25 + 40.0 - hidden)).abs() < 1e-5, "{seconds}");
        let tree = Wish { algorithm: Some(Algorithm::BinomialTree), ..chain };
        assert_eq!(tree.choose(&bursts), tree.choose(&costs));
    }

    #[test]
    fn switches_take_one_block_time_for_each_block_and_are_never_chosen_unasked() {
        for members in [2, 3, 64] {
            let asked = Wish { algorithm: Some(Algorithm::InSwitch), ..wish(members, 64 * MIB) };
            let costs = of_rate(1_000_000_000);
            let choice = asked.choose(&costs);
            assert_eq!(choice.steps, u64::from(choice.blocks));
            assert_eq!(choice.block_bytes, IN_SWITCH_BLOCK_BYTES_MAX);
            let longer = Wish { block_bytes: Some(MIB), ..asked };
            assert_eq!(longer.choose(&costs).block_bytes, MIB, "who asks for it gets it");
            let unasked = wish(members, 64 * MIB).compare(&costs);
            assert!(unasked.iter().all(|choice| choice.algorithm != Algorithm::InSwitch));
        }
    }

    #[test]
    fn bursts_make_short_messages_take_a_chain() {
        let plain = of_rate(250_000_000);
        let bursts = Costs { burst_bytes: 64 << 10, ..plain };
        assert_eq!(wish(16, 8 * MIB).choose(&plain).algorithm, Algorithm::BinomialPipeline);
        let choice = wish(16, 8 * MIB).choose(&bursts);
        assert_eq!(choice.algorithm, Algorithm::Chain);
        assert!(choice.block_bytes < bursts.burst_bytes, "{choice:?}");
        assert_eq!(wish(16, 256 * MIB).choose(&bursts).algorithm, Algorithm::BinomialPipeline);
    }

    #[test]
    fn full_hypercubes_get_the_binomial_pipeline_and_others_the_circulant() {
        for members in [2, 3, 4, 5, 13, 16, 1_000, 1_024] {
            let choice = wish(members, 256 * MIB).choose(&of_rate(1_000_000_000));
            let full = u32::is_power_of_two(members);
            let expected = if full { Algorithm::BinomialPipeline } else { Algorithm::Circulant };
            assert_eq!(choice.algorithm, expected, "{members}");
        }
    }

    #[test]
    fn faster_links_and_longer_messages_get_longer_blocks() {
        let block = |rate, bytes| wish(8, bytes).choose(&of_rate(rate)).block_bytes;
        assert!(block(250_000_000, 8 * MIB) <= 32 << 10);
        assert!(block(250_000_000, 256 * MIB) <= 128 << 10);
        assert!(block(100_000_000_000, 256 * MIB) >= MIB);
        let together = |fabric| {
            let costs = Costs::of_one_machine(&fabric, 8);
            wish(8, 256 * MIB).choose(&costs).block_bytes
        };
        assert_eq!(together(Fabric::Tcp), CACHED_BYTES);
        assert!(together(Fabric::libfabric("shm")) >= MIB);
        assert!(block(100_000_000_000, 8 * MIB) <= block(100_000_000_000, 256 * MIB));
    }

    #[test]
    fn every_message_has_a_way() {
        for bytes in [0, 1, 16 << 10, (16 << 10) + 1, 1 << 40, 1 << 50] {
            for members in [1, 2, 3, 4_096] {
                let choice = wish(members, bytes).choose(&Costs::of_fabric(&Fabric::Tcp, None));
                assert!(choice.blocks >= 1 && choice.time < Duration::MAX, "{bytes} {choice:?}");
                let covered = u64::from(choice.blocks) * choice.block_bytes;
                assert!(covered >= bytes, "{bytes} bytes to {members}: {choice:?}");
                let together = Costs::of_one_machine(&Fabric::Tcp, members);
                assert!(wish(members, bytes).choose(&together).time < Duration::MAX);
            }
        }
    }

    #[test]
    fn what_is_given_is_kept() {
        let given = Wish {
            algorithm: Some(Algorithm::NestedPipelines),
            block_bytes: Some(12_345),
            ..wish(8, MIB)
        };
        let costs = Costs::of_one_machine(&Fabric::Tcp, 8);
        let choice = given.choose(&costs);
        assert_eq!((choice.algorithm, choice.block_bytes), (Algorithm::NestedPipelines, 12_345));
        assert_eq!(given.compare(&costs), [choice]);
    }

    #[test]
    fn a_comparison_begins_with_the_choice() {
        let costs = of_rate(1_000_000_000);
        for members in [2, 3, 16] {
            let all = wish(members, 8 * MIB).compare(&costs);
            assert_eq!(all.len(), 4);
            assert_eq!(all[0], wish(members, 8 * MIB).choose(&costs));
        }
    }
}
