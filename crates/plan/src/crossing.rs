//! How much of a schedule crosses between racks.

use schedule::Schedule;

/// The most members and steps that are looked at.
const SAMPLES: u32 = 512;

/// The part of members' link time that goes between racks while all links are busy: the average over some members and
/// steps in the middle of a message. `racks` has the rack of each rank.
pub(crate) fn between_racks(schedule: &Schedule, racks: &[u32]) -> f64 {
    let members = schedule.members();
    // Several turns of what repeats in a schedule; the middle of such a long message is steady, but for chains that are longer.
    let period = 8 * u64::from(members.max(2).ilog2() + 1);
    let blocks = u32::try_from(8 * period + u64::from(members)).unwrap_or(u32::MAX);
    let first = schedule.steps(blocks) / 2;
    let every = members.div_ceil(SAMPLES).max(1);
    let (mut sent, mut crossing) = (0_u32, 0_u32);
    for rank in (0..members).step_by(every as usize) {
        for step in first..first + period {
            let Some(transfer) = schedule.send_at(rank, step, blocks) else { continue };
            let rack = |rank: u32| racks.get(rank as usize);
            sent += 1;
            crossing += u32::from(rack(transfer.source) != rack(transfer.target));
        }
    }
    if sent == 0 { 0.0 } else { f64::from(crossing) / f64::from(sent) }
}

/// Whether there are several racks, one of which has several members.
pub(crate) fn are_racks(racks: &[u32]) -> bool {
    let mut distinct = racks.to_vec();
    distinct.sort_unstable();
    distinct.dedup();
    distinct.len() > 1 && distinct.len() < racks.len()
}

#[cfg(test)]
mod tests {
    use schedule::Algorithm;

    use super::*;

    #[test]
    fn schedules_cross_as_their_racks_let_them() {
        let packed: Vec<u32> = (0..64).map(|rank| rank / 8).collect();
        let scattered: Vec<u32> = (0..64).map(|rank| rank % 8).collect();
        let part = |algorithm, racks: &[u32]| {
            between_racks(&Schedule::with_racks(algorithm, racks, 0).unwrap(), racks)
        };
        for (algorithm, in_order, out_of_order) in [
            (Algorithm::Chain, 0.125, 1.0),
            (Algorithm::BinomialPipeline, 0.5, 0.5),
            (Algorithm::RacksPipeline, 0.125, 0.125),
            (Algorithm::RacksChain, 0.125, 0.125),
        ] {
            let found = [part(algorithm, &packed), part(algorithm, &scattered)];
            for (found, expected) in found.into_iter().zip([in_order, out_of_order]) {
                assert!((found - expected).abs() < 0.03, "{algorithm}: {found}, not {expected}");
            }
        }
    }

    #[test]
    fn racks_are_several_and_one_has_several_members() {
        assert!(are_racks(&[1, 1, 2]));
        for none in [&[] as &[u32], &[1], &[1, 1], &[1, 2, 3]] {
            assert!(!are_racks(none), "{none:?}");
        }
    }
}
