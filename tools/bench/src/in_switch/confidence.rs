//! Means of several seeds, with intervals of confidence.

use serde_json::Value;

use crate::report::{deviation, mean, number};

/// Of Student's distribution with 1, 2, ... degrees of freedom, the value that 97.5 % are below.
const STUDENT: [f64; 19] = [
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160,
    2.145, 2.131, 2.120, 2.110, 2.101, 2.093,
];
const NORMAL: f64 = 1.96;

/// A mean, and half the width of its interval of 95 % confidence: NaN of a single value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Estimate {
    pub mean: f64,
    pub half: f64,
}

impl Estimate {
    pub fn of(values: &[f64]) -> Self {
        let freedom = values.len().saturating_sub(1);
        let student = STUDENT.get(freedom.wrapping_sub(1)).copied().unwrap_or(NORMAL);
        let half = student * deviation(values) / (values.len() as f64).sqrt();
        Self { mean: mean(values), half }
    }

    /// The mean and the half width, for two cells of a row.
    pub fn cells(self) -> (Value, Value) {
        (number(self.mean), number(self.half))
    }
}

/// By seed, how much less one takes than the lesser of the others, in percent.
pub fn saved(one: &[f64], others: &[Vec<f64>]) -> Estimate {
    let percent = |(seed, value): (usize, &f64)| {
        let least = others.iter().map(|other| other[seed]).fold(f64::INFINITY, f64::min);
        (1.0 - value / least) * 100.0
    };
    Estimate::of(&one.iter().enumerate().map(percent).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_is_students() {
        let estimate = Estimate::of(&[1.0, 2.0, 3.0]);
        assert_eq!(estimate.mean, 2.0);
        assert!((estimate.half - 4.303 / 3_f64.sqrt()).abs() < 1e-9);
        assert!(Estimate::of(&[1.0]).half.is_nan());
        let many: Vec<f64> = (0..100).map(f64::from).collect();
        assert!((Estimate::of(&many).half - 1.96 * deviation(&many) / 10.0).abs() < 1e-9);
    }

    #[test]
    fn what_is_saved_is_paired_by_seed() {
        let estimate = saved(&[50.0, 100.0], &[vec![100.0, 300.0], vec![200.0, 200.0]]);
        assert_eq!(estimate, Estimate { mean: 50.0, half: 0.0 });
    }
}
