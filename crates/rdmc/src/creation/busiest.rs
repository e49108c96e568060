//! Whose connections or requests make way when there are too many: that keeps out no other address.

use std::{collections::BTreeMap, net::IpAddr};

/// The address from which most have come, with one more from `newcomer`.
pub(super) fn busiest(others: impl Iterator<Item = IpAddr>, newcomer: IpAddr) -> Option<IpAddr> {
    let mut counts = BTreeMap::from([(newcomer, 1)]);
    for address in others {
        *counts.entry(address).or_default() += 1;
    }
    counts.into_iter().max_by_key(|&(_, count)| count).map(|(address, _)| address)
}
