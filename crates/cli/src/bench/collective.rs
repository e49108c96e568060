//! Measurements of collective operations in the report.

use std::time::Duration;

use measure::CollectiveMeasurement;
use serde::Serialize;

/// The result for one length, by the rules of the OSU benchmarks. Times are in microseconds.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct CollectiveRow {
    /// Length of the message.
    pub bytes: u64,
    /// The number of members, including this machine.
    pub members: usize,
    /// The number of counted calls of each member.
    pub repeats: usize,
    /// The average over all members of their averages.
    pub average_us: f64,
    /// The smallest average of a member.
    pub minimum_us: f64,
    /// The largest average of a member.
    pub maximum_us: f64,
    /// Half of all calls of all members took at most this long.
    pub p50_us: f64,
    /// 99 of 100 calls of all members took at most this long.
    pub p99_us: f64,
}

impl CollectiveRow {
    /// Returns `None` if nothing was measured.
    pub fn of(measurement: &CollectiveMeasurement) -> Option<Self> {
        let CollectiveMeasurement { bytes, times } = measurement;
        let microseconds = |time: &Duration| time.as_secs_f64() * 1e6;
        let average = |times: &Vec<Duration>| {
            times.iter().map(microseconds).sum::<f64>() / times.len() as f64
        };
        let mut averages: Vec<f64> = times.iter().map(average).collect();
        averages.sort_by(f64::total_cmp);
        let mut all: Vec<f64> = times.iter().flatten().map(microseconds).collect();
        all.sort_by(f64::total_cmp);
        // The smallest value that is not exceeded by this percentage of values.
        let percentile = |percent: usize| all.get((all.len() * percent).div_ceil(100).max(1) - 1);
        Some(Self {
            bytes: *bytes,
            members: times.len(),
            repeats: times.first()?.len(),
            average_us: averages.iter().sum::<f64>() / averages.len() as f64,
            minimum_us: *averages.first()?,
            maximum_us: *averages.last()?,
            p50_us: *percentile(50)?,
            p99_us: *percentile(99)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages_are_of_members_and_percentiles_of_calls() {
        let member = |times: [u64; 2]| times.map(Duration::from_micros).to_vec();
        let times = vec![member([10, 30]), member([1, 3])];
        let row = CollectiveRow::of(&CollectiveMeasurement { bytes: 8, times }).unwrap();
        let rounded = [row.average_us, row.minimum_us, row.maximum_us, row.p50_us, row.p99_us]
            .map(|value| value.round());
        assert_eq!(rounded, [11.0, 2.0, 20.0, 3.0, 30.0]);
        assert_eq!((row.bytes, row.members, row.repeats), (8, 2, 2));
        let nothing = CollectiveMeasurement { bytes: 8, times: Vec::new() };
        assert_eq!(CollectiveRow::of(&nothing), None);
    }
}
