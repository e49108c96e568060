//! Every property, for every algorithm, for all small groups and messages.

use std::collections::HashSet;

use super::{cases, oracle};
use schedule::{Algorithm, Schedule, Transfer};

const MEMBERS: u32 = 64;
const BLOCKS: u32 = 40;

/// Delivery, steps, neighbours and first sources for one algorithm.
fn every_message_is_delivered(algorithm: Algorithm) {
    for members in 1..=MEMBERS {
        deliver_by(cases::schedules(algorithm, members), BLOCKS);
    }
}

fn deliver_by(plans: Vec<Schedule>, blocks_max: u32) {
    for plan in plans {
        let neighbours = oracle::neighbours(&plan);
        oracle::announcers(&plan, &neighbours);
        for blocks in 0..=blocks_max {
            let transfers = oracle::transfers(&plan, blocks);
            let last = oracle::deliver(&plan, blocks, &transfers);
            oracle::steps(&plan, blocks, &transfers);
            oracle::first_sources(&plan, blocks, &transfers);
            for transfer in &transfers {
                let declared = neighbours[transfer.source as usize].contains(&transfer.target);
                assert!(declared, "{transfer:?}: {}", oracle::case(&plan, blocks));
            }
            if plan.algorithm() == Algorithm::BinomialPipeline {
                final_receipts_are_together(&plan, blocks, &last);
            }
        }
    }
}

/// DSN section 4.3: all receive their last block at the last step, or spread over two when n is no power of two.
/// A message of one block is the exception: the tree that it travels is no pipeline.
fn final_receipts_are_together(plan: &Schedule, blocks: u32, last: &[Option<u64>]) {
    if blocks < 2 {
        return;
    }
    let spread = u64::from(!plan.members().is_power_of_two());
    for (rank, last) in (0..).zip(last) {
        if rank != plan.root() {
            let late = last.map(|last| plan.steps(blocks) - 1 - last);
            assert!(
                late <= Some(spread) && late.is_some(),
                "rank {rank}: {}",
                oracle::case(plan, blocks)
            );
        }
    }
}

#[test]
fn sequential_delivers() {
    every_message_is_delivered(Algorithm::Sequential);
}

#[test]
fn chain_delivers() {
    every_message_is_delivered(Algorithm::Chain);
}

#[test]
fn binomial_tree_delivers() {
    every_message_is_delivered(Algorithm::BinomialTree);
}

#[test]
fn binomial_pipeline_delivers() {
    every_message_is_delivered(Algorithm::BinomialPipeline);
}

#[test]
fn circulant_delivers() {
    every_message_is_delivered(Algorithm::Circulant);
}

#[test]
fn chain_of_racks_delivers() {
    every_message_is_delivered(Algorithm::ChainOfRacks);
}

#[test]
fn nested_pipelines_deliver() {
    every_message_is_delivered(Algorithm::NestedPipelines);
}

#[test]
fn racks_chain_delivers() {
    every_message_is_delivered(Algorithm::RacksChain);
}

#[test]
fn racks_pipeline_delivers() {
    every_message_is_delivered(Algorithm::RacksPipeline);
}

#[test]
fn in_switch_delivers() {
    every_message_is_delivered(Algorithm::InSwitch);
}

#[test]
fn next_agrees_with_a_scan() {
    for algorithm in Algorithm::ALL {
        for members in 1..=40 {
            for plan in cases::schedules(algorithm, members) {
                for blocks in [0, 1, 2, 3, 4, 5, 7, 13, 20] {
                    oracle::next_agrees_with_scan(&plan, blocks);
                }
            }
        }
    }
}

/// Connections cost memory, so all declared neighbours are used by long messages.
#[test]
fn a_long_message_uses_every_declared_neighbour() {
    for algorithm in Algorithm::ALL {
        for members in 1..=40 {
            for plan in cases::schedules(algorithm, members) {
                let mut met: HashSet<(u32, u32)> = HashSet::new();
                for Transfer { source, target, .. } in oracle::transfers(&plan, 40) {
                    met.extend([(source, target), (target, source)]);
                }
                let declared = (0..members)
                    .flat_map(|rank| plan.neighbours(rank).map(move |other| (rank, other)));
                assert_eq!(met, declared.collect(), "{}", oracle::case(&plan, 40));
            }
        }
    }
}

/// Up to four racks of one, two, three or five members, in every order.
#[test]
fn racks_of_all_small_sizes_deliver() {
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.needs_racks()) {
        for sizes in cases::lists(4, &[1, 2, 3, 5]) {
            let racks = cases::racks_of(&sizes);
            let root = racks.len() as u32 / 2;
            deliver_by(vec![cases::build(algorithm, &racks, root)], 17);
        }
    }
}

#[test]
fn a_block_enters_each_rack_once() {
    for algorithm in Algorithm::ALL.into_iter().filter(|algorithm| algorithm.needs_racks()) {
        for racks in cases::layouts(23) {
            for root in cases::roots(23) {
                let plan = cases::build(algorithm, &racks, root);
                let rack = |rank: u32| racks[rank as usize];
                let entries = oracle::transfers(&plan, 9)
                    .into_iter()
                    .filter(|transfer| rack(transfer.source) != rack(transfer.target));
                let distinct: HashSet<u32> = racks.iter().copied().collect();
                assert_eq!(entries.count(), (distinct.len() - 1) * 9, "{}", oracle::case(&plan, 9));
            }
        }
    }
}

/// DSN section 4.5, point 3, in whole numbers: the sum of the slacks times (n-2) is 2(n-2-(l-1)) times the number
/// of senders, at every steady step.
#[test]
fn average_slack_is_the_closed_form_at_every_steady_step() {
    for dimensions in 2..=9_u64 {
        let members = 1_u32 << dimensions;
        let plan = Schedule::new(Algorithm::BinomialPipeline, members, 0).unwrap();
        let n = u64::from(members);
        for blocks in [1, 2, 3, 7, 40] {
            for step in dimensions..=u64::from(blocks) + dimensions - 2 {
                let slacks: Vec<u64> =
                    (0..members).filter_map(|rank| plan.slack(rank, step, blocks)).collect();
                let (sum, senders) = (slacks.iter().sum::<u64>(), slacks.len() as u64);
                assert_eq!(
                    sum * (n - 2),
                    2 * (n - 1 - dimensions) * senders,
                    "{members} members, step {step}"
                );
                let average = sum as f64 / senders as f64;
                assert!((Schedule::average_slack(members).unwrap() - average).abs() < 1e-12);
            }
        }
    }
}
