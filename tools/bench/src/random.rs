//! Reproducible random numbers.

/// SplitMix64. Published results depend on its numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The same seed, the same numbers.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// All 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        bits ^ (bits >> 31)
    }

    /// From 0 up to but without 1, evenly.
    pub fn part(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Normally distributed around 0 with a standard deviation of 1 (Box and Muller).
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.part(), self.part());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{deviation, mean};

    #[test]
    fn numbers_are_even_and_normal() {
        let mut random = Random::new(3);
        let parts: Vec<f64> = (0..10_000).map(|_| random.part()).collect();
        assert!(parts.iter().all(|part| (0.0..1.0).contains(part)));
        assert!((mean(&parts) - 0.5).abs() < 0.01);
        let normal: Vec<f64> = (0..10_000).map(|_| random.normal()).collect();
        assert!(mean(&normal).abs() < 0.03 && (deviation(&normal) - 1.0).abs() < 0.03);
        assert_eq!(Random::new(9).bits(), Random::new(9).bits());
    }
}
