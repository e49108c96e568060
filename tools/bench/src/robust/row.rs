//! The effect of one disturbance, and what the paper expects.

use rdmc::{Algorithm, Schedule};
use serde_json::{Value, json};

use crate::report::{Cell, number};

/// The effect of one disturbance on one algorithm.
pub struct Row {
    pub members: u32,
    pub network: &'static str,
    pub disturbance: String,
    pub algorithm: Algorithm,
    pub time: f64,
    pub unit: &'static str,
    /// The undisturbed time divided by this one: the part of the bandwidth that is left.
    pub of_undisturbed: f64,
    pub expected: Option<f64>,
    /// The same for all members but the disturbed one.
    pub others_of_undisturbed: Option<f64>,
    pub slack: Option<f64>,
}

impl Row {
    pub fn undisturbed(
        members: u32,
        network: &'static str,
        algorithm: Algorithm,
        time: f64,
        unit: &'static str,
    ) -> Self {
        Self {
            members,
            network,
            disturbance: "none".into(),
            algorithm,
            time,
            unit,
            of_undisturbed: 1.0,
            expected: None,
            others_of_undisturbed: None,
            slack: None,
        }
    }

    /// With this time under a disturbance.
    pub fn disturbed(&self, disturbance: String, time: f64) -> Self {
        let of_undisturbed = self.time / time;
        Self {
            disturbance,
            time,
            of_undisturbed,
            ..Self::undisturbed(self.members, self.network, self.algorithm, time, self.unit)
        }
    }

    pub fn values(&self) -> impl IntoIterator<Item = Cell> {
        let optional = |value: Option<f64>| value.map_or(Value::Null, number);
        [
            ("members", json!(self.members)),
            ("network", json!(self.network)),
            ("disturbance", json!(self.disturbance)),
            ("algorithm", json!(self.algorithm.name())),
            ("time", number(self.time)),
            ("unit", json!(self.unit)),
            ("of_undisturbed", number(self.of_undisturbed)),
            ("expected", optional(self.expected)),
            ("others_of_undisturbed", optional(self.others_of_undisturbed)),
            ("slack_steps", optional(self.slack)),
        ]
    }
}

/// The part of the bandwidth that the paper expects to be left at least when one link is slow: of
/// the pipeline `l*T'/(T+(l-1)*T')`, since each link is used at every l-th step; of a chain T'/T.
pub fn slow_link_bound(algorithm: Algorithm, members: u32, times_slower: u32) -> Option<f64> {
    let times = f64::from(times_slower);
    match algorithm {
        Algorithm::BinomialPipeline => {
            let dimensions = f64::from(members.ilog2());
            Some(dimensions / (times + dimensions - 1.0))
        }
        Algorithm::Chain => Some(1.0 / times),
        _ => None,
    }
}

/// Two receivers that exchange blocks by every one of these schedules.
pub fn common_link(schedules: &[Schedule], members: u32) -> Option<[u32; 2]> {
    let are_neighbours = |one: u32, other: u32| {
        schedules.iter().all(|schedule| schedule.neighbours(one).any(|member| member == other))
    };
    (2..members - 1).map(|one| [one, one + 1]).find(|&[one, other]| are_neighbours(one, other))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_the_papers() {
        let bound = |members| slow_link_bound(Algorithm::BinomialPipeline, members, 2).unwrap();
        // Its example has 85.6 % for 64 members at half rate, which is 6/7 rounded down.
        assert!((bound(64) - 6.0 / 7.0).abs() < 1e-12);
        assert!((bound(16) - 0.8).abs() < 1e-12);
        assert_eq!(slow_link_bound(Algorithm::Chain, 16, 2), Some(0.5));
        assert_eq!(slow_link_bound(Algorithm::Circulant, 16, 2), None);
    }

    #[test]
    fn every_algorithm_uses_the_slow_link() {
        for members in 4..=33 {
            let algorithms = [Algorithm::BinomialPipeline, Algorithm::Chain, Algorithm::Circulant];
            let schedules =
                algorithms.map(|algorithm| Schedule::new(algorithm, members, 0).unwrap());
            let [one, other] = common_link(&schedules, members).unwrap();
            assert!(one > 0 && schedules[0].neighbours(one).any(|member| member == other));
        }
    }
}
