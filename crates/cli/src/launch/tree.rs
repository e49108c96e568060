//! The tree of logins: one login serves a part of the hosts, whose first host logs in to the others, and so on.

/// The maximum number of hosts that this machine starts alone, without `--launch-depth`: a tree needs logins between
/// hosts, and saves less than a second there (docs/decisions/launching.md).
const FLAT_MAX: usize = 128;
/// The maximum depth of the tree.
pub const DEPTH_MAX: u8 = 4;

/// The depth for this number of hosts: the smallest with which no machine has more than `fanout` logins.
pub fn depth(hosts: usize, fanout: usize) -> u8 {
    if hosts <= FLAT_MAX {
        return 1;
    }
    let is_enough = |&depth: &u8| fanout.saturating_mul(part_max(fanout, depth)) >= hosts;
    (2..DEPTH_MAX).find(is_enough).unwrap_or(DEPTH_MAX)
}

/// The number of hosts that one login serves, including the host that it logs in to.
fn part_max(fanout: usize, depth: u8) -> usize {
    (1..depth).fold(1, |below, _| fanout.saturating_mul(below).saturating_add(1))
}

/// Splits hosts into parts of nearly equal length, one for each login from here: at most `fanout` if the depth allows.
pub fn parts<T: Clone>(hosts: &[T], fanout: usize, depth: u8) -> Vec<Vec<T>> {
    let count = hosts.len().div_ceil(part_max(fanout, depth)).max(fanout).min(hosts.len());
    let count = if depth <= 1 { hosts.len() } else { count };
    let bound = |part: usize| part * hosts.len() / count.max(1);
    (0..count).map(|part| hosts[bound(part)..bound(part + 1)].to_vec()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The logins of the busiest machine, and the depth of the tree.
    fn walk(hosts: &[usize], fanout: usize, depth: u8, seen: &mut Vec<usize>) -> (usize, usize) {
        let parts = parts(hosts, fanout, depth);
        let (mut most, mut deepest) = (parts.len(), 0);
        for part in parts {
            seen.push(part[0]);
            let (logins, below) = walk(&part[1..], fanout, depth.saturating_sub(1), seen);
            most = most.max(logins);
            deepest = deepest.max(1 + below);
        }
        (most, deepest)
    }

    #[test]
    fn every_host_is_started_once_with_few_logins_from_each() {
        for hosts in [0, 1, 2, 31, 128, 129, 1000, 1056, 1057, 10_000] {
            for fanout in [2_usize, 8, 32, 1024] {
                let all: Vec<usize> = (0..hosts).collect();
                let (depth, mut seen) = (depth(hosts, fanout), Vec::new());
                let (most, deepest) = walk(&all, fanout, depth, &mut seen);
                seen.sort_unstable();
                assert_eq!(seen, all);
                assert!(deepest <= usize::from(depth), "{hosts} {fanout}");
                let has_room = fanout * part_max(fanout, DEPTH_MAX) >= hosts;
                if depth > 1 && has_room {
                    assert!(most <= fanout, "{most} logins for {hosts} hosts by {fanout}");
                }
            }
        }
    }

    #[test]
    fn depths_are_the_least() {
        assert_eq!([depth(128, 1), depth(129, 32), depth(1056, 32), depth(1057, 32)], [1, 2, 2, 3]);
        assert_eq!(depth(10_000, 32), 3);
        assert_eq!(depth(10_000, 1), DEPTH_MAX, "and so many are started one after another");
        assert_eq!(parts(&[0; 9], 2, 1).len(), 9);
        assert_eq!(parts(&[0; 6], 2, 2).iter().map(Vec::len).collect::<Vec<_>>(), [3, 3]);
        assert_eq!(parts(&[0; 7], 2, 2).len(), 3, "more logins where the depth does not suffice");
    }
}
