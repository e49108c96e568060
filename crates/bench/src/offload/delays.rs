//! A program that stands still at random.

use std::time::Duration;

/// Each time when there is something to do, a delay of one length with some probability.
#[derive(Clone, Debug)]
pub struct Delays {
    length: Duration,
    probability: f64,
    random: u64,
}

impl Delays {
    /// The same seed, the same delays.
    pub fn new(length: Duration, probability: f64, seed: u64) -> Self {
        Self { length, probability, random: seed }
    }

    /// The delay of this time, if there is one.
    pub fn draw(&mut self) -> Option<Duration> {
        // SplitMix64: good enough, and the same everywhere.
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut bits = self.random;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let part = ((bits ^ (bits >> 31)) >> 11) as f64 / (1_u64 << 53) as f64;
        (part <= self.probability && !self.length.is_zero()).then_some(self.length)
    }
}
