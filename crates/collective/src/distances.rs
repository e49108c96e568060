//! The distances of the circulant graph on which trees and long broadcasts run.

/// Returns `Skip[0] ..= Skip[q]`, q = ceil(log2 `members`): `Skip[q]` is `members`, and each is half the next, rounded up,
/// down to 1.
pub(crate) fn distances(members: u32) -> Vec<u32> {
    let mut distances = vec![members];
    let mut last = members;
    while last > 1 {
        last = last.div_ceil(2);
        distances.push(last);
    }
    distances.reverse();
    distances
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_halve_and_start_at_one() {
        assert_eq!(distances(1), [1]);
        assert_eq!(distances(2), [1, 2]);
        assert_eq!(distances(8), [1, 2, 4, 8]);
        assert_eq!(distances(17), [1, 2, 3, 5, 9, 17]);
        for members in 2..2000 {
            let distances = distances(members);
            assert_eq!(distances.len() as u32 - 1, (members - 1).ilog2() + 1);
            assert!(distances.windows(2).all(|pair| pair[0] < pair[1] && pair[1] <= 2 * pair[0]));
        }
    }
}
