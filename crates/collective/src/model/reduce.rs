//! What a reduction and an allreduce cost.

use super::{bounds::Bounds, broadcast::broadcast_us, write_costs::WriteCosts};
use crate::reduction_tree::ReductionTree;

/// Returns the time of a reduction of `bytes` from each member along the tree of a degree, until rank 0 has the result.
///
/// Section 5.2 prints, for the best case of very long messages,
/// `2 Tc + sum over the steps of [2 (Ts + Tn) + Tm + Td + Tt * senders + To]`. Here a step takes
/// `2 (Ts + Tn) + Tm + Td + Tt + (senders - 1) * next`, and its folds:
///
/// - best case: `next = max(Tt, Ts, Tn, To)`, and `To` once, as each contribution is folded while the next arrives. Where
///   the transmission takes longest, this is the printed equation.
/// - worst case (inferred from the text): `next = max(Tt, Ts + Tn)`, and `To` for each sender.
///
/// Tt, Tc and To are those of all bytes.
///
/// # Panics
/// `members` or `degree` is 0.
pub fn reduce_us(members: u32, degree: u32, bytes: u64, costs: &WriteCosts) -> Bounds {
    let tree = ReductionTree::new(members, degree);
    let copies_us = 2.0 * costs.copy_us_per_byte * bytes as f64;
    let steps = (0..tree.steps()).map(|step| step_us(tree.senders(step), bytes, costs));
    steps.fold(Bounds::exactly(0.0), |sum, step| sum + step) + copies_us
}

/// Returns the time of a step in which `senders` members write to one.
fn step_us(senders: u32, bytes: u64, costs: &WriteCosts) -> Bounds {
    let WriteCosts { dma_start_us, adapter_us, .. } = *costs;
    let transmit_us = costs.transmit_us_per_byte * bytes as f64;
    let fold_us = costs.fold_us_per_byte * bytes as f64;
    let first_us =
        2.0 * (dma_start_us + adapter_us) + costs.library_us + costs.post_us + transmit_us;
    let others = f64::from(senders.saturating_sub(1));
    let best_next_us = transmit_us.max(dma_start_us).max(adapter_us).max(fold_us);
    let worst_next_us = transmit_us.max(dma_start_us + adapter_us);
    Bounds {
        best_us: first_us + others * best_next_us + fold_us,
        worst_us: first_us + others * worst_next_us + f64::from(senders) * fold_us,
    }
}

/// Returns the time until rank 0 has `bytes` of each member, along the tree of a degree. The paper has none: as [`reduce_us`], where
/// each sends what its subtree has, and nothing is folded.
///
/// # Panics
/// `members` or `degree` is 0.
pub fn gather_us(members: u32, degree: u32, bytes: u64, costs: &WriteCosts) -> Bounds {
    let tree = ReductionTree::new(members, degree);
    let costs = WriteCosts { fold_us_per_byte: 0.0, ..*costs };
    let mut subtree = 1_u64;
    let mut sum = Bounds::exactly(0.0);
    for step in 0..tree.steps() {
        let sent = bytes.saturating_mul(subtree);
        sum = sum + step_us(tree.senders(step), sent, &costs);
        subtree = (subtree * (u64::from(degree) + 1)).min(members.into());
    }
    sum + 2.0 * costs.copy_us_per_byte * bytes as f64 * f64::from(members)
}

/// Returns the time of an allreduce: [`reduce_us`], then [`broadcast_us`] of the result in blocks of `block_bytes` (the
/// paper, section 4.2).
///
/// # Panics
/// `members`, `degree` or `block_bytes` is 0.
pub fn allreduce_us(
    members: u32,
    degree: u32,
    bytes: u64,
    block_bytes: u64,
    costs: &WriteCosts,
) -> Bounds {
    reduce_us(members, degree, bytes, costs) + broadcast_us(members, bytes, block_bytes, costs)
}
