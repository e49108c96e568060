//! How long after they were received blocks are sent on.

use rdmc::{Algorithm, Schedule};

/// The average over all steady steps of how many block times before its target the source of a
/// block had it, without what the root sends (DSN 2018 section 4.5, point 3). Of a step that is
/// neither early nor late that is the slack of the schedule. `arrivals` are in block times, by member
/// and block. `None` for other algorithms than the binomial pipeline, and when no step is steady.
pub fn measured(schedule: &Schedule, blocks: u32, arrivals: &[Vec<f64>]) -> Option<f64> {
    if schedule.algorithm() != Algorithm::BinomialPipeline {
        return None;
    }
    let dimensions = u64::from(schedule.members().ilog2());
    let steady = dimensions..=u64::from(blocks) + dimensions - 2;
    let mut slacks = Vec::new();
    for target in 0..schedule.members() {
        for block in 0..blocks {
            let Some(step) = schedule.received_at(target, block, blocks) else { continue };
            let Some(transfer) = schedule.receive_at(target, step, blocks) else { continue };
            if transfer.source != schedule.root() && steady.contains(&step) {
                let at = |member: u32| arrivals[member as usize][block as usize];
                slacks.push(at(target) - at(transfer.source));
            }
        }
    }
    (!slacks.is_empty()).then(|| slacks.iter().sum::<f64>() / slacks.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_in_step_have_the_slack_of_the_formula() {
        for members in [4, 8, 16] {
            let schedule = Schedule::new(Algorithm::BinomialPipeline, members, 0).unwrap();
            let arrival =
                |member, block| schedule.received_at(member, block, 20).unwrap_or(0) as f64;
            let arrivals: Vec<Vec<f64>> = (0..members)
                .map(|member| (0..20).map(|block| arrival(member, block)).collect())
                .collect();
            let measured = measured(&schedule, 20, &arrivals).unwrap();
            assert!((measured - Schedule::average_slack(members).unwrap()).abs() < 1e-9);
        }
        let chain = Schedule::new(Algorithm::Chain, 4, 0).unwrap();
        assert_eq!(measured(&chain, 20, &[]), None);
    }
}
