//! Who holds a group up.
//!
//! One slow member drags all others in every schedule (DSN 2018 section 4.5 bounds what one slow
//! link costs). All of them send little then, and most wait for somebody who only waits, too. So
//! whoever wants to know follows the waiting: from each member to those that it has waited for, by
//! how long ([`Waited`]), on and on. Where one ends up most of the time is where the group is
//! held up: at a member that waits for nobody, or at the two ends of a slow link, which wait for each
//! other.

use rdmc::Waited;

/// Steps of the walk; far more than members of a group are apart.
const STEPS: usize = 400;
/// The share of steps that begin anew at any member, so that no corner holds a walk for ever.
const ANEW: f64 = 0.05;
/// Members that are visited almost as often as the one most visited: the ends of one link.
const ALMOST: f64 = 0.75;

/// The share of each member, by rank, in what holds the group up; all together 1.
///
/// `waited`: for each member by rank, how long it has waited for whom in some span of time. Members
/// that are done, or have told nothing, have waited for nobody and nobody waits for them. Nothing if
/// nobody has waited.
pub fn shares(waited: &[Vec<Waited>]) -> Vec<f64> {
    let ways: Vec<Vec<(usize, f64)>> = waited.iter().map(|of| ways(of, waited.len())).collect();
    let takes_part: Vec<bool> = ways.iter().map(|ways| !ways.is_empty()).collect();
    let members = takes_part.iter().filter(|&&part| part).count();
    if members == 0 {
        return Vec::new();
    }
    let fresh = |member: usize| if takes_part[member] { 1.0 / members as f64 } else { 0.0 };
    let mut here: Vec<f64> = (0..waited.len()).map(fresh).collect();
    let mut visits = vec![0.0; waited.len()];
    for _ in 0..STEPS {
        let mut next: Vec<f64> = (0..waited.len()).map(|member| ANEW * fresh(member)).collect();
        for (ways, share) in ways.iter().zip(&here) {
            for &(to, part) in ways {
                next[to] += (1.0 - ANEW) * share * part;
            }
        }
        // What went to members that take no part is lost; the rest goes on.
        let total: f64 = next.iter().sum();
        next.iter_mut().for_each(|share| *share /= total);
        visits.iter_mut().zip(&next).for_each(|(visits, share)| *visits += share);
        here = next;
    }
    visits.into_iter().map(|visits| visits / STEPS as f64).collect()
}

/// Where the walk goes on from a member, by shares that make 1.
fn ways(waited: &[Waited], members: usize) -> Vec<(usize, f64)> {
    let known = waited.iter().filter(|waited| (waited.member as usize) < members);
    let seconds = |waited: &Waited| (waited.to_take + waited.to_give).as_secs_f64();
    let total: f64 = known.clone().map(seconds).sum();
    if total <= 0.0 {
        return Vec::new();
    }
    known.map(|waited| (waited.member as usize, seconds(waited) / total)).collect()
}

/// The member whose share in what holds the group up is the largest, and that share.
///
/// Of the two ends of a link it is the one with more `doubts`, else the one that takes blocks.
pub fn worst(waited: &[Vec<Waited>], doubts: &dyn Fn(u32) -> u32) -> Option<(u32, f64)> {
    worst_of(&shares(waited), waited, doubts)
}

/// The same for whoever has the [`shares`] of this waiting already.
pub fn worst_of(
    shares: &[f64],
    waited: &[Vec<Waited>],
    doubts: &dyn Fn(u32) -> u32,
) -> Option<(u32, f64)> {
    let most = shares.iter().copied().fold(0.0, f64::max);
    let mut taking = vec![0.0; waited.len()];
    for waited in waited.iter().flatten() {
        if let Some(taking) = taking.get_mut(waited.member as usize) {
            *taking += waited.to_take.as_secs_f64();
        }
    }
    let suspects = (0..)
        .zip(shares)
        .take(waited.len())
        .filter(|&(_, &share)| share > 0.0 && share >= ALMOST * most);
    let guilt = |member: u32| (doubts(member), taking[member as usize]);
    let worst = suspects.max_by(|(one, _), (other, _)| {
        let (one, other) = (guilt(*one), guilt(*other));
        one.0.cmp(&other.0).then(one.1.total_cmp(&other.1))
    });
    worst.map(|(member, _)| (member, most))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn take(member: u32, seconds: u64) -> Waited {
        Waited { member, to_take: Duration::from_secs(seconds), ..Waited::default() }
    }

    fn give(member: u32, seconds: u64) -> Waited {
        Waited { member, to_give: Duration::from_secs(seconds), ..Waited::default() }
    }

    #[test]
    fn the_link_at_which_a_chain_waits_is_its_receivers_or_his_who_is_doubted() {
        let chain = [vec![take(1, 9)], vec![take(2, 10)], vec![give(1, 10)], vec![give(2, 10)]];
        let (member, share) = worst(&chain, &|_| 0).unwrap();
        assert!(member == 2 && share > 0.4, "{member}, {share}");
        assert_eq!(worst(&chain, &|member| u32::from(member == 1)).unwrap().0, 1);
    }

    #[test]
    fn a_member_that_waits_for_nobody_is_found_from_everywhere() {
        let group =
            [vec![take(1, 5), take(2, 5)], vec![give(2, 9)], vec![give(2, 9)], vec![give(1, 9)]];
        let (member, share) = worst(&group, &|_| 0).unwrap();
        assert!(member == 2 && share > 0.8, "{member}, {share}");
    }

    #[test]
    fn nobody_stands_out_where_all_wait_alike() {
        let ring: Vec<Vec<Waited>> = (0..6).map(|member| vec![take((member + 1) % 6, 9)]).collect();
        assert!(shares(&ring).iter().all(|share| (share - 1.0 / 6.0).abs() < 1e-6));
        assert_eq!(worst(&[vec![], vec![]], &|_| 0), None);
        // Ranks that there are not, from a peer that lies.
        assert_eq!(worst(&[vec![take(9, 9)], vec![]], &|_| 0), None);
    }
}
