//! The distances of the circulant graph on which trees and long broadcasts run.

use crate::MEMBERS_MAX;

/// Space for `Skip[0] ..= Skip[q]`, q being at most 16.
const DISTANCES_MAX: usize = MEMBERS_MAX.ilog2() as usize + 1;

/// `Skip[0] ..= Skip[q]`, q = ceil(log2 members): `Skip[q]` is the number of members, and each is half the next, rounded
/// up, down to 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Distances {
    all: [u32; DISTANCES_MAX],
    rounds: u32,
}

impl Distances {
    /// # Panics
    /// There are 0 members or more than [`MEMBERS_MAX`].
    pub(crate) fn new(members: u32) -> Self {
        assert!((1..=MEMBERS_MAX).contains(&members), "{members} members");
        let rounds = members.next_power_of_two().ilog2();
        let mut all = [0; DISTANCES_MAX];
        let mut last = members;
        for index in (0..=rounds as usize).rev() {
            all[index] = last;
            last = last.div_ceil(2);
        }
        Self { all, rounds }
    }

    /// Returns q.
    pub(crate) fn rounds(&self) -> u32 {
        self.rounds
    }

    pub(crate) fn as_slice(&self) -> &[u32] {
        &self.all[..=self.rounds as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_halve_and_start_at_one() {
        let check =
            |members, expected: &[u32]| assert_eq!(Distances::new(members).as_slice(), expected);
        check(1, &[1]);
        check(2, &[1, 2]);
        check(8, &[1, 2, 4, 8]);
        check(17, &[1, 2, 3, 5, 9, 17]);
        for members in (2..2000).chain([MEMBERS_MAX - 1, MEMBERS_MAX]) {
            let distances = Distances::new(members);
            assert_eq!(distances.rounds(), (members - 1).ilog2() + 1);
            let pairs = distances.as_slice().windows(2);
            assert!(pairs.clone().all(|pair| pair[0] < pair[1] && pair[1] <= 2 * pair[0]));
        }
    }
}
