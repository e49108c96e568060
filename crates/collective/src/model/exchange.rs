//! What an exchange costs.

use super::{broadcast::broadcast_hop_us, write_costs::WriteCosts};
use crate::Partners;

/// Returns the time of an allreduce of `bytes` by exchange, in pieces of `block_bytes`.
///
/// The paper has no exchange. Derived: in each step a member writes all that it has folded to its partner, and folds
/// as much, which comes in the other direction of the same link at the same time. So a step is a hop of a broadcast
/// ([`broadcast_hop_us`]) and To of all bytes. No member is written to by two in a step: best and worst case are the same.
///
/// # Panics
/// `block_bytes` is 0.
pub fn exchange_us(partners: Partners, bytes: u64, block_bytes: u64, costs: &WriteCosts) -> f64 {
    let fold_us = costs.fold_us_per_byte * bytes as f64;
    let step_us = broadcast_hop_us(bytes, block_bytes, costs) + fold_us;
    f64::from(partners.steps()) * step_us
}
