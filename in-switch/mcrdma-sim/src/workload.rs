//! Sizes of messages as they were found in data centers, and when they are sent.

use serde::Serialize;

use crate::random::Random;

/// How long messages are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Distribution {
    /// Alibaba's storage, 2019.
    AlibabaStorage,
    /// Web search (Alizadeh et al., Data Center TCP, SIGCOMM 2010).
    WebSearch,
}

/// Bytes, and how many of a hundred messages are no longer. Both as HPCC's authors published them:
/// alibaba-edu/High-Precision-Congestion-Control, traffic_gen/AliStorage2019.txt and
/// traffic_gen/WebSearch_distribution.txt.
const ALIBABA_STORAGE: [(f64, f64); 9] = [
    (0.0, 0.0),
    (4e3, 22.93),
    (8e3, 69.21),
    (16e3, 80.61),
    (32e3, 90.47),
    (64e3, 93.53),
    (128e3, 96.77),
    (256e3, 97.53),
    (2e6, 100.0),
];
const WEB_SEARCH: [(f64, f64); 12] = [
    (0.0, 0.0),
    (10e3, 15.0),
    (20e3, 20.0),
    (30e3, 30.0),
    (50e3, 40.0),
    (80e3, 53.0),
    (200e3, 60.0),
    (1e6, 70.0),
    (2e6, 80.0),
    (5e6, 90.0),
    (10e6, 97.0),
    (30e6, 100.0),
];

impl Distribution {
    /// As in commands and files.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AlibabaStorage => "alibaba-storage",
            Self::WebSearch => "web-search",
        }
    }

    const fn points(self) -> &'static [(f64, f64)] {
        match self {
            Self::AlibabaStorage => &ALIBABA_STORAGE,
            Self::WebSearch => &WEB_SEARCH,
        }
    }

    /// The mean, in bytes; between two points sizes are even.
    #[must_use]
    pub fn mean_bytes(self) -> f64 {
        let parts = self.points().windows(2);
        parts
            .map(|ends| f64::midpoint(ends[0].0, ends[1].0) * (ends[1].1 - ends[0].1) / 100.0)
            .sum()
    }

    /// A length, at least 1.
    pub(crate) fn bytes(self, random: &mut Random) -> u32 {
        let percent = random.part() * 100.0;
        for ends in self.points().windows(2) {
            let [(from_bytes, from), (to_bytes, to)] = [ends[0], ends[1]];
            if percent < to {
                let part = (percent - from) / (to - from);
                return (from_bytes + part * (to_bytes - from_bytes)).max(1.0) as u32;
            }
        }
        1
    }
}

/// Times of events that are independent of earlier ones, with this interval on average.
#[derive(Clone, Copy, Debug)]
pub struct Poisson {
    mean_ps: f64,
}

impl Poisson {
    /// `per_s`: how often in a second.
    #[must_use]
    pub const fn new(per_s: f64) -> Self {
        Self { mean_ps: 1e12 / per_s }
    }

    /// How long it takes until it happens again.
    pub(crate) fn gap_ps(self, random: &mut Random) -> u64 {
        (-self.mean_ps * (1.0 - random.part()).ln()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_gaps_have_their_means() {
        let mut random = Random::new(5);
        for distribution in [Distribution::AlibabaStorage, Distribution::WebSearch] {
            let sum: f64 = (0..100_000).map(|_| f64::from(distribution.bytes(&mut random))).sum();
            let ratio = sum / 1e5 / distribution.mean_bytes();
            assert!((ratio - 1.0).abs() < 0.03, "{}: {ratio}", distribution.name());
        }
        let gaps = Poisson::new(1e6);
        let sum: u64 = (0..100_000).map(|_| gaps.gap_ps(&mut random)).sum();
        assert!((sum as f64 / 1e11 - 1.0).abs() < 0.02, "{sum}");
    }

    #[test]
    fn the_means_are_those_of_the_published_points() {
        assert_eq!(Distribution::WebSearch.mean_bytes().round(), 1_711_250.0);
        assert_eq!(Distribution::AlibabaStorage.mean_bytes().round(), 40_870.0);
    }
}
