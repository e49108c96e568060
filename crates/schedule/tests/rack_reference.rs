//! The racks at full rate against a round model that knows circulants (of the public interface) and the rules in words,
//! but none of the formulas: what a rack's leader has got is remembered, and who may send it on is looked up.

use std::collections::{HashMap, HashSet};

use crate::properties::cases;
use schedule::{Algorithm, Schedule, Transfer};

/// A circulant for one rack, or among racks, and its exits.
struct Ring {
    members: u32,
    skips: Vec<u32>,
    plan: Schedule,
}

impl Ring {
    fn new(members: u32) -> Self {
        let mut skips = vec![members];
        while skips[0] > 1 {
            skips.insert(0, skips[0].div_ceil(2));
        }
        skips.pop();
        Self { members, skips, plan: Schedule::new(Algorithm::Circulant, members, 0).unwrap() }
    }

    fn rounds(&self) -> u64 {
        self.skips.len() as u64
    }

    /// The skip of a step, when the last turn is full.
    fn skip(&self, step: u64, blocks: u64) -> u32 {
        let from_end = (self.rounds() - (blocks - 1) % self.rounds()) % self.rounds();
        self.skips[((step + from_end) % self.rounds()) as usize]
    }

    /// The member whose target is the leader.
    fn exit(&self, step: u64, blocks: u64) -> u32 {
        if self.members == 1 { 0 } else { self.members - self.skip(step, blocks) }
    }

    /// How old, in rounds, a slot must at least be to be at every later exit: looked up in a long message.
    fn hold(&self) -> u64 {
        if self.members == 1 {
            return 0;
        }
        let (blocks, q) = (20 * self.rounds(), self.rounds());
        let has = |step: u64, age: u64| {
            let exit = self.exit(step, blocks);
            let slot = (step - age) as u32;
            self.plan.received_at(exit, slot, blocks as u32).unwrap() < step
        };
        let all_have = |age: u64| (10 * q..11 * q).all(|step| has(step, age));
        (0..=2 * q).rev().take_while(|&age| all_have(age)).last().unwrap()
    }
}

/// One rack in the model.
struct Rack {
    ring: Ring,
    ranks: Vec<u32>,
    /// D_v.
    begin: u64,
    /// What its leader takes in outside: the step, the source rack, the block.
    entries: Vec<(u64, usize, u32)>,
}

struct Model {
    racks: Vec<Rack>,
    blocks: u32,
}

impl Model {
    fn new(sizes: &[u32], algorithm: Algorithm, blocks: u32) -> Self {
        let mut first = 0;
        let racks = sizes.iter().map(|&size| {
            let ranks = (first..first + size).collect();
            first += size;
            Rack { ring: Ring::new(size), ranks, begin: 0, entries: Vec::new() }
        });
        let mut model = Self { racks: racks.collect(), blocks };
        match algorithm {
            Algorithm::RacksChain => model.chain(),
            _ => model.circulant(),
        }
        model
    }

    /// Each rack passes every block on as soon as all its exits have blocks of this age.
    fn chain(&mut self) {
        for rack in 1..self.racks.len() {
            let before = &self.racks[rack - 1];
            let arrives = before.begin + before.ring.hold();
            let entries =
                (0..self.blocks).map(|block| (arrives + u64::from(block), rack - 1, block));
            self.racks[rack].entries = entries.collect();
            self.racks[rack].begin = arrives + 1;
        }
    }

    /// Classes of blocks, each a circulant among racks of its own.
    fn circulant(&mut self) {
        let between = Ring::new(self.racks.len() as u32);
        let classes = 1 + self.racks.iter().map(|rack| rack.ring.hold()).max().unwrap();
        let lead = self.racks[0].ring.hold();
        for class in 0..classes.min(self.blocks.into()) {
            let blocks = (class..u64::from(self.blocks)).step_by(classes as usize).count() as u32;
            for tau in 0..between.plan.steps(blocks) {
                for source in 0..between.members {
                    let Some(hop) = between.plan.send_at(source, tau, blocks) else { continue };
                    let block = u64::from(hop.block) * classes + class;
                    let entry = (tau * classes + class + lead, source as usize, block as u32);
                    self.racks[hop.target as usize].entries.push(entry);
                }
            }
        }
        for rack in &mut self.racks[1..] {
            rack.begin = lead + 1;
        }
    }

    /// The block in each slot of a rack: slot s is what its leader has before step D + s.
    fn slots(&self, rack: usize) -> HashMap<u64, u32> {
        if rack == 0 {
            return (0..self.blocks).map(|block| (block.into(), block)).collect();
        }
        let begin = self.racks[rack].begin;
        self.racks[rack].entries.iter().map(|&(step, _, block)| (step + 1 - begin, block)).collect()
    }

    /// All transfers, as a set.
    fn transfers(&self) -> HashSet<Transfer> {
        let slots: Vec<_> = (0..self.racks.len()).map(|rack| self.slots(rack)).collect();
        let count = |rack: usize| slots[rack].keys().max().unwrap() + 1;
        let mut all = HashSet::new();
        for (number, rack) in self.racks.iter().enumerate() {
            for &(step, source, block) in &rack.entries {
                let other = &self.racks[source];
                let exit = other.ring.exit(step - other.begin, count(source));
                let source = other.ranks[exit as usize];
                all.insert(Transfer { step, source, target: rack.ranks[0], block });
            }
            let last = count(number);
            for inner in 0..rack.ring.plan.steps(last as u32) {
                for local in 0..rack.ring.members {
                    let hop = rack.ring.plan.send_at(local, inner, last as u32);
                    let Some(hop) = hop else { continue };
                    let Some(&block) = slots[number].get(&hop.block.into()) else { continue };
                    let ends = [hop.source, hop.target].map(|end| rack.ranks[end as usize]);
                    let step = rack.begin + inner;
                    all.insert(Transfer { step, source: ends[0], target: ends[1], block });
                }
            }
        }
        all
    }
}

fn schedule(algorithm: Algorithm, sizes: &[u32]) -> Schedule {
    cases::build(algorithm, &cases::racks_of(sizes), 0)
}

fn check(algorithm: Algorithm, sizes: &[u32], blocks: u32) {
    let plan = schedule(algorithm, sizes);
    let sent = (0..plan.steps(blocks)).flat_map(|step| {
        let plan = &plan;
        (0..plan.members()).filter_map(move |rank| plan.send_at(rank, step, blocks))
    });
    let sent: HashSet<Transfer> = sent.collect();
    let model = Model::new(sizes, algorithm, blocks).transfers();
    assert!(sent == model, "{algorithm}, racks {sizes:?}, {blocks} blocks");
}

const BOTH: [Algorithm; 2] = [Algorithm::RacksChain, Algorithm::RacksPipeline];

#[test]
fn racks_of_all_small_sizes_follow_the_model() {
    for algorithm in BOTH {
        for sizes in
            cases::lists(4, &[1, 2, 3, 5]).into_iter().chain(cases::lists(2, &[7, 8, 9, 17]))
        {
            for blocks in [1, 2, 3, 4, 5, 6, 7, 11, 20, 41] {
                check(algorithm, &sizes, blocks);
            }
        }
    }
}

#[test]
fn many_racks_follow_the_model() {
    for algorithm in BOTH {
        for sizes in [vec![4; 9], vec![1; 33], vec![3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], vec![12; 16]]
        {
            for blocks in [1, 5, 13, 100] {
                check(algorithm, &sizes, blocks);
            }
        }
    }
}

/// Racks, blocks, and the steps of the chain and the pipeline.
type Steps<'a> = (&'a [u32], u32, [u64; 2]);

fn assert_steps(cases: &[Steps<'_>], is_right: impl Fn(u64, u64) -> bool) {
    for &(sizes, blocks, expected) in cases {
        for (algorithm, expected) in BOTH.into_iter().zip(expected) {
            let steps = schedule(algorithm, sizes).steps(blocks);
            let case = format!("{algorithm}, racks {sizes:?}, {blocks} blocks");
            assert!(is_right(steps, expected), "{case}: {steps} steps, not {expected}");
        }
    }
}

/// A first round model, with classes of q+2 or 2q+2 rounds and chains that pass on what an exit would have sent to its leader,
/// took this many rounds.
#[test]
fn steps_are_fewer_than_those_of_the_first_model() {
    let cases: [Steps<'_>; 6] = [
        (&[8; 4], 100, [115, 114]),
        (&[8; 8], 100, [131, 119]),
        (&[32; 16], 400, [495, 434]),
        (&[32; 16], 2048, [2143, 2082]),
        (&[32; 12], 1024, [1095, 1058]),
        (&[16, 16, 9, 3, 8, 8], 100, [128, 135]),
    ];
    assert_steps(&cases, |steps, before| steps < before);
}

#[test]
fn steps_of_some_racks_are_known() {
    let cases: [Steps<'_>; 6] = [
        (&[8; 4], 100, [114, 110]),
        (&[8; 8], 100, [130, 114]),
        (&[32; 16], 400, [494, 428]),
        (&[32; 16], 2048, [2142, 2076]),
        (&[32; 12], 1024, [1094, 1052]),
        (&[16, 16, 9, 3, 8, 8], 100, [127, 122]),
    ];
    assert_steps(&cases, |steps, known| steps == known);
}

/// The formulas of `Schedule::steps` for racks of equal sizes that are powers of two.
#[test]
fn steps_of_equal_racks_are_the_closed_form() {
    for (racks, log2) in (2..=20).flat_map(|racks| (0..=6_u32).map(move |log2| (racks, log2))) {
        let (q, between) =
            (u64::from(log2), u64::from(u32::BITS - (racks - 1_u32).leading_zeros()));
        let sizes = vec![1 << log2; racks as usize];
        for blocks in [(q as u32 + 1) * 6, 1000] {
            let k = u64::from(blocks);
            let chain = k - 1 + u64::from(racks - 1) * (q + 1) + q;
            assert_eq!(schedule(Algorithm::RacksChain, &sizes).steps(blocks), chain);
            let pipeline = k + (between - 1) * (q + 1) + 2 * q;
            assert_eq!(schedule(Algorithm::RacksPipeline, &sizes).steps(blocks), pipeline);
        }
    }
}
