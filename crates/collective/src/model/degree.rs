//! Choosing the degree of a reduction.

use super::{reduce::reduce_us, write_costs::WriteCosts};

/// Returns the degrees that the paper considers (section 4.2), in ascending order: k = 2^i - 1, at most `members` - 1, and
/// 1 in any case.
pub fn degrees(members: u32) -> impl Iterator<Item = u32> {
    (1..=u32::BITS)
        .map(|bits| u32::MAX >> (u32::BITS - bits))
        .take_while(move |&degree| degree == 1 || degree < members)
}

/// Returns the degree of [`degrees`] with the least time of [`reduce_us`] in the worst case; of equals the smallest.
///
/// The worst case: a member folds in the order of ranks, and which contribution comes first is up to the network (section
/// 5.2), so that a larger degree is chosen where it pays even then. The printed equation alone would choose 15 for few bytes
/// and 16 members (see [the module](super)).
///
/// The result depends on the arguments alone, by sums, products and comparisons that IEEE 754 defines exactly: it is the
/// same at all members.
///
/// # Panics
/// `members` is 0.
pub fn best_degree(members: u32, bytes: u64, costs: &WriteCosts) -> u32 {
    best_degree_of(degrees(members), members, bytes, costs).unwrap_or(1)
}

/// The same among any degrees, such as those along whose trees members are linked; `None` if there are none.
///
/// # Panics
/// `members` or a degree is 0.
pub fn best_degree_of(
    degrees: impl IntoIterator<Item = u32>,
    members: u32,
    bytes: u64,
    costs: &WriteCosts,
) -> Option<u32> {
    let timed = degrees
        .into_iter()
        .map(|degree| (reduce_us(members, degree, bytes, costs).worst_us, degree));
    let least = timed.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    least.map(|(_, degree)| degree)
}
