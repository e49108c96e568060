//! The binomial pipeline against a simulation of its specification in words (Ganesan and Seshadri,
//! as quoted in DSN section 4.4), which is independent of the closed form.

use schedule::{Algorithm, Schedule, Transfer};

/// "At each step j, each node exchanges a block with its neighbour along direction j mod l, except if the node does
/// not have a block to send or its neighbour is the sender. The sender sends block j, then the last block for ever;
/// other nodes send the highest numbered block they have received before."
fn specification(dimensions: u32, blocks: u32) -> Vec<Transfer> {
    let members = 1_u32 << dimensions;
    let mut highest: Vec<Option<u32>> = vec![None; members as usize];
    let mut transfers = Vec::new();
    for step in 0..u64::from(dimensions) + u64::from(blocks) - 1 {
        let before = highest.clone();
        for source in 0..members {
            let target = source ^ 1 << (step % u64::from(dimensions));
            let block = match source {
                0 => Some((step as u32).min(blocks - 1)),
                _ => before[source as usize],
            };
            if let (Some(block), 1..) = (block, target) {
                transfers.push(Transfer { step, source, target, block });
                highest[target as usize] = highest[target as usize].max(Some(block));
            }
        }
    }
    transfers
}

#[test]
fn the_closed_form_is_the_specification() {
    for dimensions in 1..=7 {
        let plan = Schedule::new(Algorithm::BinomialPipeline, 1 << dimensions, 0).unwrap();
        for blocks in 1..=30 {
            let mut transfers = Vec::new();
            for step in 0..plan.steps(blocks) {
                transfers.extend(
                    (0..plan.members()).filter_map(|rank| plan.send_at(rank, step, blocks)),
                );
            }
            assert_eq!(
                transfers,
                specification(dimensions, blocks),
                "2^{dimensions} members, {blocks} blocks"
            );
        }
    }
}

/// DSN figure 3, left: in each step every member that has the message sends it to one that has not.
#[test]
fn the_binomial_tree_is_that_of_figure_3() {
    let plan = Schedule::new(Algorithm::BinomialTree, 8, 0).unwrap();
    let mut edges = Vec::new();
    for step in 0..3 {
        edges.extend(
            (0..8)
                .filter_map(|rank| plan.send_at(rank, step, 1))
                .map(|t| (t.step, t.source, t.target)),
        );
    }
    let figure = [(0, 0, 1), (1, 0, 2), (1, 1, 3), (2, 0, 4), (2, 1, 5), (2, 2, 6), (2, 3, 7)];
    assert_eq!(edges, figure);
}
