//! A program that stands still at random.

use std::time::Duration;

use crate::random::Random;

/// Each time when there is something to do, a delay of one length with some probability.
#[derive(Clone, Debug)]
pub struct Delays {
    length: Duration,
    probability: f64,
    random: Random,
}

impl Delays {
    /// The same seed, the same delays.
    pub fn new(length: Duration, probability: f64, seed: u64) -> Self {
        Self { length, probability, random: Random::new(seed) }
    }

    /// The delay of this time, if there is one.
    pub fn draw(&mut self) -> Option<Duration> {
        let part = self.random.part();
        (part <= self.probability && !self.length.is_zero()).then_some(self.length)
    }
}
