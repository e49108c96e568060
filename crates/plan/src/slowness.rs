//! Which member delays a group.
//!
//! One slow member delays all others in every schedule (DSN 2018 section 4.5 bounds the cost of one slow
//! link). All send little then, and most wait for a member that waits itself, so rates do not identify
//! it. A random walk does: from each member to the members that it has waited for, weighted by how long
//! ([`Waited`]). The walk spends most of its time at the straggler, which waits for no member, or at the
//! two ends of a slow link, which wait for each other.
//!
//! Several slow members share the walk, and in a large group no share stands out. There [`taking`] does: a member that sends to a slow
//! member waits for it most of the time, and for others little.

use std::time::Duration;

use relay::Waited;

/// Steps of the walk; far more than the distance between any two members.
const STEPS: usize = 400;
/// The share of steps that restart at a random member, so that no cycle traps the walk.
const RESTART: f64 = 0.05;
/// Members with this part of the largest share are candidates as well: the ends of one link.
const CANDIDATE: f64 = 0.75;

/// Each member's share, by rank, in the delay of the group; the shares add up to 1.
///
/// `waited`: for each member by rank, how long it has waited for which members in some period; empty
/// for members that are done or have not reported. Empty if no member has waited.
pub fn shares(waited: &[Vec<Waited>]) -> Vec<f64> {
    let edges: Vec<Vec<(usize, f64)>> =
        waited.iter().map(|waited_for| edges(waited_for, waited.len())).collect();
    let takes_part: Vec<bool> = edges.iter().map(|edges| !edges.is_empty()).collect();
    let members = takes_part.iter().filter(|&&part| part).count();
    if members == 0 {
        return Vec::new();
    }
    let fresh = |member: usize| if takes_part[member] { 1.0 / members as f64 } else { 0.0 };
    let mut here: Vec<f64> = (0..waited.len()).map(fresh).collect();
    let mut visits = vec![0.0; waited.len()];
    for _ in 0..STEPS {
        let mut next: Vec<f64> = (0..waited.len()).map(|member| RESTART * fresh(member)).collect();
        for (edges, share) in edges.iter().zip(&here) {
            for &(to, part) in edges {
                next[to] += (1.0 - RESTART) * share * part;
            }
        }
        // Drops the probability of members that do not take part.
        let total: f64 = next.iter().sum();
        next.iter_mut().for_each(|share| *share /= total);
        visits.iter_mut().zip(&next).for_each(|(visits, share)| *visits += share);
        here = next;
    }
    visits.into_iter().map(|visits| visits / STEPS as f64).collect()
}

/// How long those that have waited for each member to take blocks have waited for that, on average; by rank.
///
/// `waited`: as for [`shares`].
pub fn taking(waited: &[Vec<Waited>]) -> Vec<Duration> {
    let mut all = vec![(Duration::ZERO, 0); waited.len()];
    let others = waited.iter().enumerate().flat_map(|(rank, list)| {
        list.iter()
            .filter(move |waited| waited.member as usize != rank && !waited.to_take.is_zero())
    });
    for waited in others {
        if let Some((sum, senders)) = all.get_mut(waited.member as usize) {
            *sum += waited.to_take;
            *senders += 1;
        }
    }
    all.into_iter().map(|(sum, senders)| sum / senders.max(1)).collect()
}

/// The next members of the walk, with probabilities that add up to 1.
fn edges(waited: &[Waited], members: usize) -> Vec<(usize, f64)> {
    let known = waited.iter().filter(|waited| (waited.member as usize) < members);
    let seconds = |waited: &Waited| (waited.to_take + waited.to_give).as_secs_f64();
    let total: f64 = known.clone().map(seconds).sum();
    if total <= 0.0 {
        return Vec::new();
    }
    known.map(|waited| (waited.member as usize, seconds(waited) / total)).collect()
}

/// The member with the largest of these [`shares`] of `waited`, and that share.
///
/// Of the two ends of a link: the one with more `suspicions`, else the one that takes blocks.
pub fn straggler(
    shares: &[f64],
    waited: &[Vec<Waited>],
    suspicions: &dyn Fn(u32) -> u32,
) -> Option<(u32, f64)> {
    let most = shares.iter().copied().fold(0.0, f64::max);
    let mut taking = vec![0.0; waited.len()];
    for waited in waited.iter().flatten() {
        if let Some(taking) = taking.get_mut(waited.member as usize) {
            *taking += waited.to_take.as_secs_f64();
        }
    }
    let candidates = (0..)
        .zip(shares)
        .take(waited.len())
        .filter(|&(_, &share)| share > 0.0 && share >= CANDIDATE * most);
    let evidence = |member: u32| (suspicions(member), taking[member as usize]);
    let straggler = candidates.max_by(|(one, _), (other, _)| {
        let (one, other) = (evidence(*one), evidence(*other));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    straggler.map(|(member, _)| (member, most))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worst(waited: &[Vec<Waited>], suspicions: &dyn Fn(u32) -> u32) -> Option<(u32, f64)> {
        straggler(&shares(waited), waited, suspicions)
    }

    fn take(member: u32, seconds: u64) -> Waited {
        Waited { member, to_take: Duration::from_secs(seconds), ..Waited::default() }
    }

    fn give(member: u32, seconds: u64) -> Waited {
        Waited { member, to_give: Duration::from_secs(seconds), ..Waited::default() }
    }

    #[test]
    fn a_slow_link_is_attributed_to_its_receiver_or_to_the_suspected_end() {
        let chain = [vec![take(1, 9)], vec![take(2, 10)], vec![give(1, 10)], vec![give(2, 10)]];
        let (member, share) = worst(&chain, &|_| 0).unwrap();
        assert!(member == 2 && share > 0.4, "{member}, {share}");
        assert_eq!(worst(&chain, &|member| u32::from(member == 1)).unwrap().0, 1);
    }

    #[test]
    fn who_sends_to_slow_members_waits_for_them_to_take() {
        let group = [
            [take(1, 9), take(2, 1)].to_vec(),
            [take(2, 2), take(3, 5), take(1, 10)].to_vec(),
            [take(3, 7), give(1, 1)].to_vec(),
            Vec::new(),
        ];
        let expected = [0, 9000, 1500, 6000].map(Duration::from_millis);
        assert_eq!(taking(&group), expected);
    }

    #[test]
    fn a_member_that_waits_for_no_other_is_found() {
        let group =
            [vec![take(1, 5), take(2, 5)], vec![give(2, 9)], vec![give(2, 9)], vec![give(1, 9)]];
        let (member, share) = worst(&group, &|_| 0).unwrap();
        assert!(member == 2 && share > 0.8, "{member}, {share}");
    }

    #[test]
    fn equal_waits_give_equal_shares() {
        let ring: Vec<Vec<Waited>> = (0..6).map(|member| vec![take((member + 1) % 6, 9)]).collect();
        assert!(shares(&ring).iter().all(|share| (share - 1.0 / 6.0).abs() < 1e-6));
        assert_eq!(worst(&[vec![], vec![]], &|_| 0), None);
        // A rank out of range, from a faulty peer.
        assert_eq!(worst(&[vec![take(9, 9)], vec![]], &|_| 0), None);
    }
}
